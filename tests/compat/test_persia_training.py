"""Whole programs: a data loader and a trainer in one process, checkpoints, inference, and what can go wrong."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from penstock.compat.persia.ctx import DataCtx, InferCtx, TrainCtx, eval_ctx

from penstock.compat.persia import _service
from penstock.compat.persia._contexts import init_backend
from penstock.compat.persia.data import DataLoader, IterableDataset, IterableDatasetBase, StreamingDataset
from penstock.compat.persia.embedding import Adagrad
from penstock.compat.persia.embedding.data import IDTypeFeatureWithSingleID, Label, NonIDTypeFeature, PersiaBatch
from penstock.compat.persia.helper import ensure_persia_service
from penstock.compat.persia.prelude import PyPersiaBatchData, forward_directly_from_bytes, forward_directly_from_data
from penstock.core.errors import ArtefactError, DataError, ParameterError, PenstockError

SLOTS = {"slots_config": {"user": {"dim": 4}, "item": {"dim": 4}}}


@pytest.fixture(autouse=True)
def fresh():
    _service.reset()
    _service.service().configure(_service.EMBEDDING_CONFIG, SLOTS)
    yield
    _service.reset()


def send_until_enough() -> None:
    with contextlib.suppress(SystemExit):  # how a data loader ends whose trainer has enough; threads take no notice
        send(100_000)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.top = torch.nn.Linear(10, 1)

    def forward(self, numbers: list[torch.Tensor], embeddings: list[torch.Tensor]) -> torch.Tensor:
        return torch.sigmoid(self.top(torch.cat([numbers[0], *embeddings], 1)))


def rows(number: int, size: int = 32) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Users who click, or do not, on every item alike."""
    draw = np.random.default_rng(number)
    users, items = draw.integers(0, 16, size).astype(np.uint64), draw.integers(0, 9, size).astype(np.uint64)
    clicks = (users % 2).astype(np.float32).reshape(-1, 1)
    return users, items, draw.random((size, 2)).astype(np.float32), clicks


def batch(number: int, requires_grad: bool = True, **more: Any) -> PersiaBatch:
    users, items, numbers, clicks = rows(number)
    ids = [IDTypeFeatureWithSingleID("user", users), IDTypeFeatureWithSingleID("item", items)]
    return PersiaBatch(ids, [NonIDTypeFeature(numbers)], [Label(clicks)], requires_grad=requires_grad, **more)


def send(count: int, start: int = 0) -> None:
    with DataCtx() as ctx:
        for number in range(start, start + count):
            ctx.send_data(batch(number))


def context(model: torch.nn.Module | None = None, **settings: Any) -> TrainCtx:
    model = model or Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    return TrainCtx(Adagrad(lr=0.3), optimizer, model=model, mixed_precision=False, **settings)


def loop(ctx: TrainCtx, loader: Any) -> list[float]:
    losses = []
    for data in loader:
        output, labels = ctx.forward(data)
        loss = torch.nn.functional.binary_cross_entropy(output, labels[0])
        assert ctx.backward(loss) is loss
        losses.append(loss.item())
    return losses


