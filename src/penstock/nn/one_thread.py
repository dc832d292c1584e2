"""Work of PyTorch's on the thread that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def on_one_thread() -> Iterator[None]:
    """A block in which torch and BLAS use one thread, and so do the threads that begin in it.

    Sums over few numbers are shorter than threads wait for one another; and where several threads have a batch each,
    or read beside the model, each layer of a batch would wait for whoever is not running.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
