"""A DLRM on click logs whose ids need no vocabulary: python examples/dlrm_hybrid.py [DAY.tsv]

Criteo's rows go straight to a model: numbers are filled and logged, hashed ids are embedding ids as they are, kept in a
store that grows as they come and is trained beside the dense model. Without a file it makes rows shaped like Criteo's.
"""

import sys
import tempfile
from pathlib import Path

import torch

import penstock as ps
from penstock import ops
from penstock.data.synthetic import CRITEO_DTYPES, CRITEO_NAMES, criteo
from penstock.embedding import Adagrad, Store, slots_from_schema
from penstock.loader.torch import Loader
from penstock.nn import DLRM
from penstock.train import TrainContext, evaluate

NUMBERS, CATEGORIES = CRITEO_NAMES[1:14], CRITEO_NAMES[14:]


def main(source: str | None = None, num_rows: int = 200_000, epochs: int = 2) -> float:
    best = None
    if source is None:
        made = criteo(Path(tempfile.mkdtemp(prefix="penstock-example-")) / "day.tsv", num_rows, cardinalities=10_000)
        source, best = str(made.path), made.best_auc
        print(made)

    # Nothing is written: the loader's threads read, transform and shuffle while the model trains.
    data = ps.Dataset(source, names=CRITEO_NAMES, dtypes=CRITEO_DTYPES, part_size="4MB", on_error="skip")
    data = data.with_roles(label=["label"], continuous=NUMBERS, categorical=CATEGORIES)
    numbers = NUMBERS >> ops.FillMissing() >> ops.Clip(min_value=0) >> ops.LogOp()
    workflow = ps.Workflow(["label"] + numbers + (CATEGORIES >> ops.FillMissing(0))).fit(data)
    train, valid = data.split([0.9, 0.1], seed=7)
    loader = Loader(train, 1024, transform=workflow, shuffle=True, cache="memory")
    valid = Loader(valid, 8192, transform=workflow)

    torch.manual_seed(0)
    model = DLRM(loader.schema, embedding_dim=16, bottom=(64,), top=(128, 64))
    store = Store(slots_from_schema(loader.schema, dim=16), Adagrad(lr=0.05, initial_accumulator=1e-3))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    with TrainContext(model, store, optimizer, staleness=4) as ctx:
        for epoch in range(epochs):
            for batch in ctx.batches(loader):
                output, labels = ctx.forward(batch)
                loss = ctx.loss(output, labels)
                ctx.backward(loss)
                if ctx.steps % 50 == 0:
                    print(f"epoch {epoch}, step {ctx.steps}: loss {loss.item():.4f}")
        figures = evaluate(ctx, valid)

    reach = "" if best is None else f" (best reachable {best:.4f})"
    print(f"valid AUC {figures['auc']:.4f}{reach}, {store.stats()['rows']:,} embeddings")
    return figures["auc"]


if __name__ == "__main__":
    main(*sys.argv[1:2])