class TestOneProcess:
    def test_a_data_loader_on_a_thread(self) -> None:
        thread = threading.Thread(target=send, args=(60,))
        with context() as ctx:
            thread.start()
            losses = loop(ctx, DataLoader(StreamingDataset(buffer_size=3)))
        thread.join()
        assert len(losses) == 60 and np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])

    def test_everything_sent_before_training_begins(self) -> None:
        send(20)
        with context() as ctx:
            assert len(loop(ctx, DataLoader(StreamingDataset(10)))) == 20

    def test_two_data_loaders_of_one_thread_follow_each_other(self) -> None:
        for number in range(2):
            DataCtx().send_data(batch(number))
        with context() as ctx:
            assert len(loop(ctx, DataLoader(StreamingDataset(10)))) == 2

    def test_two_epochs_are_two_streams(self) -> None:
        with context() as ctx:
            for _ in range(2):
                send(7)
                assert len(loop(ctx, DataLoader(StreamingDataset(10)))) == 7

    def test_a_loop_that_is_left_early_lets_the_data_loader_go(self) -> None:
        thread = threading.Thread(target=send_until_enough)
        with context() as ctx:
            thread.start()
            for number, data in enumerate(DataLoader(StreamingDataset(3))):
                ctx.backward(ctx.forward(data)[0].sum())
                if number == 5:
                    break
        thread.join(300.0)
        assert not thread.is_alive()

    def test_an_error_in_the_loop_ends_everything(self) -> None:
        thread = threading.Thread(target=send_until_enough)
        with pytest.raises(ZeroDivisionError), context():
            thread.start()
            for _ in DataLoader(StreamingDataset(3)):
                raise ZeroDivisionError
        thread.join(300.0)
        assert not thread.is_alive()

    def test_a_data_loader_that_fails_is_named(self) -> None:
        def fail() -> None:
            with pytest.raises(ValueError, match="line 3"), DataCtx() as data:
                data.send_data(batch(0))
                raise ValueError("line 3 is not a number")

        thread = threading.Thread(target=fail)
        with context() as ctx, pytest.raises(PenstockError, match="data loader 0 .* ValueError: line 3 is not"):  # noqa: RUF043
            thread.start()
            loop(ctx, DataLoader(StreamingDataset(3)))
        thread.join()

    def test_no_data_loader_at_all_is_an_error_and_no_hang(self) -> None:
        with context() as ctx, pytest.raises(TimeoutError, match="no data loader is connected"):
            loop(ctx, DataLoader(StreamingDataset(3), timeout_ms=200))

    def test_a_silent_data_loader_ends_the_loop_with_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        enough = threading.Event()

        def send_one() -> None:
            with DataCtx() as data:
                data.send_data(batch(0))
                enough.wait(300.0)

        thread = threading.Thread(target=send_one)
        with context() as ctx:
            thread.start()
            assert len(loop(ctx, DataLoader(StreamingDataset(3), timeout_ms=500))) == 1
        enough.set()
        thread.join()
        assert "no batch came within 0.5 s (data loader 0" in caplog.text

    def test_meta_and_maps_come_along(self) -> None:
        backend, data = init_backend(), PyPersiaBatchData()
        users, items, numbers, clicks = rows(0)
        data.add_dense([numbers, numbers])
        data.add_sparse([(n, [v[i : i + 1] for i in range(len(v))]) for n, v in (("user", users), ("item", items))])
        data.add_target(clicks)
        data.add_map_dense("weight", clicks)
        data.add_meta(b"day 7")
        backend.send_data(data)
        backend.close()
        with TrainCtx(sparse_optimizer=Adagrad(), data_queue_size=2) as ctx:
            [found] = ctx.data_loader()
            (dense, embeddings), target = ctx.prepare_features(found)
            assert len(dense) == 2 and len(embeddings) == 2 and target.shape == (32, 1)
            assert found.meta == b"day 7" and np.array_equal(found.extras["weight"], clicks)
            assert found.dense_tensor is dense[0] and found.target_tensor is target

    def test_something_that_is_no_batch(self) -> None:
        with DataCtx() as ctx, pytest.raises(DataError, match="got dict"):
            ctx.send_data({"user": 1})


class TestOwnDatasets:
    def test_an_error_in_the_data_set_is_the_error_of_the_loop(self) -> None:
        class Broken(IterableDataset):
            def __iter__(self):
                yield batch(0)
                yield batch(1)
                raise KeyError("column")

        with context() as ctx, pytest.raises(KeyError, match="column"):
            loop(ctx, DataLoader(Broken()))

    def test_something_that_is_no_batch_is_named(self) -> None:
        class Wrong(IterableDataset):
            def __iter__(self):
                yield 3

        with context() as ctx, pytest.raises(DataError, match="got int"):
            loop(ctx, DataLoader(Wrong()))

    def test_a_loop_that_is_left_lets_the_data_set_go(self) -> None:
        made: list[int] = []

        class Endless(IterableDataset):
            def __iter__(self):
                while True:
                    made.append(1)
                    yield batch(0)

        with context() as ctx:
            for data in DataLoader(Endless(buffer_size=3)):
                ctx.backward(ctx.forward(data)[0].sum())
                break
            time.sleep(0.2)
            assert len(made) <= 10  # one trained, four looked up ahead, three made ahead

    def test_a_data_set_that_sends_by_itself(self) -> None:
        class Sending(IterableDatasetBase):
            def consume_dataset(self):
                for number in range(4):
                    self.sender.send(batch(number))
                    yield number

        with context() as ctx:
            assert len(loop(ctx, DataLoader(Sending()))) == 4

    def test_one_without_batches_says_what_it_lacks(self) -> None:
        with context() as ctx, pytest.raises(TypeError, match="IterableDataset must say in __iter__"):
            loop(ctx, DataLoader(IterableDataset()))


