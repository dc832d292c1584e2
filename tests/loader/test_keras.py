import copy
import pickle
import threading

import numpy as np
import pytest

from penstock.core.errors import DataError, MissingExtraError, ParameterError, PenstockError, SchemaError
from penstock.loader import Pad

NAMES = {"categorical": ["user"], "continuous": ["price"], "labels": ["click"]}


@pytest.fixture(scope="module", autouse=True)
def tensorflow_loaded():
    """TensorFlow is loaded by the process that runs this file, not by every process that collects it."""
    global keras, tf, Loader, LoaderPosition, _tensor
    keras = pytest.importorskip("penstock.loader.keras", exc_type=MissingExtraError).keras
    tf = pytest.importorskip("tensorflow")
    from penstock.loader.keras import Loader, LoaderPosition, _tensor


def make(path, **options):
    return Loader(path, **{"batch_size": 512, "chunk_rows": 2_000, **NAMES, **options})


def tiny_model():
    inputs = {"user": keras.Input((1,), name="user", dtype="int64"), "price": keras.Input((1,), name="price")}
    vector = keras.layers.Flatten()(keras.layers.Embedding(100, 2)(inputs["user"]))
    output = keras.layers.Dense(1, activation="sigmoid")(keras.layers.Concatenate()([vector, inputs["price"]]))
    model = keras.Model(inputs, output)
    model.compile("sgd", "binary_crossentropy", metrics=["AUC"], jit_compile=False)
    return model


@pytest.fixture(scope="module")
def model():
    return tiny_model()


class Recorder:
    """What a model was shown: the first price of each batch."""

    def __init__(self):
        self.seen = []

    def __call__(self, batch):
        self.seen.append(float(np.asarray(batch[0]["price"])[0, 0]))
        return batch


def test_shapes(path, frame):
    features, labels = make(path).peek()
    assert list(features) == ["user", "price"]
    assert features["user"].shape == (512, 1)
    assert features["user"].dtype == tf.int64
    assert labels.shape == (512, 1)
    np.testing.assert_array_equal(labels[:, 0], frame["click"][:512])
    features, labels = make(path, flat=True).peek()
    assert features["price"].shape == labels.shape == (512,)


def test_labels_none_one_and_many(path):
    (features,) = make(path, labels=None).peek()
    assert set(features) == {"user", "price"}
    _, labels = make(path, continuous=None, labels=["click", "price"]).peek()
    assert set(labels) == {"click", "price"}
    assert set(make(path, labels=["click", "age"]).as_tf_dataset().element_spec[1]) == {"click", "age"}


def test_lists(path, frame):
    options = {"categorical": ["user", "genres"]}
    wanted = frame["genres"][:512].to_list()
    ragged = make(path, **options).peek()[0]["genres"]
    assert isinstance(ragged, tf.RaggedTensor)
    assert ragged.to_list() == wanted
    values, lengths = make(path, lists="row_lengths", **options).peek()[0]["genres"]
    assert values.shape == (sum(map(len, wanted)), 1)
    assert lengths[:, 0].numpy().tolist() == list(map(len, wanted))
    dense = make(path, lists={"genres": Pad(2)}, **options).peek()[0]["genres"]
    assert dense.numpy().tolist() == [(row + [0, 0])[:2] for row in wanted]


def test_columns_share_the_loader_s_memory(path):
    loader = make(path)
    captured = []
    convert = loader._convert

    def watched(batch):
        captured.extend(row.ctypes.data for block in batch.blocks for row in block)
        return convert(batch)

    loader._convert = watched
    features, labels = next(iter(loader))
    addresses = {np.asarray(t).ctypes.data for t in (*features.values(), labels)}
    assert addresses == set(captured)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "float32", "float64"])
