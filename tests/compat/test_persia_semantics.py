"""What embeddings do under PERSIA's names, against its formulas and against plain torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from penstock.compat.persia.ctx import TrainCtx, cnt_ctx, eval_ctx

from penstock.compat.persia import _service
from penstock.compat.persia._checkpoints import EMBEDDINGS
from penstock.compat.persia.data import DataLoader, IterableDataset
from penstock.compat.persia.embedding import SGD, Adagrad, Adam, EmbeddingConfig, Optimizer
from penstock.compat.persia.embedding.data import IDTypeFeature, IDTypeFeatureWithSingleID, Label, PersiaBatch
from penstock.core.errors import ColumnNotFoundError, ParameterError, PenstockError
from penstock.embedding import Init, Store
from penstock.kernels.reference_embedding import initial_row

XOSHIRO = "xoshiro256++"


@pytest.fixture(autouse=True)
def fresh():
    _service.reset()
    yield
    _service.reset()


def configure(**slots: dict) -> None:
    _service.service().configure(_service.EMBEDDING_CONFIG, {"slots_config": slots})


def lists(name: str, *ids: list[int]) -> IDTypeFeature:
    return IDTypeFeature(name, [np.array(i, np.uint64) for i in ids])


def single(name: str, *ids: int) -> IDTypeFeatureWithSingleID:
    return IDTypeFeatureWithSingleID(name, np.array(ids, np.uint64))


def to_train(features: list) -> PersiaBatch:
    """A batch with a label, which these models do not read."""
    return PersiaBatch(features, labels=[Label(np.zeros((features[0].batch_size, 1), np.float32))])


class Sum(torch.nn.Module):
    """A model whose output is the sum of all embeddings: every gradient is one."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(()))

    def forward(self, numbers: list, embeddings: list) -> torch.Tensor:
        return self.bias + sum(embedding.flatten(1).sum(1) for embedding in embeddings)


def context(optimizer: Optimizer | None = None, **settings: Any) -> TrainCtx:
    model = settings.pop("model", None) or Sum()
    dense = torch.optim.SGD(model.parameters(), lr=0.1)
    return TrainCtx(optimizer or SGD(lr=0.1), dense, model=model, mixed_precision=False, **settings)


def row(ctx: Any, name: str, identity: int) -> np.ndarray:
    """An embedding as it is stored."""
    return np.array(ctx._store.lookup(_all_slots(ctx, name, identity), train=False)[name][0])


def _all_slots(ctx: Any, name: str, identity: int) -> dict:
    empty = (np.empty(0, np.uint64), np.zeros(2, np.int64))
    given = (np.array([identity], np.uint64), np.array([0, 1]))
    return {slot: given if slot == name else empty for slot in ctx._store.config.names}