class TestTheContextOf2021:
    def test_what_belongs_to_the_last_release(self) -> None:
        with (
            TrainCtx(sparse_optimizer=Adagrad()) as ctx,
            pytest.raises(PenstockError, match="the context of July 2021"),
        ):
            ctx.backward(torch.zeros(()))

    def test_its_loop_with_a_scaler(self) -> None:
        backend = init_backend(init_output=True, wait_server_ready=True)
        for number in range(40):
            backend.send_data(batch(number))
        backend.close()
        model = Model()
        dense_optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        losses = []
        with TrainCtx(grad_scaler=scaler, sparse_optimizer=Adagrad(lr=0.3), data_queue_size=5) as ctx:
            for index, data in enumerate(ctx.data_loader()):
                (dense, embeddings), target = ctx.prepare_features(data)
                loss = torch.nn.functional.binary_cross_entropy(model([dense], embeddings), target)
                scaler.scale(loss).backward()
                assert ctx.on_after_backward(scaler.get_scale(), index) is True
                scaler.step(dense_optimizer)
                dense_optimizer.zero_grad()
                scaler.update()
                losses.append(loss.item())
        assert len(losses) == 40 and np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])

    def test_what_overflows_is_said_in_every_step(self) -> None:
        for number in range(3):
            init_backend().send_data(batch(number))
        init_backend().close()
        with TrainCtx(sparse_optimizer=Adagrad()) as ctx:
            before = None
            for index, data in enumerate(ctx.data_loader()):
                (_, (user, item)), _ = ctx.prepare_features(data)
                (user.sum() * float("inf") + item.sum()).backward()
                assert ctx.on_after_backward(1.0, index) is False
                before = before or ctx._engine.dropped
            assert before == {"user": 3}


