"""Triton kernels launched without Triton's own search for their compiled form, which takes longer than a small kernel.

Triton compiles a kernel anew for other dtypes, for pointers and numbers that are not multiples of 16, for numbers that
are 1 or need 64 bits, and for other constants; at each launch it finds out which of its forms fits, through layers of
Python. Here the form is kept under the same distinctions and launched by itself.
"""

from __future__ import annotations

from typing import Any

import torch

_INT32 = range(-(2**31), 2**31)


def parts(count: int, size: int) -> int:
    """How many parts of a size hold a number; `triton.cdiv` takes ten times as long.

    >>> parts(9, 4)
    3
    """
    return -(-count // size)


class Launch:
    """A kernel whose constants come last, as `launch(grid, arguments, constants)`.

    Args:
        kernel: what `triton.jit` made.
        options: Triton's, for its compiler.
    """

    def __init__(self, kernel: Any, **options: Any) -> None:
        self.kernel, self.options = kernel, options
        self._forms: dict[Any, tuple[Any, tuple[Any, ...]]] = {}

    def __call__(
        self, grid: tuple[int, ...], arguments: tuple[Any, ...], constants: dict[str, Any], num_warps: int = 4
    ) -> None:
        """Launch it on the current device and stream.

        Args:
            grid: programs in up to three directions.
            arguments: tensors, integers and floats, in the kernel's order.
            constants: the kernel's `tl.constexpr`, which follow them.
            num_warps: of a program.
        """
        device = arguments[0].device
        form, plain = _form_and_plain(arguments)
        key = (device, num_warps, *constants.values(), *form)
        found = self._forms.get(key)
        if found is None:
            compiled = self.kernel[grid](*arguments, **constants, num_warps=num_warps, **self.options)
            if compiled is not None:  # the interpreter has no compiled form
                rest = tuple(constants[name] for name in self.kernel.arg_names[len(arguments) :])
                self._forms[key] = compiled, rest
            return
        compiled, rest = found
        compiled[(*grid, 1, 1)[:3]](*plain, *rest, stream=torch._C._cuda_getCurrentRawStream(device.index))


def _form_and_plain(arguments: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """What of the arguments Triton compiles for, and the arguments with addresses in the place of tensors.

    Forms that are equal must be equal for Triton; it may see fewer of them.
    """
    form: list[Any] = []
    plain = list(arguments)
    for i, argument in enumerate(arguments):
        kind = type(argument)
        if kind is int:
            form.append(1 if argument == 1 else (argument & 15 == 0) + 2 * (argument not in _INT32) + 2)
        elif kind is float:
            form.append(kind)
        else:
            plain[i] = address = argument.data_ptr()
            form.append(argument.dtype)
            if address & 15:
                form.append(i)
    return form, plain
