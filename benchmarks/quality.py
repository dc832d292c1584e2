"""How good a model is with default settings, beside a small search by plain PyTorch and a logistic regression.

Labels are drawn by teachers of several kinds (`quality_teachers.py`), so the best AUC is known. Every model of
`penstock.nn.MODELS` is trained with nothing but its name given; the peers read the same features, hold out the same
rows and are judged on the same test rows. The rule: within 0.005 AUC of the search's best, and never more than 0.003
below the logistic regression.

    python benchmarks/quality.py --rows 8000 100000 --teachers wide id_only --models DLRM

With `--ratings u.data` the rows are those of MovieLens-100K, alone (`movielens`) and with what is known of users and
films (`movielens_full`); nobody has planted those, so there is no best AUC.

With `--draft` the rows are a CSV file whose ids are text, and its recipe is drafted, as `penstock train FILE --label
click` does; the peers read features of the recipe by hand.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from harness import Claim, report
from quality_planted import Planted
from quality_ratings import ratings_of
from quality_teachers import TEACHERS
from torch import Tensor, nn

from penstock.core.schema import Schema
from penstock.data import Dataset
from penstock.etl import Workflow
from penstock.jobs import TrainJob
from penstock.jobs.draft import draft_recipe
from penstock.metrics import AUC
from penstock.nn.registry import MODELS
from penstock.serve import Predictor

SEARCH_MARGIN, LINEAR_MARGIN = 0.005, 0.003
_RATES = (5e-4, 1e-3, 3e-3)  # the grid of the search
_BATCHES = ((16_000, (64, 256)), (10**9, (256, 1024)))  # up to so many rows
_EPOCHS, _PATIENCE = 8, 2
_STRENGTHS = (0.03, 0.1, 0.3, 1.0)  # sklearn's C


def recipe(planted: Planted) -> dict[str, Any]:
    """Codes for ids, scaled numbers, as a person would write first."""
    nodes: dict[str, Any] = {"label": {"columns": ["click"]}}
    if planted.categorical:
        nodes["ids"] = {"columns": planted.categorical, "ops": ["Categorify"]}
    if planted.continuous:
        nodes["numbers"] = {"columns": planted.continuous, "ops": list(planted.number_ops)}
    return {"recipe": 1, "nodes": nodes, "output": list(nodes)}


def auc(scores: np.ndarray | Tensor, labels: np.ndarray | Tensor) -> float:
    metric = AUC()
    metric.update(np.asarray(scores, np.float64), np.asarray(labels, np.float64))
    return metric.compute()


def penstock_auc(planted: Planted, model: str, folder: Path, settings: dict[str, Any] | None = None) -> float:
    """Default settings, on the test rows, through the saved model."""
    found = trained(Dataset(planted.train, schema=planted.schema), model, folder, recipe(planted), settings)
    return _scored(found, planted.test)


def drafted_auc(planted: Planted, model: str, folder: Path) -> float:
    """The same from a file alone: ids are text there, and what columns are is found out."""
    file = folder.with_suffix(".csv")
    _texts(planted.train, planted).write_csv(file)
    found = trained(str(file), model, folder, draft_recipe(str(file), "click").recipe)
    return _scored(found, _texts(planted.test, planted))


def trained(data: Any, model: str, folder: Path, rules: dict[str, Any], settings: dict[str, Any] | None = None) -> str:
    """Where the model is."""
    asked = {"model": model, "device": "cpu", **(settings or {})}
    job = TrainJob(data, folder, rules, settings=asked, overwrite=True, progress=False, num_examples=0)
    return job.run().model


def _scored(model: str, rows: pl.DataFrame) -> float:
    with Predictor(model) as predictor:
        scores = predictor.predict(rows.drop("click"))
    return auc(scores, rows["click"].to_numpy())


def _texts(frame: pl.DataFrame, planted: Planted) -> pl.DataFrame:
    """Ids as text, as they are in logs; lists as text in which a separator stands."""
    plain = [name for name in planted.categorical if name not in planted.lists]
    lists = [pl.col(name).cast(pl.List(pl.String)).list.join("|") for name in planted.lists]
    return frame.with_columns(pl.format("x{}", pl.col(name)).alias(name) for name in plain).with_columns(lists)


@dataclass
class Features:
    """What a run made of the rows, for the peers: numbers, codes and labels of each part.

    A column of lists takes as many columns of codes as its longest list has; what is left over is 0.
    """

    schema: Schema
    parts: dict[str, tuple[Tensor, Tensor, Tensor]]
    sizes: list[int]
    spans: list[slice]

    @classmethod
    def of(cls, planted: Planted, folder: Path) -> Features:
        workflow = Workflow.load(folder / "workflow")
        frames = {
            part: pl.concat(Dataset(folder / place).iter_frames())
            for part, place in (("train", "features"), ("valid", "valid"))
        }
        frames["test"] = workflow.transform(planted.test)
        schema = Dataset(folder / "features").schema
        sizes = [int(schema[name].cardinality or 0) for name in planted.categorical]
        longest = {name: max(int(frame[name].list.len().max()) for frame in frames.values()) for name in planted.lists}
        ends = list(itertools.accumulate(longest.get(name, 1) for name in planted.categorical))
        spans = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        parts = {name: _tensors(_padded(frame, longest), planted) for name, frame in frames.items()}
        return cls(schema, parts, sizes, spans)


def _padded(frame: pl.DataFrame, longest: dict[str, int]) -> pl.DataFrame:
    """Lists as columns of their own, in the place of the list."""
    columns: list[pl.Expr] = []
    for name in frame.columns:
        places = range(longest.get(name, 0))
        own = [pl.col(name).list.get(i, null_on_oob=True).fill_null(0).alias(f"{name}:{i}") for i in places]
        columns += own or [pl.col(name)]
    return frame.select(columns)


def _tensors(frame: pl.DataFrame, planted: Planted) -> tuple[Tensor, Tensor, Tensor]:
    ids = [column for name in planted.categorical for column in frame.columns if column.partition(":")[0] == name]
    numbers = frame.select(planted.continuous).to_numpy() if planted.continuous else np.empty((len(frame), 0))
    codes = frame.select(ids).to_numpy() if ids else np.empty((len(frame), 0))
    labels = frame["click"].to_numpy()
    return (
        torch.tensor(numbers, dtype=torch.float32),
        torch.tensor(codes, dtype=torch.int64),
        torch.tensor(labels, dtype=torch.float32),
    )


class Plain(nn.Module):
    """The same model over `nn.Embedding`: equal sizes, nothing of Penstock's training."""

    def __init__(self, model: str, features: Features, dim: int = 16) -> None:
        super().__init__()
        self.model = MODELS[model](features.schema, dim)
        self.tables = nn.ModuleList([nn.Embedding(size, dim) for size in features.sizes])
        self.spans = features.spans
        for table in self.tables:
            nn.init.normal_(table.weight, 0, 0.01)

    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:
        found = [self._mean(table, codes[:, span]) for table, span in zip(self.tables, self.spans, strict=True)]
        logits: Tensor = self.model(numbers, torch.stack(found, 1) if found else {})
        return logits

    @staticmethod
    def _mean(table: nn.Module, codes: Tensor) -> Tensor:
        found: Tensor = table(codes)
        if codes.shape[1] == 1:
            return found[:, 0]
        there = (codes != 0).unsqueeze(2)
        return (found * there).sum(1) / there.sum(1).clamp(min=1)


