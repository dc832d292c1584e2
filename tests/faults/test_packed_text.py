"""Text that comes packed, in another encoding or with long separators: read whole, or refused by its name."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import resource
import signal
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.core.errors import DataError, ParameterError
from penstock.data import Dataset
from penstock.data.formats import unpacking
from penstock.jobs.scoring_input import _without_labels

TEXT = b"a,b,c\n" + b"".join(b"%d,%d,x%d\n" % (i, i * 7 % 13, i % 5) for i in range(300))


def zipped(text: bytes, method: int = zipfile.ZIP_DEFLATED, name: str = "rows.csv") -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        archive.writestr(name, text)
    return made.getvalue()


def read(folder: Path, content: bytes, name: str) -> list[tuple[object, ...]]:
    (folder / name).write_bytes(content)
    return Dataset(folder / name).to_polars().rows()


@pytest.fixture
def rows(tmp_path: Path) -> list[tuple[object, ...]]:
    return read(tmp_path, TEXT, "plain.csv")


SEVERAL = [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)]


@pytest.mark.parametrize(("suffix", "pack"), SEVERAL, ids=[s for s, _ in SEVERAL])
def test_damage_behind_the_first_stream_is_no_end(
    suffix: str, pack: Callable[[bytes], bytes], rows: list[tuple[object, ...]], tmp_path: Path
) -> None:
    """A reader that stops where the next stream is none would lose the rows behind it."""
    first, second = pack(TEXT[:2000]), pack(TEXT[2000:])
    assert read(tmp_path, first + second, f"whole.csv.{suffix}") == rows
    for place in range(0, len(second), 7):
        harmed = bytearray(first + second)
        harmed[len(first) + place] ^= 1
        name = f"harmed.csv.{suffix}"
        try:
            assert read(tmp_path, bytes(harmed), name) == rows, place  # some bytes of a head mean nothing
        except DataError as error:
            assert name in str(error) and "damaged or truncated" in str(error)
    with pytest.raises(DataError, match=f"behind.csv.{suffix} cannot be unpacked"):
        read(tmp_path, first + second + b"garbage!", f"behind.csv.{suffix}")


def test_noughts_between_and_behind_streams_of_xz(rows: list[tuple[object, ...]], tmp_path: Path) -> None:
    padded = lzma.compress(TEXT[:2000]) + bytes(8) + lzma.compress(TEXT[2000:]) + bytes(70_000)
    assert read(tmp_path, padded, "rows.csv.xz") == rows


@pytest.mark.parametrize("suffix", ["zip", "xz"])
def test_changed_archives(suffix: str, rows: list[tuple[object, ...]], tmp_path: Path) -> None:
    draw, whole = random.Random(15), zipped(TEXT) if suffix == "zip" else lzma.compress(TEXT)
    name = f"rows.csv.{suffix}"
    for case in range(150):
        harmed = bytearray(whole)
        for _ in range(draw.choice([1, 1, 3])):
            place = draw.choice([draw.randrange(len(harmed)), len(harmed) - 1 - draw.randrange(90)])
            harmed[place] = draw.choice([harmed[place] ^ 1 << draw.randrange(8), 0, 255])
        harmed = harmed[: draw.randrange(len(harmed))] if case % 5 == 0 else harmed
        try:
            assert read(tmp_path, bytes(harmed), name) == rows, f"seed 15, case {case}"
        except DataError as error:
            assert name in str(error), f"seed 15, case {case}"


def test_the_name_of_a_member_is_no_text(tmp_path: Path) -> None:
    packed = bytearray(zipped(TEXT))
    listed = packed.index(b"PK\x01\x02")
    packed[listed + 9] |= 8
    packed[listed + 46] = 0xFF
    with pytest.raises(DataError, match=r"rows.csv.zip cannot be unpacked \('utf-8' codec"):
        read(tmp_path, bytes(packed), "rows.csv.zip")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_that_unfold_in_memory(method: int, tmp_path: Path) -> None:
    """Python unpacks these as far as their bytes go: less than 1 MB was 1.5 GB."""
    with pytest.raises(DataError, match=r"rows.csv.zip is packed in a way that can only be unpacked in memory"):
        read(tmp_path, zipped(TEXT, method), "rows.csv.zip")


@pytest.mark.parametrize("suffix", ["zip", "xz", "gz", "bz2"])
def test_what_unfolds_without_end(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "_FREE_BYTES", 1 << 20)
    noughts = b"\n" * (16 << 20)
    packed = zipped(noughts) if suffix == "zip" else dict(SEVERAL)[suffix](noughts)
    with pytest.raises(DataError, match=f"bomb.csv.{suffix} unfolds to more than 200 times its size"):
        read(tmp_path, packed, f"bomb.csv.{suffix}")


def test_memory_for_xz_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "_MOST_MEMORY", 1 << 20)
    with pytest.raises(DataError, match=r"rows.csv.xz takes more than 1 MiB to be unpacked; pack it by xz -9 or less"):
        read(tmp_path, lzma.compress(TEXT), "rows.csv.xz")


@pytest.mark.parametrize("encoding", ["hex", "zlib", "rot13", "base64", "quopri", "\0", 5])
def test_encodings_that_are_none_of_text(encoding: object, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(TEXT)
    with pytest.raises(ParameterError, match="encoding is"):
        Dataset(tmp_path / "rows.csv", encoding=encoding)


@pytest.mark.parametrize("harm", [b"\0\xd8", b"\0\xdc", b"x"], ids=["half", "other half", "odd byte"])
def test_utf_16_that_is_none_throughout(harm: bytes, tmp_path: Path) -> None:
    text = TEXT.decode().encode("utf-16")
    place = text.index("\n7,".encode("utf-16-le")) + 2
    with pytest.raises(DataError, match=r"rows.csv is not utf-16 throughout \(line (9|\d{2,}): "):
        read(tmp_path, text[:place] + harm + text[place:], "rows.csv")


@pytest.fixture
def few_bytes() -> Iterator[None]:
    """Files that may have 100,000 bytes, as on a disk that is full."""
    handler, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


COPIED = {
    "rows.csv": TEXT.decode().encode("utf-16") + TEXT.decode().encode("utf-16-le") * 60,
    "long.csv": b"1::2::3\n" * 30_000,
    "rows.csv.gz": gzip.compress(TEXT * 100),
    "rows.csv.xz": lzma.compress(TEXT * 100),
    "rows.csv.zip": zipped(TEXT * 100),
}


@pytest.mark.parametrize("name", COPIED)
def test_no_room_for_the_copy(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    (tmp_path / name).write_bytes(COPIED[name])
    request.getfixturevalue("few_bytes")
    with pytest.raises(
        DataError, match=f"{name} is read from a copy in scratch, which cannot be written.*PENSTOCK_SCR"
    ):
        Dataset(tmp_path / name)


def test_no_errors_and_warnings_name_the_copy(tmp_path: Path) -> None:
    packed = tmp_path / "rows.csv.gz"
    packed.write_bytes(gzip.compress(b"a,b\n1,2\n3\n4,5\n"))
    with pytest.warns(UserWarning, match=r"the first: .*rows.csv.gz, line 3: too few fields"):
        assert Dataset(packed, on_error="skip").to_polars().height == 2
    packed.write_bytes(gzip.compress(b"1,7.5,w1\n0,8.25,w2\n1,3.5,w1\n"))
    with pytest.warns(UserWarning, match=r"^.*rows.csv.gz: the first line looks like the others"):
        Dataset(packed, header=True)
    packed.write_bytes(gzip.compress(b"user,click\na,1\nb,0\n"))
    with pytest.warns(UserWarning, match=r"^.*rows.csv.gz: with separator ';' a line is one field"):
        Dataset(packed, separator=";")


SECTION = {"names": ["click", "user"], "dtypes": {"click": "int8", "user": "int32"}, "format": "csv"}


@pytest.mark.parametrize(
    ("name", "content", "names"),
    [
        ("rows.csv", b"7\n8\n", ["user"]),
        ("rows.csv.zip", zipped(b"7\n8\n"), ["user"]),
        ("rows.csv", "7\n8\n".encode("utf-16"), ["user"]),
        ("rows.csv", b"\xff7,\xfe\n", ["click", "user"]),
        ("line.csv", b"7" * (3 << 20), ["click", "user"]),
    ],
)
def test_rows_without_their_label_are_told_by_few_bytes(
    name: str, content: bytes, names: list[str], tmp_path: Path
) -> None:
    """The first line of rows to score was read by another reader, however long, and whatever was packed in it."""
    (tmp_path / name).write_bytes(content)
    assert _without_labels([str(tmp_path / name)], SECTION, ["click"])["names"] == names


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.csv.xz", "rows.csv.zip", "rows.csv.bz2"])
def test_rows_without_their_label_in_a_damaged_archive(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x1f\x8bno archive")
    with pytest.raises(DataError, match=f"{name} cannot be unpacked"):
        _without_labels([str(tmp_path / name)], SECTION, ["click"])
