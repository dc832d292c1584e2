"""TensorFlow and Triton in one process: whoever comes second may abort it, so these run in processes of their own."""

import importlib.util
import subprocess
import sys

import pytest

NEEDED = ("keras", "tensorflow", "torch", "triton")


@pytest.mark.skipif(any(importlib.util.find_spec(name) is None for name in NEEDED), reason="needs all four")
def test_torch_compiles_beside_the_keras_loader():
    script = "import penstock.loader.keras, sys, torch._dynamo\nassert {'tensorflow', 'triton'} <= set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
