"""A plain PyTorch loop on Criteo click logs: python examples/criteo_torch.py [ROWS] [EPOCHS]"""

import sys
import tempfile
from pathlib import Path
from time import time

import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import nn

import penstock as ps
from penstock import ops
from penstock.data.synthetic import CRITEO_DTYPES, CRITEO_NAMES, criteo
from penstock.loader.torch import Loader

CATEGORICAL = [f"C{i}" for i in range(1, 27)]
CONTINUOUS = [f"I{i}" for i in range(1, 14)]


def features(place: Path, num_rows: int) -> ps.Workflow:
    """Raw click logs to parquet in `place/train` and `place/valid`, and the workflow that made them."""
    made = criteo(place / "day.tsv", num_rows, cardinalities=20_000)
    print(f"{num_rows:,} rows; no model can have an AUC above {made.best_auc:.3f} on them")
    data = ps.Dataset(made.path, names=CRITEO_NAMES, dtypes=CRITEO_DTYPES).with_roles(label=["label"])
    train, valid = data.split([0.9, 0.1], seed=7)
    numbers = CONTINUOUS >> ops.FillMissing() >> ops.Clip(min_value=0) >> ops.LogOp() >> ops.Normalize()
    workflow = ps.Workflow(["label"] + (CATEGORICAL >> ops.Categorify(freq_threshold=6)) + numbers)
    workflow.fit_transform(train).to_parquet(place / "train", shuffle="full", seed=7)
    workflow.transform(valid).to_parquet(place / "valid")
    return workflow


class Model(nn.Module):
    """An embedding per column beside the numbers, then three layers."""

    def __init__(self, sizes: dict[str, tuple[int, int]]) -> None:
        super().__init__()
        self.tables = nn.ModuleDict({name: nn.Embedding(rows, min(16, width)) for name, (rows, width) in sizes.items()})
        width = len(CONTINUOUS) + sum(table.embedding_dim for table in self.tables.values())
        self.layers = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, columns: dict[str, torch.Tensor]) -> torch.Tensor:
        embedded = [table(columns[name]) for name, table in self.tables.items()]
        numbers = torch.stack([columns[name] for name in CONTINUOUS], dim=1)
        return self.layers(torch.cat([*embedded, numbers], dim=1)).squeeze(1)


def main(num_rows: int = 300_000, epochs: int = 1, batch_size: int = 4096) -> dict[str, float]:
    place = Path(tempfile.mkdtemp(prefix="penstock-example-"))
    workflow = features(place, num_rows)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    # Roles, cardinalities and dtypes come from the schema beside the data.
    options = {"device": device, "dtypes": {"label": "float32", "continuous": "float32"}}
    train = Loader(place / "train", batch_size, shuffle=True, **options)
    valid = Loader(place / "valid", batch_size, **options)

    model = Model(ops.get_embedding_sizes(workflow)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    start = time()
    for columns, labels in train.epochs(epochs):
        loss = nn.functional.binary_cross_entropy_with_logits(model(columns), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    print(f"{train.num_rows_processed:,} rows in {time() - start:.1f} s on {device}")
    print(train.stats())

    model.eval()
    with torch.no_grad():
        scored = [(model(columns).cpu(), labels.cpu()) for columns, labels in valid]
    scores, labels = (torch.cat(parts).numpy() for parts in zip(*scored, strict=True))
    auc, precision = roc_auc_score(labels, scores), average_precision_score(labels, scores)
    print(f"valid AUC {auc:.4f}, AP {precision:.4f}")
    return {"auc": auc, "ap": precision}


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
