"""The hybrid context: exactness, bounded staleness, non-finite gradients, clean exits."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch

from penstock import ColumnSchema, Schema
from penstock.core.errors import DataError, ParameterError, PenstockError
from penstock.embedding import SGD, Adagrad, EmbeddingTables, FusedEmbeddings, SlotConfig, Store
from penstock.loader.torch import Loader
from penstock.nn import MLP
from penstock.train import TrainContext, evaluate

from .conftest import ROLES, SCHEMA, assert_same_bits, some_rows


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "penstock-train"]


@pytest.fixture(autouse=True)
def no_thread_left():
    yield
    assert threads() == []


def train(setup, loader=None, **settings) -> TrainContext:
    with TrainContext(setup.model, setup.store, setup.optimizer, **settings) as ctx:
        for batch in ctx.batches(loader or setup.loader):
            output, labels = ctx.forward(batch)
            assert ctx.backward(ctx.loss(output, labels))
    return ctx


def test_staleness_one_is_exact(make) -> None:
    """Bit for bit what look-up, step and update one after the other give."""
    hybrid, plain = make(), make()
    ctx = train(hybrid, staleness=1)
    for features, labels in plain.loader:
        found = plain.store.lookup({name: features[name] for name in ("user", "item")})
        dense = torch.stack([features["price"], features["age"]], 1)
        output = plain.model(dense, found.tensors())
        torch.nn.functional.binary_cross_entropy_with_logits(output, labels.float()).backward()
        plain.optimizer.step()
        plain.optimizer.zero_grad()
        plain.store.update(found)
    assert (ctx.steps, ctx.rows) == (20, 640)
    assert_same_bits(hybrid.weights(), plain.weights())


def test_a_store_equals_on_device_tables(make) -> None:
    """The same numbers as a plain torch model that holds its embeddings itself."""
    hybrid, dense = make(), make()
    ids = {"user": np.arange(40), "item": np.arange(40) % 30}
    start = hybrid.store.lookup(ids)  # every row as it begins
    tables = EmbeddingTables(SCHEMA, 4)
    with torch.no_grad():
        tables.weight.copy_(torch.from_numpy(np.concatenate([start["user"], start["item"][:30]])))
    sparse = torch.optim.Adagrad(tables.parameters(), lr=0.1)
    train(hybrid, staleness=1)
    with TrainContext(dense.model, tables, dense.optimizer) as ctx:
        for batch in ctx.batches(dense.loader):
            output, labels = ctx.forward(batch)
            assert ctx.backward(ctx.loss(output, labels))
            sparse.step()
            sparse.zero_grad()
    found = hybrid.weights()
    np.testing.assert_allclose(found["embedding user"], tables.weight.detach()[:40], rtol=2e-4, atol=2e-6)
    for name, value in dense.model.state_dict().items():
        np.testing.assert_allclose(found[name], value, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("staleness", [2, 5])
def test_every_staleness_repeats_itself_and_is_bounded(make, staleness) -> None:
    """Look-up t sees the updates up to t - k and no others, however slow anything is."""
    first, second = make(), make()
    train(first, staleness=staleness)
    seen = []

    original_lookup, original_update = second.store.lookup, second.store.update
    second.store.lookup = lambda batch, train=True: (seen.append("look"), original_lookup(batch, train))[1]

    def update(*arguments, **settings):
        time.sleep(0.003)
        seen.append("update")
        original_update(*arguments, **settings)

    second.store.update = update
    train(second, staleness=staleness)
    del second.store.lookup, second.store.update
    assert_same_bits(first.weights(), second.weights())
    in_flight = np.cumsum([1 if event == "look" else -1 for event in seen])
    assert in_flight.max() == staleness
    assert seen[:staleness] == ["look"] * staleness and seen[staleness] == "update"


@pytest.mark.parametrize("layout", ["dict", "packed"])
def test_layouts_of_the_loader(make, layout) -> None:
    first, second = make(), make()
    train(first)
    loader = Loader(some_rows(640), 32, shuffle=True, seed=3, chunk_rows=200, layout=layout, **ROLES)
    train(second, loader)
    assert_same_bits(first.weights(), second.weights())


def test_numpy_batches(make) -> None:
    from penstock.loader import Loader as NumpyLoader

    first, second = make(), make()
    train(first)
    train(second, NumpyLoader(some_rows(640), 32, shuffle=True, seed=3, chunk_rows=200, **ROLES))
    assert_same_bits(first.weights(), second.weights())


def test_lists_sequences_and_unequal_widths() -> None:
    """Slots of several widths, pooled lists, raw sequences with masks: a model of the user's own."""
    schema = Schema([ColumnSchema("x", "float32", role="continuous")])

    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(1 + 2 + 3 + 4, 1)
            self.schema, self.masks = schema, []

        def forward(self, dense, embeddings, masks):
            self.masks.append(masks["seen"].clone())
            seen = (embeddings["seen"] * masks["seen"][..., None]).sum(1)
            return self.head(torch.cat([dense, embeddings["user"], embeddings["tags"], seen], 1)).squeeze(1)

    slots = [
        SlotConfig("user", 2),
        SlotConfig("seen", 4, pooling="raw", length=2),
        SlotConfig("tags", 3, pooling="mean"),
    ]
    store, model = Store(slots, SGD(lr=1.0)), Own()
    batch = {
        "user": np.array([1, 2]),
        "seen": (np.array([5, 6, 7]), np.array([0, 3, 3])),
        "tags": (np.array([1, 1]), np.array([0, 1, 2])),
        "x": np.array([0.5, 1.0], np.float32),
    }
    before = store.lookup({n: batch[n] for n in ("user", "seen", "tags")})
    with TrainContext(model, store, None) as ctx:
        for item in ctx.batches([(batch, np.array([0, 1]))]):
            output, _ = ctx.forward(item)
            ctx.backward(output.sum())
    after = store.lookup({n: batch[n] for n in ("user", "seen", "tags")}, train=False)
    weight = model.head.weight.detach().numpy()[0]
    np.testing.assert_allclose(after["user"], before["user"] - weight[1:3], rtol=1e-5)
    np.testing.assert_allclose(after["tags"], before["tags"] - 2 * weight[3:6], rtol=1e-5)
    np.testing.assert_allclose(after["seen"][0], before["seen"][0] - weight[6:], rtol=1e-5)
    assert model.masks[0].tolist() == [[True, True], [False, False]]
    store.close()


