"""Changed Arrow IPC and Avro files: read as they stand, or refused. By hand: arrow_avro_cases.py."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from arrow_avro_cases import _varint, arrow_file, avro_file
from guarded import sweep

from penstock.core.errors import DataError
from penstock.data import Dataset

SCRIPT = Path(__file__).with_name("arrow_avro_cases.py")
# Each of these raised something else than a `DataError` once.
FOUND = {"an Avro string longer than its block": 105, "two columns of one name": 22932}


def test_changed_files_are_read_right_or_refused() -> None:
    found = sweep(SCRIPT, [*range(600), *(seed for seed in FOUND.values() if seed >= 600)])
    assert found.findings == []
    assert found.tries == 601
    assert min(found.read, found.refused) > 50  # else nothing was tried


@pytest.mark.slow
def test_many_changed_files() -> None:
    print("seeds 100000 to 140000")
    found = sweep(SCRIPT, range(100_000, 140_000))
    print(f"{found.tries} tries: {found.read} read, {found.refused} refused")
    assert found.findings == []


@pytest.mark.parametrize("kind", range(3))
def test_whole_files_are_read(kind: int, tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_bytes(arrow_file(kind))
    (tmp_path / "a.avro").write_bytes(avro_file(kind))
    arrow, avro = Dataset(tmp_path / "a.arrow"), Dataset(tmp_path / "a.avro")
    assert arrow.to_polars().drop("kind").equals(avro.to_polars())
    assert arrow.partitions[0].read(["text", "int"]).columns == ["text", "int"]


def test_frames_outlive_their_file(tmp_path: Path) -> None:
    """Truncated or rewritten while a frame of it is held, a mapped file would end the process or change the frame."""
    path, values = tmp_path / "a.arrow", pl.DataFrame({"x": range(50_000), "s": [f"text {i}" for i in range(50_000)]})
    values.write_ipc(path, compression="uncompressed")
    frame = Dataset(path).to_polars()
    with path.open("r+b") as file:
        file.write(b"X" * path.stat().st_size)
    os.truncate(path, 0)
    assert frame.equals(values)


def test_a_column_of_nulls_alone_claims_no_more_rows_than_a_file_can_have(tmp_path: Path) -> None:
    table = pa.table({"n": pa.Array.from_buffers(pa.null(), 2**50, [None])})
    options = pa.ipc.IpcWriteOptions(allow_64bit=True)
    with (
        pa.OSFile(str(tmp_path / "a.arrow"), "wb") as out,
        pa.ipc.new_file(out, table.schema, options=options) as writer,
    ):
        writer.write_table(table)
    with pytest.raises(DataError, match=r"a\.arrow is not a whole Arrow IPC file \(it claims 1125899906842624 rows\)"):
        Dataset(tmp_path / "a.arrow")


def _avro(schema: object, body: bytes, count: int, codec: str = "null") -> bytes:
    """An Avro file of one block."""

    def text(content: bytes) -> bytes:
        return _varint(len(content)) + content

    written = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    about = text(b"avro.schema") + text(written) + text(b"avro.codec") + text(codec.encode())
    return b"Obj\x01" + _varint(2) + about + b"\0" + b"s" * 16 + _varint(count) + text(body) + b"s" * 16


def _record(kind: object) -> dict[str, object]:
    return {"type": "record", "name": "r", "fields": [{"name": "x", "type": kind}]}


DEEP: object = "int"
for _ in range(40):
    DEEP = {"type": "array", "items": DEEP}
FORGED: dict[str, tuple[bytes, str]] = {
    "a schema of a hundred thousand levels": (_avro(b"[" * 100_000, b"\2", 1), "Avro is damaged"),
    "types in types": (_avro(_record(DEEP), b"\2", 1), "deeper than 32 types"),
    "lists of nothing": (_avro(_record({"type": "array", "items": "null"}), _varint(2**40), 1), "holds nothing"),
    "more rows than bytes": (_avro(_record("long"), b"\2", 2**40), "claims 1099511627776 rows"),
    "rows below none": (_avro(_record("long"), b"\2", -5), "claims -5 rows"),
    "a block of snappy that unfolds to gigabytes": (
        _avro(_record("long"), b"\xff\xff\xff\xff\x0f\0", 1, "snappy"),
        "unfold to 4294967295",
    ),
    "a codec that nobody knows": (_avro(_record("long"), b"\2", 1, "zstandard"), "codec is 'zstandard'"),
    "a number without end": (b"Obj\x01" + b"\xff" * 40, "more than 64 bits"),
    "nothing behind its mark": (b"Obj\x01", "ends inside a number"),
    "a block without its mark": (_avro(_record("long"), b"\2", 1)[:-1] + b"t", "mark behind a block is missing"),
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_avro_is_refused(case: str, tmp_path: Path) -> None:
    content, words = FORGED[case]
    (tmp_path / "a.avro").write_bytes(content)
    with pytest.raises(DataError, match=rf"a\.avro.*{words}"):
        Dataset(tmp_path / "a.avro")


def test_the_forger_can_write_a_whole_file(tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(_avro(_record("long"), _varint(7) + _varint(-3), 2))
    assert Dataset(tmp_path / "a.avro").to_polars().rows() == [(7,), (-3,)]
    assert pl.read_avro(io.BytesIO((tmp_path / "a.avro").read_bytes())).height == 2
