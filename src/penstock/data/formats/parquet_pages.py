"""What polars is asked to decode, looked at before: page by page what the headers promise, and the checksums.

polars takes the memory that a page's header promises before it looks at the page, and passes over checksums: those of
pages, and gzip's own. Here every header is held against the footer, every checksum is taken once for as long as the
file stays the same, and columns whose pages polars does not check closely enough (rarer encodings, gzip, truth values,
lists without checksums) are named, to be read by Arrow.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from penstock.core.errors import DataError
from penstock.data.codecs import codec_in_footer
from penstock.data.formats.parquet_footer import Footer

# As the format numbers them.
CODECS = dict(enumerate(("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")))
COMMON_ENCODINGS = sum(1 << encoding for encoding in (0, 2, 3, 4, 8))  # plain, dictionaries, and what levels are in
_BOOLEAN = 0
_CHECKED_BY_POLARS = {"UNCOMPRESSED", "SNAPPY", "ZSTD", "LZ4_RAW"}
_MOST_GAIN = 1 << 16  # of a codec that is not in the table
_SLACK = 64  # bytes behind a buffer that kernels may read


@lru_cache(maxsize=16)
def known_footer(path: str, identity: tuple[int, int]) -> Footer:
    """The footer of a local file, kept as long as the file is the same."""
    return Footer.read(path)


def damaged_page(path: str, column: str, row_group: int, page: int, why: str = "it cannot be right") -> DataError:
    """The error for a page that is not to be believed."""
    return DataError(
        f"{path}: column {column!r}, row group {row_group}: page {page} is damaged or missing ({why}); "
        f"write the file again"
    )


def for_arrow(footer: Footer, row_groups: Iterable[int], columns: Iterable[str]) -> list[str]:
    """Those of the columns that polars would read without looking closely."""
    from penstock.kernels import cpu_parquet_footer as table

    fields, rare = footer.leaf_fields, set()
    for chunk in footer.chunks[_rows(footer, row_groups)] if fields else ():
        is_rare = chunk[table.ENCODINGS] & ~COMMON_ENCODINGS or chunk[table.TYPE] == _BOOLEAN
        if is_rare or CODECS.get(int(chunk[table.CODEC])) not in _CHECKED_BY_POLARS:
            rare.add(fields[chunk[table.LEAF]].name)
    return [name for name in columns if name in rare]


@dataclass
class _Looked:
    """Which column chunks of a file have been looked at, and which of them have pages without checksums."""

    done: np.ndarray
    bare: np.ndarray


@lru_cache(maxsize=256)
def _looked(path: str, identity: tuple[int, ...], num_chunks: int) -> _Looked:
    """What is known of a file, as long as it is the same: whatever is written to it gives it another time."""
    return _Looked(np.zeros(num_chunks, bool), np.zeros(num_chunks, bool))


def check_pages(path: str, footer: Footer, row_groups: Iterable[int], columns: Iterable[str]) -> list[str]:
    """Refuse pages that promise what they cannot keep, or whose checksum differs.

    Args:
        path: of a local file.
        footer: the file's.
        row_groups: those to be read.
        columns: those to be read.

    Returns:
        Columns of lists that have pages without checksums: lists that do not add up are other values to polars.

    Raises:
        DataError: a page is damaged; file, column, row group and page are named.
    """
    if not hasattr(os, "pread"):  # Windows
        return []
    from penstock.kernels import cpu_parquet_footer as table

    fields, wanted = footer.leaf_fields, set(columns)
    rows = _rows(footer, row_groups)
    if fields:
        rows = rows[[fields[leaf].name in wanted for leaf in footer.chunks[rows, table.LEAF]]]
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        found = os.fstat(handle)
        identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        looked = _looked(path, identity, len(footer.chunks))
        new = rows[~looked.done[rows]]
        if len(new):
            looked.bare[new] = _check_chunks(path, handle, footer, footer.chunks[new])
            looked.done[new] = True
    finally:
        os.close(handle)
    bare = {int(leaf) for leaf in footer.chunks[rows[looked.bare[rows]], table.LEAF]}
    return sorted({fields[leaf].name for leaf in bare if pa.types.is_nested(fields[leaf].type)} if fields else ())


def _check_chunks(path: str, handle: int, footer: Footer, chunks: np.ndarray) -> np.ndarray:
    """Which column chunks have pages without checksums, after all were found possible."""
    from penstock.kernels import cpu_parquet_check as kernel
    from penstock.kernels import cpu_parquet_footer as table

    said = np.empty((len(chunks), kernel.CHECKED_FIELDS), np.int64)
    starts, dictionaries = chunks[:, table.DATA_PAGE], chunks[:, table.DICTIONARY_PAGE]
    said[:, kernel.CHUNK_OFFSET] = np.where(dictionaries > 0, np.minimum(starts, dictionaries), starts)
    said[:, kernel.CHUNK_SIZE] = chunks[:, table.SIZE]
    said[:, kernel.CHUNK_VALUES] = chunks[:, table.NUM_VALUES]
    said[:, kernel.CHUNK_FULL_SIZE] = chunks[:, table.FULL_SIZE]
    said[:, kernel.CHUNK_GAIN] = [_most_gain(int(codec)) for codec in chunks[:, table.CODEC]]
    said[:, kernel.CHUNK_IS_COMMON] = chunks[:, table.ENCODINGS] & ~COMMON_ENCODINGS == 0
    said[:, kernel.CHUNK_IS_SNAPPY] = [CODECS.get(int(codec)) == "SNAPPY" for codec in chunks[:, table.CODEC]]
    is_boolean = chunks[:, table.TYPE] == _BOOLEAN
    said[is_boolean, kernel.CHUNK_IS_COMMON] = 0  # they have run lengths, which are no rare encoding for them
    found, piece = np.zeros(2, np.int64), np.empty(kernel.PIECE_BYTES + _SLACK, np.uint8)
    bare = np.zeros(len(chunks), bool)
    if kernel.check_chunks(handle, said, piece, found, bare) < 0:
        chunk = chunks[found[0]]
        leaf, fields = int(chunk[table.LEAF]), footer.leaf_fields
        column = fields[leaf].name if fields else f"number {leaf}"
        raise damaged_page(path, column, int(chunk[table.GROUP]), int(found[1]))
    return bare


def _rows(footer: Footer, row_groups: Iterable[int]) -> np.ndarray:
    """The numbers of those rows of the footer's table that are of these row groups."""
    from penstock.kernels import cpu_parquet_footer as table

    leaves = footer.metadata.num_columns
    groups = np.asarray(list(row_groups), np.int64)
    rows: np.ndarray = (groups[:, None] * leaves + np.arange(leaves)).ravel()
    assert len(rows) == 0 or (footer.chunks[rows, table.GROUP] == np.repeat(groups, leaves)).all()
    return rows


def _most_gain(codec: int) -> int:
    known = codec_in_footer(CODECS.get(codec, ""))
    return _MOST_GAIN if known is None else known.most_gain
