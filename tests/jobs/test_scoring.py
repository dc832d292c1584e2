"""A saved model over whole files: streaming, calibration, what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from penstock import Dataset, Workflow, ops
from penstock.core.errors import ArtefactError, DataError, ParameterError, PenstockError, SchemaError
from penstock.core.runtime.threads import available_cores
from penstock.data.partition import FramePartition
from penstock.etl import trusting
from penstock.jobs import TrainJob
from penstock.jobs.scoring import evaluate_model, predict_files
from penstock.jobs.scoring_input import open_rows
from penstock.jobs.scoring_output import writer_of
from penstock.metrics import GroupAUC
from penstock.serve import Predictor

ROWS = 600


def rows(number: int = ROWS, seed: int = 0) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    user = random.integers(0, 20, number)
    clicks = random.random(number) < np.where(user % 2 == 0, 0.8, 0.2)
    return pl.DataFrame({"user": [f"u{u}" for u in user], "price": random.random(number), "click": clicks.astype(int)})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model")
    recipe = Workflow((["user"] >> ops.Categorify()) + (["price"] >> ops.Normalize()) + ["click"]).to_recipe()
    data = Dataset(rows()).with_roles(label=["click"])
    settings = {"model": {"name": "MLP", "hidden": [8]}, "epochs": 4, "batch_size": 50, "device": "cpu"}
    return Path(TrainJob(data, place / "run", recipe, settings=settings, progress=False).run().model)


@dataclass(frozen=True)
class Counted(FramePartition):
    """Notes when it is read."""

    reads: list

    def read(self, columns=None) -> pl.DataFrame:
        self.reads.append(1)
        return super().read(columns)


def test_rows_are_read_as_they_are_written(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more partitions are in memory than the threads have in hand, however many there are; a few predictions wait
    to be written."""
    from penstock.data.formats.parquet import FrameFile

    reads: list[int] = []
    ahead: list[int] = []
    whole = FrameFile.write

    def write(self: FrameFile, frame: pl.DataFrame) -> None:
        ahead.append(len(reads) - len(ahead))
        whole(self, frame)

    monkeypatch.setattr(FrameFile, "write", write)
    parts = [Counted(rows(20, seed=i), reads) for i in range(60)]
    data = Dataset.from_partitions(parts, Dataset(rows(1)).schema)
    found = predict_files(model, data, tmp_path / "out.parquet", keep=["user"])
    assert found.rows == 1_200 and len(ahead) == 60
    assert max(ahead) <= 2 * available_cores() + 1 + 3
    written = pl.read_parquet(tmp_path / "out.parquet")
    assert written["user"].to_list() == pl.concat([p.frame for p in parts])["user"].to_list()
    with Predictor(model) as predictor:
        assert written["probability"].to_numpy() == pytest.approx(predictor.predict(data), abs=1e-7)


