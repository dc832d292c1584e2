"""Programs as they were written for PERSIA from July 2021 on: names, arguments, shapes, configuration."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from penstock.compat.persia.ctx import BaseCtx, DataCtx, EmbeddingConfig, InferCtx, TrainCtx, eval_ctx, inference_ctx
from penstock.compat.persia.sparse.optim import Adagrad

from penstock.compat.persia import _config, _service
from penstock.compat.persia._contexts import get_backend
from penstock.compat.persia._service import get_embedding_worker_services, get_middleware_services
from penstock.compat.persia.data import DataLoader, Dataloder, IterableDataset, PersiaDataset, StreamingDataset
from penstock.compat.persia.embedding.data import (
    IDTypeFeature,
    IDTypeFeatureSparse,
    IDTypeFeatureWithSingleID,
    Label,
    NonIDTypeFeature,
)
from penstock.compat.persia.embedding.data import PersiaBatch as Batch
from penstock.compat.persia.helper import ensure_persia_service
from penstock.compat.persia.prelude import PyPersiaBatchData, forward_directly_from_bytes
from penstock.core.errors import DataError, PenstockError
from penstock.kernels.reference_embedding import initial_row, signs_of

SLOTS = {"feature_index_prefix_bit": 12, "slots_config": {"user": {"dim": 4}, "item": {"dim": 4}}}
COUNT = 60  # batches


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    _service.reset()
    _service.service().configure(_service.EMBEDDING_CONFIG, SLOTS)
    yield
    _service.reset()


def rows(number: int, size: int = 32) -> tuple[np.ndarray, list[tuple[str, list[np.ndarray]]], np.ndarray]:
    """Numbers, ids and clicks of a batch; users click, or do not, whatever the item."""
    draw = np.random.default_rng(number)
    ids = {"user": draw.integers(0, 16, size).astype(np.uint64), "item": draw.integers(0, 9, size).astype(np.uint64)}
    clicks = (ids["user"] % 2).astype(np.float32).reshape(-1, 1)
    pairs = [(name, [values[i : i + 1] for i in range(size)]) for name, values in ids.items()]
    return draw.random((size, 2)).astype(np.float32), pairs, clicks


def batch_2021(number: int) -> PyPersiaBatchData:
    numbers, pairs, clicks = rows(number)
    batch = PyPersiaBatchData()
    batch.add_dense([numbers])
    batch.add_sparse(pairs)
    batch.add_target(clicks)
    return batch


class OneTensor(torch.nn.Module):
    """A model of 2021: its numbers are a tensor."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.top = torch.nn.Linear(10, 1)

    def forward(self, dense: torch.Tensor, sparse: list[torch.Tensor]) -> torch.Tensor:
        return torch.sigmoid(self.top(torch.cat([dense, *sparse], 1)))


class Lists(OneTensor):
    """A model since November 2021: its numbers are a list of tensors."""

    def forward(self, non_id_tensors: list[torch.Tensor], embedding_tensors: list[torch.Tensor]) -> torch.Tensor:  # type: ignore[override]
        assert isinstance(non_id_tensors, list)
        return super().forward(non_id_tensors[0], embedding_tensors)


loss_fn = torch.nn.BCELoss()


def learned(losses: list[float]) -> bool:
    return len(losses) == COUNT and np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])


class Fetched(PersiaDataset):
    """Batches to evaluate on, as data sets sent them in 2021."""

    def __init__(self, make: Any = batch_2021) -> None:
        super().__init__(buffer_size=2)
        self.make = make

    def fetch_data(self, persia_sender_channel: Any) -> None:
        for number in range(COUNT, COUNT + 5):
            persia_sender_channel.send(self.make(number))

    def __len__(self) -> int:
        return 5


def optimizers(model: torch.nn.Module) -> dict[str, Any]:
    return {"sparse_optimizer": Adagrad(lr=0.3), "dense_optimizer": torch.optim.Adam(model.parameters(), lr=0.05)}