def test_evaluation_inserts_nothing_and_trains_nothing(make) -> None:
    setup = make()
    with TrainContext(setup.model, setup.store, setup.optimizer, staleness=3) as ctx:
        for number, batch in enumerate(ctx.batches(setup.loader)):
            output, labels = ctx.forward(batch)
            ctx.backward(ctx.loss(output, labels))
            if number == 7:
                ctx.drain()
                before, rows = setup.weights(), setup.store.stats()["rows"]
                unseen = some_rows(100)
                unseen["user"] += 1000
                figures = evaluate(ctx, Loader(unseen, 50, **ROLES))
                assert figures["rows"] == 100 and 0 <= figures["auc"] <= 1
                assert_same_bits(before, setup.weights())
                assert setup.store.stats()["rows"] == rows
                assert setup.model.training
    assert ctx.steps == 20


# Gradients that are not finite.


@pytest.mark.parametrize("step", [0, 3, 19])
def test_non_finite_gradients_are_skipped_per_feature_on_every_step(make, step) -> None:
    """One feature's gradient breaks at some step, whichever: it alone is skipped, and counted."""
    setup = make(optimizer=SGD(lr=0.1))
    weights, user = None, None
    with TrainContext(setup.model, setup.store, setup.optimizer) as ctx:
        for number, batch in enumerate(ctx.batches(setup.loader)):
            if number == step:
                batch.embeddings.register_hook(lambda g: g.index_fill(1, torch.tensor([1]), float("nan")))
                weights, user = setup.weights(), np.array(batch.ids["user"])
            output, labels = ctx.forward(batch)
            outcome = ctx.backward(ctx.loss(output, labels))
            assert bool(outcome) == (number != step)
            assert outcome.dropped == (["item"] if number == step else []) and outcome.dense_finite
            if number == step:
                ctx.drain()
                after = setup.weights()
    np.testing.assert_array_equal(after["embedding item"], weights["embedding item"])
    assert (after["embedding user"][user] != weights["embedding user"][user]).any()
    assert any((after[name] != weights[name]).any() for name in weights if "embedding" not in name)
    assert ctx.dropped_gradients == {"item": 1} == setup.store.stats()["dropped_gradients"]
    assert ctx.skipped_steps == 0