def search_auc(model: str, features: Features) -> tuple[float, dict[str, float]]:
    """The best of a small search, chosen by its held-out rows, on the test rows."""
    best, found, how = -1.0, 0.0, dict[str, float]()
    num_rows = len(features.parts["train"][2])
    batches = next(sizes for most, sizes in _BATCHES if num_rows <= most)
    for rate, batch in itertools.product(_RATES, batches):
        valid, test = _trained(model, features, rate, batch)
        if valid > best:
            best, found, how = valid, test, {"rate": rate, "batch": batch}
    return found, how


def _trained(model: str, features: Features, rate: float, batch: int) -> tuple[float, float]:
    torch.manual_seed(0)
    network = Plain(model, features)
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    numbers, codes, labels = features.parts["train"]
    evaluated: list[tuple[float, float]] = []
    for epoch in range(_EPOCHS):
        network.train()
        for rows in torch.randperm(len(labels)).split(batch):
            logits = network(numbers[rows], codes[rows])
            loss = nn.functional.binary_cross_entropy_with_logits(logits, labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        network.eval()
        with torch.no_grad():
            scored = [(network(n, c), y) for n, c, y in (features.parts[part] for part in ("valid", "test"))]
        evaluated.append((auc(*scored[0]), auc(*scored[1])))
        if epoch - max(range(len(evaluated)), key=lambda i: evaluated[i][0]) >= _PATIENCE:
            break
    return max(evaluated)


def linear_auc(features: Features) -> float | None:
    """Logistic regression over one-hot codes and numbers; its strength chosen by the held-out rows."""
    try:
        from scipy import sparse
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        return None

    def matrix(part: str) -> Any:
        numbers, codes, _ = features.parts[part]
        hot = []
        for span, size in zip(features.spans, features.sizes, strict=True):
            own = codes[:, span].numpy()
            rows, places = np.nonzero(own) if own.shape[1] > 1 else (np.arange(len(own)), 0)
            hot.append(sparse.csr_matrix((np.ones(len(rows)), (rows, own[rows, places])), (len(own), size)))
        return sparse.hstack([sparse.csr_matrix(numbers.numpy()), *hot]).tocsr()

    train, valid, test = (matrix(part) for part in ("train", "valid", "test"))
    labels = {part: features.parts[part][2].numpy() for part in features.parts}
    tried = []
    for strength in _STRENGTHS:
        fitted = LogisticRegression(C=strength, max_iter=200).fit(train, labels["train"])
        tried.append(tuple(auc(fitted.decision_function(x), labels[p]) for x, p in ((valid, "valid"), (test, "test"))))
    return float(max(tried)[1])


def measure(
    teacher: str, num_rows: int, models: list[str], num_test: int, search: bool, seed: int = 0, draft: bool = False
) -> list[Claim]:
    """A claim for each model: the AUC on test rows, beside its peers'."""
    planted = TEACHERS[teacher](num_rows, num_test, seed)
    best = auc(planted.best, planted.test["click"].to_numpy()) if len(planted.best) else None
    claims, linear = [], None
    with tempfile.TemporaryDirectory() as place:
        for model in models:
            began = time.perf_counter()
            own = (drafted_auc if draft else penstock_auc)(planted, model, Path(place) / model)
            seconds = time.perf_counter() - began
            if draft:  # for the peers
                penstock_auc(planted, model, Path(place) / model, {"max_steps": 1})
            features = Features.of(planted, Path(place) / model)
            linear = linear_auc(features) if linear is None else linear
            searched, how = search_auc(model, features) if search else (None, {})
            peers = {"torch_search": searched, "logistic_regression": linear, "teacher": best}
            extra = {"seconds": round(seconds, 1), "search": how, "holds": holds(own, searched, linear)}
            name = f"quality/{teacher}/{num_rows}/{model}{'/drafted' if draft else ''}"
            claims.append(Claim(name, "AUC", own, peers, extra=extra))
    return claims


def holds(own: float, searched: float | None, linear: float | None) -> bool:
    """Whether the rule holds; a peer that was not measured cannot break it."""
    return (searched is None or own >= searched - SEARCH_MARGIN) and (linear is None or own >= linear - LINEAR_MARGIN)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[4_000])
    parser.add_argument("--test-rows", type=int, default=50_000)
    parser.add_argument("--teachers", nargs="+", choices=list(TEACHERS))
    parser.add_argument("--ratings", type=Path, help="u.data of MovieLens-100K: its rows in the place of teachers'.")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--no-search", action="store_true", help="Leave the search of plain PyTorch out.")
    parser.add_argument("--draft", action="store_true", help="Let the recipe be drafted from a file.")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    teachers = asked.teachers or list(TEACHERS)
    if asked.ratings is not None:
        own = {"movielens": False, "movielens_full": True}
        TEACHERS.update((name, partial(ratings_of, asked.ratings, with_columns=full)) for name, full in own.items())
        teachers = asked.teachers or list(own)
    claims = []
    for teacher, rows in itertools.product(teachers, asked.rows):
        claims += measure(teacher, rows, asked.models, asked.test_rows, not asked.no_search, asked.seed, asked.draft)
        for claim in claims[-len(asked.models) :]:
            print(claim.line(), flush=True)
    report("Learning quality with default settings", claims)


if __name__ == "__main__":
    main()
