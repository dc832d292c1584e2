"""Click logs to a trained model at a GPU's pace: python examples/criteo_gpu.py [ROWS] [EPOCHS]

Without a GPU the same lines run on the CPU.
"""

import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

import penstock as ps
from penstock import ops
from penstock.data.synthetic import CRITEO_DTYPES, CRITEO_NAMES, criteo
from penstock.embedding import FusedEmbeddings
from penstock.loader.torch import Loader
from penstock.train import fit, record_to_dict

CATEGORICAL = [f"C{i}" for i in range(1, 27)]
CONTINUOUS = [f"I{i}" for i in range(1, 14)]


def features(place: Path, num_rows: int) -> None:
    """Raw click logs to parquet in `place/train` and `place/valid`."""
    made = criteo(place / "day.tsv", num_rows, cardinalities=20_000)
    print(f"{num_rows:,} rows; no model can have an AUC above {made.best_auc:.3f} on them")
    data = ps.Dataset(made.path, names=CRITEO_NAMES, dtypes=CRITEO_DTYPES).with_roles(label=["label"])
    train, valid = data.split([0.9, 0.1], seed=7)
    numbers = CONTINUOUS >> ops.FillMissing() >> ops.Clip(min_value=0) >> ops.LogOp() >> ops.Normalize()
    workflow = ps.Workflow(["label"] + (CATEGORICAL >> ops.Categorify(freq_threshold=6)) + numbers)
    workflow.fit_transform(train).to_parquet(place / "train", shuffle="full", seed=7)
    workflow.transform(valid).to_parquet(place / "valid")


class Clicks(nn.Module):
    """Numbers and embeddings side by side, then two hidden layers with batch norm."""

    def __init__(self, schema: ps.Schema) -> None:
        super().__init__()
        # One look-up writes all embeddings, and the numbers beside them; the backward pass trains the tables.
        self.tables = FusedEmbeddings(
            schema, dim=16, optimizer="rowwise_adagrad", lr=0.02, output="concat", align=16, pooling="mean"
        )
        width = self.tables.width(len(CONTINUOUS))
        self.layers = nn.Sequential(
            nn.Linear(width, 512), nn.ReLU(), nn.BatchNorm1d(512), nn.Linear(512, 256), nn.ReLU(), nn.BatchNorm1d(256),
            nn.Linear(256, 1),
        )  # fmt: skip

    def forward(self, ids: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return self.layers(self.tables(ids, numbers)).squeeze(1)


def main(num_rows: int = 200_000, epochs: int = 1, batch_size: int = 4096) -> dict[str, float]:
    place = Path(tempfile.mkdtemp(prefix="penstock-example-"))
    features(place, num_rows)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    options = {"layout": "packed", "device": device, "dtypes": {"label": "float32", "continuous": "float32"}}
    train = Loader(place / "train", batch_size, shuffle=True, last_batch="drop", **options)
    valid = Loader(place / "valid", batch_size, **options)

    model = Clicks(train.schema).to(device)
    precision = torch.bfloat16 if device == "cuda" else None
    history = fit(model, train, epochs=epochs, valid=valid, autocast=precision, log_every=None)
    for record in history.records:
        figures = record_to_dict(record)
        speed = f", {figures['rows_per_second'] / 1e6:.2f} M rows/s on {device}" if "rows_per_second" in figures else ""
        print(f"{figures['kind']}: loss {record.loss:.4f}, AUC {record.metrics['auc']:.4f}{speed}")
    return {"auc": history.last("valid").metrics["auc"]}


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