def test_a_broken_dense_gradient_skips_the_dense_step(make) -> None:
    setup = make()
    weights = setup.weights()
    with TrainContext(setup.model, setup.store, setup.optimizer) as ctx:
        batch = next(batches := ctx.batches(setup.loader))
        output, _ = ctx.forward(batch)
        assert not ctx.backward((output * float("inf")).sum())
        batches.close()
    assert (ctx.skipped_steps, ctx.steps) == (1, 1)
    assert set(ctx.dropped_gradients) == {"user", "item"}
    for name, value in setup.model.state_dict().items():
        np.testing.assert_array_equal(value, weights[name])


def test_the_loss_scale_is_taken_out(make) -> None:
    first, second = make(optimizer=SGD(lr=0.1)), make(optimizer=SGD(lr=0.1))
    first.optimizer = torch.optim.SGD(first.model.parameters(), lr=0.1)
    second.optimizer = torch.optim.SGD(second.model.parameters(), lr=0.1)
    train(first)
    train(second, grad_scaler=torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=5))
    for name, value in first.weights().items():
        np.testing.assert_allclose(second.weights()[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_the_loss_scale_is_taken_out_of_fused_tables(make) -> None:
    trained = []
    for scaler in (None, torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=7)):
        setup = make()
        torch.manual_seed(0)
        setup.store = FusedEmbeddings(SCHEMA, 4, optimizer="adagrad", lr=0.1)
        train(setup, grad_scaler=scaler)
        trained.append(setup.store.weight)
    torch.testing.assert_close(trained[0], trained[1], rtol=1e-4, atol=1e-5)


def test_the_scaler_backs_off_for_embeddings_too(make) -> None:
    setup = make()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with TrainContext(setup.model, setup.store, setup.optimizer, grad_scaler=scaler) as ctx:
        for number, batch in enumerate(ctx.batches(setup.loader)):
            if number == 1:
                batch.embeddings.register_hook(lambda g: g * float("inf"))
            output, labels = ctx.forward(batch)
            assert bool(ctx.backward(ctx.loss(output, labels))) == (number != 1)
            if number == 1:
                break
    assert scaler.get_scale() == 512.0


def test_bfloat16(make) -> None:
    setup = make()
    ctx = train(setup, autocast=torch.bfloat16)
    assert ctx.steps == 20
    assert all(np.isfinite(value).all() for value in setup.weights().values())


# Leaving.


def test_an_error_in_the_loop_leaves_no_thread(make) -> None:
    setup = make()
    with (
        pytest.raises(ZeroDivisionError),
        TrainContext(setup.model, setup.store, setup.optimizer, staleness=4) as ctx,
    ):
        for batch in ctx.batches(setup.loader):
            output, labels = ctx.forward(batch)
            ctx.backward(ctx.loss(output, labels))
            raise ZeroDivisionError
    assert threads() == []


def test_an_interrupt_leaves_no_thread(make) -> None:
    setup = make()
    with (
        pytest.raises(KeyboardInterrupt),
        TrainContext(setup.model, setup.store, setup.optimizer, staleness=4) as ctx,
        ctx.evaluating(),
    ):
        for batch in ctx.batches(setup.valid):
            ctx.forward(batch)
            raise KeyboardInterrupt
    assert threads() == []


def test_break_applies_what_was_trained(make) -> None:
    setup = make()
    with TrainContext(setup.model, setup.store, setup.optimizer, staleness=4) as ctx:
        for batch in ctx.batches(setup.loader):
            output, labels = ctx.forward(batch)
            ctx.backward(ctx.loss(output, labels))
            if ctx.steps == 3:
                break
        assert threads() == []
        assert setup.store.stats()["updates"] == 3
        for batch in ctx.batches(setup.loader):  # another loop may follow
            output, labels = ctx.forward(batch)
            ctx.backward(ctx.loss(output, labels))
    assert setup.store.stats()["updates"] == 23


def test_errors_of_the_store_and_the_loader_reach_the_loop(make) -> None:
    setup = make()
    rows = some_rows(64)
    rows["user"][40] = -5
    with pytest.raises(DataError, match="slot 'user': ids must not be negative"):
        train(setup, Loader(rows, 32, **ROLES))

    def failing():
        yield from [(dict.fromkeys(SCHEMA.names[:-1], torch.ones(2, dtype=torch.int64)), torch.zeros(2))] * 3
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        train(setup, failing(), staleness=2)


def test_a_failing_update_is_reported_at_the_latest_on_leaving(make) -> None:
    setup = make()

    def broken(*_, **__):
        raise PenstockError("no such luck")

    setup.store.update = broken
    with pytest.raises(PenstockError, match="no such luck"):
        train(setup, staleness=4)
    del setup.store.update


def test_a_store_that_hangs_does_not_block_the_exit(make) -> None:
    setup = make()
    release, ended = threading.Event(), threading.Event()
    setup.store.update = lambda *_, **__: release.wait(600) and ended.set()
    with (
        pytest.warns(RuntimeWarning, match="did not end within"),
        pytest.raises(PenstockError, match=r"not done within 0\.2 s"),
        TrainContext(setup.model, setup.store, setup.optimizer, exit_timeout=0.2) as ctx,
    ):
        batches = ctx.batches(setup.loader)
        output, labels = ctx.forward(next(batches))
        ctx.backward(ctx.loss(output, labels))
    assert not ended.is_set()
    release.set()
    assert ended.wait(300)
    time.sleep(0.2)
    del setup.store.update


# Wrong use.


def test_wrong_use_is_explained(make) -> None:
    setup = make()
    context = TrainContext(setup.model, setup.store, setup.optimizer)
    with pytest.raises(PenstockError, match="use the context in a with block"):
        next(context.batches(setup.loader))
    with context as ctx:
        with pytest.raises(PenstockError, match="backward needs a forward pass first"):
            ctx.backward(torch.zeros(()))
        for _ in ctx.batches(setup.loader):
            with pytest.raises(PenstockError, match="a training loop is under way already"):
                next(ctx.batches(setup.loader))
            break
        with pytest.raises(KeyError, match="'age' is not in the loader's batch"):
            next(ctx.batches(Loader(some_rows(), 32, categorical=["user", "item"], continuous=["price"])))
        with pytest.raises(DataError, match="a loader must deliver"):
            next(ctx.batches([1, 2]))


def test_bad_settings(make) -> None:
    setup = make()
    with pytest.raises(ParameterError, match=r"TrainContext\.staleness must be an int ≥ 1, got 0"):
        TrainContext(setup.model, setup.store, setup.optimizer, staleness=0)
    with pytest.raises(ParameterError, match="store has no such slot"):
        TrainContext(setup.model, Store([SlotConfig("user", 4)], Adagrad()), setup.optimizer)
    with pytest.raises(ParameterError, match="slot 'user' has dim=8, the model embedding_dim=4"):
        TrainContext(setup.model, Store([SlotConfig(n, 8) for n in ("user", "item")], Adagrad()), setup.optimizer)
    with pytest.raises(ParameterError, match="so it needs a store"):
        TrainContext(setup.model, None, setup.optimizer)


def test_a_model_without_categories_needs_no_store() -> None:
    model = MLP(SCHEMA.select(["price", "age"]), hidden=(4,))
    with TrainContext(model, None, torch.optim.SGD(model.parameters(), lr=0.1)) as ctx:
        for batch in ctx.batches(Loader(some_rows(), 64, **ROLES)):
            output, labels = ctx.forward(batch)
            ctx.backward(ctx.loss(output, labels))
    assert ctx.steps == 10
