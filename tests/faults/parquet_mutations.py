"""Parquet files taken apart into footer, page headers and page bodies, changed somewhere, and put together again."""

from __future__ import annotations

import copy
import io
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from thrift_tree import (
    BINARY,
    DOUBLE,
    FALSE,
    INTEGERS,
    LIST,
    TRUE,
    get,
    places,
    put,
    read_struct,
    write_struct,
    write_varint,
)

CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd"}
NUMBERS = [0, 1, -1, 2, 7, 8, 63, 64, 127, 128, 255, 1000, 2**15, 2**16, 2**28, 2**31 - 1, 2**31, 2**32 - 1, 2**32]
NUMBERS += [2**40, 2**60, 2**61, 2**62, 2**63 - 1, -(2**31), -(2**63)]
ROWS = 300


@dataclass
class Page:
    header: list
    body: bytes  # as it is stored


@dataclass
class File:
    footer: list
    chunks: list[tuple[list, list[Page]]]  # the ColumnMetaData and its pages, in the order of the file

    def data(self) -> bytes:
        """The file's bytes, with the places and sizes in the footer as they are now."""
        out = bytearray(b"PAR1")
        for column, pages in self.chunks:
            start = len(out)
            for page in pages:
                if get(page.header, 1) == 2:
                    put(column, 11, len(out))
                elif get(page.header, 1) in (0, 3) and page is next(p for p in pages if get(p.header, 1) in (0, 3)):
                    put(column, 9, len(out))
                out += write_struct(page.header) + page.body
            put(column, 7, len(out) - start)
        return bytes(out)


def ending(footer: bytes) -> bytes:
    return footer + struct.pack("<I", len(footer)) + b"PAR1"


def table() -> pa.Table:
    """Every kind of column that the kernels read, and some that they leave to others."""
    rng = np.random.default_rng(0)
    few, many = rng.integers(0, 7, ROWS), rng.integers(0, 2**31 - 1, ROWS)
    mask = rng.random(ROWS) < 0.3
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 4, ROWS))]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(rng.integers(0, 50, offsets[-1]), pa.int64()))
    return pa.table(
        {
            "few": pa.array(few, pa.int32()),
            "many": pa.array(many, pa.int64()),
            "holes": pa.array(few, pa.int32(), mask=mask),
            "real": pa.array(np.round(rng.standard_normal(ROWS), 1), pa.float32(), mask=mask),
            "runs": pa.array(np.arange(ROWS) // 100, pa.int64()),
            "lists": lists,
        }
    )


def text_table() -> pa.Table:
    """Columns that are read through a frame: text, bytes, truth values, dates, and numbers in rarer encodings."""
    rng = np.random.default_rng(1)
    words = np.array(["", "a", "ad", "add", "address", "käse", "x" * 40, "日本", "y" * 300], object)
    few, mask = words[rng.integers(0, len(words), ROWS)], rng.random(ROWS) < 0.3
    many = [f"user-{n:06d}-{'z' * (n % 20)}" for n in rng.integers(0, 10**6, ROWS)]
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 3, ROWS))]).astype(np.int32)
    return pa.table(
        {
            "few": pa.array(few, pa.string()),
            "many": pa.array(many, pa.string()),
            "holes": pa.array(few, pa.string(), mask=mask),
            "sorted": pa.array(sorted(many), pa.string()),
            "bytes": pa.array([rng.bytes(n) for n in rng.integers(0, 9, ROWS)], pa.binary(), mask=mask),
            "lists": pa.ListArray.from_arrays(pa.array(offsets), pa.array(words[np.arange(offsets[-1]) % len(words)])),
            "flag": pa.array(rng.random(ROWS) < 0.5, pa.bool_(), mask=mask),
            "day": pa.array(rng.integers(0, 20_000, ROWS), pa.int32()).cast(pa.date32()),
            "number": pa.array(rng.integers(-(2**40), 2**40, ROWS), pa.int64(), mask=mask),
            "real": pa.array(rng.standard_normal(ROWS), pa.float64()),
        }
    )


