"""How much GPU memory TensorFlow takes."""

from __future__ import annotations

from typing import Any

from penstock.compat.missing import module_getattr
from penstock.loader.tensorflow_memory import limit_memory

__all__ = ["configure_tensorflow"]


def configure_tensorflow(memory_allocation: Any = None, device: Any = None) -> Any:
    """Keep TensorFlow within `memory_allocation` (or `TF_MEMORY_ALLOCATION`); gives its `from_dlpack`.

    >>> callable(configure_tensorflow())
    True
    """
    limit_memory(memory_allocation)
    from tensorflow.experimental.dlpack import from_dlpack

    return from_dlpack


__getattr__ = module_getattr(__name__)