class TestShapes:
    def test_summed_scaled_stacked_and_raw(self) -> None:
        configure(
            plain={"dim": 4},
            scaled={"dim": 4, "sqrt_scaling": True},
            stacked={"dim": 4, "hash_stack_config": {"hash_stack_rounds": 2, "embedding_size": 10}},
            raw={"dim": 4, "embedding_summation": False, "sample_fixed_size": 3},
        )
        features = [lists(name, [1, 2], [], [3]) for name in ("raw", "plain", "scaled", "stacked")]
        with context(embedding_config=EmbeddingConfig(emb_initialization=(0.5, 1.0))) as ctx:
            batch = ctx.get_embedding_from_data(to_train(features))
            _, (raw, plain, scaled, stacked), _ = ctx.prepare_features(batch)
            one, two = row(ctx, "plain", 1), row(ctx, "plain", 2)
            assert np.allclose(plain[0].detach(), one + two) and not plain[1].any()
            pair = row(ctx, "scaled", 1) + row(ctx, "scaled", 2)
            assert np.allclose(scaled[0].detach(), pair / np.sqrt(2), atol=1e-6)
            assert (stacked[2] >= 1.0).all()  # two rows for one id, each at least 0.5
            assert raw.shape == (3, 3, 5)
            assert raw[..., 4].tolist() == [[1, 1, 0], [0, 0, 0], [1, 0, 0]]
            assert np.allclose(raw[0, 1, :4].detach(), row_raw(ctx, 2)) and not raw[0, 2].any()

    def test_features_of_a_group_share_rows_and_others_do_not(self) -> None:
        content = {
            "slots_config": {name: {"dim": 4} for name in ("a", "b", "c")},
            "feature_groups": {"shared": ["b", "c"]},
        }
        _service.service().configure(_service.EMBEDDING_CONFIG, content)
        with context() as ctx:
            ctx.get_embedding_from_data(to_train([single(name, 7) for name in ("a", "b", "c")]))
            assert ctx.get_embedding_size() == [2]
            assert (row(ctx, "b", 7) == row(ctx, "c", 7)).all() and (row(ctx, "a", 7) != row(ctx, "b", 7)).all()

    def test_rows_begin_by_their_ids_and_not_by_their_order(self) -> None:
        found = []
        for order in ((1, 2, 3), (3, 1, 2)):
            _service.reset()
            configure(user={"dim": 4})
            with context() as ctx:
                for identity in order:
                    ctx.get_embedding_from_data(to_train([single("user", identity)]))
                found.append([row(ctx, "user", identity) for identity in (1, 2, 3)])
        assert np.array_equal(found[0], found[1])
        assert np.abs(found[0]).max() <= 0.01

    def test_rows_begin_with_the_numbers_that_persia_drew(self) -> None:
        configure(age={"dim": 3}, city={"dim": 3})
        with context() as ctx:
            batch = PersiaBatch([single("age", 5), single("city", 5)], labels=[Label(np.ones((1, 1), np.float32))])
            ctx.get_embedding_from_data(batch)
            for number, name in enumerate(["age", "city"], start=1):
                sign = (number << 56) + 5
                assert row(ctx, name, 5) == pytest.approx(
                    initial_row(sign, 3, "uniform", -0.01, 0.01, 0, XOSHIRO), abs=1e-9
                )

    def test_what_was_trained_from_other_first_numbers_loads(self, tmp_path: Path) -> None:
        configure(age={"dim": 3})
        service = _service.service()
        with Store(service.slots(Init()), SGD(lr=0.1).to_native(10)) as other:  # as versions before this one began
            other.lookup({"age": np.array([5], np.uint64)}, train=True)
            other.save(tmp_path / EMBEDDINGS)
            before = np.array(other.lookup({"age": np.array([5], np.uint64)}, train=False)["age"][0])
        with context() as ctx:
            ctx.load_embedding(str(tmp_path))
            assert row(ctx, "age", 5).tolist() == before.tolist()

    def test_a_slot_that_a_batch_lacks_is_left_out(self) -> None:
        configure(user={"dim": 4}, item={"dim": 8})
        with context() as ctx:
            _, embeddings, _ = ctx.prepare_features(ctx.get_embedding_from_data(to_train([single("item", 1, 2)])))
            assert [tuple(embedding.shape) for embedding in embeddings] == [(2, 8)]

    def test_a_feature_without_a_slot_is_named(self) -> None:
        configure(user={"dim": 4})
        with context() as ctx, pytest.raises(ColumnNotFoundError, match=r"'usr' .* did you mean 'user'"):
            ctx.get_embedding_from_data(to_train([single("usr", 1)]))


def row_raw(ctx: Any, identity: int) -> np.ndarray:
    return np.array(ctx._store.lookup(_all_slots(ctx, "raw", identity), train=False)["raw"][0, 0])


def steps(ctx: Any, gradients: list[float], identity: int = 7) -> list[np.ndarray]:
    """The row of an id before and after steps with these gradients."""
    found = []
    for gradient in gradients:
        batch = ctx.get_embedding_from_data(to_train([single("user", identity)]))
        found.append(row(ctx, "user", identity))
        output, _ = ctx.forward(batch)
        ctx.backward(gradient * output.sum())
    return [*found, row(ctx, "user", identity)]


