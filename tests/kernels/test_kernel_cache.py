"""Compiled code is used again, and never after a change of what it was compiled from."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

from penstock.kernels import kernel_cache

CALLEE = "from numba import njit\n@njit(cache=True)\ndef more(x):\n    return x + {}\n"
CALLER = "from numba import njit\nfrom callee import more\n@njit(cache=True)\ndef twice(x):\n    return more(x) * 2\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of kernels, cared for as Penstock's own are."""
    (tmp_path / "caller.py").write_text(CALLER)
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "kept"))
    kernel_cache.stamp_of.cache_clear()
    locator = type("Locator", (kernel_cache.KernelLocator,), {"folder": tmp_path})
    monkeypatch.setattr(kernel_cache.caching.CacheImpl, "_locator_classes", list(_classes()))
    kernel_cache.install(locator)
    return tmp_path


def _classes() -> list:
    return kernel_cache.caching.CacheImpl._locator_classes


def fresh(folder: Path) -> ModuleType:
    """The caller as another process would import it."""
    kernel_cache.stamp_of.cache_clear()
    for name in ("callee", "caller"):
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules.pop("caller")


def test_a_change_in_another_file_counts(folder: Path) -> None:
    for added, again in ((1, False), (1, True), (20, False)):  # another length: bytecode goes by that and seconds
        (folder / "callee.py").write_text(CALLEE.format(added))
        twice = fresh(folder).twice
        assert twice(5) == (5 + added) * 2
        assert bool(sum(twice.stats.cache_hits.values())) is again
    sys.modules.pop("callee")


def test_every_kernel_has_the_stamp_of_all() -> None:
    folder, seen = Path(kernel_cache.__file__).parent, 0
    for path in folder.glob("cpu_*.py"):
        module = importlib.import_module(f"penstock.kernels.{path.stem}")
        kernels = [kernel for kernel in vars(module).values() if isinstance(kernel, Dispatcher)]
        for kernel in kernels:
            assert kernel._cache._impl.locator.get_source_stamp() == kernel_cache.stamp_of(folder), kernel
        seen += len(kernels)
    assert seen > 200


SHARED = """
from penstock.kernels.kernel_cache import njit
@njit(cache=True)
def squares(rows):
    total = 0
    for i in range(rows.shape[0]):
        total += rows[i] * rows[i]
    return total
"""
BESIDE = """
import sys
import numpy as np
from shared_kernel import squares
print("asking", flush=True)
print(squares(np.arange(4)), sum(squares.stats.cache_misses.values()), flush=True)
"""


def test_a_kernel_is_compiled_by_one_process_and_loaded_by_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared_kernel.py").write_text(SHARED)
    monkeypatch.syspath_prepend(tmp_path)
    shared = importlib.import_module("shared_kernel")
    command = [sys.executable, "-c", BESIDE]
    with (
        kernel_cache._turn(shared.squares._cache),  # the other process asks while this one has its turn
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as beside,
    ):
        assert beside.stdout.readline() == "asking\n"
        assert shared.squares(np.arange(4)) == 14
        # Its own turn within the turn has ended, and with it, as locks of processes go, the turn around it.
        assert beside.stdout.readline() == "14 0\n"
    assert sum(shared.squares.stats.cache_misses.values()) == 1
    sys.modules.pop("shared_kernel")


class TestLinking:
    """What only kernels call is linked into them, and compiled by itself when Python calls it after all."""

    @pytest.fixture
    def kernels(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], ModuleType]]:
        """The kernels as another process would import them."""
        (tmp_path / "linked_kernels.py").write_text(LINKED)
        monkeypatch.syspath_prepend(tmp_path)

        def imported() -> ModuleType:
            sys.modules.pop("linked_kernels", None)
            return importlib.import_module("linked_kernels")

        yield imported
        sys.modules.pop("linked_kernels", None)

    def test_what_is_called_by_kernels_only_has_no_code_of_its_own(self, kernels: Callable[[], ModuleType]) -> None:
        for loaded in (False, True):
            module = kernels()
            assert module.total(np.arange(4)) == 12
            with pytest.raises(ValueError, match="negative"):
                module.total(np.array([1, -5]))
            assert inner(module.total) == [False]
            assert inner(module.checked) == ([] if loaded else [True])  # what is loaded needs nothing else

    def test_python_can_call_it_before_and_after(self, kernels: Callable[[], ModuleType]) -> None:
        module = kernels()
        assert module.total(np.arange(4)) == 12
        assert module.checked(4) == 6
        assert inner(module.checked) == [False]
        assert module.total(np.arange(4.0)) == 12.0
        assert inner(module.checked) == [False, True]
        again = kernels()
        assert again.checked(4) == 6
        assert again.checked.stats.cache_misses == {}

    def test_what_was_kept_for_callers_is_compiled_for_python(self, kernels: Callable[[], ModuleType]) -> None:
        kernels().total(np.arange(4))
        module = kernels()
        assert module.checked(4) == 6
        assert module.total(np.arange(4)) == 12
        with pytest.raises(ValueError, match="negative"):
            module.checked(-1)

    def test_another_caller_links_what_was_kept(self, kernels: Callable[[], ModuleType]) -> None:
        kernels().total(np.arange(4))
        module = kernels()
        assert module.last(np.arange(4)) == 5
        assert module.checked.stats.cache_misses == {}
        with pytest.raises(ValueError, match="negative"):
            module.last(np.array([-3]))

    def test_one_that_calls_itself(self, kernels: Callable[[], ModuleType]) -> None:
        assert kernels().depth_of(5) == 10

    def test_code_of_others_is_left_alone(self, kernels: Callable[[], ModuleType]) -> None:
        kernels().total(np.arange(4))
        own = numba.njit(lambda x: x * 2)
        outer = numba.njit(lambda rows: own(rows[1]))
        assert outer(np.arange(4)) == 2
        assert own(3) == 6
        assert inner(own) == [False]

    def test_garbage_is_looked_for_again(self, kernels: Callable[[], ModuleType]) -> None:
        with pytest.raises(numba.core.errors.TypingError):
            kernels().total("no array")
        assert gc.isenabled()


LINKED = """
import numba
from penstock.kernels.kernel_cache import njit

@njit(cache=True)
def checked(x):
    if x < 0:
        raise ValueError("negative")
    return x + 2

@njit(cache=True)
def total(rows):
    result = rows[0]
    for i in range(rows.shape[0]):
        result += checked(rows[i])
    return result - 2

@njit(cache=True)
def last(rows):
    return checked(rows[-1])

@njit(cache=True)
def countdown(x):
    return 0 if x <= 0 else 2 + countdown(x - 1)

@njit(cache=True)
def depth_of(x):
    return countdown(x)
"""


def inner(kernel: Any) -> list[bool]:
    return [getattr(result.library, "is_inner", False) for result in kernel.overloads.values()]
