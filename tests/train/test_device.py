"""`fit` with tables on the model's device, here the CPU: every model, layout and setting; resumption; bad input."""

from __future__ import annotations

import runpy
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from penstock import ColumnSchema, Schema
from penstock.core import artefact
from penstock.core.errors import ColumnNotFoundError, DataError, ParameterError
from penstock.embedding import SGD, Adagrad, CachedEmbeddings, FusedEmbeddings, SlotConfig, Store, slots_from_schema
from penstock.loader.torch import Loader
from penstock.nn import DLRM, MLP, DCNv2, DeepFM
from penstock.train import DeviceStep, fit
from penstock.train.executors.device_reader import DeviceReader

from .conftest import ROLES, SCHEMA, assert_same_bits, some_rows


class Clicks(nn.Module):
    """Reads packed batches."""

    def __init__(self, dropout: float = 0.0, **tables) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.tables = FusedEmbeddings(
            {"user": 40, "item": 30}, 4, **{"optimizer": "adagrad", "lr": 0.2, "output": "concat", **tables}
        )
        self.layers = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 1))

    def forward(self, ids, numbers: torch.Tensor) -> torch.Tensor:
        return self.layers(self.tables(ids, numbers)).squeeze(1)


def loader(rows: int = 640, batch_size: int = 32, seed: int = 0, **options) -> Loader:
    data = some_rows(rows, seed)
    return Loader(data, batch_size, **ROLES, **{"layout": "packed", "shuffle": True, "chunk_rows": 200, **options})


def quick(model: nn.Module, data=None, tables=None, **settings):
    return fit(model, data if data is not None else loader(), tables, progress=False, **settings)


def state(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: value.detach().float().numpy().copy() for name, value in model.state_dict().items()}


# The loop.


def test_it_learns_and_reports() -> None:
    seen: list = []
    data = loader(6400, 64)
    history = quick(
        Clicks(), data, epochs=2, valid=loader(400, seed=1), eval_every=60, log_every=50, callbacks=[seen.append]
    )
    assert seen == history.records
    assert [r.step for r in history.of("train")] == [50, 100, 150, 200]
    assert [(r.step, r.epoch) for r in history.of("valid")] == [(60, 0), (100, 0), (120, 1), (180, 1), (200, 1)]
    assert history.last("valid").metrics["auc"] > 0.8 > history.of("train")[0].metrics["auc"]
    assert history.values("train", "rows") == [3200, 6400, 9600, 12800]
    for record in history.of("train"):
        assert 0 < record.seconds["wait"] + record.seconds["step"] <= record.seconds["total"]
    assert history.stats["rows"] == 12800 and history.stats["steps"] == 200 and data.epoch == 2
    assert history.stats["captured"] is False and history.stats["skipped_steps"] == 0


def test_stopping_and_one_record_an_epoch() -> None:
    assert quick(Clicks(), epochs=3, max_steps=7).last("train").step == 7
    stop = quick(Clicks(), epochs=3, log_every=2, callbacks=[lambda record: record.step >= 4])
    assert stop.stats["steps"] == 4
    assert [r.step for r in quick(Clicks(), epochs=3, log_every=None).of("train")] == [20, 40, 60]


@pytest.mark.parametrize("layout", ["packed", "dict"])
@pytest.mark.parametrize("kind", [DLRM, DCNv2, DeepFM, MLP])
def test_models_over_a_schema_take_fused_tables_for_a_store(kind, layout: str) -> None:
    torch.manual_seed(0)
    model, tables = kind(SCHEMA, 4), FusedEmbeddings(SCHEMA, 4, optimizer="adagrad", lr=0.2)
    history = quick(model, loader(6400, 64, layout=layout), tables, epochs=2, valid=loader(400, seed=1, layout=layout))
    assert history.last("valid").metrics["auc"] > 0.8


