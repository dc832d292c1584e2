"""Logistic regression over numbers and ids, solved to its end: what columns say by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from penstock.core.runtime.threads import thread_count, thread_pool
from penstock.kernels import cpu_logistic
from penstock.nn.one_thread import on_one_thread
from penstock.nn.torch_optimizers import without_compiler

STRENGTHS = (0.03, 0.1, 0.3, 1.0)  # how far weights of ids may go: the larger, the further
NUMBER_STRENGTHS = (1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0)  # the same of numbers
_PLENTY = 200  # rows for each number: more of them determine its weight, whatever holds it back
_FOLDS = 4
_EVERY_FOLD = 20_000  # rows up to which every fold is held out once; of more rows one fold tells enough
_ITERATIONS = 50
_SPREADS = (1e-3, 3.0)  # the least and the most that weights of a column may spread (a variance)
_FIRST_SPREAD = 0.1
_MOST_STRETCHES, _STRETCH = 8, 4_096  # of rows that threads take, and the fewest rows of one
_ROUNDS, _SETTLED = 6, 0.1  # at most so often are spreads estimated; by less than this factor they no longer change

Run = Callable[[Callable[[int], float], Iterable[int]], Iterable[float]]  # `map`, or that of a pool


@dataclass(frozen=True)
class LinearRows:
    """Rows as a linear model reads them: numbers, and keys of ids.

    Args:
        numbers: `(N, n)`.
        starts: where the keys of each row begin, and of the last one end, `(N + 1,)`.
        keys: ids of all columns, one column's above another's.
        values: how often each counts in its row; empty where all count once.
        labels: 0 or 1, `(N,)`.
        num_keys: how many keys there may be.
        columns: the column of each of them; None for one column.
    """

    numbers: np.ndarray
    starts: np.ndarray
    keys: np.ndarray
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
        lengths = np.diff(self.starts)
        kept, starts = np.repeat(chosen, lengths), np.concatenate([[0], np.cumsum(lengths[chosen])])
        values = self.values[kept] if len(self.values) else self.values
        return replace(
            self, numbers=self.numbers[chosen], starts=starts, keys=self.keys[kept], values=values,
            labels=self.labels[chosen],
        )  # fmt: skip

    def with_keys_seen(self) -> tuple[LinearRows, np.ndarray]:
        """The rows with keys for those ids alone that come, and which keys these were.

        Returns:
            The rows, and the former key of each key.
        """
        counts = np.bincount(self.keys, minlength=self.num_keys)
        seen, places = np.flatnonzero(counts), np.cumsum(counts > 0, dtype=np.int32) - np.int32(1)
        columns = None if self.columns is None else self.columns[seen]
        return replace(self, keys=places[self.keys], num_keys=len(seen), columns=columns), seen

    def logits(self, weights: np.ndarray) -> np.ndarray:
        """What a model with these weights says.

        Args:
            weights: of the keys, of the numbers, and a constant.

        Returns:
            Logits, `(N,)`.
        """
        said = np.empty(len(self.labels))
        cpu_logistic.logits(self.starts, self.keys, self.values, self.numbers, weights, said)
        return said

    def loss(self, weights: np.ndarray) -> float:
        """The log loss, summed over the rows.

        Args:
            weights: see `logits`.

        Returns:
            The sum.
        """
        return self.loss_and_gradient(weights)[0]

    def loss_and_gradient(self, weights: np.ndarray, run: Run = map) -> tuple[float, np.ndarray]:
        """The log loss, summed over the rows, and how it changes with each weight.

        Args:
            weights: see `logits`.
            run: what goes through the stretches of rows, side by side or not. Which rows a stretch has depends on the
                rows alone, so that sums have the same bits however many threads there are.

        Returns:
            The sum, and as many numbers as there are weights.
        """
        count = len(self.labels)
        most = min(_MOST_STRETCHES, count // _STRETCH, len(self.keys) // (4 * len(weights)))
        number = 1 << max(1, most).bit_length() - 1
        bounds, parts = np.linspace(0, count, number + 1).astype(np.int64), np.empty((number, len(weights)))
        rows = self.starts, self.keys, self.values, self.numbers, self.labels

        def of_stretch(at: int) -> float:
            return float(cpu_logistic.loss_and_gradient(*rows, weights, bounds[at], bounds[at + 1], parts[at]))

        return sum(run(of_stretch, range(number))), parts.sum(0)

    def squares(self) -> np.ndarray:
        """The sum of the squares of what each weight is multiplied by, as a Hessian has them.

        Returns:
            As many numbers as there are weights.
        """
        ids = np.bincount(self.keys, self.values**2 if len(self.values) else None, self.num_keys)
        return np.concatenate([ids, (self.numbers**2).sum(0), [len(self.labels)]])


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
    >>> rows = LinearRows(np.empty((200, 0)), np.arange(201), labels.astype(int), np.empty(0), labels, num_keys=2)
    >>> never, always, _ = fit_logistic(rows)
    >>> bool(never < 0 < always)
    True
    """
    seen_rows, seen = rows.with_keys_seen()
    with thread_pool(thread_count(None, most=_MOST_STRETCHES), "regression") as pool:
        found = _mean_of_two(seen_rows, _folds(seen_rows, seed), pool.map)
    weights = np.zeros(rows.num_keys + rows.numbers.shape[1] + 1)  # nothing speaks of the others
    weights[np.concatenate([seen, np.arange(rows.num_keys, len(weights))])] = found
    return weights