def test_memory_that_tensorflow_cannot_share_is_copied(dtype):
    raw = np.zeros(4096, np.uint8)
    start = -raw.ctypes.data % 64
    aligned = raw[start : start + 1024].view(dtype)
    aligned[:] = 7
    shifted = raw[start + 8 : start + 8 + 512].view(dtype)
    read_only = aligned.copy()
    read_only.flags.writeable = False
    for array in (aligned, shifted, read_only, aligned[::2], aligned[:0], aligned.reshape(2, -1).T):
        np.testing.assert_array_equal(_tensor(array), array)
    assert np.asarray(_tensor(aligned)).ctypes.data == aligned.ctypes.data
    assert np.asarray(_tensor(shifted)).ctypes.data != shifted.ctypes.data


def test_batches_stay_what_they_are_while_later_ones_are_read(path):
    loader = make(path, batch_size=100, chunk_rows=300, shuffle=True)
    kept = list(loader)
    before = [batch[0]["price"].numpy().copy() for batch in kept]
    for _ in loader.epochs(3):
        pass
    for batch, wanted in zip(kept, before, strict=True):
        np.testing.assert_array_equal(batch[0]["price"], wanted)


def test_fit_takes_every_batch_in_the_planned_order(path, model):
    """Keras asks for batches in an order of its own (`shuffle=True`), after looking at two."""
    planned = Recorder()
    for _ in make(path, shuffle=True).map(planned).epochs(3):
        pass
    shown = Recorder()
    loader = make(path, shuffle=True).map(shown)
    model.fit(loader, epochs=2, verbose=0)
    model.fit(loader, epochs=1, verbose=0, shuffle=False)
    assert shown.seen == planned.seen
    assert len(set(shown.seen)) > 20  # epochs differ
    assert loader.num_rows_processed == 3 * 5003
    assert loader.epoch == 3


def test_fit_with_validation_evaluate_and_predict(path, frame):
    model = tiny_model()
    loader, valid = make(path, shuffle=True), make(path, batch_size=2000)
    history = model.fit(loader, validation_data=valid, epochs=2, verbose=0).history
    assert {len(values) for values in history.values()} == {2}
    assert history["loss"][1] < history["loss"][0]
    results = model.evaluate(valid, return_dict=True, verbose=0)
    assert results["loss"] == pytest.approx(history["val_loss"][1], rel=1e-5)
    predicted = model.predict(make(path, labels=None), verbose=0)
    features = {"user": frame["user"].to_numpy().reshape(-1, 1), "price": frame["price"].to_numpy().reshape(-1, 1)}
    np.testing.assert_allclose(predicted, model.predict_on_batch(features), rtol=1e-5)


def test_epochs_of_so_many_steps_go_through_the_data(path, model):
    shown, planned = Recorder(), Recorder()
    loader = make(path, shuffle=True).map(shown)  # ten batches
    model.fit(loader, epochs=4, steps_per_epoch=5, verbose=0)
    for _ in make(path, shuffle=True).map(planned).epochs(2):
        pass
    assert shown.seen[:20] == planned.seen


def test_an_epoch_of_one_batch(path, model):
    shown, planned = Recorder(), Recorder()
    loader = make(path, batch_size=6000, shuffle=True).map(shown)
    model.fit(loader, epochs=3, verbose=0)
    for _ in make(path, batch_size=6000, shuffle=True).map(planned).epochs(3):
        pass
    assert shown.seen == planned.seen


def test_class_weights_reach_the_loss(path, model):
    loader = make(path)
    silent = model.fit(loader, verbose=0, class_weight={0: 0.0, 1: 0.0}).history["loss"][0]
    assert silent == 0


def test_tf_dataset(path, model):
    loader = make(path, categorical=["user", "genres"], shuffle=True)
    dataset = loader.as_tf_dataset()
    features, labels = dataset.element_spec
    assert features["user"] == tf.TensorSpec((None, 1), tf.int64)
    assert features["genres"] == tf.RaggedTensorSpec((None, None), loader.schema["genres"].dtype, 1, tf.int64)
    assert labels == tf.TensorSpec((None, 1), tf.int8)
    assert dataset.cardinality() == len(loader) == 10
    assert loader.num_rows_processed == 0  # nothing was read for it
    first, second = ([float(b[0]["price"][0, 0]) for b in dataset] for _ in range(2))
    assert first != second  # an epoch each
    full = make(path, last_batch="drop").as_tf_dataset(prefetch=0)
    assert full.element_spec[0]["price"].shape == (512, 1)
    mapped = make(path).map(lambda batch: (batch[0]["price"] * 2, batch[1])).as_tf_dataset()
    assert mapped.element_spec[0] == tf.TensorSpec((None, 1), tf.float32)
    model.fit(make(path, shuffle=True).as_tf_dataset(), epochs=2, verbose=0, shuffle=False)


