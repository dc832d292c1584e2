"""Train a Keras model on Criteo click logs: python examples/criteo_keras.py [DAY.tsv]

NVTabular's "Training with TensorFlow" notebook on Keras 3. Without a file it makes 300,000 rows shaped like Criteo's.
"""

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from penstock.loader.keras import Loader
from penstock.loader.tensorflow_memory import limit_memory

# isort: split
import keras
import numpy as np

import penstock as ps
from penstock import ops
from penstock.data.synthetic import CRITEO_DTYPES, CRITEO_NAMES, criteo
from penstock.nn.keras import DenseFeatures, dlrm, inputs_of, wide_and_deep

CONTINUOUS = [f"I{i}" for i in range(1, 14)]
CATEGORICAL = [f"C{i}" for i in range(1, 27)]


def features(place: Path, source: str) -> None:
    """Click logs to features: what the notebook before that one does."""
    data = ps.Dataset(source, names=CRITEO_NAMES, dtypes=CRITEO_DTYPES, on_error="skip").with_roles(label=["label"])
    train, valid = data.split([0.9, 0.1], seed=7)
    numbers = CONTINUOUS >> ops.FillMissing() >> ops.Clip(min_value=0) >> ops.LogOp() >> ops.Normalize()
    workflow = ps.Workflow(["label"] + (CATEGORICAL >> ops.Categorify(freq_threshold=6)) + numbers)
    workflow.fit_transform(train).to_parquet(place / "train", shuffle="full", seed=7)
    workflow.transform(valid).to_parquet(place / "valid")


def notebook_model(schema: ps.Schema) -> keras.Model:
    """Embeddings of all categories, concatenated, through three layers of 128."""
    inputs = inputs_of(schema)
    x = DenseFeatures(schema.select(CATEGORICAL), dimension=16)(inputs)
    for _ in range(3):
        x = keras.layers.Dense(128, activation="relu")(x)
    return keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid", name="output")(x))


def main(source: str | None = None, num_rows: int = 300_000, batch_size: int = 4096, epochs: int = 2) -> None:
    limit_memory(0.5)  # of the GPU's free memory, before TensorFlow's first operation
    keras.utils.set_random_seed(1)
    place = Path(tempfile.mkdtemp(prefix="penstock-keras-"))
    if source is None:
        made = criteo(place / "day.tsv", num_rows, cardinalities=20_000)
        print(made)
        source = str(made.path)
    features(place, source)

    columns = {"labels": ["label"], "categorical": CATEGORICAL, "continuous": CONTINUOUS}
    train = Loader(str(place / "train" / "*.parquet"), batch_size, shuffle=True, **columns)
    valid = Loader(str(place / "valid" / "*.parquet"), batch_size, **columns)

    schema = train.schema
    models = {"notebook": notebook_model(schema), "DLRM": dlrm(schema), "wide and deep": wide_and_deep(schema)}
    for name, model in models.items():
        model.compile(keras.optimizers.Adam(0.005), "binary_crossentropy", metrics=[keras.metrics.AUC(name="auc")])
        model.fit(train, epochs=epochs, validation_data=valid, verbose=2)
        history = model.history.history
        print(f"{name}: valid AUC {history['val_auc'][-1]:.4f}, loss {history['val_loss'][-1]:.4f}")

    model.save(place / "model.keras")
    again = keras.models.load_model(place / "model.keras")
    same = np.array_equal(model.predict(valid, verbose=0), again.predict(valid, verbose=0))
    print("predictions of the saved and loaded model:", "equal" if same else "DIFFERENT")
    print(train.stats().verdict())
    print("written to", place)


if __name__ == "__main__":
    main(*sys.argv[1:2])
