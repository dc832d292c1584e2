"""Code that was written for a GPU on a machine without one: what asks torch for CUDA gets the CPU.

Mapped are `.cuda()`, `.to("cuda")`, `device="cuda"` of the functions that make tensors, `torch.load`, mixed precision
(switched off: full precision is right on any machine), streams, events, pinned memory and the NCCL backend.
`torch.cuda.is_available()` goes on saying False. Not mapped: `torch.Generator(device="cuda")`, `with torch.device(…)`,
TorchScript, packages of their own such as CuPy and cuDF.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from penstock.compat.modules import AfterImport

SAID = "no CUDA on this machine: what asks for it runs on the CPU, in full precision (--cpu)"
NOT_NEEDED = "--cpu: this machine has CUDA, so nothing is mapped to the CPU"
HINT = "hint: this machine has no CUDA; penstock run --cpu lets the code run on the CPU"
# What torch says when it is asked for CUDA and has none.
_TORCH_SAYS = ("not compiled with CUDA", "Found no NVIDIA driver", "No CUDA GPUs are available", "no NVIDIA GPU")

_MAKERS = (
    "arange", "as_tensor", "asarray", "empty", "empty_like", "empty_strided", "eye", "full", "full_like", "linspace",
    "logspace", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm",
    "sparse_coo_tensor", "sparse_csr_tensor", "tensor", "zeros", "zeros_like",
)  # fmt: skip
_METHODS = ("new_empty", "new_full", "new_ones", "new_tensor", "new_zeros")
_TYPES = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")

_undo: list[tuple[Any, str, Any]] = []
_waiting: list[AfterImport] = []


def map_to_cpu() -> None:
    """From torch's import on, let what asks for CUDA run on the CPU; nothing happens where there is CUDA."""
    if not _waiting:
        _waiting.append(AfterImport("torch", _patch))
        _waiting[0].start()


def mapped() -> bool:
    """Whether `map_to_cpu` is in force.

    >>> mapped()
    False
    """
    return bool(_waiting)


def unmap() -> None:
    """Undo `map_to_cpu`."""
    while _waiting:
        _waiting.pop().stop()
    while _undo:
        owner, name, before = _undo.pop()
        setattr(owner, name, before)
    _say.cache_clear()


def hint(error: str) -> str | None:
    """A line to add to an error that stems from a machine without CUDA.

    >>> hint("AssertionError: Torch not compiled with CUDA enabled")
    'hint: this machine has no CUDA; penstock run --cpu lets the code run on the CPU'
    >>> hint("KeyError: 'x'") is None
    True
    """
    return HINT if any(text in error for text in _TORCH_SAYS) else None


@functools.cache
def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    before = getattr(owner, name)
    _undo.append((owner, name, before))
    setattr(owner, name, make(before))


def _on_cpu(device: Any) -> Any:
    """The device to use instead: `cuda`, `cuda:1` and a bare number are the CPU, everything else stays itself."""
    import torch

    is_cuda = (
        (isinstance(device, str) and device.startswith("cuda"))
        or (isinstance(device, torch.device) and device.type == "cuda")
        or (isinstance(device, int) and not isinstance(device, bool))
    )
    if not is_cuda:
        return device
    _say(SAID)
    return torch.device("cpu")


def _patch(torch: ModuleType) -> None:
    if torch.cuda.is_available():
        _say(NOT_NEEDED)
        return
    _patch_tensors(torch)
    _patch_mixed_precision(torch)
    _patch_cuda_functions(torch)
    _patch_distributed(torch)