@pytest.mark.parametrize("kind", [DLRM, MLP])
def test_tables_and_stores_of_several_dims(kind) -> None:
    dims = {"user": 4, "item": 2}
    slots = [SlotConfig(name, dim) for name, dim in dims.items()]
    homes = {
        "fused": FusedEmbeddings(SCHEMA, dims, optimizer="adagrad", lr=0.2),
        "cached": CachedEmbeddings(SCHEMA, dims, cache_rows=70, optimizer="adagrad", lr=0.2),
        "store": Store(slots, Adagrad(lr=0.2)),
    }
    homes["cached"].load_state_dict(homes["fused"].state_dict())
    trained = {}
    for name, home in homes.items():
        torch.manual_seed(0)
        model = kind(SCHEMA, dims)
        history = quick(model, loader(3200, 64), home, epochs=3)
        assert history.last("train").metrics["auc"] > 0.8, name
        trained[name] = state(model)
    assert_same_bits(trained["fused"], trained["cached"])
    with pytest.raises(
        ParameterError, match=r"the tables have dim=\{'user': 4, 'item': 2\}, the model embedding_dim=4"
    ):
        quick(kind(SCHEMA, 4), loader(), homes["fused"])
    with pytest.raises(ParameterError, match="slot 'item' has dim=2, the model embedding_dim=4"):
        quick(kind(SCHEMA, 4), loader(), homes["store"])
    with pytest.raises(ParameterError, match="need align=1"):
        quick(kind(SCHEMA, dims), loader(), FusedEmbeddings(SCHEMA, dims, align=4))


def test_columns_are_found_by_name_whatever_their_order() -> None:
    columns = {"categorical": ["item", "user"], "continuous": ["age", "price"], "labels": ["click"]}
    turned = Loader(some_rows(), 32, **columns, layout="packed", shuffle=True, chunk_rows=200)
    trained = []
    for data in (loader(), loader(layout="dict"), turned):
        torch.manual_seed(0)
        model, tables = MLP(SCHEMA, 4, hidden=(8,)), FusedEmbeddings(SCHEMA, 4, lr=0.2)
        quick(model, data, tables)
        trained.append(state(model) | state(tables))
    for other in trained[1:]:
        assert_same_bits(trained[0], other)


def test_a_model_with_its_own_tables_reads_either_layout() -> None:
    models = [Clicks(), Clicks()]
    quick(models[0], loader())
    quick(models[1], loader(layout="dict"))
    assert_same_bits(state(models[0]), state(models[1]))


# Lists.


def lists_loader(**options) -> Loader:
    rng = np.random.default_rng(0)
    tags = [list(rng.integers(0, 20, n)) for n in rng.integers(0, 5, 600)]
    data = {"user": rng.integers(0, 9, 600), "tags": tags, "click": [int(sum(t) % 2) for t in tags]}
    roles = {"categorical": ["user", "tags"], "labels": ["click"]}
    return Loader(data, 50, **roles, **{"layout": "packed", "shuffle": True, **options})


LISTS = Schema(
    [
        ColumnSchema("user", "int64", role="categorical", cardinality=9),
        ColumnSchema("tags", "int64", role="categorical", cardinality=20, is_list=True),
        ColumnSchema("click", "int64", role="label"),
    ]
)


def test_list_columns_in_every_layout() -> None:
    trained = []
    for options in ({}, {"layout": "dict"}, {"layout": "dict", "lists": "nested"}):
        torch.manual_seed(0)
        model = MLP(LISTS, 4, hidden=(16,))
        tables = FusedEmbeddings(LISTS, 4, optimizer="adagrad", lr=0.3, scale=0.1)
        history = quick(model, lists_loader(**options), tables, epochs=2)
        trained.append(state(model) | state(tables))
    assert history.values("train", "loss")[-1] < 0.75
    assert_same_bits(trained[0], trained[1])
    assert_same_bits(trained[0], trained[2])


def test_compiling_is_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model, self.compiled = model, False

        def forward(self, *given: Any) -> torch.Tensor:
            if not self.compiled:
                time.sleep(0.6)
            self.compiled = True
            return self.model(*given)

    monkeypatch.setattr("torch.compile", lambda model, dynamic: Slow(model))
    began = time.perf_counter()
    history = quick(Clicks(), loader(), compile=True, log_every=None)
    record = history.last("train")
    assert record.seconds["compile"] >= 0.6
    # What was counted twice would not fit.
    assert record.seconds["compile"] + record.seconds["total"] <= time.perf_counter() - began
    trained = record.rows - 32  # the first batch
    assert record.rows_per_second == pytest.approx(trained / record.seconds["total"])
    first = quick(Clicks(), loader(), compile=True, log_every=1).of("train")[0]
    assert first.rows_per_second == pytest.approx(32 / (first.seconds["compile"] + first.seconds["total"]), 1e-3)


def test_graphs_need_a_gpu() -> None:
    with pytest.raises(ParameterError, match="CUDA graphs need a model on a GPU"):
        DeviceStep(Clicks(), graph=True)


def test_the_ninth_model_of_a_class_is_compiled_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._dynamo.config as limits

    monkeypatch.setattr("torch.compile", lambda model, dynamic: model)
    with limits.patch(recompile_limit=8):
        step = DeviceStep(Clicks(), compile=True)
        for batch in loader(96):
            step(*batch)
        assert step.steps == 3 and limits.recompile_limit >= 64