class TestUpdates:
    @pytest.fixture(autouse=True)
    def slots(self) -> None:
        configure(user={"dim": 4})

    def test_sgd_with_decay(self) -> None:
        with context(SGD(lr=0.1, weight_decay=0.5)) as ctx:
            before, after = steps(ctx, [2.0])
            assert np.allclose(after, before - 0.1 * (2.0 + 0.5 * before), atol=1e-7)

    def test_sgd_with_momentum_as_torch_does_it(self) -> None:
        with context(SGD(lr=0.1, momentum=0.9)) as ctx:
            first, *_, last = steps(ctx, [1.0, 1.0])
            assert np.allclose(last, first - 0.1 * (1.0 + 1.9), atol=1e-6)

    def test_adagrad_divides_by_what_was_before_the_gradient(self) -> None:
        with context(Adagrad(lr=0.1, initial_accumulator_value=0.25, g_square_momentum=0.5)) as ctx:
            before, middle, after = steps(ctx, [2.0, 1.0])
            assert np.allclose(middle, before - 0.1 * 2.0 / np.sqrt(0.25 + 1e-10), atol=1e-6)
            assert np.allclose(after, middle - 0.1 / np.sqrt(0.25 * 0.5 + 4.0), atol=1e-6)

    def test_adagrad_shared_by_the_row(self) -> None:
        weights = torch.tensor([1.0, 2.0, 3.0, 4.0])

        class Weighted(Sum):
            def forward(self, numbers: list, embeddings: list) -> torch.Tensor:
                return self.bias + (embeddings[0] * weights).sum(1)

        with context(Adagrad(lr=0.1, vectorwise_shared=True), model=Weighted()) as ctx:
            before, middle, after = steps(ctx, [1.0, 1.0])
            assert np.allclose(middle, before - 0.1 * weights.numpy() / np.sqrt(0.01), atol=1e-5)
            assert np.allclose(after, middle - 0.1 * weights.numpy() / np.sqrt(0.01 + 7.5), atol=1e-5)

    def test_the_first_step_of_adam_is_its_rate(self) -> None:
        with context(Adam(lr=0.01)) as ctx:
            before, after = steps(ctx, [3.0])
            assert np.allclose(after, before - 0.01, atol=1e-6)

    def test_weights_stay_within_their_bound(self) -> None:
        with context(SGD(lr=1.0), embedding_config=EmbeddingConfig(weight_bound=0.05)) as ctx:
            assert np.allclose(steps(ctx, [1.0])[-1], -0.05)
        _service.reset()
        configure(user={"dim": 4})
        with context(SGD(lr=1.0), embedding_config=EmbeddingConfig(weight_bound=0)) as ctx:
            assert (steps(ctx, [1.0])[-1] < -0.9).all()

    def test_ids_of_a_batch_that_are_alike_are_stepped_once_with_the_sum(self) -> None:
        with context(SGD(lr=0.1)) as ctx:
            batch = ctx.get_embedding_from_data(to_train([single("user", 7, 7, 7)]))
            before = row(ctx, "user", 7)
            ctx.backward(ctx.forward(batch)[0].sum())
            assert np.allclose(row(ctx, "user", 7), before - 0.3, atol=1e-6)

    def test_an_id_that_is_not_admitted_is_zeros(self) -> None:
        with context(embedding_config=EmbeddingConfig(admit_probability=0.0)) as ctx:
            batch = ctx.get_embedding_from_data(to_train([single("user", *range(50))]))
            assert not ctx.prepare_features(batch)[1][0].any() and ctx.get_embedding_size() == [0]

    def test_capacity_evicts_the_least_recent_and_their_gradients_go_nowhere(self) -> None:
        _service.service().configure(_service.GLOBAL_CONFIG, {"embedding_parameter_server_config": {"capacity": 8}})
        with context(SGD(lr=0.1)) as ctx:
            late = ctx.get_embedding_from_data(to_train([single("user", 1, 2)]))
            output, _ = ctx.forward(late)
            kept = ctx.get_embedding_from_data(to_train([single("user", *range(10, 18))]))
            assert ctx.get_embedding_size()[0] <= 8
            before = row(ctx, "user", 17)
            ctx.current_batch = late
            ctx.backward(output.sum())  # rows 1 and 2 are gone
            assert np.array_equal(row(ctx, "user", 17), before)
            ctx.backward(ctx.forward(kept)[0].sum())
            assert np.allclose(row(ctx, "user", 17), before - 0.1, atol=1e-6)


