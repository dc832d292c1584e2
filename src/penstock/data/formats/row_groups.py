"""Row groups that were cut into several partitions, put together again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

from penstock.data.formats.parquet import ParquetPartition
from penstock.data.partition import Partition, SelectedPartition, unselected


def whole_row_groups(parts: Iterable[Partition]) -> list[Partition]:
    """Partitions with the pieces of a row group as one again, for whoever decodes row groups as they are.

    Pieces whose neighbours are not there stay as they are.
    """
    out: list[Partition] = []
    for (_, cut_from), same in groupby(parts, key=lambda part: (_choices(part), _cut_from(unselected(part)))):
        pieces = list(same)
        found = [unselected(part) for part in pieces]
        if cut_from is not None and _are_all_of(cut_from, [p for p in found if isinstance(p, ParquetPartition)]):
            pieces = [_over(pieces[0], replace(cut_from, num_bytes=sum(piece.num_bytes for piece in found)))]
        out += pieces
    return out


def _cut_from(part: Partition) -> ParquetPartition | None:
    return replace(part.whole(), num_bytes=0) if isinstance(part, ParquetPartition) and part.is_cut else None


def _are_all_of(whole: ParquetPartition, pieces: list[ParquetPartition]) -> bool:
    ends = [whole.first_row, *(piece.first_row + piece.num_rows for piece in pieces)]
    return ends[:-1] == [piece.first_row for piece in pieces] and ends[-1] == whole.first_row + whole.num_rows


def _choices(part: Partition) -> list[tuple[str, ...]]:
    return [part.columns, *_choices(part.source)] if isinstance(part, SelectedPartition) else []


def _over(part: Partition, whole: ParquetPartition) -> Partition:
    """The same choices of columns on top of the whole."""
    return replace(part, source=_over(part.source, whole)) if isinstance(part, SelectedPartition) else whole