def test_leaving_a_tf_dataset_early_ends_the_threads(path):
    def own() -> list[str]:  # TensorFlow's threads appear as dummies once they have run Python
        return [t.name for t in threading.enumerate() if not isinstance(t, threading._DummyThread)]

    before = own()
    for _ in make(path, chunk_rows=600).as_tf_dataset().take(2):
        pass
    assert own() == before


def test_tf_distribute(path):
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        model = tiny_model()
    history = model.fit(make(path, shuffle=True).as_tf_dataset(), epochs=2, verbose=0, shuffle=False).history
    assert len(history["loss"]) == 2


def test_saved_position_is_what_was_trained(path, model):
    """TensorFlow fetches ahead; the state must name the batch to train on next all the same."""
    loader = make(path, shuffle=True)
    states = []
    position = LoaderPosition(loader)
    save = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: states.append(loader.state_dict()))
    model.fit(loader, epochs=2, verbose=0, callbacks=[position, save])
    assert [(s["epoch"], s["batch"]) for s in states] == [divmod(i, 10) for i in range(1, 21)]
    shown, planned = Recorder(), Recorder()
    resumed = make(path, shuffle=True).map(shown)
    resumed.load_state_dict(states[12])
    model.fit(resumed, epochs=2, verbose=0)  # from the middle of epoch 1 to the middle of epoch 3
    for _ in make(path, shuffle=True).map(planned).epochs(4):
        pass
    assert shown.seen == planned.seen[13:33]
    for _ in loader:  # without the callback the loader counts for itself again
        pass
    assert loader.state_dict()["epoch"] == 3


def test_copies_stand_alone(path):
    loader = make(path, shuffle=True)
    loader[0]
    for other in (copy.copy(loader), pickle.loads(pickle.dumps(loader))):
        other.set_epoch(0)
        np.testing.assert_array_equal(other[0][0]["price"], make(path, shuffle=True).peek()[0]["price"])


def test_a_closed_loader(path, model):
    with make(path) as loader:
        assert loader.num_batches == 10
        dataset = loader.as_tf_dataset()
    for use in (
        lambda: model.fit(loader, verbose=0),
        lambda: model.evaluate(loader, verbose=0),
        lambda: next(iter(loader)),
        lambda: loader.as_tf_dataset(),
    ):
        with pytest.raises(PenstockError, match="this loader is closed"):
            use()
    with pytest.raises(tf.errors.OpError, match="this loader is closed"):
        next(iter(dataset))


def test_bad_input(path, model):
    with pytest.raises(ParameterError, match="'price' is a label and a feature"):
        make(path, labels=["click", "price"])
    with pytest.raises(SchemaError, match=r"'prize' is not in .*clicks\.parquet; did you mean 'price'"):
        make(path, continuous=["prize"])
    with pytest.raises(ParameterError, match=r"Loader\.flat must be True or False"):
        make(path, flat=1)
    with pytest.raises(ParameterError, match="lists must be one of 'ragged', 'row_lengths', a Pad"):
        make(path, categorical=["genres"], lists="nested")
    empty = Loader({"user": np.zeros(0, np.int64), "price": np.zeros(0, np.float32), "click": np.zeros(0)}, **NAMES)
    with pytest.raises(DataError, match="has no batch: the data set is empty"):
        model.fit(empty, verbose=0)
    with pytest.raises(DataError, match="smaller than one batch"):
        model.evaluate(make(path, batch_size=6000, last_batch="drop"), verbose=0)
