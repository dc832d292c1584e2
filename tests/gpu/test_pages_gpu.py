"""Parquet pages decoded on the GPU."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CASES = Path(__file__).parents[1] / "loader" / "page_cases.py"


def test_pages_decode_as_on_the_host(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(CASES))["main"]("cuda")
    assert "a kernel that fails is not needed" in capsys.readouterr().out
