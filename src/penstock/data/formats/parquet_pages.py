"""What polars is asked to decode, looked at before: page by page what the headers promise, and the checksums.

polars takes the memory that a page's header promises before it looks at the page, and passes over checksums: those of
pages, and gzip's own. Levels and codes that end early it makes up. Here, once for as long as the file stays the same,
every header is held against the footer, every checksum is taken, and where there is none the levels and codes are
counted. Columns whose pages polars does not check closely enough even so (rarer encodings, gzip, truth values, lists
without checksums) are named, to be read by Arrow.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType

import numpy as np
import pyarrow as pa

from penstock.core.errors import DataError
from penstock.data.codecs import codec_in_footer
from penstock.data.formats.parquet_footer import Footer

# As the format numbers them.
CODECS = dict(enumerate(("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")))
COMMON_ENCODINGS = sum(1 << encoding for encoding in (0, 2, 3, 4, 8))  # plain, dictionaries, and what levels are in
_BOOLEAN = 0
_WIDTHS = {1: 4, 2: 8, 3: 12, 4: 4, 5: 8}  # bytes of numbers, by how the format numbers their types
_CHECKED_BY_POLARS = {"UNCOMPRESSED", "SNAPPY", "ZSTD", "LZ4_RAW"}
_MOST_GAIN = 1 << 16  # of a codec that is not in the table
_SLACK = 64  # bytes behind a buffer that kernels may read
_HEAD = 1 << 14  # bytes of a page that are uncompressed first where its levels are wanted


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
    table = _table()
    fields, rare = footer.leaf_fields, set()
    for chunk in footer.chunks[_rows(footer, row_groups)] if fields else ():
        is_rare = chunk[table.ENCODINGS] & ~COMMON_ENCODINGS or chunk[table.TYPE] == _BOOLEAN
        if is_rare or CODECS.get(int(chunk[table.CODEC])) not in _CHECKED_BY_POLARS:
            rare.add(fields[chunk[table.LEAF]].name)
    return [name for name in columns if name in rare]


@dataclass
class _Looked:
    """Which column chunks of a file have been looked at, which have pages without checksums, and which odd ones."""

    done: np.ndarray
    bare: np.ndarray
    strange: np.ndarray


@lru_cache(maxsize=256)
def _looked(path: str, identity: tuple[int, ...], num_chunks: int) -> _Looked:
    """What is known of a file, as long as it is the same: whatever is written to it gives it another time."""
    return _Looked(*(np.zeros(num_chunks, bool) for _ in range(3)))


def check_pages(path: str, footer: Footer, row_groups: Iterable[int], columns: Iterable[str]) -> list[str]:
    """Refuse pages that promise what they cannot keep, whose checksum differs, or that have none and do not add up.

    Args:
        path: of a local file.
        footer: the file's.
        row_groups: those to be read.
        columns: those to be read.

    Returns:
        Columns to be read by Arrow: lists that have pages without checksums, which are other values to polars where
        they do not add up, levels as they were written of old, and pages that hold more than they say.

    Raises:
        DataError: a page is damaged; file, column, row group and page are named.
    """
    if not hasattr(os, "pread"):  # Windows
        return []
    table = _table()
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
            looked.bare[new], looked.strange[new] = _check_chunks(path, handle, footer, footer.chunks[new])
            looked.done[new] = True
    finally:
        os.close(handle)
    bare, strange = ({*footer.chunks[rows[of[rows]], table.LEAF].tolist()} for of in (looked.bare, looked.strange))
    lists = {leaf for leaf in bare if pa.types.is_nested(fields[leaf].type)} if fields else set()
    return sorted({fields[leaf].name for leaf in lists | strange} if fields else ())


def _check_chunks(path: str, handle: int, footer: Footer, chunks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which column chunks have pages without checksums, and which have odd ones, after all were found possible."""
    from penstock.kernels import cpu_parquet_check as kernel

    said = _said(footer, chunks)
    found, piece = np.zeros(2, np.int64), np.empty(kernel.PIECE_BYTES + _SLACK, np.uint8)
    bare, strange = np.zeros(len(chunks), bool), np.zeros(len(chunks), bool)
    status, left = kernel.check_chunks(handle, said, piece, found, bare, strange)
    if status < 0:
        raise _damaged(path, footer, chunks[found[0]], int(found[1]))
    for page in left:
        number = page[kernel.LEFT_CHUNK]
        status = _look_inside(handle, page, said[number])
        if status < 0:
            raise _damaged(path, footer, chunks[number], int(page[kernel.LEFT_NUMBER]))
        strange[number] |= status > 0
    return bare, strange