class TestAugust2021:
    """`BaseCtx().backend` sends, `TrainCtx` has no model, `prepare_features` gives three things."""

    @staticmethod
    def send() -> None:
        with BaseCtx() as ctx:
            for number in range(COUNT):
                ctx.backend.send_data(batch_2021(number))
        get_backend().close()

    def test_training_and_evaluation(self) -> None:
        model, losses = OneTensor(), []
        with ensure_persia_service(self.send, embedding_config=SLOTS), TrainCtx(**optimizers(model)) as ctx:
            held_out = Dataloder(Fetched(), is_training=False)
            for data in Dataloder(StreamingDataset(10)):
                dense, sparse, target = ctx.prepare_features(data)
                loss = loss_fn(model(dense, sparse), target)
                ctx.backward(loss)
                losses.append(loss.item())
            assert learned(losses)
            with eval_ctx() as evaluation:
                for data in held_out:
                    dense, sparse, target = evaluation.prepare_features(data)
                    assert loss_fn(model(dense, sparse), target).item() < 0.3
            assert len(held_out) == 5

    def test_an_error_of_fetch_data_reaches_the_loop(self) -> None:
        class Broken(Fetched):
            def fetch_data(self, persia_sender_channel: Any) -> None:
                persia_sender_channel.send(batch_2021(0))
                raise ValueError("row 7 is broken")

        with eval_ctx(), pytest.raises(ValueError, match="row 7"):
            list(Dataloder(Broken()))

    def test_a_loop_left_early_ends_the_sender(self) -> None:
        ended = []

        class Endless(Fetched):
            def fetch_data(self, persia_sender_channel: Any) -> None:
                try:
                    while True:
                        persia_sender_channel.send(batch_2021(0))
                finally:
                    ended.append(True)

        with eval_ctx():
            batches = iter(Dataloder(Endless()))
            next(batches)
            batches.close()  # type: ignore[attr-defined]
        for _ in range(100):
            if ended:
                break
            torch.ones(1000, 1000) @ torch.ones(1000, 1000)
        assert ended

    def test_the_yaml_files_of_then(self) -> None:
        slots = {
            "forward_buffer_size": 300,
            "feature_index_prefix_bit": 12,
            "slot_config": {"age": {"dim": 8, "is_pid": False, "is_uid": True}},
            "feature_groups": {},
            "target_config": [{"name": "unused", "negative": ["unused"], "positive": ["unused"]}],
        }
        servers = {
            "PersiaShardedServerConfig": {"intent": "train", "capacity": 1000, "storage": "hdfs"},
            "PersiaMetricsConfig": {"enable_metrics": False, "push_interval": 10},
        }
        assert _config.embedding_config(slots, "e.yml").prefix_bits == 12
        service = _service.service()
        service.configure(_service.EMBEDDING_CONFIG, slots)
        service.configure(_service.GLOBAL_CONFIG, servers)
        assert (service.global_config().capacity, service.global_config().forward_buffer_size) == (1000, 300)
        service.configure(_service.GLOBAL_CONFIG, {"middleware_config": {"forward_buffer_size": 70}})
        assert service.global_config().forward_buffer_size == 70

    def test_intent_holds_what_infer_config_held_later(self) -> None:
        intent = {"Infer": {"servers": ["emb_server:8888"], "embedding_checkpoint": "/ckpt"}}
        assert _config.global_config({"common_config": {"intent": intent}}, "g.yml").embedding_checkpoint == "/ckpt"
        with pytest.raises(PenstockError, match=r"intent\.Infer has no key 'embedding_checkpont'; did you mean"):
            _config.global_config({"common_config": {"intent": {"Infer": {"embedding_checkpont": "x"}}}}, "g.yml")


class TestOctober2021:
    """`TrainCtx` has the model; `forward` gives the output and one target."""

    @staticmethod
    def send() -> None:
        with DataCtx() as ctx:
            for number in range(COUNT):
                ctx.send_data(batch_2021(number), blocking=True)

    @staticmethod
    def evaluate(model: torch.nn.Module, checkpoint: str | None = None) -> list[float]:
        with eval_ctx(model=model) as ctx:
            loader = Dataloder(Fetched(), is_training=False)
            if checkpoint is not None:
                ctx.load_checkpoint(checkpoint)
            losses = []
            for data in loader:
                output, target = ctx.forward(data)
                losses.append(loss_fn(output, target).item())
            return losses

    def test_training_a_checkpoint_and_evaluation_after_the_block(self, tmp_path: Path) -> None:
        model, losses = OneTensor(), []
        given = optimizers(model) | {"embedding_config": EmbeddingConfig(), "mixed_precision": False}
        with (
            ensure_persia_service(self.send, embedding_config=SLOTS),
            TrainCtx(model=model, device_id=None, embedding_staleness=1, **given) as ctx,
        ):
            for data in Dataloder(StreamingDataset(10), reproducible=True):
                output, target = ctx.forward(data)
                losses.append(ctx.backward(loss_fn(output, target)).item())
            assert learned(losses)
            before = self.evaluate(model)
            ctx.dump_checkpoint(str(tmp_path))
            ctx.clear_embeddings()
            assert sum(ctx.get_embedding_size()) == 0
        _service.service().configure(_service.EMBEDDING_CONFIG, SLOTS)
        assert self.evaluate(model, str(tmp_path)) == before

    def test_staleness_is_the_context_s_where_the_loader_says_none(self) -> None:
        def trained(context: int | None, loader: int | None) -> list[float]:
            _service.reset()
            _service.service().configure(_service.EMBEDDING_CONFIG, SLOTS)
            model = OneTensor()
            with TrainCtx(model=model, mixed_precision=False, embedding_staleness=context, **optimizers(model)) as ctx:
                batches = Dataloder(Fetched(), reproducible=True, embedding_staleness=loader)
                return [ctx.backward(loss_fn(*ctx.forward(data))).item() for data in batches]

        assert trained(1, None) == trained(None, 1) != trained(None, None)
        assert trained(-1, None) == trained(None, None)


