"""Batches for Keras from one parquet file, alone and inside `fit`, against tf.data from files and from memory.

    python benchmarks/keras_loader.py [--rows 1000000] [--batch 65536] [--rounds 3]

The file is Criteo-like: 26 int32 ids, 13 float32 numbers, a float32 label. `keras/batches` counts rows per second that
arrive as tensors, shuffled, without a model; tf.data reads the same columns from CSV (`make_csv_dataset`) and from
TFRecord (parsed a batch at a time, its fastest way), on fewer rows as it is slow. `keras/fit` is `model.fit` with a
trivial model (a linear layer over the numbers), from the file and shuffled, against the same `fit` from tensors in
memory: `fit(tensors, batch_size=…)` shuffled and not (`memory`), `tf.data.Dataset.from_tensor_slices(…).shuffle()
.batch()` (`tf_data`), and batches that lie ready, neither read nor shuffled (`limit`: nothing left to do for a loader).
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

from penstock.loader.keras import Loader  # before TensorFlow, so that torch can be used beside it

# isort: split
import keras
import polars as pl
import tensorflow as tf
from harness import Claim, best_of, report

from loader import CATEGORICAL, CONTINUOUS, dataset, write_file
from penstock.nn.keras import DenseFeatures, FeatureColumn

INPUTS = [*CATEGORICAL, *CONTINUOUS]


def drain(batches: Iterable) -> None:
    for _ in batches:
        pass


def csv_batches(folder: Path, frame: pl.DataFrame, batch: int) -> Callable[[], None]:
    """`make_csv_dataset`, shuffled, with everything it can do in parallel."""
    path = folder / "clicks.csv"
    frame.write_csv(path)
    data = tf.data.experimental.make_csv_dataset(
        str(path), min(batch, frame.height), label_name="label", num_epochs=1, shuffle=True,
        shuffle_buffer_size=min(batch, frame.height), num_parallel_reads=2, header=True,
        column_defaults=[tf.float32 if n not in CATEGORICAL else tf.int32 for n in frame.columns],
    )  # fmt: skip
    return lambda: drain(data)


def record_batches(folder: Path, frame: pl.DataFrame, batch: int) -> Callable[[], None]:
    """TFRecord of `tf.train.Example`, shuffled, parsed a whole batch at a time."""
    path = folder / "clicks.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in frame.iter_rows(named=True):
            features = {
                name: tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
                if name in CATEGORICAL
                else tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
                for name, value in row.items()
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    kinds = {n: tf.io.FixedLenFeature((1,), tf.int64 if n in CATEGORICAL else tf.float32) for n in frame.columns}
    rows = min(batch, frame.height)

    def parsed(records: tf.Tensor) -> tuple:
        features = tf.io.parse_example(records, kinds)
        return features, features.pop("label")

    data = tf.data.TFRecordDataset(str(path)).shuffle(rows).batch(rows)
    data = data.map(parsed, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    return lambda: drain(data)


def trivial_model() -> keras.Model:
    """All 39 inputs, a linear layer over the 13 numbers."""
    inputs = {n: keras.Input((1,), dtype="int32" if n in CATEGORICAL else "float32", name=n) for n in INPUTS}
    output = keras.layers.Dense(1, activation="sigmoid")(keras.layers.Concatenate()([inputs[n] for n in CONTINUOUS]))
    model = keras.Model(inputs, output)
    model.compile("sgd", "binary_crossentropy", jit_compile=False)
    return model


def seed_model(size: int) -> keras.Model:
    """Embeddings of 26 columns, concatenated, through three layers of 128: the model of NVTabular's Criteo notebook."""
    inputs = {n: keras.Input((1,), dtype="int32" if n in CATEGORICAL else "float32", name=n) for n in INPUTS}
    x = DenseFeatures([FeatureColumn(n, "embedding", size, 16) for n in CATEGORICAL])(inputs)
    for _ in range(3):
        x = keras.layers.Dense(128, activation="relu")(x)
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(x))
    model.compile("sgd", "binary_crossentropy")
    return model


def tensors_of(path: Path) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    frame = pl.read_parquet(path)
    return {n: tf.constant(frame[n].to_numpy().reshape(-1, 1)) for n in INPUTS}, tf.constant(
        frame["label"].to_numpy().reshape(-1, 1)
    )


def ready_batches(tensors: tuple, batch: int) -> tf.data.Dataset:
    """Batches that lie in memory as tensors and need only be handed over."""
    rows = len(tensors[1])
    ready = [tf.nest.map_structure(lambda t, i=i: t[i : i + batch], tensors) for i in range(0, rows, batch)]
    specs = tf.nest.map_structure(lambda t: tf.TensorSpec((None, 1), t.dtype), tensors)
    made = tf.data.Dataset.from_generator(lambda: iter(ready), output_signature=specs)
    return made.apply(tf.data.experimental.assert_cardinality(len(ready))).prefetch(2)


