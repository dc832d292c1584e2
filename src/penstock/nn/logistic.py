"""Logistic regression over numbers and ids, solved to its end: what columns say by themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from penstock.nn.torch_optimizers import without_compiler

STRENGTHS = (0.03, 0.1, 0.3, 1.0)  # how far weights of ids may go: the larger, the further
NUMBER_STRENGTHS = (1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0)  # the same of numbers
_PLENTY = 200  # rows for each number: more of them determine its weight, whatever holds it back
_FOLDS = 4
_EVERY_FOLD = 20_000  # rows up to which every fold is held out once; of more rows one fold tells enough
_ITERATIONS = 50
_SPREADS = (1e-3, 3.0)  # the least and the most that weights of a column may spread (a variance)
_FIRST_SPREAD = 0.1
_ROUNDS, _SETTLED = 6, 0.1  # at most so often are spreads estimated; by less than this factor they no longer change


@dataclass(frozen=True)
class LinearRows:
    """Rows as a linear model reads them: numbers, and keys of ids, `values[i]` of `keys[i]` in the row `rows[i]`.

    Args:
        numbers: `(N, n)`.
        keys: ids of all columns, one column's above another's.
        rows: the row of each key.
        values: how often it counts there.
        labels: 0 or 1, `(N,)`.
        num_keys: how many keys there may be.
        columns: the column of each of them; None for one column.
    """

    numbers: np.ndarray
    keys: np.ndarray
    rows: np.ndarray
    values: np.ndarray
    labels: np.ndarray
    num_keys: int
    columns: np.ndarray | None = None

    def where(self, chosen: np.ndarray) -> LinearRows:
        """Some of the rows.

        Args:
            chosen: a flag for each.

        Returns:
            Those with one.
        """
        kept, places = chosen[self.rows], np.cumsum(chosen) - 1
        return LinearRows(
            self.numbers[chosen], self.keys[kept], places[self.rows[kept]], self.values[kept], self.labels[chosen],
            self.num_keys, self.columns,
        )  # fmt: skip

    def logits(self, weights: np.ndarray) -> np.ndarray:
        """What a model with these weights says.

        Args:
            weights: of the keys, of the numbers, and a constant.

        Returns:
            Logits, `(N,)`.
        """
        found = np.bincount(self.rows, self.values * weights[self.keys], len(self.labels))
        # Not by BLAS, whose threads would wait for one another longer than there is work.
        return np.asarray(found + np.einsum("ij,j->i", self.numbers, weights[self.num_keys : -1]) + weights[-1])

    def loss(self, weights: np.ndarray) -> float:
        """The log loss, summed over the rows.

        Args:
            weights: see `logits`.

        Returns:
            The sum.
        """
        logits = self.logits(weights)
        return float(np.sum(np.logaddexp(0.0, logits) - self.labels * logits))

    def gradient(self, weights: np.ndarray) -> np.ndarray:
        """How the loss changes with each weight.

        Args:
            weights: see `logits`.

        Returns:
            As many numbers as there are weights.
        """
        # By way of the logarithm, which no logit, however low, carries beyond what a number holds.
        residuals = np.exp(-np.logaddexp(0.0, -self.logits(weights))) - self.labels
        ids = np.bincount(self.keys, self.values * residuals[self.rows], self.num_keys)
        return np.concatenate([ids, np.einsum("i,ij->j", residuals, self.numbers), [residuals.sum()]])


def fit_logistic(rows: LinearRows, seed: int = 0) -> np.ndarray:
    """The weights of a logistic regression: the mean of two, which differ in how strongly weights are held back.

    One holds all ids back alike, by what rows left out tell; few rows tell that by luck. The other holds back each
    column by how far its weights spread. Their mean is better than either, as what is luck differs. Numbers are held
    back only where they are many for so few rows, by what rows left out tell.

    Args:
        rows: to learn from.
        seed: of which rows are left out.

    Returns:
        Weights of the keys, of the numbers, and a constant.

    >>> labels = np.tile([0.0, 0.0, 0.0, 1.0], 50)  # the id 1 clicks, and 0 does not
    >>> rows = LinearRows(np.empty((200, 0)), labels.astype(int), np.arange(200), np.ones(200), labels, num_keys=2)
    >>> never, always, _ = fit_logistic(rows)
    >>> bool(never < 0 < always)
    True
    """
    folds = _folds(rows, seed)
    number = _number_strength(rows, folds)
    if not rows.num_keys:
        return _minimum(rows, _held_back(rows, 1.0, number), None)
    strength, found = _id_strength(rows, folds, number), None
    for weaker in STRENGTHS[: STRENGTHS.index(strength) + 1]:  # each begins where the one before has ended
        found = _minimum(rows, _held_back(rows, weaker, number), found)
    assert found is not None
    return np.asarray((found + _by_spreads(rows, number)) / 2)


def _number_strength(rows: LinearRows, folds: Sequence[tuple[LinearRows, LinearRows]]) -> float:
    if rows.numbers.shape[1] * _PLENTY <= len(rows.labels):
        return NUMBER_STRENGTHS[-1]
    return _best(folds, NUMBER_STRENGTHS, lambda tried: _held_back(rows, _FIRST_SPREAD, tried))


def _id_strength(rows: LinearRows, folds: Sequence[tuple[LinearRows, LinearRows]], number: float) -> float:
    return _best(folds, STRENGTHS, lambda tried: _held_back(rows, tried, number))


def _by_spreads(rows: LinearRows, number: float) -> np.ndarray:
    """The weights with each column held back by how far its weights spread, which is estimated from them in turn.

    The spread is the sum of their squares by the number of weights that rows have determined (MacKay 1992): a weight
    that no row speaks of determines nothing, and one of many rows itself.
    """
    columns = np.zeros(rows.num_keys, np.int64) if rows.columns is None else rows.columns
    count = int(columns.max()) + 1
    spreads, found = np.full(count, _FIRST_SPREAD), None
    for _ in range(_ROUNDS):
        found = _minimum(rows, _held_back(rows, spreads[columns], number), found)
        said = np.exp(-np.logaddexp(0.0, -rows.logits(found)))
        told = np.bincount(rows.keys, rows.values**2 * (said * (1 - said))[rows.rows], rows.num_keys)
        determined = np.bincount(columns, told / (told + 1 / spreads[columns]), count)
        squares = np.bincount(columns, found[: rows.num_keys] ** 2, count)
        before, spreads = spreads, np.clip(squares / np.maximum(determined, 1e-9), *_SPREADS)
        if np.abs(np.log(spreads / before)).max() < _SETTLED:
            break
    return _minimum(rows, _held_back(rows, spreads[columns], number), found)


def _folds(rows: LinearRows, seed: int) -> list[tuple[LinearRows, LinearRows]]:
    """Rows to learn from and rows left out, in turn."""
    count = len(rows.labels)
    folds = np.random.default_rng(seed).permutation(count) % _FOLDS
    turns = range(_FOLDS if count <= _EVERY_FOLD else 1)
    return [(rows.where(folds != fold), rows.where(folds == fold)) for fold in turns]


def _best(
    folds: Sequence[tuple[LinearRows, LinearRows]], strengths: Sequence[float], held: Callable[[float], np.ndarray]
) -> float:
    """The strength with the lowest loss on rows left out; losses fall with the strength and then rise."""
    best, lowest = strengths[0], float("inf")
    starts: list[np.ndarray | None] = [None] * len(folds)
    for strength in strengths:
        found = [_minimum(kept, held(strength), start) for (kept, _), start in zip(folds, starts, strict=True)]
        starts = [*found]
        loss = sum(left.loss(weights) for (_, left), weights in zip(folds, found, strict=True))
        if loss >= lowest:
            break
        best, lowest = strength, loss
    return best


def _held_back(rows: LinearRows, ids: float | np.ndarray, numbers: float) -> np.ndarray:
    """How strongly the square of each weight is held back; the constant's is not."""
    held = np.zeros(rows.num_keys + rows.numbers.shape[1] + 1)
    held[: rows.num_keys] = 1 / np.asarray(ids)
    held[rows.num_keys : -1] = 1 / numbers
    return held


