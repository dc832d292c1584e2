"""Every file format: what it writes it reads, suffixes are its own, and whatever lists formats derives from FORMATS."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from penstock.core.errors import DataError, ParameterError
from penstock.core.schema import Schema
from penstock.data import Dataset
from penstock.data.formats import FORMATS, Format, OpenOptions, choices, format_of_name, suffixes
from penstock.data.partition import FramePartition, Partition
from penstock.etl.input_section import open_input

FRAME = pl.DataFrame({"id": [3, 1, 2], "price": [0.5, None, 2.0], "name": ["a", "b", "c"]})

# One row a format: how a file of it comes to be that Penstock did not write.
FOREIGN: dict[str, Callable[[pl.DataFrame, Path], object]] = {
    "parquet": lambda frame, path: frame.write_parquet(path),
    "csv": lambda frame, path: frame.write_csv(path),
    "tsv": lambda frame, path: frame.write_csv(path, separator="\t"),
    "jsonl": lambda frame, path: frame.write_ndjson(path),
    "ipc": lambda frame, path: pyarrow.feather.write_feather(frame.to_arrow(), path, compression="uncompressed"),
    "avro": lambda frame, path: frame.write_avro(path),
}


def test_every_format_has_a_row_here() -> None:
    assert list(FOREIGN) == list(FORMATS)


def test_no_two_formats_share_a_suffix() -> None:
    assert len(set(suffixes())) == len(suffixes())


@pytest.mark.parametrize("name", FORMATS)
class TestFormat:
    @pytest.fixture
    def file(self, name: str, tmp_path: Path) -> Path:
        path = tmp_path / f"data{FORMATS[name].suffixes[0]}"
        FOREIGN[name](FRAME, path)
        return path

    def test_goes_by_its_name(self, name: str) -> None:
        assert FORMATS[name].name == name
        assert all(format_of_name(f"folder.x/DAY{suffix.upper()}") == name for suffix in FORMATS[name].suffixes)

    def test_reads_all_and_some_columns(self, file: Path) -> None:
        data = Dataset(str(file))
        assert data.to_polars().equals(FRAME)
        assert data.to_polars(["name", "id"]).equals(FRAME.select("name", "id"))
        assert data.schema == Schema.from_polars(FRAME.schema)

    def test_is_told_by_format(self, name: str, file: Path, tmp_path: Path) -> None:
        bare = file.rename(tmp_path / "data")
        assert Dataset(str(bare), format=name).to_polars().equals(FRAME)
        assert open_input(str(bare), {"format": name}).to_polars().equals(FRAME)

    def test_files_that_disagree_are_an_error_that_names_the_column(self, name: str, file: Path) -> None:
        other = file.with_stem("other")
        FOREIGN[name](FRAME.with_columns(pl.col("id").cast(pl.String) + "x"), other)
        with pytest.raises(DataError, match="column 'id' is"):
            Dataset([str(file), str(other)])

    def test_an_empty_file_is_an_error_that_names_it(self, name: str, tmp_path: Path) -> None:
        path = tmp_path / f"nothing{FORMATS[name].suffixes[0]}"
        path.touch()
        with pytest.raises(DataError, match="nothing"):
            Dataset(str(path))

    def test_reads_what_it_writes(self, name: str, tmp_path: Path) -> None:
        path = tmp_path / f"made{FORMATS[name].suffixes[0]}"
        if not FORMATS[name].can_write:
            with pytest.raises(ParameterError, match="cannot be written"):
                FORMATS[name].writer(path)
            return
        with FORMATS[name].writer(path) as writer:
            writer.write(FRAME[:2])
            writer.write(FRAME[2:])
        assert Dataset(str(path)).to_polars().equals(FRAME)


class Numbers(Format):
    """A format that a user brings: a number a line."""

    name = "numbers"
    suffixes = (".numbers",)

    def open(self, files: list[str], options: OpenOptions) -> tuple[list[Partition], Schema]:
        frames = [pl.DataFrame({"number": [int(n) for n in Path(file).read_text().split()]}) for file in files]
        return [FramePartition(frame) for frame in frames], Schema.from_polars(frames[0].schema)


class TestARegisteredFormat:
    @pytest.fixture(autouse=True)
    def registered(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setitem(FORMATS, "numbers", Numbers())
        yield

    def test_is_read_by_suffix_in_a_folder_and_by_name(self, tmp_path: Path) -> None:
        (tmp_path / "a.numbers").write_text("1 2")
        (tmp_path / "b.numbers").write_text("3")
        assert Dataset(str(tmp_path)).to_polars()["number"].to_list() == [1, 2, 3]
        (tmp_path / "c").write_text("4")
        assert Dataset(str(tmp_path / "c"), format="numbers").num_rows == 1

    def test_is_listed_where_formats_are(self, tmp_path: Path) -> None:
        (tmp_path / "x").touch()
        assert choices().endswith("or 'numbers'")
        with pytest.raises(ParameterError, match="or 'numbers'"):
            Dataset(str(tmp_path / "x"))
        with pytest.raises(ParameterError, match="or 'numbers', got 'xls'"):
            Dataset(str(tmp_path / "x"), format="xls")
        empty = tmp_path / "empty"
        empty.mkdir()
        with pytest.raises(DataError, match=r"\.numbers"):
            Dataset(str(empty))


def _ipc(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)


@pytest.mark.parametrize(
    ("write", "kind"),
    [
        (pa.parquet.write_table, pa.timestamp("us", "Middle/Earth")),
        (_ipc, pa.timestamp("us", "Middle/Earth")),
        (_ipc, pa.month_day_nano_interval()),
        (_ipc, pa.run_end_encoded(pa.int32(), pa.int64())),
        (_ipc, pa.list_view(pa.int32())),
    ],
    ids=["zone in parquet", "zone", "interval", "runs", "list view"],
)
def test_a_type_that_cannot_be_read_is_refused_by_its_column(
    write: Callable[[pa.Table, Path], object], kind: pa.DataType, tmp_path: Path
) -> None:
    path = tmp_path / ("a.arrow" if write is _ipc else "a.parquet")
    write(pa.table({"id": [1], "odd": pa.nulls(1, kind)}), path)
    with pytest.raises(DataError, match=r"a\.\w+, column 'odd': .* is no type that can be read; write the"):
        Dataset(path)


def test_the_documentation_lists_every_format() -> None:
    assert all(f'`"{name}"`' in (inspect.getdoc(Dataset) or "") for name in FORMATS)
