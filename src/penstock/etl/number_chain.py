"""Chains of operators on numbers (fill, clip, logarithm, normalize), run as one: no frames in between.

Each operator by itself makes a frame of its columns under the interpreter's lock, which is what threads on many cores
wait for, and goes through memory once more. Only operators that are exactly those below are put together; a subclass
may do anything. Columns of int32 alone have kernels of their own, which take logarithms from tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from penstock.core.errors import PenstockError
from penstock.data.places import frame_over, places_of
from penstock.etl.operator import Operator
from penstock.etl.ops.continuous import Clip, LogOp
from penstock.etl.ops.fill import FillMissing
from penstock.etl.ops.scale import Normalize, NormalizeMinMax

if TYPE_CHECKING:
    from penstock.etl.plan import Plan
    from penstock.kernels.cpu_stats import Moments

_KINDS = (FillMissing, Clip, LogOp, Normalize)  # in the order of the kernel's steps
_LEARNERS = (Normalize, NormalizeMinMax)  # which learn nothing but moments


@dataclass(frozen=True)
class NumberChain:
    """The steps of some nodes, one behind the other, for each of their columns."""

    nodes: tuple[int, ...]
    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    steps: np.ndarray

    @property
    def fills(self) -> bool:
        """Whether it begins with filling what is missing."""
        return bool(self.steps[0, 0, 0] == _FILL)

    @property
    def is_whole(self) -> bool:
        """Whether all columns are int32."""
        return set(self.dtypes) == {"int32"}

    def run(self, frame: pl.DataFrame) -> pl.DataFrame | None:
        """The columns of the last node; None where values are missing and nothing fills them."""
        from penstock.kernels.cpu_float_chain import run_float_chain
        from penstock.kernels.cpu_numbers import run_chain

        places = places_of(frame, self.names)
        if not self.fills and any(places.null_counts):
            return None
        if self.is_whole:
            made = run_chain(places.table, places.num_rows, self.steps)
        else:
            made = run_float_chain(places.table, self._dtype_numbers(), places.num_rows, self.steps)
        return frame_over(self.names, made)

    def moments(self, frame: pl.DataFrame) -> dict[str, Moments] | None:
        """What `Normalize` behind this chain learns of each column; None where its rows must be made for that."""
        from penstock.kernels.cpu_float_chain import moments_of_chain
        from penstock.kernels.cpu_numbers import moments_of_logarithms

        places = places_of(frame, self.names)
        if not self.fills and any(places.null_counts):
            return None
        if self.is_whole:
            found: list[Moments] | None = moments_of_logarithms(places.table, places.num_rows, self.steps)
        else:
            found = moments_of_chain(places.table, self._dtype_numbers(), places.num_rows, self.steps)
        return None if found is None else dict(zip(self.names, found, strict=True))

    def _dtype_numbers(self) -> np.ndarray:
        from penstock.kernels.cpu_float_chain import DTYPES

        return np.array([DTYPES.index(dtype) for dtype in self.dtypes], np.int64)


def chain_before(plan: Plan, i: int) -> NumberChain | None:
    """The chain from raw columns to a node that learns moments of logarithms or floats: it needs no frames for that."""
    nodes: tuple[int, ...] = (i,)
    if type(plan.nodes[i].operator) not in _LEARNERS or not _follows_one(plan, i):
        return None
    while _is_step(plan, plan.parents[nodes[0]][0]) and _follows_one(plan, nodes[0]):
        nodes = (plan.parents[nodes[0]][0], *nodes)
    before = nodes[:-1]
    if not before or not _follows_one(plan, before[0]):
        return None
    chain = _chain(plan, before)
    if chain is None or tuple(plan.columns[i].names) != chain.names:
        return None
    last = chain.steps[0, -1, 0]  # sums of integers are learned as integers, and float32 in other bins than float64
    return chain if last == _LOG or (last < _LOG and set(chain.dtypes) == {"float64"}) else None


def chains_of(plan: Plan, needed: Sequence[int], wanted: Sequence[int]) -> dict[int, NumberChain]:
    """By its last node, each chain of two nodes or more that nothing else looks into."""
    users: dict[int, list[int]] = {i: [] for i in needed}
    for i in needed:
        for parent in (*plan.parents[i], *plan.dependencies[i]):
            users.setdefault(parent, []).append(i)
    found: dict[int, NumberChain] = {}
    inside: set[int] = set()
    for last in reversed(needed):
        nodes = [last]
        while _goes_on(plan, nodes[0]):
            before = plan.parents[nodes[0]][0]
            if before not in needed or before in wanted or users[before] != [nodes[0]] or not _is_step(plan, before):
                break
            nodes.insert(0, before)
        if last not in inside and len(nodes) > 1 and _is_step(plan, last):
            chain = _chain(plan, tuple(nodes))
            if chain is not None and (chain.is_whole or chain.steps[0, -1, 0] >= _LOG):
                found[last] = chain
                inside.update(nodes)
    return found


def _is_step(plan: Plan, i: int) -> bool:
    node = plan.nodes[i]
    return node.kind == "apply" and type(node.operator) in _KINDS and len(plan.parents[i]) == 1


def _goes_on(plan: Plan, i: int) -> bool:
    return _is_step(plan, i) and not plan.dependencies[i]


def _follows_one(plan: Plan, i: int) -> bool:
    return len(plan.parents[i]) == 1 and not plan.dependencies[i]


def _chain(plan: Plan, nodes: tuple[int, ...]) -> NumberChain | None:
    """The nodes as one, where the kernels have their columns' dtypes and every step, in the order of its kinds."""
    first = plan.schemas[plan.parents[nodes[0]][0]]
    names = tuple(plan.columns[nodes[0]].names)
    dtypes = tuple("" if first[name].is_list else first[name].dtype for name in names)
    if not names or not set(dtypes) <= _DTYPES:
        return None
    steps = []
    for name, given in zip(names, dtypes, strict=True):
        dtype, own = given, list[list[Any]]()
        for i in nodes:
            op = plan.nodes[i].operator
            assert op is not None
            made = _STEPS[type(op)](op, dtype, name)
            if made is None or tuple(plan.columns[i].names) != names or (own and made[1] < own[-1][0]):
                return None
            dtype, *step = made
            own.append(step)
        if plan.schemas[nodes[-1]][name].dtype != dtype:
            return None
        steps.append(own)
    chain = NumberChain(nodes, names, dtypes, np.array(steps, np.float64))
    kinds = [kind for kind, *_ in steps[0]]
    return None if kinds.count(_FILL) > 1 or kinds.count(_LOG) > 1 else chain


_FILL, _CLIP, _LOG, _SCALE = range(4)  # as `kernels.cpu_numbers` has them, which is not loaded before rows come
_DTYPES = {"int32", "int64", "float32", "float64"}
_Made = tuple[str, int, float, float] | None  # the dtype behind the step, and the step


def _fill(op: Any, dtype: str, name: str) -> _Made:
    if op.add_binary_cols:
        return None
    try:
        return dtype, _FILL, float(op._held(name, dtype)), 0.0
    except PenstockError:  # said by the operator itself, where a value is missing
        return None


def _clip(op: Any, dtype: str, name: str) -> _Made:
    low, high = op._bounds(dtype, name)
    return dtype, _CLIP, float(-np.inf if low is None else low), float(np.inf if high is None else high)


def _log(op: Any, dtype: str, name: str) -> _Made:
    return "float32", _LOG, 0.0, 0.0


def _scale(op: Any, dtype: str, name: str) -> _Made:
    if op.out_dtype != "float32" or not op.is_fitted:
        return None
    return "float32", _SCALE, op.offsets_[name], op.scales_[name]


_STEPS: dict[type[Operator], Callable[[Any, str, str], _Made]] = dict(
    zip(_KINDS, (_fill, _clip, _log, _scale), strict=True)
)