class TestNovember2021:
    """`PersiaBatch` is filled with pairs and arrays; contexts give lists."""

    @staticmethod
    def batch(number: int) -> Batch:
        numbers, pairs, clicks = rows(number)
        batch = Batch(pairs)
        batch.add_non_id_type_feature(numbers)
        batch.add_label(clicks)
        return batch

    @staticmethod
    def batch_from_nothing(number: int) -> Batch:
        numbers, pairs, clicks = rows(number)
        batch = Batch()
        batch.add_not_id_type_feature([numbers])  # sic
        batch.add_id_type_features(pairs)
        batch.add_label(clicks)
        return batch

    @pytest.mark.parametrize("make", ["batch", "batch_from_nothing"])
    def test_training(self, make: str) -> None:
        def send() -> None:
            with DataCtx() as ctx:
                for number in range(COUNT):
                    ctx.send_data(getattr(self, make)(number))

        model, losses = Lists(), []
        with ensure_persia_service(send, embedding_config=SLOTS), TrainCtx(model=model, **optimizers(model)) as ctx:
            for data in Dataloder(StreamingDataset(10)):
                output, targets = ctx.forward(data)
                losses.append(ctx.backward(loss_fn(output, targets[0])).item())
        assert learned(losses)

    def test_a_label_must_be_there_when_the_batch_is_sent(self) -> None:
        numbers, pairs, _ = rows(0)
        batch = Batch(pairs)
        with pytest.raises(RuntimeError, match="needs a label"):
            DataCtx().send_data(batch)
        with pytest.raises(RuntimeError, match="needs a label"):
            batch.to_bytes()
        batch = Batch()
        batch.add_non_id_type_feature(numbers)
        with pytest.raises(DataError, match="at least one feature with ids"):
            DataCtx().send_data(batch)


class TestDecember2021:
    """Classes for features; `IDTypeFeature` is one id a sample, `IDTypeFeatureSparse` any number of them."""

    @staticmethod
    def batch(number: int, requires_grad: bool = True) -> Batch:
        numbers, pairs, clicks = rows(number)
        (first, lists), (second, ids) = pairs
        features = [IDTypeFeatureSparse(first, lists), IDTypeFeature(second, np.concatenate(ids))]
        return Batch(features, [NonIDTypeFeature(numbers)], [Label(clicks)], requires_grad=requires_grad)

    def test_training_and_evaluation(self) -> None:
        def send() -> None:
            with DataCtx() as ctx:
                for number in range(COUNT):
                    ctx.send_data(self.batch(number))

        model, losses = Lists(), []
        dense = torch.optim.Adam(model.parameters(), lr=0.05)
        with (
            ensure_persia_service(send, embedding_config=SLOTS),
            TrainCtx(model=model, embedding_optimizer=Adagrad(lr=0.3), dense_optimizer=dense) as ctx,
        ):
            held_out = Dataloder(Fetched(lambda number: self.batch(number, requires_grad=False).data))
            for data in Dataloder(StreamingDataset(10)):
                output, labels = ctx.forward(data)
                losses.append(ctx.backward(loss_fn(output, labels[0])).item())
            assert learned(losses)
            with eval_ctx(model=model) as evaluation:
                found = [loss_fn(output, labels[0]).item() for output, labels in map(evaluation.forward, held_out)]
        assert len(found) == 5 and max(found) < 0.3