def _said(footer: Footer, chunks: np.ndarray) -> np.ndarray:
    """What the footer says of column chunks, as the kernel takes it."""
    from penstock.kernels import cpu_parquet_check as kernel

    table = _table()
    said = np.empty((len(chunks), kernel.CHECKED_FIELDS), np.int64)
    starts, dictionaries = chunks[:, table.DATA_PAGE], chunks[:, table.DICTIONARY_PAGE]
    said[:, kernel.CHUNK_OFFSET] = np.where(dictionaries > 0, np.minimum(starts, dictionaries), starts)
    said[:, kernel.CHUNK_SIZE] = chunks[:, table.SIZE]
    said[:, kernel.CHUNK_VALUES] = chunks[:, table.NUM_VALUES]
    said[:, kernel.CHUNK_FULL_SIZE] = chunks[:, table.FULL_SIZE]
    said[:, kernel.CHUNK_GAIN] = [_most_gain(int(codec)) for codec in chunks[:, table.CODEC]]
    said[:, kernel.CHUNK_CODEC] = chunks[:, table.CODEC]
    is_common = chunks[:, table.ENCODINGS] & ~COMMON_ENCODINGS == 0
    is_common &= chunks[:, table.TYPE] != _BOOLEAN  # they have run lengths, which are no rare encoding for them
    said[:, kernel.CHUNK_IS_COMMON] = is_common
    by_polars = [CODECS.get(int(codec)) in _CHECKED_BY_POLARS for codec in chunks[:, table.CODEC]]
    levels = footer.flat_levels[chunks[:, table.LEAF]]
    said[:, kernel.CHUNK_LEVELS] = np.where(is_common & by_polars, levels, -1)
    said[:, kernel.CHUNK_WIDTH] = [_WIDTHS.get(int(kind), 0) for kind in chunks[:, table.TYPE]]
    return said


def _look_inside(handle: int, left: np.ndarray, said: np.ndarray) -> int:
    """What `check_page` says of a page that Arrow has to uncompress."""
    from penstock.kernels import cpu_parquet_check as kernel
    from penstock.kernels import cpu_parquet_pages as pages
    from penstock.kernels.cpu_parquet_structure import check_page, has_codes

    page, codec = left[kernel.LEFT_PAGE :].copy(), CODECS[int(said[kernel.CHUNK_CODEC])].lower()
    body = os.pread(handle, int(page[pages.SIZE]), int(left[kernel.LEFT_OFFSET]))
    skipped = int(page[pages.LEVEL_BYTES] + page[pages.REPEAT_BYTES]) if page[pages.KIND] == pages.DATA_V2 else 0
    full_size, is_optional = int(page[pages.FULL_SIZE]) - skipped, said[kernel.CHUNK_LEVELS] == 1
    spare = np.zeros(_SLACK, np.uint8)

    def check(values: bytes) -> int:
        raw = np.frombuffer(body[:skipped] + values + bytes(_SLACK), np.uint8).copy()
        about = said[kernel.CHUNK_WIDTH], left[kernel.LEFT_DICTIONARY]
        return int(check_page(raw, len(raw) - _SLACK, page, spare, is_optional, False, *about))

    try:
        if codec == "zstd" and not has_codes(page) and full_size > _HEAD:  # the levels are at the front
            with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
                if (status := check(stream.read(_HEAD))) >= 0:
                    return status
        return check(pa.decompress(body[skipped:], full_size, codec, asbytes=True) if full_size else b"")
    except (pa.ArrowException, OSError, ValueError):
        return -1


def _damaged(path: str, footer: Footer, chunk: np.ndarray, page: int) -> DataError:
    table = _table()
    leaf, fields = int(chunk[table.LEAF]), footer.leaf_fields
    return damaged_page(path, fields[leaf].name if fields else f"number {leaf}", int(chunk[table.GROUP]), page)


def _rows(footer: Footer, row_groups: Iterable[int]) -> np.ndarray:
    """The numbers of those rows of the footer's table that are of these row groups."""
    table = _table()
    leaves = footer.metadata.num_columns
    groups = np.asarray(list(row_groups), np.int64)
    rows: np.ndarray = (groups[:, None] * leaves + np.arange(leaves)).ravel()
    assert len(rows) == 0 or (footer.chunks[rows, table.GROUP] == np.repeat(groups, leaves)).all()
    return rows


def _table() -> ModuleType:
    """The names of what the footer's table has; numba is imported when a file is read."""
    from penstock.kernels import cpu_parquet_footer

    return cpu_parquet_footer


def _most_gain(codec: int) -> int:
    known = codec_in_footer(CODECS.get(codec, ""))
    return _MOST_GAIN if known is None else known.most_gain
