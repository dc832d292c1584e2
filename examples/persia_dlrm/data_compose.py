"""The data loader of a PERSIA program of 2021: click logs in, batches out.

Each line is a label, 13 counts and 26 ids in hexadecimal, separated by tabs; any of them may be empty. The file is
named by TRAIN_DATA.
"""

import os
from pathlib import Path

import numpy as np
from persia.ctx import init_backend
from persia.prelude import PyPersiaBatchData

NUM_DENSE, NUM_SPARSE = 13, 26


def parse(line: str) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """The numbers, the ids of each category (none where the field is empty) and the label of one line."""
    fields = line.rstrip("\n").split("\t")
    dense = np.array([float(field or 0) for field in fields[1 : 1 + NUM_DENSE]], dtype=np.float32)
    sparse = [np.array([int(field, 16)] if field else [], dtype=np.uint64) for field in fields[1 + NUM_DENSE :]]
    return dense, sparse, np.array([fields[0]], dtype=np.float32)


def compose(samples: list) -> PyPersiaBatchData:
    """A batch: numbers, then one list of ids for each sample of each category, then the target."""
    dense, sparse, target = zip(*samples, strict=True)
    batch = PyPersiaBatchData()
    batch.add_dense_f32(np.stack(dense))
    batch.add_sparse([(f"sparse_feature{column}", [ids[column] for ids in sparse]) for column in range(NUM_SPARSE)])
    batch.add_target(np.stack(target))
    return batch


def send(source: str, batch_size: int = 64, epochs: int = 2) -> int:
    """Send the whole file, batch by batch; how many there were."""
    backend = init_backend(init_output=True, wait_server_ready=True)
    count = 0
    for _ in range(epochs):
        samples = []
        with Path(source).open() as file:
            for line in file:
                samples.append(parse(line))
                if len(samples) == batch_size:
                    backend.send_data(compose(samples))
                    samples = []
                    count += 1
    return count


if __name__ == "__main__":
    print(f"sent {send(os.environ['TRAIN_DATA'])} batches")