class TestTheLastRelease:
    def test_a_batch_to_train_on_needs_a_label_at_once(self) -> None:
        user = IDTypeFeatureWithSingleID("user", np.array([7], np.uint64))
        for given in ({}, {"requires_grad": True}):
            with pytest.raises(RuntimeError, match="needs a label"):
                Batch([user], **given)
        assert Batch([user], requires_grad=False).batch_size == 1

    def test_meta_that_is_text_is_a_warning_and_is_not_sent(self, caplog: pytest.LogCaptureFixture) -> None:
        user = IDTypeFeatureWithSingleID("user", np.array([7], np.uint64))
        with caplog.at_level(logging.WARNING):
            batch = Batch([user], requires_grad=False, meta="day 7")  # type: ignore[arg-type]
        assert batch.data.meta is None and "meta must be bytes, got str" in caplog.text
        assert Batch([user], requires_grad=False, meta=bytearray(b"7")).data.meta == b"7"  # type: ignore[arg-type]

    def test_evaluation_before_training_gives_zeros(self, caplog: pytest.LogCaptureFixture) -> None:
        class Rows(IterableDataset):
            def __iter__(self) -> Iterator[Batch]:
                return (TestDecember2021.batch(number, requires_grad=False) for number in range(2))

        model = Lists()
        with caplog.at_level(logging.WARNING), eval_ctx(model=model) as ctx:
            for data in DataLoader(Rows()):
                _, embeddings, _ = ctx.prepare_features(data)
                assert [tuple(embedding.shape) for embedding in embeddings] == [(32, 4), (32, 4)]
                assert not any(embedding.any() for embedding in embeddings)
            assert ctx.get_embedding_size() == [0]
        assert "all of them are zeros" in caplog.text
        with TrainCtx(Adagrad(lr=0.3), torch.optim.SGD(model.parameters(), lr=0.1), model=model) as trainer:
            trainer.get_embedding_from_data(TestDecember2021.batch(0))  # and training begins after it as ever
            assert trainer.get_embedding_size()[0] > 16

    def test_rows_of_hash_stacks_are_those_of_farmhash(self) -> None:
        stack = {"hash_stack_rounds": 3, "embedding_size": 50}
        slots = {"user": {"dim": 4, "hash_stack_config": stack}}
        slots["scaled"] = {"dim": 4, "sqrt_scaling": True, "hash_stack_config": stack}
        _service.service().configure(_service.EMBEDDING_CONFIG, {"slots_config": slots})
        model, ids = Lists(), np.array([7, 2**60 + 3], np.uint64)
        features = [IDTypeFeatureWithSingleID(name, ids) for name in slots]
        batch = Batch(features, labels=[Label(np.zeros((2, 1), np.float32))])
        with TrainCtx(Adagrad(), torch.optim.SGD(model.parameters(), lr=0.1), model=model) as ctx:
            _, embeddings, _ = ctx.prepare_features(ctx.get_embedding_from_data(batch))
        for group, (embedding, factor) in enumerate(zip(embeddings, (1, 3**-0.5), strict=True), start=1):
            for number, identity in enumerate(ids.tolist()):
                signs = signs_of(identity, group << 56, 2**56 - 1, 3, 50, "farmhash")
                parts = [initial_row(sign, 4, "uniform", -0.01, 0.01, 0, "xoshiro256++") for sign in signs]
                assert embedding[number].detach().numpy() == pytest.approx(np.sum(parts, 0) * factor, abs=1e-8)


class TestServing:
    """TorchServe's handlers: a context that is made once and never entered, or entered for each request."""

    @pytest.fixture
    def checkpoint(self, tmp_path: Path) -> tuple[torch.nn.Module, list[torch.Tensor]]:
        model = OneTensor()
        with TrainCtx(model=model, mixed_precision=False, **optimizers(model)) as ctx:
            for data in Dataloder(Fetched()):
                ctx.backward(loss_fn(*ctx.forward(data)))
            ctx.dump_checkpoint(str(tmp_path))
            with eval_ctx(model=model) as evaluation:
                expected = evaluation.forward(evaluation.get_embedding_from_data(batch_2021(1)))[0].detach()
        _service.reset()
        settings = {"common_config": {"infer_config": {"servers": ["x:1"], "embedding_checkpoint": str(tmp_path)}}}
        _service.service().configure(_service.GLOBAL_CONFIG, settings)
        _service.service().configure(_service.EMBEDDING_CONFIG, SLOTS)
        return model, expected

    def test_without_a_block(self, checkpoint: Any) -> None:
        model, expected = checkpoint
        context = InferCtx(get_embedding_worker_services())
        context.wait_for_serving()
        for _ in range(2):
            batch = context.get_embedding_from_bytes(batch_2021(1).to_bytes(), 0)
            dense, sparse, nothing = context.prepare_features(batch)
            assert nothing is None and torch.equal(model(dense, sparse), expected)

    def test_a_block_for_each_request(self, checkpoint: Any) -> None:
        model, expected = checkpoint
        context = inference_ctx()
        for _ in range(2):
            with context as ctx:
                batch = forward_directly_from_bytes(batch_2021(1).to_bytes(), 0)
                model_input, _ = ctx.prepare_features(batch, is_training=False)
            assert torch.equal(model(*model_input), expected)

    def test_where_workers_were_to_be_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert get_embedding_worker_services() == ["embedding_worker:8887"]
        assert get_middleware_services() == ["middleware:8000"]
        monkeypatch.setenv("EMBEDDING_WORKER_SERVICE", "localhost:8887")
        assert get_embedding_worker_services() == ["localhost:8887"]
