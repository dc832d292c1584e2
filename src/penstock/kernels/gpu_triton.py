"""Triton, or a word on where to get it: it comes with torch's CUDA builds, not with the extra that brings torch."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from penstock.core.errors import MissingExtraError, PenstockError
from penstock.core.extras import require

_OF_TRAINING = (  # what a training on a GPU launches, but for bounded and hashed tables
    "gpu_adam", "gpu_dense", "gpu_embedding", "gpu_gather", "gpu_pairs", "gpu_parquet",
)  # fmt: skip


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


def load_kernels() -> None:
    """Import the kernels of a training, which Triton reads line by line; nothing is compiled.

    They are imported where they are first launched. Beside threads that want the interpreter as well, as those that
    make features do, that takes several times as long as before them.
    """
    if has_triton():
        for name in _OF_TRAINING:
            import_module(f"penstock.kernels.{name}")
