"""One changed Arrow IPC file (even seeds) or Avro file (odd ones) after the other through a data set's frames.

Arrow's are held against pyarrow with all its checks; of Avro's there is no other reader here, so they must only be
read or refused, within limits. By hand: python arrow_avro_cases.py sweep FIRST COUNT
"""

from __future__ import annotations

import io
import random
import struct
import sys
import tempfile
import warnings
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import guarded
import polars as pl
import pyarrow as pa

from penstock.core.errors import PenstockError
from penstock.data import Dataset

ROWS = 40
NUMBERS = (0, 1, -1, 7, 127, 128, 2**31 - 1, -(2**31), 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))


def frame(count: int = ROWS) -> pl.DataFrame:
    """A column of every kind that both formats hold."""
    rows = range(count)
    return pl.DataFrame(
        {
            "int": [None if i % 7 == 0 else i * 1_000_003 for i in rows],
            "float": [i / 3 for i in rows],
            "text": [None if i % 5 == 0 else f"{i % 4} and then some" * (i % 3) for i in rows],
            "flag": [i % 3 == 0 for i in rows],
            "when": [datetime(2024, 1, 1) + timedelta(hours=i) for i in rows],
            "list": [list(range(i % 4)) for i in rows],
        }
    )


@cache
def arrow_file(kind: int) -> bytes:
    """Two record batches, plain or compressed; with a dictionary."""
    table = frame().to_arrow(compat_level=pl.CompatLevel.oldest())
    table = table.append_column("kind", pa.array([f"k{i % 3}" for i in range(ROWS)]).dictionary_encode())
    out, compression = io.BytesIO(), (None, "lz4", "zstd")[kind % 3]
    with pa.ipc.new_file(out, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=ROWS // 2)
    return out.getvalue()


@cache
def avro_file(kind: int) -> bytes:
    out = io.BytesIO()
    frame().write_avro(out, compression=("uncompressed", "snappy", "deflate")[kind % 3])
    return out.getvalue()


def _varint(value: int) -> bytes:
    raw, out = (value << 1) ^ (value >> 63), bytearray()
    raw &= 2**64 - 1
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    return bytes([*out, raw])


def mutate(data: bytes, draw: random.Random, is_avro: bool) -> bytes:
    """Some changes near the head, the tail or anywhere: bits, numbers, pieces moved, the end cut off."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        if not changed:
            break
        size = len(changed)
        low, high = draw.choice(((0, size), (0, min(size, 600)), (max(0, size - 900), size)))
        at = draw.randrange(low, max(low + 1, high))
        way = draw.randrange(7)
        if way == 0:
            changed[at] ^= 1 << draw.randrange(8)
        elif way == 1:
            changed[at] = draw.randrange(256)
        elif way == 2 and is_avro:
            changed[at : at + 1] = _varint(draw.choice(NUMBERS))
        elif way in (2, 3):
            width = draw.choice((4, 8))
            at -= at % width
            number = draw.choice(NUMBERS) & 2 ** (8 * width) - 1
            changed[at : at + width] = struct.pack("<Q", number)[:width]
        elif way == 4:
            del changed[at : at + draw.randrange(1, 16)]
        elif way == 5:
            changed[at:at] = changed[draw.randrange(size) :][: draw.randrange(1, 64)]
        else:
            del changed[max(at, size * draw.randrange(2) // 2) :]
    return bytes(changed)


def check(seed: int) -> str:
    """ "read" or "refused" where all is well, else what is wrong."""
    draw, is_avro = random.Random(seed), bool(seed % 2)
    data = mutate((avro_file if is_avro else arrow_file)(draw.randrange(3)), draw, is_avro)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("a.avro" if is_avro else "a.arrow")
        path.write_bytes(data)
        return check_file(str(path), data, is_avro)


def check_file(path: str, data: bytes, is_avro: bool) -> str:
    guarded.asking(guarded.OURS)
    try:
        found = Dataset(path).to_polars()
        found.write_ipc(io.BytesIO())  # looks at every value
    except PenstockError:
        return "refused"
    except Exception as error:
        return f"raised {type(error).__name__}: {error}"
    if is_avro:
        return "read"
    guarded.asking(guarded.PEERS)
    try:
        with pa.ipc.open_file(pa.BufferReader(data)) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"read, and pyarrow refuses it: {error}"
    return "read" if found.equals(pl.DataFrame(pl.from_arrow(table))) else "read otherwise than pyarrow reads it"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] == "sweep":
        guarded.main(__file__)
    else:
        guarded.serve(check)