def _patch_tensors(torch: Any) -> None:
    def by_keyword(function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if "device" in kwargs:
                kwargs["device"] = _on_cpu(kwargs["device"])
            return function(*args, **kwargs)

        return call

    def to(method: Callable) -> Callable:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if args:
                args = (_on_cpu(args[0]), *args[1:])
            return by_keyword(method)(self, *args, **kwargs)

        return call

    def itself(method: Callable) -> Callable:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            _say(SAID)
            return self

        return call

    def load(function: Callable) -> Callable:
        @functools.wraps(function)
        def call(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
            where = "cpu" if map_location is None else map_location
            return function(f, where if callable(where) else _on_cpu(where), *args, **kwargs)

        return call

    def default(function: Callable) -> Callable:
        @functools.wraps(function)
        def call(what: Any) -> Any:
            return function(what.replace("torch.cuda.", "torch.") if "torch.cuda." in str(what) else _on_cpu(what))

        return call

    for name in _MAKERS:
        _replace(torch, name, by_keyword)
    for name in ("set_default_device", "set_default_tensor_type"):
        _replace(torch, name, default)
    for name in _METHODS:
        _replace(torch.Tensor, name, by_keyword)
    for owner in (torch.Tensor, torch.nn.Module):
        _replace(owner, "to", to)
        _replace(owner, "cuda", itself)
    _replace(torch.Tensor, "pin_memory", itself)
    _replace(torch, "load", load)


def _patch_mixed_precision(torch: Any) -> None:
    def autocast(init: Callable) -> Callable:
        @functools.wraps(init)
        def call(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, *args: Any, **kw: Any) -> None:
            if device_type == "cuda":
                _say(SAID)
                device_type, dtype, enabled = "cpu", None, False
            init(self, device_type, dtype, enabled, *args, **kw)

        return call

    def scaler(init: Callable) -> Callable:
        @functools.wraps(init)
        def call(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> Any:
            if device == "cuda":
                _say(SAID)
                args, kwargs = args[:4], {**kwargs, "enabled": False}
            return init(self, device, *args, **kwargs)

        return call

    _replace(torch.amp.autocast_mode.autocast, "__init__", autocast)
    _replace(torch.amp.grad_scaler.GradScaler, "__init__", scaler)


class _Event:
    """A CUDA event's clock, where every operation is finished when it returns."""

    def __init__(self) -> None:
        self._at = 0.0

    def record(self, stream: Any = None) -> None:
        self._at = time.perf_counter()

    def synchronize(self) -> None:
        """Nothing is under way."""

    wait = record

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: _Event) -> float:
        return (other._at - self._at) * 1e3


class _Stream(contextlib.nullcontext):
    """A stream on which everything is done at once."""

    def __init__(self) -> None:
        super().__init__(self)

    def synchronize(self) -> None:
        """Nothing is under way."""

    def wait_stream(self, other: Any) -> None:
        """The other is done too."""

    wait_event = record_event = wait_stream


def _patch_cuda_functions(torch: Any) -> None:
    """Each gets a function of its own: torch's compiler knows functions by identity."""

    def giving(value: Callable[[], Any]) -> Callable:
        def make(_: Any) -> Callable:
            def call(*args: Any, **kwargs: Any) -> Any:
                _say(SAID)
                return value()

            return call

        return make

    for name in ("set_device", "synchronize", "reset_peak_memory_stats"):
        _replace(torch.cuda, name, giving(lambda: None))
    for name in ("current_stream", "default_stream", "device", "stream", "Stream"):
        _replace(torch.cuda, name, giving(_Stream))
    _replace(torch.cuda, "Event", giving(_Event))
    _replace(torch.cuda, "current_device", giving(lambda: 0))
    _replace(torch.cuda, "get_device_name", giving(lambda: "CPU"))
    for kind in _TYPES:
        _replace(torch.cuda, f"{kind}Tensor", lambda before: getattr(torch, before.__name__))


def _patch_distributed(torch: Any) -> None:
    if not torch.distributed.is_available():
        return

    def group(function: Callable) -> Callable:
        @functools.wraps(function)
        def call(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
            return function("gloo" if backend is None or "nccl" in str(backend) else backend, *args, **kwargs)

        return call

    def parallel(init: Callable) -> Callable:
        @functools.wraps(init)
        def call(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *a: Any, **kw: Any) -> Any:
            return init(self, module, None, None, *a, **kw)

        return call

    _replace(torch.distributed, "init_process_group", group)
    _replace(torch.nn.parallel.DistributedDataParallel, "__init__", parallel)
