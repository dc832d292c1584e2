"""Kernels by a line of text each: compiled as such a line says, and written as one (see `kernel_lines`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from numba import types
from numba.core.dispatcher import Dispatcher
from numba.core.sigutils import normalize_signature

from penstock.kernels.kernel_cache import is_busy

_ROOM = "penstock.kernels."


def is_taken(line: str) -> bool:
    """Whether another process compiles this kernel just now."""
    return is_busy(kernel_of(line))


def compile_line(line: str) -> None:
    """Compile a kernel and keep it; load it where that has been done.

    >>> compile_line("cpu_bit_packing.greatest(uint8[::1])")
    """
    kernel_of(line).compile(types_of(line))


def types_of(line: str) -> tuple[Any, ...]:
    """The types of a line's arguments.

    >>> types_of("cpu_bit_packing.greatest(uint8[::1])")
    (Array(uint8, 1, 'C', False, aligned=True),)
    """
    return normalize_signature(f"void{line[line.index('(') :]}")[0]


def kernel_of(line: str) -> Any:
    """The kernel that a line names."""
    module, name = line.partition("(")[0].split(".")
    return getattr(import_module(_ROOM + module), name)


def compiled_here() -> set[str]:
    """A line for each kernel that this process has called from Python, compiled or loaded."""
    return set(_compiled_here())


def _compiled_here() -> Iterator[str]:
    for module in [name for name in sys.modules if name.startswith(f"{_ROOM}cpu_")]:
        kernels: list[Any] = [found for found in vars(sys.modules[module]).values() if isinstance(found, Dispatcher)]
        for kernel in kernels:
            for arguments, compiled in kernel.overloads.items():
                if not getattr(compiled.library, "is_inner", False):  # called by kernels, which have it in them
                    home = kernel.py_func.__module__.removeprefix(_ROOM)
                    yield f"{home}.{kernel.py_func.__name__}({', '.join(map(words_of, arguments))})"


def words_of(kind: Any) -> str:
    """A type as numba reads it."""
    if not isinstance(kind, types.Array):
        return "boolean" if kind == types.boolean else repr(kind)
    if not (kind.mutable and kind.aligned) or kind.layout not in "CF":
        return repr(kind)
    rest = [":"] * (kind.ndim - 1)
    return f"{words_of(kind.dtype)}[{', '.join(['::1', *rest] if kind.layout == 'F' else [*rest, '::1'])}]"
