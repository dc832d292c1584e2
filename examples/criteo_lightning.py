"""Lightning on Criteo click logs: python examples/criteo_lightning.py [ROWS] [EPOCHS]

Stop it and start it with the checkpoint it wrote: it goes on with the batch that would have come next.
"""

import sys
import tempfile
from pathlib import Path

import lightning
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import nn

import penstock as ps
from penstock import ops
from penstock.data.synthetic import CRITEO_DTYPES, CRITEO_NAMES, criteo
from penstock.loader.lightning import DataModule
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


class Model(lightning.LightningModule):
    """An embedding per column beside the numbers, then two layers."""

    def __init__(self, sizes: list[tuple[int, int]]) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(rows, min(16, width)) for rows, width in sizes])
        width = len(CONTINUOUS) + sum(table.embedding_dim for table in self.tables)
        self.layers = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 1))
        self.scored: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.result: dict[str, float] = {}

    def forward(self, cats: torch.Tensor, conts: torch.Tensor) -> torch.Tensor:
        embedded = [table(ids) for table, ids in zip(self.tables, cats.unbind(1), strict=True)]
        return self.layers(torch.cat([*embedded, conts], dim=1)).squeeze(1)

    def training_step(self, batch: tuple, index: int) -> torch.Tensor:
        cats, conts, labels = batch
        return nn.functional.binary_cross_entropy_with_logits(self(cats, conts), labels)

    def validation_step(self, batch: tuple, index: int) -> None:
        cats, conts, labels = batch
        self.scored.append((self(cats, conts).cpu(), labels.cpu()))

    def on_validation_epoch_end(self) -> None:
        scores, labels = (torch.cat(parts).numpy() for parts in zip(*self.scored, strict=True))
        self.scored.clear()
        self.result = {"auc": roc_auc_score(labels, scores), "ap": average_precision_score(labels, scores)}
        print("valid AUC {auc:.4f}, AP {ap:.4f}".format(**self.result))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 2e-3)


def main(num_rows: int = 300_000, epochs: int = 1, batch_size: int = 4096) -> dict[str, float]:
    place = Path(tempfile.mkdtemp(prefix="penstock-example-"))
    workflow = features(place, num_rows)
    columns = {"categorical": CATEGORICAL, "continuous": CONTINUOUS, "labels": ["label"]}
    train = Loader(place / "train", batch_size, shuffle=True, layout="packed", **columns)
    valid = Loader(place / "valid", batch_size, layout="packed", **columns)
    model = Model(list(ops.get_embedding_sizes(workflow).values()))
    trainer = lightning.Trainer(max_epochs=epochs, default_root_dir=place, logger=False, num_sanity_val_steps=0)
    trainer.fit(model, datamodule=DataModule(train, valid))
    return model.result


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
