"""Settings that must be in place before numba, TensorFlow or Ray are imported: the same as the Makefile's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

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


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A Ray of this machine, for the tests of one file."""
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, namespace="penstock")
    yield ray
    ray.shutdown()


def pytest_configure(config: pytest.Config) -> None:
    """Drawn examples are the same in every run, so that a change is what breaks a test; slow tests draw others."""
    if "not slow" in (config.getoption("markexpr") or ""):
        hypothesis.settings.register_profile("same", derandomize=True)
        hypothesis.settings.load_profile("same")


# Files that take longest, longest first (`pytest --durations=0`): started last they would keep one process waiting.
_LONG = [
    "tests/test_docs.py",
    "tests/contracts/test_store_contract.py",
    "tests/contracts/test_operator_contract.py",
    "tests/contracts/test_embeddings_contract.py",
    "tests/compat/test_persia_launcher.py",
    "tests/compat/test_run.py",
    "tests/jobs/test_training.py",
    "tests/cli/test_model.py",
    "tests/contracts/test_engine_contract.py",
    "tests/compat/test_notebooks.py",
    "tests/embedding/test_cached.py",
    "tests/differential/test_operators.py",
    "tests/kernels/test_fused_embedding.py",
    "tests/cli/test_data.py",
    "tests/nn/test_keras_models.py",
    "tests/train/test_distributed.py",
    "tests/faults/",
    "tests/browser/",
    "tests/serve/test_http_command.py",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first. A test has the same name in every process: no addresses of objects."""

    def place(item: pytest.Item) -> int:
        return next((rank for rank, start in enumerate(_LONG) if item.nodeid.startswith(start)), len(_LONG))

    items.sort(key=place)
    if changing := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"give these parametrized tests ids of their own: {changing[:3]}")
