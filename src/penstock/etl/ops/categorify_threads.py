"""What `Categorify` does between two passes over the data, on all cores where there is much to do."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import reduce

from penstock.core.runtime.threads import available_cores
from penstock.engine.local import LocalEngine
from penstock.etl.vocabulary import Codes, ValueCounts, Vocabulary

_WORTH_THREADS = 50_000  # values to move that take longer than it takes to start threads
_building = threading.Lock()
State = dict[str, ValueCounts]  # by vocabulary


def engine_for(num_values: int) -> LocalEngine:
    """All cores where there is much to do."""
    return LocalEngine(available_cores() if num_values >= _WORTH_THREADS else 1)


def merged(states: list[State]) -> State:
    """What several threads have counted: integers by ranges of their values, the rest column beside column.

    The states are given up for it.
    """
    if len(states) == 1:
        return states[0]
    names = list(states[0])
    counts = {name: [state[name] for state in states] for name in names}
    engine = engine_for(sum(own.num_held for name in names for own in counts[name]))
    ranged = [name for name in names if engine.num_workers > 1 and _have_ranges(counts[name])]
    others = [name for name in names if name not in ranged]
    found = dict(zip(others, engine.map(lambda name: _one_by_one(counts[name]), others), strict=True))
    found |= zip(ranged, ValueCounts.merge_ranges([counts[name] for name in ranged], engine), strict=True)
    return {name: found[name] for name in names}


def _have_ranges(counts: list[ValueCounts]) -> bool:
    return all(own.has_ranges and own.dtype == counts[0].dtype for own in counts)


def _one_by_one(counts: list[ValueCounts]) -> ValueCounts:
    return reduce(ValueCounts.merge, counts)


def build_tables(vocabularies: Mapping[str, Vocabulary], layouts: Mapping[str, Codes]) -> None:
    """Tables of large vocabularies side by side: threads that transform would build them one after another."""

    def missing() -> list[str]:
        return [name for name, layout in layouts.items() if not vocabularies[name].has_lookup(layout)]

    if not missing():
        return
    with _building:
        names = missing()
        engine = engine_for(sum(len(vocabularies[name]) for name in names))
        for _ in engine.map(lambda name: vocabularies[name].lookup(layouts[name]), names):
            pass
