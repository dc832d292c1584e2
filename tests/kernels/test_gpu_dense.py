"""What lies between dense layers, and Adam, on Triton's interpreter against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

SCRIPT = Path(__file__).with_name("dense_cases.py")


def test_triton_agrees(on_triton: Callable[..., str]) -> None:
    assert on_triton(SCRIPT, "cpu").count("agrees") == 7
