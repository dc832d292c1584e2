"""What the tests of jobs share with those of the report and of serving."""

from __future__ import annotations

import runpy
from pathlib import Path

_TESTS = Path(__file__).parents[1]
_RUNS = runpy.run_path(str(_TESTS / "report" / "conftest.py"))
recorded, hostile = _RUNS["recorded"], _RUNS["hostile"]
train = runpy.run_path(str(_TESTS / "serve" / "conftest.py"))["train"]