def timed(contestants: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Best times after a first run that traces and compiles."""
    for run in contestants.values():
        run()
    return best_of(contestants, rounds)


def fit_times(path: Path, options: argparse.Namespace) -> dict[str, float]:
    """Seconds of an epoch of `fit` with a trivial model, by where its batches come from."""
    loader = Loader(dataset(path), options.batch, shuffle=True)
    stream = Loader(dataset(path), options.batch, shuffle=True).as_tf_dataset()
    features, labels = tensors = tensors_of(path)
    ready = ready_batches(tensors, options.batch)
    small = tf.data.Dataset.from_tensor_slices(tensors).take(options.slow_rows)
    small = small.shuffle(options.slow_rows).batch(options.batch).prefetch(2)
    model = trivial_model()
    epochs = dict.fromkeys(("penstock", "penstock_tf_data", "limit"), 4)  # those that are fast

    def fit(name: str, data: object, **more: object) -> Callable[[], object]:
        return lambda: model.fit(data, epochs=epochs.get(name, 1), verbose=0, **more)

    contestants = {
        "penstock": fit("penstock", loader),
        "penstock_tf_data": fit("penstock_tf_data", stream, shuffle=False),
        "limit": fit("limit", ready, shuffle=False),
        "memory": fit("memory", features, y=labels, batch_size=options.batch),
        "memory_unshuffled": fit("memory_unshuffled", features, y=labels, batch_size=options.batch, shuffle=False),
        "tf_data": fit("tf_data", small, shuffle=False),
    }
    return {name: seconds / epochs.get(name, 1) for name, seconds in timed(contestants, options.rounds).items()}


def seed_model_times(path: Path, folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """Seconds of an epoch of the notebook's model, on ids folded to tables that fit a laptop."""
    size, small = 10_000, folder / "folded.parquet"
    batch = options.batch // 4
    frame = pl.read_parquet(path, n_rows=4 * batch)
    frame.with_columns(pl.col(CATEGORICAL) % size).write_parquet(small, row_group_size=batch)
    names = {"categorical": CATEGORICAL, "continuous": CONTINUOUS, "labels": ["label"]}
    loader = Loader(str(small), batch, shuffle=True, **names)
    ready = ready_batches(tensors_of(small), batch)
    model = seed_model(size)
    contestants: dict[str, Callable[[], object]] = {
        "penstock": lambda: model.fit(loader, epochs=2, verbose=0),
        "limit": lambda: model.fit(ready, epochs=2, verbose=0, shuffle=False),
    }
    return timed(contestants, 2)


def overhead(path: Path, options: argparse.Namespace) -> dict[str, float]:
    """Milliseconds a batch costs on top of the native loader's arrays: as tensors, and through tf.data."""
    from penstock.loader import Loader as Native

    data = dataset(path)
    loaders = {
        "native": Native(data, options.batch, shuffle=True),
        "tensors": Loader(data, options.batch, shuffle=True),
    }
    stream = Loader(data, options.batch, shuffle=True).as_tf_dataset()
    contestants = {n: (lambda batches=b: drain(batches)) for n, b in (*loaders.items(), ("tf_data", stream))}
    times = timed(contestants, 4 * options.rounds)  # a difference of short times: look more often
    batches = -(-options.rows // options.batch)
    return {n: 1e3 * max(times[n] - times["native"], 0) / batches for n in ("tensors", "tf_data")} | {
        "seconds": times["tensors"], "seconds_tf_data": times["tf_data"],
    }  # fmt: skip


def run(folder: Path, options: argparse.Namespace) -> None:
    path = folder / "clicks.parquet"
    write_file(path, options.rows)
    few = pl.read_parquet(path, n_rows=options.slow_rows)
    costs = overhead(path, options)
    slow = {
        "tf_data": record_batches(folder, few, options.batch),
        "tf_data_csv": csv_batches(folder, few, options.batch),
    }
    peers = {name: options.slow_rows / seconds for name, seconds in best_of(slow, 2).items()}
    fits = fit_times(path, options)
    rate = {name: (options.slow_rows if name == "tf_data" else options.rows) / t for name, t in fits.items()}
    notebook = seed_model_times(path, folder, options)
    report(
        f"Keras, {options.rows:,} rows × 40 columns, batch {options.batch:,}",
        [
            Claim(
                "keras/batches", "rows/s", options.rows / costs["seconds"], dict(peers),
                extra={
                    "as_tf_dataset": round(options.rows / costs["seconds_tf_data"]),
                    "milliseconds_per_batch": round(costs["tensors"], 3),
                    "milliseconds_per_batch_tf_data": round(costs["tf_data"], 3),
                },
            ),
            Claim(
                "keras/fit", "rows/s", rate["penstock"],
                {name: rate[name] for name in ("memory", "memory_unshuffled", "tf_data", "limit")},
                extra={
                    "as_tf_dataset": round(rate["penstock_tf_data"]),
                    "notebook_model_to_limit": round(notebook["limit"] / notebook["penstock"], 3),
                },
            ),
        ],
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slow-rows", type=int, default=20_000, help="rows for what reads them one by one")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="penstock-benchmark-"))
    started = time.perf_counter()
    try:
        run(folder, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"took {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