Folds = list[tuple[LinearRows, LinearRows]]  # rows to learn from and rows left out, in turn


def _folds(rows: LinearRows, seed: int) -> Folds:
    count = len(rows.labels)
    folds = np.random.default_rng(seed).permutation(count) % _FOLDS
    turns = range(_FOLDS if count <= _EVERY_FOLD else 1)
    return [(rows.where(folds != fold), rows.where(folds == fold)) for fold in turns]


def _mean_of_two(rows: LinearRows, folds: Folds, run: Run) -> np.ndarray:
    number, start = _number_strength(rows, folds, run)
    if not rows.num_keys:
        return _minimum(rows, _held_back(rows, 1.0, number), start, run)
    strength, start = _id_strength(rows, folds, number, run)
    found = _minimum(rows, _held_back(rows, strength, number), start, run)
    return np.asarray(found + _by_spreads(rows, number, found, run)) / 2


def _number_strength(rows: LinearRows, folds: Folds, run: Run = map) -> tuple[float, np.ndarray | None]:
    if rows.numbers.shape[1] * _PLENTY <= len(rows.labels):
        return NUMBER_STRENGTHS[-1], None
    return _best(folds, NUMBER_STRENGTHS, lambda tried: _held_back(rows, _FIRST_SPREAD, tried), run)


def _id_strength(rows: LinearRows, folds: Folds, number: float, run: Run = map) -> tuple[float, np.ndarray | None]:
    return _best(folds, STRENGTHS, lambda tried: _held_back(rows, tried, number), run)


def _best(
    folds: Folds, strengths: Sequence[float], held: Callable[[float], np.ndarray], run: Run
) -> tuple[float, np.ndarray | None]:
    """The strength with the lowest loss on rows left out, and the weights of the first fold at it.

    Losses fall with the strength and then rise. Each solution begins where that of the strength before has ended.
    """
    best, weights, lowest = strengths[0], None, float("inf")
    starts: list[np.ndarray | None] = [None] * len(folds)
    for strength in strengths:
        found = [_minimum(kept, held(strength), start, run) for (kept, _), start in zip(folds, starts, strict=True)]
        starts = [*found]
        loss = sum(left.loss(weights) for (_, left), weights in zip(folds, found, strict=True))
        if loss >= lowest:
            break
        best, weights, lowest = strength, found[0], loss
    return best, weights


def _by_spreads(rows: LinearRows, number: float, start: np.ndarray | None = None, run: Run = map) -> np.ndarray:
    """The weights with each column held back by how far its weights spread, which is estimated from them in turn.

    The spread is the sum of their squares by the number of weights that rows have determined (MacKay 1992): a weight
    that no row speaks of determines nothing, and one of many rows itself.
    """
    columns = np.zeros(rows.num_keys, np.int64) if rows.columns is None else rows.columns
    count = int(columns.max()) + 1
    spreads, found = np.full(count, _FIRST_SPREAD), start
    for _ in range(_ROUNDS):
        found = _minimum(rows, _held_back(rows, spreads[columns], number), found, run)
        said = np.exp(-np.logaddexp(0.0, -rows.logits(found)))
        doubt = np.repeat(said * (1 - said), np.diff(rows.starts))
        told = np.bincount(rows.keys, doubt * rows.values**2 if len(rows.values) else doubt, rows.num_keys)
        determined = np.bincount(columns, told / (told + 1 / spreads[columns]), count)
        squares = np.bincount(columns, found[: rows.num_keys] ** 2, count)
        before, spreads = spreads, np.clip(squares / np.maximum(determined, 1e-9), *_SPREADS)
        if np.abs(np.log(spreads / before)).max() < _SETTLED:
            break
    return _minimum(rows, _held_back(rows, spreads[columns], number), found, run)


def _held_back(rows: LinearRows, ids: float | np.ndarray, numbers: float) -> np.ndarray:
    """How strongly the square of each weight is held back; the constant's is not."""
    held = np.zeros(rows.num_keys + rows.numbers.shape[1] + 1)
    held[: rows.num_keys] = 1 / np.asarray(ids)
    held[rows.num_keys : -1] = 1 / numbers
    return held


def _minimum(rows: LinearRows, held: np.ndarray, start: np.ndarray | None, run: Run = map) -> np.ndarray:
    """The weights with the lowest sum of loss and penalty, by L-BFGS."""
    share = rows.labels.mean()
    if start is None:
        start = np.zeros(len(held))
        start[-1] = np.log((share + 1e-3) / (1 - share + 1e-3))
    # What a weight's square is worth at the start: in these units, about standard errors, frequent ids and rare ones
    # are found equally fast, and a thousandth of one is near enough, whatever the number of rows.
    unit = 1 / np.sqrt(rows.squares() * max(share * (1 - share), 1e-3) + held + 1e-12)
    place = torch.from_numpy(start / unit).requires_grad_()
    lbfgs: Any = without_compiler(torch.optim.LBFGS)
    solver = lbfgs(
        [place], max_iter=_ITERATIONS, tolerance_grad=1e-3, tolerance_change=1e-3, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        weights = place.detach().numpy() * unit
        loss, gradient = rows.loss_and_gradient(weights, run)
        place.grad = torch.from_numpy((gradient + held * weights) * unit)
        return loss + 0.5 * float(np.einsum("i,i,i->", held, weights, weights))

    with on_one_thread():
        solver.step(closure)
    return np.asarray(place.detach().numpy() * unit)
