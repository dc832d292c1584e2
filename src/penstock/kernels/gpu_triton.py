"""Triton, or a word on where to get it: it comes with torch's CUDA builds, not with the extra that brings torch."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from types import ModuleType

from penstock.core.errors import MissingExtraError, PenstockError
from penstock.core.extras import require


def require_triton() -> ModuleType:
    """Import Triton, or say what to do.

    >>> require_triton().__name__  # doctest: +SKIP
    'triton'
    """
    try:
        return require("triton", "torch")
    except MissingExtraError as error:
        raise PenstockError(
            "kernels for a GPU are written in Triton, which is not installed; torch's CUDA builds for Linux "
            "bring it, else run: pip install triton. On the CPU they need none"
        ) from error


@cache
def has_triton() -> bool:
    """Whether it is there, without importing it; models ask at every step."""
    return find_spec("triton") is not None


def is_interpreted() -> bool:
    """Whether Triton kernels run on the CPU, for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"
