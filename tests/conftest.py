"""Settings that must be in place before numba, TensorFlow or Ray are imported: the same as the Makefile's."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pytest
from _pytest.doctest import DoctestModule
from _pytest.unraisableexception import gc_collect_iterations_key

ROOT = Path(__file__).parents[1]

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

# Collecting makes a million objects that live as long as the process does: looking through them for garbage is in vain.
gc.disable()

# Both carry an LLVM of their own; TensorFlow tolerates the other's options, Triton aborts the process. So Triton first.
with contextlib.suppress(ModuleNotFoundError):
    import triton  # noqa: F401


@pytest.fixture(scope="session")
def public_names() -> ModuleType:
    """`scripts/public_names.py`: what others see."""
    spec = importlib.util.spec_from_file_location("public_names", ROOT / "scripts" / "public_names.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def ray() -> Iterator[Any]:
    """A Ray of this machine, one for all files: it is seven processes. Tests close the stores that they open."""
    ray = pytest.importorskip("ray")
    at_need = {"enable_worker_prestart": False, "prestart_worker_first_driver": False}  # most workers are actors here
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, namespace="penstock", _system_config=at_need)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="session")
def triton_process() -> Iterator[Any]:
    """One process for all programs on Triton's interpreter."""
    pytest.importorskip("triton")
    program = Path(__file__).parent / "kernels" / "triton_process.py"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(program)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def on_triton(triton_process: Any) -> Callable[..., str]:
    """Runs a file as a program whose kernels are those of a GPU, on Triton's interpreter; what it prints."""

    def run(file: str | Path, *arguments: str) -> str:
        triton_process.stdin.write(json.dumps([str(file), *arguments]) + "\n")
        triton_process.stdin.flush()
        answer = triton_process.stdout.readline()
        assert answer, f"the process of {file} has ended"
        found = json.loads(answer)
        assert not found["error"], found["error"][-3000:]
        return str(found["printed"])

    return run


# Loaded by the process that runs what needs them and not by every process that collects tests: a fixture imports them.
_HEAVY = ("fastai", "jax", "keras", "lightning", "sklearn", "tensorflow")


class _Examples:
    """Which modules are looked through for examples: those that have some and need none of the heavy frameworks.

    The examples of the others are run by tests/test_framework_examples.py.
    """

    source = Path(__file__).parents[1] / "src"

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Iterator[None]:
        """Tests without examples are not looked through for some."""
        found = yield
        if file_path.suffix == ".py" and ">>> " not in file_path.read_text():
            found = [one for one in found if not isinstance(one, DoctestModule)]
        return found

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        if collection_path.suffix != ".py" or self.source not in collection_path.parents:
            return None
        place = collection_path.relative_to(self.source).as_posix()
        return place in FRAMEWORK_MODULES or ">>> " not in collection_path.read_text() or None