RARE = {
    "few": "DELTA_BYTE_ARRAY", "many": "DELTA_LENGTH_BYTE_ARRAY", "holes": "DELTA_LENGTH_BYTE_ARRAY",
    "sorted": "DELTA_BYTE_ARRAY", "bytes": "DELTA_LENGTH_BYTE_ARRAY", "number": "DELTA_BINARY_PACKED",
    "real": "BYTE_STREAM_SPLIT", "flag": "RLE", "day": "DELTA_BINARY_PACKED",
}  # fmt: skip


@cache
def text_original(variant: int) -> bytes:
    """A valid file of `text_table`; a third of the variants are in dictionaries, a third plain, a third in deltas."""
    options, out = random.Random(variant), io.BytesIO()
    kind: dict = {"use_dictionary": variant % 3 == 0}
    if variant % 3 == 2:
        kind["column_encoding"] = RARE
    pq.write_table(
        text_table(), out, row_group_size=options.choice([ROWS, 128]), data_page_size=1000, write_statistics=False,
        compression=options.choice(["none", "snappy", "none", "snappy", "gzip", "zstd"]),
        data_page_version=options.choice(["1.0", "1.0", "2.0"]), write_page_checksum=options.random() < 0.1, **kind,
    )  # fmt: skip
    return out.getvalue()


@cache
def original(variant: int) -> bytes:
    """A valid file; variants differ in codec, page version, dictionaries and checksums."""
    options = random.Random(variant)
    out = io.BytesIO()
    pq.write_table(
        table(), out, row_group_size=options.choice([ROWS, 128]), data_page_size=600, dictionary_pagesize_limit=2000,
        compression=options.choice(["none", "snappy", "none", "snappy", "gzip", "zstd", "brotli"]),
        data_page_version=options.choice(["1.0", "1.0", "2.0"]), use_dictionary=options.random() < 0.6,
        write_statistics=options.random() < 0.5, write_page_checksum=options.random() < 0.15,
    )  # fmt: skip
    return out.getvalue()


def take_apart(data: bytes) -> File:
    size = struct.unpack("<I", data[-8:-4])[0]
    footer, _ = read_struct(data[-8 - size : -8], 0)
    chunks = []
    for group in get(footer, 4)[1]:
        for chunk in get(group, 1)[1]:
            column = get(chunk, 3)
            at = min(p for p in (get(column, 9), get(column, 11)) if p)
            end, pages = at + get(column, 7), []
            while at < end:
                header, at = read_struct(data, at)
                pages.append(Page(header, data[at : at + get(header, 3)]))
                at += get(header, 3)
            chunks.append((column, pages))
    return File(footer, chunks)


def mutate(seed: int, variants: int = 24, made: Callable[[int], bytes] = original) -> tuple[bytes, str]:
    """`(a changed file, what was done to it)`; the same for the same seed. `made` gives the files to change."""
    rng = random.Random(seed)
    data = made(rng.randrange(variants))
    file = copy.deepcopy(take_apart(data))
    way = rng.choice(["header", "header", "body", "body", "body", "runs", "runs", "footer", "footer", "bytes", "pages"])
    if way == "bytes":
        return _flip(rng, data), way
    if way == "footer":
        front = file.data()
        for _ in range(rng.choice([1, 1, 1, 2])):
            _change_field(rng, file.footer)
        footer = write_struct(file.footer)
        return front + ending(_flip(rng, footer) if rng.random() < 0.1 else footer), way
    column, pages = rng.choice(file.chunks)
    page = rng.choice(pages)
    if way == "header":
        _change_field(rng, page.header)
    elif way == "pages":
        _change_pages(rng, pages)
    else:
        _change_body(rng, column, page, runs=way == "runs")
    return file.data() + ending(write_struct(file.footer)), way