def test_batches_in_memory_of_their_own_train_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the compiler and a graph need: inputs whose place and strides never change."""
    places: list = []

    class Placed(Clicks):
        def forward(self, ids, numbers: torch.Tensor) -> torch.Tensor:
            matrix = ids[0] if isinstance(ids, tuple) else ids
            places.append((matrix.data_ptr(), matrix.stride(), numbers.data_ptr(), numbers.stride(), len(numbers)))
            return super().forward(ids, numbers)

    monkeypatch.setattr("torch.compile", lambda model, dynamic: model)
    lists = [
        ((ids[:, :1], {"item": (ids[:, 1], torch.arange(len(ids) + 1))}), numbers, labels)
        for ids, numbers, labels in loader()
    ]
    for make in (lambda: loader(650), lambda: lists):
        moving, settled = Placed(), Placed()
        quick(moving, make(), compile=False)
        different = len({place for place in places if place[-1] == 32})
        places.clear()
        quick(settled, make(), compile=True)
        assert len({place for place in places if place[-1] == 32}) == 1 < different
        places.clear()
        assert_same_bits(state(moving), state(settled))


# Coming batches.


def test_coming_ids_are_announced_before_the_step_of_the_batch_before() -> None:
    class Told(Clicks):
        def __init__(self) -> None:
            super().__init__()
            self.events: list = []

        def prefetch(self, ids: torch.Tensor | None) -> None:
            self.events.append(("prefetch", None if ids is None else ids[:, 0].tolist()))

        def forward(self, ids, numbers: torch.Tensor) -> torch.Tensor:
            self.events.append(("step", ids[:, 0].tolist()))
            return super().forward(ids, numbers)

    model, data = Told(), loader(160, shuffle=False)
    batches = [batch[0][:, 0].tolist() for batch in data]
    quick(model, data)
    wanted = [("prefetch", batches[0])]
    for ids, coming in zip(batches, [*batches[1:], None], strict=True):  # None: no more, but the last must be there
        wanted += [("prefetch", coming), ("step", ids)]
    assert model.events == wanted


def test_a_cache_changes_nothing() -> None:
    """Not even one that hardly holds a batch, with an evaluation between steps."""
    plain, cached = Clicks(), Clicks()
    cached.tables = CachedEmbeddings(
        {"user": 40, "item": 30}, 4, cache_rows=60, optimizer="adagrad", lr=0.2, output="concat"
    )
    cached.load_state_dict(plain.state_dict())
    for model in (plain, cached):
        quick(model, epochs=2, valid=loader(200, batch_size=20, seed=1), eval_every=7)
    assert cached.tables.stats()["brought_in"] > 70
    assert_same_bits(state(plain), state(cached))


# Resumption.


def parts(model: nn.Module) -> dict:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=3)
    return {
        "dense_optimizer": optimizer, "grad_scaler": scaler,
        "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5),
    }  # fmt: skip


def test_interrupted_and_resumed_is_the_same_as_never_interrupted(tmp_path) -> None:
    """Dropout, a scaler, a schedule: all goes on with the bits it would have had."""
    whole, half, rest = Clicks(0.3), Clicks(0.3), Clicks(0.3)
    settings, resumed = parts(whole), parts(rest)
    torch.manual_seed(11)
    quick(whole, epochs=2, valid=loader(100), eval_every=5, **settings)
    torch.manual_seed(11)
    quick(half, epochs=2, valid=loader(100), eval_every=5, max_steps=13, checkpoint_dir=tmp_path, **parts(half))
    history = quick(rest, epochs=2, valid=loader(100), eval_every=5, checkpoint_dir=tmp_path, **resumed)
    assert history.stats["steps"] == 40 and history.stats["rows"] == 1280
    assert [r.step for r in history.of("valid")] == [5, 10, 15, 20, 25, 30, 35, 40]
    assert_same_bits(state(whole), state(rest))
    assert resumed["grad_scaler"].get_scale() == settings["grad_scaler"].get_scale() > 16
    assert resumed["dense_optimizer"].param_groups[0]["lr"] == pytest.approx(0.01 * 0.5**10)
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".json", ".safetensors"}


def test_a_resumed_optimizer_steps_in_its_own_way(tmp_path) -> None:
    """What one on a GPU has saved (`capturable`) goes on here, where torch would refuse to step like that."""
    whole, half, rest = Clicks(), Clicks(), Clicks()
    quick(whole, epochs=2, dense_optimizer=torch.optim.Adam(whole.parameters()))
    optimizer = torch.optim.Adam(half.parameters())
    quick(half, epochs=1, checkpoint_dir=tmp_path, dense_optimizer=optimizer)
    (saved,) = tmp_path.glob("step-*")
    with artefact.writing(tmp_path / "again", "training", 1) as folder:
        for file in saved.iterdir():
            if file.name == "training.json":
                assert '["capturable", false]' in file.read_text()
                (folder / file.name).write_text(
                    file.read_text().replace('["capturable", false]', '["capturable", true]')
                )
            elif file.name != artefact.MANIFEST:
                shutil.copy(file, folder)
    shutil.rmtree(saved)
    (tmp_path / "again").rename(saved)
    optimizer = torch.optim.Adam(rest.parameters())
    history = quick(rest, epochs=2, checkpoint_dir=tmp_path, dense_optimizer=optimizer)
    assert history.stats["steps"] == 40 and not optimizer.param_groups[0]["capturable"]
    assert_same_bits(state(whole), state(rest))


def test_evaluation_tells_the_log_loss_beside_another_loss() -> None:
    model = Clicks()
    mine = quick(model, epochs=1, valid=loader(100)).last("valid")
    assert mine.metrics["log_loss"] == pytest.approx(mine.loss, rel=1e-5)
    weighted = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0))
    other = quick(model, max_steps=1, valid=loader(100), eval_every=1, loss_fn=weighted).last("valid")
    assert 0 < other.metrics["log_loss"] < other.loss


def test_tables_beside_the_model_are_saved_too(tmp_path) -> None:
    def made():
        torch.manual_seed(0)
        return MLP(SCHEMA, 4, hidden=(8,)), FusedEmbeddings(SCHEMA, 4, optimizer="adam", lr=0.01)

    (model, tables), (again, its_tables) = made(), made()
    quick(model, loader(), tables, checkpoint_dir=tmp_path, checkpoint_every=8)
    quick(again, loader(), its_tables, checkpoint_dir=tmp_path)
    assert_same_bits(state(model) | state(tables), state(again) | state(its_tables))


# Gradients that are scaled, and ones that are not finite.


def test_a_loss_scale_changes_nothing() -> None:
    plain, scaled = Clicks(), Clicks()
    quick(plain)
    quick(scaled, grad_scaler=torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=5))
    assert scaled.tables.loss_scale > 1024
    for name, value in state(plain).items():
        np.testing.assert_allclose(state(scaled)[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
    quick(scaled, max_steps=1)
    assert scaled.tables.loss_scale == 1.0


def test_an_overflow_lowers_the_scale_and_spoils_nothing() -> None:
    model = Clicks()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1000)
    loss = nn.functional.binary_cross_entropy_with_logits
    history = quick(model, loss_fn=lambda logits, labels: 1e4 * loss(logits, labels), grad_scaler=scaler)
    assert 0 < history.stats["skipped_steps"] < 20
    assert scaler.get_scale() == 2.0 ** (127 - history.stats["skipped_steps"])
    assert all(np.isfinite(value).all() for value in state(model).values())


def test_a_schedule_counts_the_steps_that_were_taken() -> None:
    model = Clicks()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1000)
    loss = nn.functional.binary_cross_entropy_with_logits
    history = quick(
        model, dense_optimizer=optimizer, scheduler=scheduler, grad_scaler=scaler,
        loss_fn=lambda logits, labels: 1e4 * loss(logits, labels),
    )  # fmt: skip
    taken = 20 - history.stats["skipped_steps"]
    assert 0 < taken < 20 and optimizer.param_groups[0]["lr"] == 0.5**taken


def test_a_broken_sample_costs_its_own_rows_and_one_dense_step() -> None:
    model = Clicks()
    step = DeviceStep(model)
    ids = torch.tensor([[1, 2], [3, 4], [5, 4]])
    numbers = torch.tensor([[0.0, 1.0], [float("nan"), 0.0], [1.0, 0.0]])
    before = state(model)
    step(ids, numbers, torch.tensor([0, 1, 0]))
    after = state(model)
    changed = np.flatnonzero((after["tables.weight"] != before["tables.weight"]).any(1)).tolist()
    assert changed == [1, 5, 42]  # not user 3, and not item 4, which the broken sample has as well
    assert model.tables.skipped_rows == 2 and int(step.skipped) == 1
    np.testing.assert_array_equal(after["layers.0.weight"], before["layers.0.weight"])


# Bad input.


def test_settings_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(slots_from_schema(SCHEMA, 4), SGD())
    with pytest.raises(ParameterError, match="holds embeddings of its own"):
        quick(Clicks(), loader(), store)
    with pytest.raises(ParameterError, match=r"fit\.compile is for embeddings on the device"):
        quick(MLP(SCHEMA, 4), loader(layout="dict"), store, compile=True)
    store.close()
    with pytest.raises(ParameterError, match='need output="stack"'):
        quick(MLP(SCHEMA, 4), loader(), FusedEmbeddings(SCHEMA, 4, output="concat"))
    with pytest.raises(ParameterError, match="dim=8, the model embedding_dim=4"):
        quick(MLP(SCHEMA, 4), loader(), FusedEmbeddings(SCHEMA, 8))
    with pytest.raises(ParameterError, match="they must agree, in order"):
        quick(MLP(SCHEMA, 4), loader(), FusedEmbeddings({"item": 30, "user": 40}, 4))
    with pytest.raises(ParameterError, match=r"fit\.epochs must be an int"):
        quick(Clicks(), epochs=-1)
    with pytest.raises(ParameterError, match=r"scheduler must be a learning-rate scheduler, or None"):
        quick(Clicks(), scheduler=3)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ParameterError, match="no CUDA device here; leave device out"):
        quick(Clicks(), device="cuda")
    monkeypatch.setattr("penstock.train.distributed.active", lambda: True)
    with pytest.raises(ParameterError, match="a store that all workers share"):
        quick(Clicks())


def test_batches_that_do_not_fit_are_refused() -> None:
    columns = {"categorical": ["user", "item"], "continuous": ["price", "age"]}
    with pytest.raises(DataError, match="no labels"):
        quick(Clicks(), Loader(some_rows(), 32, **columns, layout="packed"))
    with pytest.raises(DataError, match="the loader has no schema"):
        quick(Clicks(), list(loader(layout="dict")))
    with pytest.raises(ColumnNotFoundError, match="'age'"):
        quick(MLP(SCHEMA, 4), [({"user": [1], "item": [2], "price": [0.5]}, [1.0])], FusedEmbeddings(SCHEMA, 4))
    with pytest.raises(DataError, match="id 39 is outside table 'user', which has rows 0 to 38"):
        quick(MLP(SCHEMA, 4), loader(), FusedEmbeddings({"user": 39, "item": 30}, 4))


def test_a_loader_without_a_schema_may_deliver_packed_batches() -> None:
    assert quick(Clicks(), list(loader())).stats["steps"] == 20


def test_empty_batches_are_no_steps() -> None:
    batches = list(loader())
    empty = tuple(part[:0] for part in batches[0])
    history = quick(Clicks(), [empty, *batches, empty], valid=[empty, batches[0]])
    assert history.stats["steps"] == 20 and np.isfinite(history.last("train").loss)
    assert history.last("valid").rows == 32
    assert quick(Clicks(), [empty]).records == []


def test_a_model_may_consist_of_tables_alone() -> None:
    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = FusedEmbeddings({"user": 40, "item": 30}, 1, optimizer="adagrad", lr=0.3)

        def forward(self, ids, numbers: torch.Tensor) -> torch.Tensor:
            return self.tables(ids).sum((1, 2))

    history = quick(Sums(), loader(6400, 64), epochs=2, valid=loader(400, seed=1))
    assert history.last("valid").metrics["auc"] > 0.75


def test_several_labels() -> None:
    class Two(Clicks):
        def forward(self, ids, numbers: torch.Tensor) -> dict:
            logits = super().forward(ids, numbers)
            return {"click": logits, "buy": -logits}

    def loss(outputs: dict, labels: dict) -> torch.Tensor:
        one = nn.functional.binary_cross_entropy_with_logits
        return one(outputs["click"], labels["click"]) + one(outputs["buy"], labels["buy"])

    data = {**some_rows(), "buy": some_rows(seed=4)["click"]}
    both = Loader(data, 32, **{**ROLES, "labels": ["click", "buy"]})
    history = quick(Two(), both, loss_fn=loss)
    assert set(history.last("train").metrics) == {"click/auc", "buy/auc"}


def test_the_reader_keeps_what_lies_right() -> None:
    batch = next(iter(loader()))
    ids, numbers, _ = DeviceReader(loader().schema, torch.device("cpu"))(batch)
    assert ids.data_ptr() == batch[0].data_ptr() and numbers.data_ptr() == batch[1].data_ptr()


def test_the_example_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "criteo_gpu.py"))
    assert example["main"](num_rows=20_000, batch_size=1024)["auc"] > 0.6
