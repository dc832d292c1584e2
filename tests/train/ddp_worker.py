"""One of two dense workers that share a Ray store; test_distributed.py starts it with the name and a folder."""

from __future__ import annotations

import json
import os
import sys
from importlib import util
from pathlib import Path

spec = util.spec_from_file_location("training_setup", Path(__file__).with_name("conftest.py"))
assert spec is not None and spec.loader is not None
training_setup = util.module_from_spec(spec)
spec.loader.exec_module(training_setup)


def main(store_name: str, folder: str) -> None:
    import torch
    from torch import distributed as dist

    from penstock.embedding import RayStore
    from penstock.loader.torch import Loader
    from penstock.nn import DLRM
    from penstock.train import fit, record_to_dict

    meeting = (Path(folder) / "meeting").as_uri()  # a file, since a port that is free now may be taken in a moment
    dist.init_process_group("gloo", meeting, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    torch.manual_seed(dist.get_rank())  # the wrapper gives all workers the weights of the first
    store = RayStore.attach(store_name)
    rows, more = training_setup.some_rows(3200), training_setup.some_rows(402, seed=1)
    loader = Loader(rows, 64, shuffle=True, seed=3, chunk_rows=2000, **training_setup.ROLES)
    valid = Loader(more, 100, last_batch="keep", **training_setup.ROLES)
    model = DLRM(training_setup.SCHEMA, embedding_dim=4, bottom=(8,), top=(8,))
    history = fit(
        model, loader, store, dense_optimizer=torch.optim.Adam(model.parameters(), lr=0.01), epochs=1, staleness=2,
        valid=valid, checkpoint_dir=Path(folder) / "checkpoints", checkpoint_every=20, progress=False,
    )  # fmt: skip
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    report = {
        "world": dist.get_world_size(),
        "records": [record_to_dict(record) for record in history.records],
        "stats": history.stats,
        "weights": weights.tolist(),
        "store": {key: store.stats()[key] for key in ("rows", "updates")},
    }
    (Path(folder) / f"rank-{dist.get_rank()}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