def _flip(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        if not out:
            break
        at = rng.randrange(len(out))
        what = rng.randrange(4)
        if what == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            out[at] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
        elif what == 2:
            del out[at : at + rng.choice([1, 2, 16])]
        else:
            out[at:at] = rng.randbytes(rng.choice([1, 4]))
    return bytes(out)


def _number(rng: random.Random, value: int) -> int:
    if rng.random() < 0.4:
        return value + rng.choice([-1, 1, -8, 8, 100, value])
    return rng.choice(NUMBERS)


def _change_field(rng: random.Random, fields: list) -> None:
    """One field of a tree gets another value or another kind, goes, or comes twice."""
    holder, field = rng.choice(places(fields))
    what = rng.random()
    if what < 0.1:
        holder.remove(field)
    elif what < 0.15:
        holder.insert(rng.randrange(len(holder) + 1), copy.deepcopy(field))
    elif what < 0.2:
        field[0] = rng.randrange(20)
    elif field[1] in INTEGERS:
        field[2] = _number(rng, field[2])
        if rng.random() < 0.1:
            field[1] = rng.choice(INTEGERS)
    elif field[1] in (TRUE, FALSE):
        field[2] = not field[2]
    elif field[1] == BINARY:
        field[2] = _flip(rng, field[2]) if rng.random() < 0.8 else field[2] * rng.choice([2, 1000])
    elif field[1] == DOUBLE:
        field[2] = rng.random()
    elif field[1] == LIST and field[2][1]:
        items = field[2][1]
        items.pop(rng.randrange(len(items))) if rng.random() < 0.5 else items.append(copy.deepcopy(rng.choice(items)))


def _change_pages(rng: random.Random, pages: list[Page]) -> None:
    what, at = rng.randrange(4), rng.randrange(len(pages))
    if what == 0:
        pages.pop(at)
    elif what == 1:
        pages.insert(at, copy.deepcopy(rng.choice(pages)))
    elif what == 2:
        rng.shuffle(pages)
    else:
        pages[at].body = pages[at].body[: rng.randrange(len(pages[at].body) + 1)]


def _change_body(rng: random.Random, column: list, page: Page, runs: bool) -> None:
    """Bytes of a page, below its compression where it has one; `runs` writes forged run heads and lengths."""
    codec = CODECS.get(get(column, 4))
    version_2 = get(page.header, 8)
    skip = (get(version_2, 5) + get(version_2, 6)) if version_2 else 0
    body = page.body
    packed = version_2 is None or get(version_2, 7) is not False
    if codec and packed and rng.random() < 0.9:
        full = get(page.header, 2) - skip
        body = body[:skip] + (pa.decompress(body[skip:], full, codec, asbytes=True) if full else b"")
    else:
        codec = None
    body = _forge_run(rng, body) if runs else _flip(rng, body)
    full = len(body)
    if codec:
        body = body[:skip] + pa.compress(body[skip:], codec=codec, asbytes=True)
    page.body = body
    put(page.header, 3, len(body))
    if rng.random() < 0.95:
        put(page.header, 2, full if codec or get(column, 4) == 0 else get(page.header, 2))


def _forge_run(rng: random.Random, body: bytes) -> bytes:
    """A run head where one may stand: at the front, behind a length, behind a bit width."""
    head = write_varint(rng.choice([n for n in NUMBERS if n >= 0]) * rng.choice([1, 2]) + rng.randrange(2))
    out = bytearray(body)
    at = rng.choice([0, 1, 4, 5, 6, 8, 9, rng.randrange(len(out) + 1)])
    what = rng.randrange(3)
    if what == 0:
        out[at : at + len(head)] = head
    elif what == 1:
        out[at:at] = head
    else:
        out[at : at + 4] = struct.pack("<I", rng.choice([n for n in NUMBERS if 0 <= n < 2**32]))
    return bytes(out)
