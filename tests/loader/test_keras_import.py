"""What holds for a whole process: TensorFlow beside Triton, the other backends of Keras. Each in one of its own."""

import importlib.util
import os
import subprocess
import sys

import pytest

NEEDED = ("keras", "tensorflow", "torch", "triton")
ORDER = """
import sys

class Asked:
    def find_spec(self, name, path=None, target=None):
        if name in ("keras", "tensorflow"):
            print("triton" in sys.modules)
            sys.exit()

sys.meta_path.insert(0, Asked())
import penstock.loader.keras
"""


@pytest.mark.skipif(any(importlib.util.find_spec(name) is None for name in NEEDED), reason="needs all four")
def test_triton_comes_before_tensorflow():
    done = subprocess.run([sys.executable, "-c", ORDER], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.skipif(any(importlib.util.find_spec(name) is None for name in NEEDED), reason="needs all four")
def test_torch_compiles_beside_the_keras_loader():
    script = "import penstock.loader.keras, sys, torch._dynamo\nassert {'tensorflow', 'triton'} <= set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


OTHER_BACKEND = """
import sys
from penstock.loader import Pad
from penstock.loader.keras import Loader, keras
from penstock import ColumnSchema, Dataset, Schema
from penstock.nn.keras import wide_and_deep

rows = {"user": [1, 2, 3, 4] * 50, "genres": [[1], [], [2, 3], [1]] * 50, "click": [0, 1, 0, 1] * 50}
kinds = {"role": "categorical", "cardinality": 5}
schema = Schema([ColumnSchema("user", "int64", **kinds), ColumnSchema("genres", "int64", is_list=True, **kinds),
                 ColumnSchema("click", "int64", role="label")])
loader = Loader(Dataset(rows, schema=schema), 64, shuffle=True, lists=Pad(2))
model = wide_and_deep(schema, dimension=2, hidden=[4], lists="padded")
model.compile("adam", "binary_crossentropy")
losses = model.fit(loader, epochs=2, verbose=0).history["loss"]
assert losses[1] < losses[0]
assert (loader.epoch, loader.num_rows_processed) == (2, 400)
assert "tensorflow" not in sys.modules
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_other_backends_of_keras(backend):
    if any(importlib.util.find_spec(name) is None for name in ("keras", "torch", backend)):
        pytest.skip(f"Keras on {backend} is not installed")
    environment = {**os.environ, "KERAS_BACKEND": backend}
    command = [sys.executable, "-c", OTHER_BACKEND]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