FRAMEWORK_MODULES = (
    "penstock/compat/merlin/dataloader/jax.py",
    "penstock/compat/merlin/dataloader/tensorflow.py",
    "penstock/compat/nvtabular/_keras.py",
    "penstock/compat/nvtabular/loader/tensorflow.py",
    "penstock/loader/jax.py",
    "penstock/loader/keras.py",
    "penstock/loader/keras_import.py",
    "penstock/loader/lightning.py",
    "penstock/nn/keras/columns.py",
    "penstock/nn/keras/layers.py",
    "penstock/nn/keras/models.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """Drawn examples are the same in every run, so that a change is what breaks a test; slow tests draw others.

    How long a busy machine takes for one is no matter.
    """
    patient = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
    same = {"derandomize": True, "max_examples": 50} if "not slow" in (config.getoption("markexpr") or "") else {}
    hypothesis.settings.register_profile("penstock", **patient, **same)
    hypothesis.settings.load_profile("penstock")
    config.stash[gc_collect_iterations_key] = 1  # at the end; five times, as pytest would, takes each process seconds
    config.pluginmanager.register(_Examples())  # hooks of this file alone would see this folder only
    if same and (place := _folder_in_memory()) is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", place)
    made = tempfile.mkdtemp(prefix="penstock-examples-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
    config.add_cleanup(lambda: shutil.rmtree(made, ignore_errors=True))
    tempfile.tempdir = made  # what examples make, they leave


def _folder_in_memory() -> str | None:
    """Where `tmp_path` lies: everything that is saved is synced, and the tests would wait for a disk 40,000 times.

    Whether the syncs are there and come in time, tests/faults/stopping.py sees without a disk. Slow tests use one.
    """
    place = "/dev/shm"
    is_roomy = os.access(place, os.W_OK) and shutil.disk_usage(place).free > 4 << 30
    return place if is_roomy else None


def pytest_collection_finish(session: pytest.Session) -> None:
    """From here on garbage is looked for, and not among what was collected."""
    if loaded := [name for name in _HEAVY if name in sys.modules]:
        raise pytest.UsageError(f"collecting loaded {loaded}: import them in a fixture or in the test")
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Some libraries tell of what is left when the process ends."""
    gc.unfreeze()


# Files that take longest, longest first (`pytest --durations=0`): started last they would keep one process waiting.
_LONG = [
    "tests/contracts/test_store_contract.py",
    "tests/contracts/test_operator_contract.py",
    "tests/contracts/test_embeddings_contract.py",
    "tests/compat/test_persia_launcher.py",
    "tests/compat/test_run.py",
    "tests/jobs/test_training.py",
    "tests/jobs/test_cluster.py",
    "tests/cli/test_model.py",
    "tests/contracts/test_engine_contract.py",
    "tests/compat/test_notebooks.py",
    "tests/embedding/test_cached.py",
    "tests/differential/test_operators.py",
    "tests/kernels/test_fused_embedding.py",
    "tests/cli/test_data.py",
    "tests/train/test_distributed.py",
    "tests/faults/",
    "tests/browser/",
    "tests/serve/test_http_command.py",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first. A test has the same name in every process: no addresses of objects."""

    def place(item: pytest.Item) -> int:
        if together(item.nodeid):
            return 0  # together they are the longest
        return next((rank for rank, start in enumerate(_LONG) if item.nodeid.startswith(start)), len(_LONG))

    items.sort(key=place)
    if changing := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"give these parametrized tests ids of their own: {changing[:3]}")


# What takes as long to load or to start as most files take: one process does it for all files that need it.
_TOGETHER = {
    "tensorflow": (
        "src/penstock/train/tensorboard.py",
        "tests/cli/test_model.py::test_train_tells_tensorboard",
        "tests/compat/test_keras_saving.py",
        "tests/compat/test_merlin_files.py",
        "tests/compat/test_merlin_loader.py",
        "tests/compat/test_merlin_schema.py",
        "tests/compat/test_names.py",
        "tests/compat/test_nvtabular_keras.py",
        "tests/compat/test_nvtabular_loader.py",
        "tests/contracts/test_keras_adapter_contract.py",
        "tests/loader/test_keras.py",
        "tests/loader/test_tensorflow_memory.py",
        "tests/nn/test_keras_layers.py",
        "tests/nn/test_keras_models.py",
        "tests/test_docs.py",
        "tests/test_framework_examples.py",
        "tests/train/test_tensorboard.py",
    ),
    "ray": (
        "tests/compat/test_persia_adult_income.py",
        "tests/contracts/test_embeddings_contract.py",
        "tests/contracts/test_engine_contract.py",
        "tests/contracts/test_store_contract.py",
        "tests/embedding/test_ray_feed.py",
        "tests/faults/test_ray_standbys.py",
        "tests/faults/test_ray_store_failures.py",
        "tests/jobs/test_cluster.py",
        "tests/train/test_distributed.py",
    ),
    "triton": (
        "tests/embedding/test_cached.py",
        "tests/embedding/test_cached_hashed.py",
        "tests/embedding/test_dims.py",
        "tests/embedding/test_hashed.py",
        "tests/kernels/test_fused_embedding.py",
        "tests/kernels/test_table_indexes.py",
        "tests/loader/test_device_pages.py",
    ),
}


def together(nodeid: str) -> str | None:
    """The group of files that a test runs with, if its file is of one."""
    return next((group for group, files in _TOGETHER.items() if nodeid.startswith(files)), None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files as processes are free, and those of a group as one."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid) or super()._split_scope(nodeid)

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None
