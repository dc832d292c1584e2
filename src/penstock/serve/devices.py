"""Devices by their names."""

from __future__ import annotations

import torch

from penstock.core.errors import ParameterError


def default_device() -> torch.device:
    """The GPU where there is one, else the CPU.

    >>> default_device().type in ("cpu", "cuda")
    True
    """
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def named_device(name: str) -> torch.device:
    """The torch device of that name, if it is there.

    Args:
        name: such as `cpu`, `cuda` or `cuda:1`.

    Returns:
        The device.

    Raises:
        ParameterError: torch does not know the name, or has no such device here.

    >>> named_device("cpu")
    device(type='cpu')
    >>> named_device("gpu")
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: device is 'gpu', which torch does not know; use cpu, cuda or cuda:1
    """
    try:
        found = torch.device(name)
    except RuntimeError:
        raise ParameterError(f"device is {name!r}, which torch does not know; use cpu, cuda or cuda:1") from None
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise ParameterError(f"device is {name!r}, and torch sees {torch.cuda.device_count()} CUDA devices here")
    return found