class TestGradientsThatAreNotFinite:
    @pytest.fixture(autouse=True)
    def slots(self) -> None:
        configure(good={"dim": 4}, bad={"dim": 4}, unused={"dim": 4})

    class Broken(Sum):
        def forward(self, numbers: list, embeddings: list) -> torch.Tensor:
            good, bad, _ = embeddings
            return self.bias + good.sum(1) + bad.sum(1) * float("nan")

    def test_only_that_feature_is_dropped_and_the_dense_step_is_left_out(self) -> None:
        model = self.Broken()
        with context(SGD(lr=0.1, weight_decay=0.5), model=model) as ctx:
            for _ in range(3):  # on every step, not only on the first
                batch = ctx.get_embedding_from_data(to_train([single(n, 7) for n in ("good", "bad", "unused")]))
                before = {name: row(ctx, name, 7) for name in ("good", "bad", "unused")}
                output, _ = ctx.forward(batch)
                output.sum().backward(inputs=list(batch.embeddings.values())[:2])
                assert ctx._send(1.0) is False
                assert np.array_equal(row(ctx, "bad", 7), before["bad"])
                assert np.allclose(row(ctx, "good", 7), before["good"] - 0.1 * (1 + 0.5 * before["good"]), atol=1e-6)
                # A feature that the loss does not reach is skipped altogether: not even decayed.
                assert np.array_equal(row(ctx, "unused", 7), before["unused"])

    def test_a_dense_step_that_is_not_finite_is_left_out(self) -> None:
        model = self.Broken()
        with context(model=model) as ctx:
            batch = ctx.get_embedding_from_data(to_train([single(n, 7) for n in ("good", "bad", "unused")]))
            output, _ = ctx.forward(batch)
            ctx.backward((output * float("inf")).sum())
            assert model.bias.item() == 0.0 and ctx.skipped_steps == 1


class Rows(IterableDataset):
    """Twelve batches of eight rows over twenty ids, the same on every run."""

    def __init__(self, requires_grad: bool = True) -> None:
        super().__init__(buffer_size=4)
        self.requires_grad = requires_grad

    def __iter__(self):
        draw = np.random.default_rng(5)
        for _ in range(12):
            ids, clicks = draw.integers(0, 20, 8).astype(np.uint64), draw.integers(0, 2, 8)
            label = Label(clicks.astype(np.float32))
            yield PersiaBatch(
                [IDTypeFeatureWithSingleID("user", ids)], labels=[label], requires_grad=self.requires_grad
            )


class Linear(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.top = torch.nn.Linear(4, 1)

    def forward(self, numbers: list, embeddings: list) -> torch.Tensor:
        return self.top(embeddings[0]).squeeze(1)


def train(staleness: int, reproducible: bool = True) -> tuple[list[float], np.ndarray, torch.Tensor]:
    _service.reset()
    configure(user={"dim": 4})
    model = Linear()
    with context(Adagrad(lr=0.1), model=model) as ctx:
        losses = []
        for batch in DataLoader(Rows(), reproducible=reproducible, embedding_staleness=staleness):
            output, labels = ctx.forward(batch)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(output, labels[0])
            ctx.backward(loss)
            losses.append(loss.item())
        ctx._engine.drain()
        rows = np.stack([row(ctx, "user", identity) for identity in range(20)])
        return losses, rows, model.top.weight.detach().clone()


class TestStaleness:
    def test_staleness_one_is_dense_torch_exactly(self) -> None:
        losses, rows, weight = train(staleness=1)
        _service.reset()
        configure(user={"dim": 4})
        with context(Adagrad(lr=0.1)) as ctx:
            ctx.get_embedding_from_data(to_train([single("user", *range(20))]))
            table = torch.tensor(np.stack([row(ctx, "user", i) for i in range(20)]), requires_grad=True)
        state, model = torch.full_like(table, 1e-2), Linear()
        dense = torch.optim.SGD(model.parameters(), lr=0.1)
        seen = set()
        for number, batch in enumerate(Rows()):
            message = batch.data
            ids, labels = message.ids["user"].astype(np.int64), torch.from_numpy(message.labels[0].data)
            seen |= set(ids.tolist())
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model([], [table[ids]]), labels)
            loss.backward()
            assert loss.item() == pytest.approx(losses[number], abs=1e-6)
            touched = torch.zeros(20, 1).index_fill_(0, torch.tensor(ids), 1.0)
            with torch.no_grad():
                table -= touched * 0.1 * table.grad / torch.sqrt(state + 1e-10)
                state += touched * table.grad**2
            table.grad = None
            dense.step()
            dense.zero_grad()
        known = sorted(seen)
        assert np.allclose(rows[known], table.detach().numpy()[known], atol=1e-6)
        assert torch.allclose(weight, model.top.weight, atol=1e-6)

    @pytest.mark.parametrize("staleness", [1, 3])
    def test_a_run_repeats_itself_bit_for_bit(self, staleness: int) -> None:
        first, again = train(staleness), train(staleness)
        assert first[0] == again[0] and np.array_equal(first[1], again[1]) and torch.equal(first[2], again[2])

    def test_staleness_is_felt(self) -> None:
        assert train(1)[0] != train(3)[0]


