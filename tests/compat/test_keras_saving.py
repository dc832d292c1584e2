"""Under activation `model.save` writes a SavedModel where the path has no suffix, and the model can be had back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.compat import activate, deactivate
from penstock.core.errors import OutputExistsError

ROWS = {"price": np.ones((8, 1), "float32"), "shop": np.arange(8, dtype="int32").reshape(8, 1)}


@pytest.fixture(scope="module", autouse=True)
def tensorflow_loaded() -> None:
    """TensorFlow is loaded by the process that runs this file, not by every process that collects it."""
    global keras, tf
    keras, tf = pytest.importorskip("keras"), pytest.importorskip("tensorflow")


@pytest.fixture
def activated() -> Iterator[None]:
    activate()
    yield
    deactivate()


@pytest.fixture(scope="module")
def model() -> Any:
    inputs = {"price": keras.Input((1,), name="price"), "shop": keras.Input((1,), name="shop", dtype="int32")}
    shop = keras.layers.Flatten()(keras.layers.Embedding(10, 4)(inputs["shop"]))
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()([inputs["price"], shop])))
    model.compile("sgd", "mse")
    model.fit(ROWS, np.ones((8, 1)), verbose=0)
    return model


def test_a_folder_is_a_saved_model_and_a_keras_model(activated: None, model: Any, tmp_path: Path) -> None:
    place = tmp_path / "new" / "model.savedmodel"
    model.save(place)
    model.save(str(place), save_format="tf")  # replaced, as it always was
    expected = model.predict(ROWS, verbose=0)
    again = keras.models.load_model(place)
    assert np.array_equal(again.predict(ROWS, verbose=0), expected)
    assert int(again.optimizer.iterations.numpy()) == 1
    loaded = tf.saved_model.load(str(place))
    served = loaded.serve({name: tf.constant(values) for name, values in ROWS.items()})
    np.testing.assert_allclose(served.numpy(), expected, rtol=1e-6)
    assert [p.name for p in place.parent.iterdir()] == ["model.savedmodel"]


def test_single_files_stay_what_they_were(activated: None, model: Any, tmp_path: Path) -> None:
    tf.keras.models.save_model(model, tmp_path / "m.keras")
    assert (tmp_path / "m.keras").is_file()
    with pytest.raises(ValueError, match="not supported"):
        model.save(tmp_path / "m", signatures=None)


def test_other_folders_are_not_replaced(activated: None, model: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputExistsError, match="is no saved model; remove it"):
        keras.saving.save_model(model, tmp_path)
    model.save(tmp_path / "m")
    with pytest.raises(OutputExistsError, match="overwrite is False"):
        model.save(tmp_path / "m", overwrite=False)


def test_without_activation_keras_is_itself(model: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Invalid filepath extension"):
        model.save(tmp_path / "model.savedmodel")
