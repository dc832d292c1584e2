"""FastAI's TabularModel on Criteo click logs: python examples/criteo_fastai.py [ROWS] [EPOCHS]

The same on a CPU and on a GPU: batches arrive on the device the model is on.
"""

import sys
import tempfile
from pathlib import Path
from time import time

import torch
from fastai.basics import Learner
from fastai.metrics import APScoreBinary, RocAucBinary
from fastai.tabular.model import TabularModel

import penstock as ps
from penstock import ops
from penstock.data.synthetic import CRITEO_DTYPES, CRITEO_NAMES, criteo
from penstock.loader.fastai import dataloaders
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


def main(num_rows: int = 300_000, epochs: int = 1, batch_size: int = 4096) -> dict[str, float]:
    place = Path(tempfile.mkdtemp(prefix="penstock-example-"))
    workflow = features(place, num_rows)

    # CrossEntropyLoss wants whole numbers as labels.
    columns = {"categorical": CATEGORICAL, "continuous": CONTINUOUS, "labels": ["label"]}
    options = {"layout": "packed", "dtypes": {"label": "int64"}, **columns}
    train = Loader(place / "train", batch_size, shuffle=True, **options)
    valid = Loader(place / "valid", batch_size, **options)
    dls = dataloaders(train, valid)

    # One table per column, as many rows as its vocabulary has codes, at most 16 wide.
    embeddings = [(rows, min(16, width)) for rows, width in ops.get_embedding_sizes(workflow).values()]
    model = TabularModel(emb_szs=embeddings, n_cont=len(CONTINUOUS), out_sz=2, layers=[512, 256]).to(dls.device)
    learn = Learner(
        dls, model, loss_func=torch.nn.CrossEntropyLoss(), metrics=[RocAucBinary(), APScoreBinary()], path=place
    )
    start = time()
    learn.fit(epochs, 2e-3)
    seconds = time() - start

    rows = dls.train.num_rows_processed + dls.valid.num_rows_processed
    print(f"{rows:,} rows in {seconds:.1f} s on {dls.device}: {rows / seconds:,.0f} rows/s")
    print(dls.train.stats().verdict())
    _, auc, precision = learn.validate()
    print(f"valid AUC {auc:.4f}, AP {precision:.4f}")
    learn.export("model.pkl")
    return {"auc": auc, "ap": precision}


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