class TestEvaluation:
    def test_nothing_is_inserted_and_a_miss_is_zeros(self) -> None:
        configure(user={"dim": 4})
        with context() as ctx:
            with eval_ctx(model=ctx.model) as evaluation:
                assert cnt_ctx() is evaluation
                batch = evaluation.get_embedding_from_data(to_train([single("user", 1, 2)]))
                assert not evaluation.prepare_features(batch)[1][0].any()
            assert cnt_ctx() is ctx and ctx.get_embedding_size() == [0]

    def test_it_sees_all_that_was_trained_in_the_middle_of_a_loop(self) -> None:
        configure(user={"dim": 4})
        with context(SGD(lr=0.1)) as ctx:
            for number, batch in enumerate(DataLoader(Rows(), embedding_staleness=3)):
                ctx.backward(ctx.forward(batch)[0].sum())
                if number == 5:
                    with eval_ctx(model=ctx.model) as evaluation:
                        seen = [evaluation.forward(b)[0] for b in DataLoader(Rows(requires_grad=False))]
                    again = [ctx.model([], [torch.from_numpy(row_of(ctx, b))]) for b in Rows()]
                    assert len(seen) == 12 and all(torch.equal(a, b) for a, b in zip(seen, again, strict=True))

    def test_batches_without_gradients_cannot_be_trained_on(self) -> None:
        configure(user={"dim": 4})
        with context() as ctx:
            batch = ctx.get_embedding_from_data(PersiaBatch([single("user", 1)], requires_grad=False))
            output, _ = ctx.forward(batch)
            with pytest.raises(PenstockError, match="not for training"):
                ctx.backward(output.sum())


def row_of(ctx: Any, batch: PersiaBatch) -> np.ndarray:
    return np.array(ctx._store.lookup(batch.data.ids, train=False)["user"])


class TestWrongUse:
    def test_a_loader_outside_of_a_context(self) -> None:
        with pytest.raises(PenstockError, match="inside a context"):
            iter(DataLoader(Rows()))

    def test_backward_without_a_batch(self) -> None:
        configure(user={"dim": 4})
        with context() as ctx, pytest.raises(PenstockError, match="no batch"):
            ctx._send(1.0)

    def test_one_optimizer_under_two_names(self) -> None:
        with pytest.raises(ParameterError, match="what sparse_optimizer was called in 2021"):
            TrainCtx(SGD(0.1), sparse_optimizer=SGD(0.1), dense_optimizer=None)

    def test_an_argument_that_no_age_has(self) -> None:
        with pytest.raises(ParameterError, match="no argument 'prt'; did you mean 'port'"):
            TrainCtx(sparse_optimizer=SGD(0.1), prt=3)  # type: ignore[call-arg]

    def test_a_torch_optimizer_for_embeddings(self) -> None:
        model = Sum()
        dense = torch.optim.SGD(model.parameters(), lr=0.1)
        with pytest.raises(ParameterError, match="embedding_optimizer must be an optimizer of persia"):
            TrainCtx(dense, dense, model=model)  # type: ignore[arg-type]

    def test_a_gpu_that_is_not_there(self) -> None:
        with pytest.raises(ParameterError, match="device_id=7, and this machine has"):
            context(device_id=7)

    def test_another_optimizer_over_trained_embeddings(self) -> None:
        configure(user={"dim": 4})
        with context(SGD(lr=0.1)) as ctx:
            ctx.get_embedding_from_data(to_train([single("user", 1)]))
        with pytest.raises(PenstockError, match="already trains embeddings"), context(Adam()):
            pass
        with context(SGD(lr=0.1)) as ctx:  # the same again goes on
            assert ctx.get_embedding_size() == [1]
            ctx.clear_embeddings()
        with context(Adam()) as ctx:
            assert ctx.get_embedding_size() == [0]
