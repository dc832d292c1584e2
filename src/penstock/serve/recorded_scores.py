"""Scores of batches of one size by a graph that was recorded once.

A batch is some seventy small pieces of work for a GPU, which takes two milliseconds for them. Handing them over one by
one takes longer where other threads want the interpreter as well: each piece may cost a turn at its lock.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from penstock.train.batch import copied
from penstock.train.executors.step_graph import EagerRecorder, GraphRecorder, Recorder

_WARM_UP = 2  # batches before the recording: libraries allocate and kernels are compiled in them

Score = Callable[[Tensor, Tensor], Tensor]


class RecordedScores:
    """What `score(ids, continuous)` gives, recorded for batches of one size; others are scored as they come.

    Args:
        score: work of a device that asks nothing of the host; one that does is called for every batch.
        num_rows: of the batches to record.
        device: where.

    >>> twice = RecordedScores(lambda ids, numbers: 2 * numbers[:, 0], 2, torch.device("cpu"))
    >>> [twice(torch.zeros(2, 1), torch.full((2, 1), float(i))).tolist() for i in range(4)]
    [[0.0, 0.0], [2.0, 2.0], [4.0, 4.0], [6.0, 6.0]]
    """

    def __init__(self, score: Score, num_rows: int, device: torch.device) -> None:
        self._score, self._num_rows = score, num_rows
        self._recorder: Recorder = GraphRecorder(device) if device.type == "cuda" else EagerRecorder()
        self._seen, self._works, self._recorded = 0, True, False
        self._inputs: tuple[Tensor, Tensor] | None = None
        self._scores: Tensor | None = None

    def __call__(self, ids: Tensor, continuous: Tensor) -> Tensor:
        """The scores of a batch."""
        if len(ids) != self._num_rows or not self._works:
            return self._score(ids, continuous)
        with torch.inference_mode():
            if self._inputs is None:
                self._inputs = copied((ids, continuous))
            else:
                self._inputs[0].copy_(ids)
                self._inputs[1].copy_(continuous)
            if not self._recorded:
                self._seen += 1
                if self._seen <= _WARM_UP:
                    self._recorder.warm_up(self._work)
                    return self._taken()
                self._record()
            if not self._works:
                return self._score(ids, continuous)
            self._recorder.replay()
            return self._taken()

    def _work(self) -> None:
        assert self._inputs is not None
        self._scores = self._score(*self._inputs)

    def _record(self) -> None:
        try:
            self._recorder.record(self._work)
        except RuntimeError:  # whatever a device does not record is scored as it comes
            self._works = False
            self._recorder.forget()
        self._recorded = self._works

    def _taken(self) -> Tensor:
        """The scores in memory of their own: the next batch's come to the same place."""
        assert self._scores is not None
        return self._scores.clone()
