"""Triton kernels launched without Triton's own search for their compiled form, which takes longer than a small kernel.

Triton compiles a kernel anew for other dtypes, for pointers and numbers that are not multiples of 16, for numbers that
are 1 or need 64 bits, and for other constants; at each launch it finds out which of its forms fits, through layers of
Python. Here the form is kept under the same distinctions and launched by itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_INT32 = 2**31 - 1


def _form(argument: Any) -> Any:
    """What of an argument Triton compiles for: equal here must mean equal there, while more may differ."""
    if isinstance(argument, Tensor):
        return argument.dtype if not argument.data_ptr() & 15 else (argument.dtype,)
    if type(argument) is int:
        return 1 if argument == 1 else (argument & 15 == 0) + 2 * (argument > _INT32) + 2
    return type(argument)


class Launch:
    """A kernel whose constants come last, as `launch(grid, arguments, constants)`.

    Args:
        kernel: what `triton.jit` made.
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
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
        form = (device, num_warps, *constants.values(), *map(_form, arguments))
        found = self._forms.get(form)
        if found is None:
            compiled = self.kernel[grid](*arguments, **constants, num_warps=num_warps)
            if compiled is not None:  # the interpreter has no compiled form
                rest = tuple(constants[name] for name in self.kernel.arg_names[len(arguments) :])
                self._forms[form] = compiled, rest
            return
        compiled, rest = found
        stream = torch.cuda.current_stream(device).cuda_stream
        compiled[(*grid, 1, 1)[:3]](*arguments, *rest, stream=stream)
