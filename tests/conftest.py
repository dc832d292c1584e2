"""Settings that must be in place before numba, TensorFlow or Ray are imported: the same as the Makefile's."""

from __future__ import annotations

import contextlib
import os

import hypothesis
import pytest

for _name, _value in {
    "OMP_WAIT_POLICY": "PASSIVE",  # spinning OpenMP threads starve the others on a small machine
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "KERAS_BACKEND": "tensorflow",
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16",  # some virtual machines name AMX and do not give it
}.items():
    os.environ.setdefault(_name, _value)

# Beside other test processes a core is all there is for each: more threads would only take turns.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Both carry an LLVM of their own; TensorFlow tolerates the other's options, Triton aborts the process. So Triton first.
with contextlib.suppress(ModuleNotFoundError):
    import triton  # noqa: F401


def pytest_configure(config: pytest.Config) -> None:
    """Drawn examples are the same in every run, so that a change is what breaks a test; slow tests draw others."""
    if "not slow" in (config.getoption("markexpr") or ""):
        hypothesis.settings.register_profile("same", derandomize=True)
        hypothesis.settings.load_profile("same")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test has the same name in every process, or processes could not share the tests: no addresses of objects."""
    if changing := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"give these parametrized tests ids of their own: {changing[:3]}")
