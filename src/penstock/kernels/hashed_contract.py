"""What the kernels of hashed tables and their oracle agree on: an index on the device from ids to rows of one weight.

The words of `fused_contract` (feature, bag, occurrence, key) apply. `index` is `(entries, 2)`: an id's *sign*, which is
the id plus one (0: the entry is empty), and its *value*: the row below, and above it the step that last touched it
(`row | step << 32`). A value below 0 stands for no row. Each table has a region of the index, a power of two long, and
its row of `features` says where: `(first entry, entries, the table's number)`, and a column that is not read. An id is
sought from the place that its hash chooses, entry by entry and round the region's end, `PROBES` times at most. Behind
the regions lie `GUARDS` entries that belong to none: where programs point lanes that seek nothing.

A batch's new ids get rows in the order of their first occurrences, whatever the order of the programs: each occurrence
puts `claim(occurrence)` into its entry's value, of which the least stays. First come rows on the list of free ones,
from its end, then those that were never used. A new row starts as a store's: a hash of sign, seed and column.

`counters` are numbers on the device: rows ever used, rows on the free list, the step, what the current step has found
(occurrences without a row, then new ids), and for each table its signs in the index and the ids refused for want of
room.
"""

from __future__ import annotations

from typing import Any, NamedTuple

USED, FREE, CLOCK, PENDING, NEW, BY_TABLE = range(6)
NO_ROW = -1  # the value of an entry whose sign has no row
CLAIMS = -(2**62)
PROBES = 1024
GUARDS, GUARD_SIGN = 1024, 1
LOAD = 0.75  # of a region, at most; the kernels keep it only if whoever sizes the regions does
NONE, VECTOR, NUMBER = range(3)  # what a state of a row is


def claim(occurrence: Any) -> Any:
    """The value by which an occurrence asks for a row: below `NO_ROW`, and the lower the earlier it comes.

    >>> claim(3) < claim(4) < NO_ROW
    True
    """
    return CLAIMS + occurrence


def num_counters(num_tables: int) -> int:
    return BY_TABLE + 2 * num_tables


class NewRows(NamedTuple):
    """What a training step gives new ids: where rows are, and how they start."""

    starts: Any  # the first entry of each table's region
    seeds: Any  # of each table
    free: Any  # rows that were used once
    capacity: int
    stamped: bool  # whether values hold steps
    weight: Any
    states: tuple[Any, Any]  # None for one that there is not
    low: float  # weights start uniform from here
    width: float  # over so much
    state_starts: tuple[float, float]


def state_kind(state: Any) -> int:
    """Whether a state is a vector a row, a number a row, or nothing."""
    if state is None:
        return NONE
    return VECTOR if state.ndim == 2 else NUMBER