def test_predictions_that_are_nan_leave_no_figure(model: Path) -> None:
    data = rows(50).with_columns(
        pl.when(pl.int_range(pl.len()) == 7).then(float("inf")).otherwise("price").alias("price")
    )
    found = evaluate_model(model, Dataset(data))
    assert (found.rows, found.nan_scores, found.auc, found.log_loss) == (50, 1, None, None)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["nan_scores"] == 1
    assert evaluate_model(model, Dataset(rows(50))).auc is not None


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(model: Path, tmp_path: Path) -> None:
    script = (
        "import resource, sys\nfrom penstock.jobs.scoring import predict_files\n"
        "predict_files(sys.argv[1], sys.argv[3:], sys.argv[2], progress=False)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    rows(400_000).write_parquet(tmp_path / "in.parquet", row_group_size=100_000)
    peaks = []
    for copies in (1, 12):
        files = [tmp_path / "in.parquet"] * copies
        command = [sys.executable, "-c", script, model, tmp_path / f"{copies}.parquet", *files]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
        assert pl.scan_parquet(tmp_path / f"{copies}.parquet").select(pl.len()).collect().item() == 400_000 * copies
    assert peaks[1] < 1.4 * peaks[0]


def test_torch_keeps_its_threads(model: Path) -> None:
    """Batches are scored by a thread each; what was set before holds again, also while an error is at hand."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        evaluate_model(model, Dataset(rows()), device="cpu")
        assert torch.get_num_threads() == 3
        with pytest.raises(DataError) as kept:
            evaluate_model(model, Dataset(rows().with_columns(click=pl.lit(7))), device="cpu")
        assert torch.get_num_threads() == 3 and kept.value.__traceback__ is not None
    finally:
        torch.set_num_threads(before)


def test_no_rows_at_all(model: Path, tmp_path: Path) -> None:
    empty = Dataset(rows().clear())
    assert predict_files(model, empty, tmp_path / "none.csv", keep=["user"]).rows == 0
    assert (tmp_path / "none.csv").read_text() == "user,probability\n"
    found = evaluate_model(model, empty)
    assert (found.auc, found.log_loss, found.rows) == (None, None, 0)
    assert found.calibration == {
        "predicted": None, "clicked": None, "ratio": None, "expected_error": None, "bins": [],
    }  # fmt: skip


def test_other_metrics_are_measured_where_they_are_asked_for(model: Path) -> None:
    data = Dataset(rows())
    usual, found = evaluate_model(model, data), evaluate_model(model, data, metrics=["gauc", "auc"], group="user")
    assert list(usual.metrics) == ["auc", "log_loss"] and list(found.metrics) == ["gauc", "auc"]
    assert found.auc == usual.auc and found.log_loss is None
    with Predictor(model) as predictor:
        frame = rows()
        scores = predictor.predict(frame.drop("click"))
    expected = GroupAUC()
    expected.update(scores, frame["click"].to_numpy(), groups=frame["user"].to_numpy())
    assert found.metrics["gauc"] == pytest.approx(expected.compute(), abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"metrics": ["gauc"]}, r"gauc is measured within groups; .* group= \(--group COLUMN\)"),
        ({"metrics": ["gauk"]}, "metric is 'gauk'; did you mean 'gauc'"),
        ({"metrics": ["ndcg"], "group": "usr"}, "'usr' is not in the data; did you mean 'user'"),
        ({"metrics": ["ndcg"], "group": "team"}, "the column 'team' says of 600 rows .* no group"),
        ({"metrics": ["ndcg"], "group": "price"}, "groups must be integers or text, got float64"),
    ],
)
def test_metrics_that_cannot_be_measured(model: Path, settings: dict, said: str) -> None:
    with pytest.raises(PenstockError, match=said):
        evaluate_model(model, Dataset(rows().with_columns(team=pl.lit(None, pl.Int64))), **settings)


def test_one_label_only_has_no_auc(model: Path) -> None:
    found = evaluate_model(model, Dataset(rows().with_columns(click=pl.lit(0))))
    assert found.auc is None and found.log_loss > 0 and found.calibration["ratio"] is None


def test_unknown_values_are_counted_by_column(model: Path) -> None:
    frame = rows().with_columns(user=pl.when(pl.int_range(ROWS) < 150).then(pl.lit("stranger")).otherwise("user"))
    assert evaluate_model(model, Dataset(frame)).unknown == {"user": 0.25}


def test_labels_go_through_the_workflow(tmp_path: Path) -> None:
    """The label that a model was trained on may be made by its workflow, as ratings above 3."""
    frame = rows().with_columns(rating=pl.col("click") * 4 + 1).drop("click")
    liked = ["rating"] >> ops.LambdaOp(_is_liked, dtype="int32") >> ops.Rename(name="liked")
    recipe = Workflow((["user"] >> ops.Categorify()) + (["price"] >> ops.Normalize()) + liked).to_recipe()
    data = Dataset(frame).with_roles(label=["rating"])
    settings = {"model": "MLP", "epochs": 2, "batch_size": 50, "device": "cpu"}
    found = TrainJob(data, tmp_path / "run", recipe, settings=settings, progress=False).run()
    with pytest.raises(ArtefactError, match="trust="):  # the model names a function
        evaluate_model(found.model, Dataset(tmp_path / "run" / "valid"))
    with trusting(__name__):
        again = evaluate_model(found.model, Dataset(tmp_path / "run" / "valid"))
        assert evaluate_model(tmp_path / "run", data).rows == ROWS
    assert again.auc == pytest.approx(found.auc, abs=1e-3)


def _is_liked(column: pl.Expr) -> pl.Expr:
    return (column > 3).cast(pl.Int32)


def test_features_are_known_by_their_schema(model: Path, tmp_path: Path) -> None:
    workflow = Workflow.load(model.parent / "workflow")
    workflow.transform(Dataset(rows())).to_parquet(tmp_path / "features")
    with Predictor(model) as predictor:
        assert not open_rows(predictor, tmp_path / "features").is_raw
        assert open_rows(predictor, Dataset(rows())).is_raw
        assert open_rows(predictor, tmp_path / "features", is_raw=True).is_raw


def test_what_is_refused(model: Path, tmp_path: Path) -> None:
    data = Dataset(rows())
    with pytest.raises(SchemaError, match="'price' is not in the data"):
        evaluate_model(model, Dataset(rows().drop("price")))
    with pytest.raises(DataError, match="must be 0 or 1 in every row, got 7"):
        evaluate_model(model, Dataset(rows().with_columns(click=pl.lit(7))))
    with pytest.raises(ParameterError, match="torch does not know"):
        predict_files(model, data, tmp_path / "a.csv", device="gpu")
    (tmp_path / "folder.csv").mkdir()
    with (
        pytest.raises(ArtefactError, match="it is a folder"),
        writer_of(tmp_path / "folder.csv")(tmp_path / "folder.csv"),
    ):
        pass
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.csv"]
