import runpy
import sys
from collections import namedtuple

import pytest

from penstock.core.errors import ParameterError, PenstockError
from penstock.loader import tensorflow_memory as memory

Gpu = namedtuple("Gpu", "name")


class Config:
    """TensorFlow's `tf.config` with one GPU, before or after it has started."""

    LogicalDeviceConfiguration = staticmethod(lambda memory_limit: memory_limit)

    def __init__(self, started):
        self.started, self.limits = started, {}

    def list_physical_devices(self, kind):
        assert kind == "GPU"
        return [Gpu("/physical_device:GPU:0")]

    def set_logical_device_configuration(self, device, configurations):
        if self.started:
            raise RuntimeError("Virtual devices cannot be modified after being initialized")
        self.limits[device.name] = configurations[0]


@pytest.fixture
def tensorflow(monkeypatch):
    def install(started):
        module = namedtuple("Module", "config")(Config(started))
        monkeypatch.setattr(memory, "require", lambda *_: module)
        monkeypatch.setattr(memory, "free_memory", lambda device: 16 << 30)
        return module.config

    return install


@pytest.mark.parametrize(("text", "limit"), [("0.5", 8192), ("8192", 8192), ("1", 1), ("0.00001", 1)])
def test_a_fraction_of_free_memory_or_megabytes(tensorflow, monkeypatch, text, limit):
    config = tensorflow(started=False)
    monkeypatch.setenv("TF_MEMORY_ALLOCATION", text)
    assert memory.limit_memory() == config.limits == {"/physical_device:GPU:0": limit}


def test_without_the_variable_nothing_is_limited(monkeypatch):
    monkeypatch.delenv("TF_MEMORY_ALLOCATION", raising=False)
    monkeypatch.setattr(memory, "require", lambda *_: pytest.fail("TensorFlow is not needed"))
    assert memory.limit_memory() == {}


def test_after_the_start_it_says_so(tensorflow, monkeypatch):
    tensorflow(started=True)
    with pytest.raises(PenstockError, match=r"TensorFlow has started already .* has no effect"):
        memory.limit_memory(0.5)
    monkeypatch.setenv("TF_MEMORY_ALLOCATION", "4096")
    with pytest.warns(RuntimeWarning, match="TF_MEMORY_ALLOCATION=4096 has no effect"):
        memory.limit_memory_from_environment()


@pytest.mark.parametrize("text", ["half", "0", "-1", "nan", "inf", ""])
def test_bad_values_are_named(text):
    with pytest.raises(ParameterError, match="TF_MEMORY_ALLOCATION must be a fraction of the free memory"):
        memory.parse_allocation(text)


def test_visible_devices_are_the_driver_s(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-abc")
    assert [memory._visible(i) for i in range(2)] == [3, "GPU-abc"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert memory._visible(2) == 2


def test_importing_the_loader_follows_the_variable(monkeypatch):
    """On real TensorFlow: a bad value stops the import, of which this is one more beside any there was."""
    pytest.importorskip("tensorflow")
    name = "penstock.compat.nvtabular.loader.tensorflow"
    monkeypatch.delitem(sys.modules, name, raising=False)  # runpy warns of a module that was imported before
    monkeypatch.setenv("TF_MEMORY_ALLOCATION", "most")
    with pytest.raises(PenstockError, match="TF_MEMORY_ALLOCATION must be a fraction of the free memory"):
        runpy.run_module(name)