class TestCheckpoints:
    def test_model_optimizer_and_embeddings_come_back(self, tmp_path: Path) -> None:
        model = Model()
        send(20)
        with context(model) as ctx:
            loop(ctx, DataLoader(StreamingDataset(10)))
            ctx.dump_checkpoint(str(tmp_path))
            with eval_ctx(model=model) as evaluation:
                wanted = evaluation.forward(evaluation.get_embedding_from_data(batch(99, False)))[0]
            send(5)
            later = loop(ctx, DataLoader(StreamingDataset(10)))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["dense", "embedding", "opt"]

        _service.reset()
        _service.service().configure(_service.EMBEDDING_CONFIG, SLOTS)
        other = Model()
        with context(other) as ctx:
            ctx.load_checkpoint(str(tmp_path))
            with eval_ctx(model=other) as evaluation:
                found = evaluation.forward(evaluation.get_embedding_from_data(batch(99, False)))[0]
            send(5)
            assert loop(ctx, DataLoader(StreamingDataset(10))) == later  # the optimizers' state included
        assert torch.equal(found, wanted)

    def test_the_middle_of_a_loop_is_a_moment_to_save(self, tmp_path: Path) -> None:
        send(12)
        with context() as ctx:
            for number, data in enumerate(DataLoader(StreamingDataset(12), embedding_staleness=3)):
                output, labels = ctx.forward(data)
                ctx.backward(torch.nn.functional.binary_cross_entropy(output, labels[0]))
                if number == 5:
                    ctx.dump_embedding(str(tmp_path), blocking=False)
            ctx.wait_for_dump_embedding()
            ctx.load_embedding(str(tmp_path))
            assert ctx._store.stats()["steps"] == {"user": 6, "item": 6}

    def test_inference_needs_nothing_but_the_directory(self, tmp_path: Path) -> None:
        send(5)
        with context() as ctx:
            loop(ctx, DataLoader(StreamingDataset(10)))
            ctx.dump_checkpoint(str(tmp_path / "ckpt"), with_jit_model=False)
            data = batch(3, False)
            wanted = [t.detach() for t in ctx.prepare_features(ctx.get_embedding_from_data(data))[1]]
        _service.reset()
        infer = {"common_config": {"infer_config": {"embedding_checkpoint": str(tmp_path / "ckpt"), "servers": []}}}
        _service.service().configure(_service.GLOBAL_CONFIG, infer)
        model = Model()
        with InferCtx(["localhost:8888"], model=model) as serving:
            serving.wait_for_serving()
            found = serving.prepare_features(serving.get_embedding_from_bytes(data.to_bytes()))
            assert found[2] is None and all(torch.equal(a, b) for a, b in zip(found[1], wanted, strict=True))
            for direct in (forward_directly_from_bytes(data.to_bytes()), forward_directly_from_data(data)):
                assert torch.equal(serving.forward(direct)[0], model(found[0], found[1]))

    def test_incremental_updates_reach_those_who_look_up(self, tmp_path: Path) -> None:
        server = {"enable_incremental_update": True, "incremental_dir": str(tmp_path / "inc")}
        settings = {"embedding_parameter_server_config": {**server, "incremental_buffer_size": 64}}
        _service.service().configure(_service.GLOBAL_CONFIG, settings)
        send(6)
        with context() as ctx:
            ctx.dump_embedding(str(tmp_path / "ckpt"))
            loop(ctx, DataLoader(StreamingDataset(10)))
            data = batch(3, False)
            wanted = [t.detach() for t in ctx.prepare_features(ctx.get_embedding_from_data(data))[1]]
        _service.reset()
        settings["common_config"] = {"infer_config": {"embedding_checkpoint": str(tmp_path / "ckpt")}}  # type: ignore[assignment]
        _service.service().configure(_service.GLOBAL_CONFIG, settings)
        with InferCtx() as serving:
            found = serving.prepare_features(serving.get_embedding_from_data(data))[1]
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))

    def test_a_model_as_torchscript(self, tmp_path: Path) -> None:
        class Scripted(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.top = torch.nn.Linear(10, 1)

            def forward(self, numbers: list[torch.Tensor], embeddings: list[torch.Tensor]) -> torch.Tensor:
                return self.top(torch.cat(numbers + embeddings, 1))

        model = Scripted()
        with context(model) as ctx:
            ctx.dump_checkpoint(str(tmp_path), with_jit_model=True)
        again = torch.jit.load(str(tmp_path / "jit_dense.pt"))
        inputs = [torch.ones(1, 2)], [torch.ones(1, 4), torch.ones(1, 4)]
        assert torch.equal(again(*inputs), model(*inputs))

    def test_a_dense_file_of_persia_is_read_without_running_code(self, tmp_path: Path) -> None:
        other = Model()
        torch.save(other.state_dict(), tmp_path / "dense.pt")
        with context() as ctx:
            ctx.load_torch_state_dict(ctx.model, str(tmp_path / "dense.pt"))
            assert torch.equal(ctx.model.top.weight, other.top.weight)
            torch.save(other, tmp_path / "dense.pt")  # a pickled object, not tensors
            with pytest.raises(ArtefactError, match="without running code"):
                ctx.load_torch_state_dict(ctx.model, str(tmp_path / "dense.pt"))

    def test_a_model_and_an_optimizer_that_the_script_names(self, tmp_path: Path) -> None:
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        with context() as ctx:
            ctx.dump_checkpoint(str(tmp_path), model, optimizer)
            other = torch.nn.Linear(2, 1)
            rates = torch.optim.SGD(other.parameters(), lr=0.1)
            ctx.load_checkpoint(str(tmp_path), other, rates)
        assert torch.equal(other.weight, model.weight) and rates.param_groups[0]["lr"] == 0.5
        assert {path.name for path in tmp_path.iterdir()} == {"dense", "opt", "embedding"}

    def test_what_is_wrong_with_a_checkpoint_is_named(self, tmp_path: Path) -> None:
        with context() as ctx:
            for step in (ctx.dump_checkpoint, ctx.load_checkpoint, ctx.dump_embedding, ctx.load_embedding):
                with pytest.raises(PenstockError, match=r"folders of this machine.*hdfs dfs -put"):
                    step("hdfs://cluster/out")
            with pytest.raises(ArtefactError, match="holds no embeddings written by Penstock"):
                ctx.load_embedding(str(tmp_path))
            with pytest.raises(ArtefactError, match="is not there"):
                ctx.load_torch_state_dict(ctx.model, str(tmp_path / "dense.pt"))
            ctx.dump_checkpoint(str(tmp_path))
            weights = tmp_path / "dense" / "state.safetensors"
            weights.write_bytes(weights.read_bytes()[:-1])
            with pytest.raises(ArtefactError, match="truncated or altered"):
                ctx.load_checkpoint(str(tmp_path))
            ctx.dump_torch_state_dict(torch.nn.Linear(3, 3), str(tmp_path), "dense.pt")
            with pytest.raises(ArtefactError, match="another model or optimizer"):
                ctx.load_checkpoint(str(tmp_path))
        _service.reset()
        with pytest.raises(PenstockError, match="there are no embeddings"), eval_ctx() as evaluation:
            evaluation.get_embedding_size()

    def test_an_error_beside_the_training_is_raised_when_it_is_waited_for(self, tmp_path: Path) -> None:
        (tmp_path / "embedding").mkdir()
        (tmp_path / "embedding" / "mine.txt").write_text("not yours")
        with context() as ctx:
            ctx.dump_embedding(str(tmp_path), blocking=False)
            with pytest.raises(PenstockError, match="was not written by Penstock"):
                ctx.wait_for_dump_embedding()


class TestService:
    def test_functions_in_place_of_processes(self) -> None:
        def data_loader() -> None:
            from penstock.compat.persia.env import get_replica_index

            number = get_replica_index() or 0
            send(10, start=100 * number)

        _service.reset()
        with ensure_persia_service(data_loader, embedding_config=SLOTS, data_loader_replica_num=2), context() as ctx:
            assert len(loop(ctx, DataLoader(StreamingDataset(3), reproducible=True))) == 20

    def test_a_trainer_as_a_function(self) -> None:
        found: list[float] = []

        def nn_worker() -> None:
            with context() as ctx:
                found.extend(loop(ctx, DataLoader(StreamingDataset(3))))

        _service.reset()
        with ensure_persia_service(lambda: send(8), nn_worker, embedding_config=SLOTS):
            pass
        assert len(found) == 8

    def test_an_error_of_the_data_loader_is_not_lost(self) -> None:
        def data_loader() -> None:
            raise OSError("no disk")

        with pytest.raises(PenstockError, match="data loader 0 failed: OSError: no disk"):  # noqa: SIM117
            with ensure_persia_service(data_loader, embedding_config=SLOTS), context() as ctx:
                loop(ctx, DataLoader(StreamingDataset(3)))
        with pytest.raises(PenstockError, match="data loader 0 failed: OSError: no disk"):  # noqa: SIM117
            with ensure_persia_service(data_loader, embedding_config=SLOTS):
                time.sleep(0.2)

    def test_a_configuration_from_a_path(self, tmp_path: Path) -> None:
        (tmp_path / "e.yml").write_text("slots_config: {age: {dim: 3}}")
        with ensure_persia_service(embedding_config_path=str(tmp_path / "e.yml")):
            assert _service.service().slots().names == ["age"]

    def test_what_it_cannot_do(self) -> None:
        with pytest.raises(ParameterError, match="penstock persia-launcher"):
            ensure_persia_service(nproc_per_node=2)
        with pytest.raises(ParameterError, match="slots_config"), ensure_persia_service(embedding_config={}):
            pass
