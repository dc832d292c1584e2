"""Scores that were recorded once: of every batch its own, and of every one by itself where no recording works."""

from __future__ import annotations

import torch
from torch import Tensor

from penstock.serve.recorded_scores import RecordedScores
from penstock.train.executors.step_graph import EagerRecorder, Work

HOST = torch.device("cpu")


def batch(seed: int, rows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 9, (rows, 3), generator=generator), torch.rand(rows, 2, generator=generator)


def summed(ids: Tensor, continuous: Tensor) -> Tensor:
    return ids.sum(1) + continuous.sum(1)


def test_every_batch_has_its_own_scores() -> None:
    recorded = RecordedScores(summed, 8, HOST)
    batches = [batch(number, 8 if number % 4 else 5) for number in range(12)]
    kept = [recorded(*one) for one in batches]
    for one, scores in zip(batches, kept, strict=True):
        assert torch.equal(scores, summed(*one))


class Strict(EagerRecorder):
    """A recorder that cannot record what asks for a number, as CUDA's graphs cannot."""

    def record(self, work: Work) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")


def test_what_cannot_be_recorded_is_scored_batch_by_batch() -> None:
    calls = []

    def counted(ids: Tensor, continuous: Tensor) -> Tensor:
        calls.append(len(ids))
        return summed(ids, continuous)

    recorded = RecordedScores(counted, 8, HOST)
    recorded._recorder = Strict()
    for number in range(6):
        one = batch(number, 8)
        assert torch.equal(recorded(*one), summed(*one))
    assert calls == [8] * 6
