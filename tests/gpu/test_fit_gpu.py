"""`fit` on a real GPU: captured steps, schedules, scalers, lists, resumption, no waiting; and a store beside it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from penstock import ColumnSchema, Schema
from penstock.core.errors import DataError
from penstock.embedding import Adagrad, CachedEmbeddings, FusedEmbeddings, Init, Store, slots_from_schema
from penstock.loader.torch import Loader
from penstock.nn import DLRM
from penstock.train import DeviceStep, fit

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # said by torch's compiler
    pytest.mark.filterwarnings("ignore:TensorFloat32", "ignore:The .grad attribute", "ignore:Online softmax"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
]
ROLES = {"categorical": ["user", "item"], "continuous": ["price", "age"], "labels": ["click"]}
SIZES = {"user": 400, "item": 30}
SCHEMA = Schema(
    [
        *(ColumnSchema(name, "int64", role="categorical", cardinality=size) for name, size in SIZES.items()),
        ColumnSchema("price", "float32", role="continuous"),
        ColumnSchema("age", "float32", role="continuous"),
        ColumnSchema("click", "int8", role="label"),
    ]
)


def some_rows(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, 400, rows), rng.integers(0, 30, rows)
    price, age = rng.normal(size=rows).astype(np.float32), rng.normal(size=rows).astype(np.float32)
    logit = 1.5 * np.sin(user) + 1.5 * np.cos(3 * item) + price
    click = (rng.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.int8)
    return {"user": user, "item": item, "price": price, "age": age, "click": click}


def loader(rows: int = 20_480, seed: int = 0, device: str = "cuda", **options) -> Loader:
    settings = {"layout": "packed", "shuffle": True, "chunk_rows": 5000, **options}
    return Loader(some_rows(rows, seed), 512, **ROLES, device=device, **settings)


class Clicks(nn.Module):
    def __init__(self, dropout: float = 0.0, tables: type = FusedEmbeddings, **settings) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.tables = tables(SIZES, 16, lr=0.1, output="concat", align=8, **settings)
        self.layers = nn.Sequential(
            nn.Linear(self.tables.width(2), 32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 1)
        )

    def forward(self, ids, numbers: torch.Tensor) -> torch.Tensor:
        return self.layers(self.tables(ids, numbers)).squeeze(1)


def adam(model: nn.Module, lr: float = 0.01) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr, fused=True, capturable=True)


def close(left: nn.Module, right: nn.Module, rtol: float = 1e-3, atol: float = 1e-3) -> None:
    mine, theirs = left.state_dict(), right.state_dict()
    for name, value in mine.items():
        torch.testing.assert_close(
            value.cpu(), theirs[name].cpu(), rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_a_captured_training_equals_one_on_the_cpu() -> None:
    device, host = Clicks().cuda(), Clicks()
    histories = [
        fit(device, loader(), valid=loader(5000, seed=1), epochs=2, dense_optimizer=adam(device)),
        fit(host, loader(device="cpu"), valid=loader(5000, seed=1, device="cpu"), epochs=2,
            dense_optimizer=torch.optim.Adam(host.parameters(), 0.01)),
    ]  # fmt: skip
    assert histories[0].stats["captured"] and not histories[1].stats["captured"]
    for mine, theirs in zip(histories[0].of("train"), histories[1].of("train"), strict=True):
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-3)
        assert mine.metrics["auc"] == pytest.approx(theirs.metrics["auc"], abs=1e-3)
    assert histories[0].last("valid").metrics["auc"] == pytest.approx(
        histories[1].last("valid").metrics["auc"], abs=2e-3
    )
    assert histories[0].last("valid").metrics["auc"] > 0.8


def test_models_over_a_schema() -> None:
    for layout in ("packed", "dict"):
        model, tables = DLRM(SCHEMA, 16).cuda(), FusedEmbeddings(SCHEMA, 16, lr=0.1)
        history = fit(model, loader(layout=layout), tables, epochs=2, autocast=torch.bfloat16)
        assert history.stats["captured"] and history.last("train").metrics["auc"] > 0.75, layout


def test_the_loop_never_waits_for_the_device() -> None:
    model = Clicks().cuda()
    scheduler_of = torch.optim.lr_scheduler.ExponentialLR
    optimizer = adam(model)
    step, scheduler = DeviceStep(model, optimizer, autocast=torch.bfloat16), scheduler_of(optimizer, 0.99)
    batches = list(loader())
    try:
        for number, batch in enumerate(batches):
            if number == 6:
                torch.cuda.set_sync_debug_mode("error")
            step(*batch)
            scheduler.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert step.captured and step.metrics.collect()["rows"] == 20_480


def test_schedules_reach_a_captured_step() -> None:
    models = [Clicks().cuda(), Clicks().cuda()]
    for model, graph in zip(models, (True, False), strict=True):
        optimizer = adam(model)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 8, 0.3)
        fit(model, loader(), dense_optimizer=optimizer, scheduler=scheduler, graph=graph, compile=False)
        assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.01 * 0.3**5, rel=1e-5)
    close(*models)


def test_a_rate_set_by_hand_reaches_a_captured_step() -> None:
    for make, captured in ((adam, True), (lambda m: torch.optim.SGD(m.parameters(), 0.01), False)):
        model = Clicks().cuda()
        optimizer, before = make(model), {}

        def stop(record, model=model, optimizer=optimizer, before=before) -> None:
            if record.step == 10:
                before.update({name: value.clone() for name, value in model.layers.state_dict().items()})
                optimizer.param_groups[0]["lr"] = 0.0

        history = fit(model, loader(), dense_optimizer=optimizer, log_every=10, callbacks=[stop], compile=False)
        assert history.stats["captured"] is captured
        for name, value in model.layers.state_dict().items():
            torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_float16_with_a_scaler_is_captured() -> None:
    model = Clicks().cuda()
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**40, growth_interval=10)
    history = fit(model, loader(), epochs=2, dense_optimizer=adam(model), grad_scaler=scaler, autocast=torch.float16)
    assert history.stats["captured"] and 0 < history.stats["skipped_steps"] < 40
    assert 1 < scaler.get_scale() < 2.0**40
    assert history.last("train").metrics["auc"] > 0.75
    assert all(value.isfinite().all() for value in model.state_dict().values())


def test_a_broken_sample_costs_its_own_rows_and_one_dense_step() -> None:
    model = Clicks().cuda()
    step = DeviceStep(model, adam(model))
    batches = list(loader(512 * 8))
    for number, (ids, numbers, labels) in enumerate(batches):
        if number == 6:  # captured by now
            before = {name: value.clone() for name, value in model.state_dict().items()}
            numbers = numbers.clone()
            numbers[100, 0] = float("nan")
            user, item = ids[100].tolist()
            step(ids, numbers, labels)
            break
        step(ids, numbers, labels)
    assert step.captured and int(step.skipped) == 1 and model.tables.skipped_rows == 2
    after = model.state_dict()
    torch.testing.assert_close(after["layers.0.weight"], before["layers.0.weight"], rtol=0, atol=0)
    changed = (after["tables.weight"] != before["tables.weight"]).any(1)
    assert not changed[user] and not changed[400 + item] and changed[400:].sum() == 29
    assert after["tables.weight"].isfinite().all()


LISTS = Schema(
    [
        ColumnSchema("user", "int64", role="categorical", cardinality=9),
        ColumnSchema("tags", "int64", role="categorical", cardinality=20, is_list=True),
        ColumnSchema("click", "int64", role="label"),
    ]
)


@pytest.mark.parametrize("longest", [None, 4], ids=["ragged", "of fixed length"])
@pytest.mark.parametrize("tables_of", [FusedEmbeddings, CachedEmbeddings])
def test_lists_are_captured(longest: int | None, tables_of) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 5, 6000) if longest is None else np.full(6000, longest)
    tags = [list(rng.integers(0, 20, n)) for n in lengths]
    data = {"user": rng.integers(0, 9, 6000), "tags": tags, "click": [int(sum(t) > 20) for t in tags]}
    roles = {"categorical": ["user", "tags"], "labels": ["click"]}
    trained = []
    for device in ("cuda", "cpu"):
        torch.manual_seed(0)
        own = {"cache_rows": 29} if tables_of is CachedEmbeddings else {}
        model, tables = DLRM(LISTS, 16), tables_of(LISTS, 16, lr=0.1, **own)
        rows = Loader(data, 200, **roles, layout="packed", shuffle=True, device=device)
        history = fit(model.to(device), rows, tables, epochs=2, log_every=None)
        assert history.stats["captured"] == (device == "cuda") and history.last("train").metrics["auc"] > 0.9
        if longest is not None and device == "cuda":
            assert history.stats["lists"] == {"bounds": {"tags": 200 * longest}, "captures": 1}
        trained.append(history.values("train", "loss"))
    assert trained[0] == pytest.approx(trained[1], rel=2e-3)


def test_a_bag_may_be_as_long_as_it_likes() -> None:
    tables = FusedEmbeddings({"tags": 1000}, 16, optimizer="sgd", lr=1.0, pooling="mean", device="cuda")
    before = tables.weight.clone()
    values = torch.arange(3_000_000, device="cuda") % 1000
    found = tables({"tags": (values, torch.tensor([0, 3_000_000, 3_000_000], device="cuda"))})
    torch.testing.assert_close(found[0, 0], before.mean(0), rtol=1e-3, atol=1e-5)
    assert not found[1].any()
    found.sum().backward()
    torch.testing.assert_close(tables.weight, before - 1e-3, rtol=1e-3, atol=1e-5)


def test_interrupted_and_resumed(tmp_path) -> None:
    def run(model: nn.Module, **settings):
        optimizer = adam(model)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.5)
        return fit(model, loader(), epochs=2, dense_optimizer=optimizer, scheduler=scheduler, log_every=20, **settings)

    whole, half, rest = (Clicks().cuda() for _ in range(3))
    wanted = run(whole)
    run(half, checkpoint_dir=tmp_path, max_steps=33)
    history = run(rest, checkpoint_dir=tmp_path)
    assert history.stats["steps"] == 80 and history.stats["captured"]
    close(whole, rest, rtol=1e-5, atol=1e-6)
    assert history.last("train").loss == pytest.approx(wanted.last("train").loss, rel=1e-5)


def test_a_wrong_id_is_reported_with_its_table() -> None:
    model = Clicks().cuda()
    data = some_rows(5120)
    data["user"][3000] = 400
    with pytest.raises(DataError, match="id 400 is outside table 'user', which has rows 0 to 399"):
        fit(model, Loader(data, 512, **ROLES, layout="packed", device="cuda"))


def test_a_cache_changes_nothing() -> None:
    plain, cached = Clicks().cuda(), Clicks(tables=CachedEmbeddings, cache_rows=425).cuda()
    cached.load_state_dict(plain.state_dict())
    losses = [fit(m, loader(), dense_optimizer=adam(m), log_every=10).values("train", "loss") for m in (plain, cached)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize("staleness", [1, 4])
def test_a_store_feeds_a_model_on_the_gpu(staleness: int, tmp_path) -> None:
    figures = []
    for device in ("cuda", "cpu"):
        torch.manual_seed(7)
        model = DLRM(SCHEMA, 16, bottom=(32,), top=(32,)).to(device)
        with Store(slots_from_schema(SCHEMA, 16, init=Init("uniform", -0.1, 0.1)), Adagrad(lr=0.1)) as store:
            history = fit(
                model, loader(device=device, layout="dict"), store, epochs=2, staleness=staleness,
                valid=loader(5000, seed=1, device=device, layout="dict"),
                dense_optimizer=torch.optim.Adam(model.parameters(), 0.01), autocast=torch.bfloat16,
                checkpoint_dir=tmp_path / device,
            )  # fmt: skip
            assert store.stats()["rows"] == 430
        figures.append(history.last("valid"))
    assert figures[0].metrics["auc"] > 0.8
    assert figures[0].metrics["auc"] == pytest.approx(figures[1].metrics["auc"], abs=0.005)
    assert figures[0].loss == pytest.approx(figures[1].loss, rel=0.01)


def test_a_store_with_float16_and_a_scaler() -> None:
    torch.manual_seed(7)
    model = DLRM(SCHEMA, 16, bottom=(32,), top=(32,)).cuda()
    with Store(slots_from_schema(SCHEMA, 16), Adagrad(lr=0.1)) as store:
        history = fit(
            model, loader(layout="dict"), store, epochs=2, autocast=torch.float16,
            grad_scaler=torch.amp.GradScaler("cuda", init_scale=2.0**30),
            dense_optimizer=torch.optim.Adam(model.parameters(), 0.01),
        )  # fmt: skip
    assert history.last("train").metrics["auc"] > 0.75 and np.isfinite(history.last("train").loss)