def _minimum(rows: LinearRows, held: np.ndarray, start: np.ndarray | None) -> np.ndarray:
    """The weights with the lowest sum of loss and penalty, by L-BFGS."""
    count = len(rows.labels)
    share = rows.labels.mean()
    if start is None:
        start = np.zeros(len(held))
        start[-1] = np.log((share + 1e-3) / (1 - share + 1e-3))
    # What a weight's square is worth at the start: in these units, about standard errors, frequent ids and rare ones
    # are found equally fast, and a thousandth of one is near enough, whatever the number of rows.
    squares = np.bincount(rows.keys, rows.values**2, rows.num_keys)
    curved = np.concatenate([squares, (rows.numbers**2).sum(0), [count]]) * max(share * (1 - share), 1e-3)
    unit = 1 / np.sqrt(curved + held + 1e-12)
    place = torch.from_numpy(start / unit).requires_grad_()
    lbfgs: Any = without_compiler(torch.optim.LBFGS)
    solver = lbfgs(
        [place], max_iter=_ITERATIONS, tolerance_grad=1e-3, tolerance_change=1e-3, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        weights = place.detach().numpy() * unit
        place.grad = torch.from_numpy((rows.gradient(weights) + held * weights) * unit)
        return rows.loss(weights) + 0.5 * float(held @ weights**2)

    solver.step(closure)
    return np.asarray(place.detach().numpy() * unit)
