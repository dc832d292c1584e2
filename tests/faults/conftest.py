"""Fuzzers are scripts that run in processes of their own; what they share lies beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
