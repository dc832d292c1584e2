"""Dataset: sources, partitions, roles, repartitioning, splitting, joining, writing."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import ColumnSchema, Dataset, Schema, Workflow, ops
from penstock.core.errors import (
    ColumnNotFoundError,
    DataError,
    OutputExistsError,
    ParameterError,
    SchemaError,
)
from penstock.data.files import parse_bytes
from penstock.loader import Loader


@pytest.fixture
def frame() -> pl.DataFrame:
    n = 1000
    return pl.DataFrame(
        {
            "id": np.arange(n),
            "city": [None if i % 11 == 0 else f"city{i % 7}" for i in range(n)],
            "price": np.linspace(0, 1, n, dtype=np.float32),
            "tags": [list(range(i % 4)) for i in range(n)],
        }
    )


def in_parts(frame: pl.DataFrame, rows: int = 100) -> Dataset:
    return Dataset(frame, part_size=max(1, int(frame.estimated_size() * rows / frame.height)))


class TestSources:
    @pytest.mark.parametrize("kind", ["polars", "lazy", "pandas", "arrow", "dict"])
    def test_frames_in_memory(self, frame, kind):
        flat = frame.drop("tags")
        source = {
            "polars": flat,
            "lazy": flat.lazy(),
            "pandas": flat.to_pandas(),
            "arrow": flat.to_arrow(),
            "dict": flat.to_dict(as_series=False),
        }[kind]
        read = Dataset(source, part_size=2000)
        assert read.num_partitions > 1
        assert read.num_rows == 1000
        assert read.to_polars().select(pl.col("id", "city")).equals(flat.select("id", "city"))

    def test_parquet_by_path_glob_folder_and_list(self, frame, tmp_path):
        frame[:600].write_parquet(tmp_path / "b.parquet", row_group_size=100)
        frame[600:].write_parquet(tmp_path / "c.parquet")
        (tmp_path / "_ignored.parquet").write_bytes(b"not data")
        paths = [tmp_path / "b.parquet", tmp_path / "c.parquet"]
        for source in (tmp_path, str(tmp_path / "[bc].parquet"), paths, [str(p) for p in paths]):
            read = Dataset(source)
            assert read.to_polars().equals(frame), source

    def test_row_groups_make_partitions_up_to_part_size(self, frame, tmp_path):
        frame.write_parquet(tmp_path / "a.parquet", row_group_size=100)
        assert Dataset(tmp_path / "a.parquet", part_size=1).num_partitions == 10
        assert Dataset(tmp_path / "a.parquet", part_size="1GB").num_partitions == 1
        parts = Dataset(tmp_path / "a.parquet", part_size=1).partitions
        assert parts[3].read(["id"])["id"].to_list() == list(range(300, 400))

    def test_arrow_ipc(self, frame, tmp_path):
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            for batch in table.to_batches(max_chunksize=100):
                writer.write_batch(batch)
        read = Dataset(tmp_path / "a.arrow", part_size=1)
        assert read.num_partitions == 10
        assert read.to_polars().equals(frame)
        assert read.partitions[2].read(["id"])["id"][0] == 200

    def test_avro(self, frame, tmp_path):
        plain = frame.select("id", "tags")
        for part in range(2):
            plain.slice(500 * part, 500).write_avro(tmp_path / f"part-{part}.avro")
        data = Dataset(tmp_path)
        assert (data.num_partitions, data.num_rows) == (2, 1000)
        assert data.to_polars(["tags", "id"])["id"].to_list() == frame["id"].to_list()
        (tmp_path / "part-1.avro").write_bytes((tmp_path / "part-1.avro").read_bytes()[:50])
        with pytest.raises(DataError, match=r"part-1\.avro: Avro is damaged"):
            Dataset(tmp_path)

    @pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".csv.zst"])
    def test_csv_plain_and_compressed(self, frame, tmp_path, suffix):
        text = frame.select("id", "city").write_csv().encode()
        path = tmp_path / f"a{suffix}"
        if suffix.endswith("gz"):
            path.write_bytes(gzip.compress(text))
        elif suffix.endswith("zst"):
            with pa.CompressedOutputStream(str(path), "zstd") as out:
                out.write(text)
        else:
            path.write_bytes(text)
        read = Dataset(path, part_size=1000)
        assert read.num_partitions > 3
        assert read.num_rows == 1000
        assert read.to_polars().equals(frame.select("id", "city"))

    def test_quoted_csv_is_cut_between_records(self, tmp_path):
        rows = [(i, f'line "{i}",\nsecond') for i in range(200)]
        expected = pl.DataFrame(rows, schema=["a", "b"], orient="row")
        expected.write_csv(tmp_path / "q.csv")
        read = Dataset(tmp_path / "q.csv", part_size=300)
        assert read.num_partitions > 5
        assert read.to_polars().equals(expected)
        assert read.num_rows == 200

    def test_fsspec_urls_read_and_write(self, frame):
        import fsspec

        report = in_parts(frame).to_parquet("memory://bucket/out")
        assert report.num_rows == 1000
        read = Dataset("memory://bucket/out", part_size=2000)
        assert read.to_polars().equals(frame)
        with pytest.raises(OutputExistsError, match="overwrite=True"):
            in_parts(frame).to_parquet("memory://bucket/out")
        with fsspec.open("memory://bucket/a.csv", "wb") as file:
            file.write(frame.select("id", "city").write_csv().encode())
        assert Dataset("memory://bucket/a.csv", part_size=1000).num_rows == 1000
        fsspec.filesystem("memory").rm("/bucket", recursive=True)

    def test_part_size_text(self):
        assert parse_bytes("1.5GB") == 1_500_000_000
        with pytest.raises(ParameterError, match="'64MB'"):
            parse_bytes("many")
        with pytest.raises(ParameterError):
            parse_bytes(0)


class TestBadInput:
    def test_missing_path(self, tmp_path):
        with pytest.raises(DataError, match="does not exist"):
            Dataset(tmp_path / "nothing.parquet")
        with pytest.raises(DataError, match="no file matches"):
            Dataset(str(tmp_path / "*.parquet"))

    def test_unknown_suffix_and_content_ask_for_format(self, tmp_path):
        (tmp_path / "a.xyz").write_bytes(b"\x00\x01\x02")
        with pytest.raises(ParameterError, match="format="):
            Dataset(tmp_path / "a.xyz")

    def test_column_missing_from_one_of_many_files(self, frame, tmp_path):
        frame.write_parquet(tmp_path / "a.parquet")
        frame.drop("price").write_parquet(tmp_path / "b.parquet")
        with pytest.raises(ColumnNotFoundError, match=r"'price' is not in .*b\.parquet .*a\.parquet has it"):
            Dataset(tmp_path)

    def test_files_whose_dtypes_disagree(self, tmp_path):
        pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "a.parquet")
        pl.DataFrame({"x": [1.5]}).write_parquet(tmp_path / "b.parquet")
        with pytest.raises(DataError, match=r"'x' is Float64 in .*b\.parquet and Int64 in .*a\.parquet"):
            Dataset(tmp_path)
        assert Dataset(tmp_path, dtypes={"x": "float64"}).to_polars()["x"].to_list() == [1.0, 1.5]

    def test_cast_that_loses_names_file_and_column(self, tmp_path):
        pl.DataFrame({"x": ["1", "two"]}).write_parquet(tmp_path / "a.parquet")
        data = Dataset(tmp_path / "a.parquet", dtypes={"x": "int32"})
        with pytest.raises(DataError, match=r"column 'x', row 1 of .*a\.parquet: 'two' is no int32"):
            data.to_polars()

    def test_truncated_parquet(self, frame, tmp_path):
        path = tmp_path / "a.parquet"
        frame.write_parquet(path)
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(DataError, match=r"a\.parquet is not a whole parquet file"):
            Dataset(path)

    def test_altered_row_group_is_named(self, tmp_path):
        path = tmp_path / "a.parquet"
        rng = np.random.default_rng(0)
        pl.DataFrame({"x": rng.random(5000)}).write_parquet(path, row_group_size=1000, compression="zstd")
        chunk = pq.read_metadata(path).row_group(2).column(0)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        content = bytearray(path.read_bytes())
        content[start : start + 64] = b"\xff" * 64
        path.write_bytes(bytes(content))
        data = Dataset(path, part_size=1)
        with pytest.raises(DataError, match=r"a\.parquet: column .x., row group 2: page 0 is damaged"):
            data.to_polars()

    def test_file_altered_after_opening(self, frame, tmp_path):
        path = tmp_path / "a.parquet"
        frame.write_parquet(path)
        data = Dataset(path)
        frame[:10].write_parquet(path)
        with pytest.raises(DataError, match="was replaced"):
            data.to_polars()
        path.unlink()
        with pytest.raises(DataError, match="cannot be opened any more"):
            data.to_polars()

    def test_empty_files(self, tmp_path):
        (tmp_path / "a.parquet").write_bytes(b"")
        with pytest.raises(DataError, match="empty"):
            Dataset(tmp_path / "a.parquet")
        (tmp_path / "a.csv").write_bytes(b"")
        with pytest.raises(DataError, match="empty"):
            Dataset(tmp_path / "a.csv")
        data = Dataset(tmp_path / "a.csv", names=["x"], dtypes={"x": "int32"})
        assert data.num_rows == 0
        assert data.to_polars().schema == {"x": pl.Int32}

    def test_truncated_gzip(self, tmp_path):
        path = tmp_path / "a.csv.gz"
        path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 10000)[:-20])
        with pytest.raises(DataError, match=r"a\.csv\.gz cannot be unpacked"):
            Dataset(path)

    def test_unknown_column(self, frame):
        with pytest.raises(ColumnNotFoundError, match="did you mean 'price'"):
            in_parts(frame).select(["prise"])

    def test_lists_nested_too_deep_are_refused(self):
        with pytest.raises(DataError, match=r"column 'x': .* is not read"):
            Dataset(pl.DataFrame({"x": [[[[[[[[[[1]]]]]]]]]]}))
        with pytest.raises(SchemaError, match="nested 8 deep at most"):
            ColumnSchema("x", "list[" * 8 + "int8" + "]" * 8, is_list=True)


@pytest.mark.parametrize("deeper", [False, True])
def test_lists_of_lists_pass_through(tmp_path, deeper):
    cells = [[[1, 2], [3]], [], None]
    frame = pl.DataFrame({"x": [[cells], [], None] if deeper else cells, "n": [1, 2, 3]})
    Dataset(frame).to_parquet(tmp_path / "out")
    data = Dataset(tmp_path / "out")
    assert data.schema["x"].dtype == ("list[list[list[int64]]]" if deeper else "list[int64]")
    assert data.schema["x"].is_list
    assert data.repartition(2).to_polars().equals(frame)
    workflow = Workflow((["x"] >> ops.Rename(name="y")) + "n").fit(data)
    assert workflow.transform(frame)["y"].to_list() == frame["x"].to_list()
    row = frame["x"][0].to_list()
    assert workflow.transform_row({"x": row, "n": 1})["y"] == row
    with pytest.raises(SchemaError, match="'x' holds lists of lists, which Categorify"):
        Workflow(["x"] >> ops.Categorify()).fit(data)
    with pytest.raises(SchemaError, match="a batch holds numbers"):
        Loader(data, 2, categorical=["x"])


def test_floats_of_16_bits_are_read_as_float32(tmp_path):
    half = np.array([1.5, 2.0], np.float16)
    table = pa.table({"x": pa.array(half), "l": pa.array([[half[0]], []], pa.list_(pa.float16()))})
    pq.write_table(table, tmp_path / "half.parquet")
    for data in (Dataset(tmp_path / "half.parquet"), Dataset(table)):
        assert (data.schema["x"].dtype, data.schema["l"].dtype) == ("float32", "float32")
        assert data.to_polars().to_dict(as_series=False) == {"x": [1.5, 2.0], "l": [[1.5], []]}
        [(features, _)] = list(Loader(data, 2, continuous=["x", "l"]))
        assert features["x"].tolist() == [1.5, 2.0]


class TestSchemaBeside:
    def test_roles_travel_with_the_data(self, frame, tmp_path):
        data = in_parts(frame).with_roles(label=["price"], categorical=["city"])
        data.to_parquet(tmp_path / "out")
        read = Dataset(tmp_path / "out")
        assert read.schema.select(roles="label").names == ["price"]
        assert read.schema["tags"].is_list

    def test_schema_argument_wins_and_is_checked(self, frame):
        schema = Schema.from_polars({"nope": pl.Int8()})
        with pytest.raises(ColumnNotFoundError, match="named in the schema"):
            Dataset(frame, schema=schema)


class TestRegrouping:
    def test_repartition_keeps_order(self, frame):
        data = in_parts(frame)
        for parts in (1, 3, 17, 1500):
            again = data.repartition(parts)
            assert again.num_partitions == parts
            assert again.to_polars().equals(frame)
        with pytest.raises(ParameterError):
            data.repartition()

    def test_full_shuffle_is_a_seeded_permutation(self, frame):
        data = in_parts(frame)
        one, again, other = (data.shuffle(s).to_polars()["id"].to_list() for s in (1, 1, 2))
        assert one == again
        assert one != other
        assert sorted(one) == list(range(1000))

    def test_full_shuffle_is_uniform(self):
        """Each row lands in each tenth of the output equally often (chi-square far from the tail)."""
        data = Dataset.from_partitions(
            in_parts(pl.DataFrame({"id": np.arange(40)}), rows=10).partitions, Schema.from_polars({"id": pl.Int64()})
        )
        table = np.zeros((40, 4))
        trials = 120
        for seed in range(trials):
            for place, value in enumerate(data.shuffle(seed).to_polars()["id"]):
                table[value, place // 10] += 1
        expected = trials / 4
        chi2 = ((table - expected) ** 2 / expected).sum()
        assert chi2 < 40 * 3 + 6 * np.sqrt(2 * 40 * 3)

    def test_shuffle_by_keys_brings_keys_together(self, frame):
        moved = in_parts(frame).shuffle_by_keys(["city"], 4)
        seen: dict = {}
        for index, part in enumerate(moved.partitions):
            for city in part.read()["city"].unique():
                assert seen.setdefault(city, index) == index
        assert moved.to_polars().sort("id").equals(frame)

    @pytest.mark.parametrize("how", ["inner", "left", "full", "semi", "anti"])
    @pytest.mark.parametrize("big_right", [False, True])
    def test_merge_agrees_with_polars(self, frame, how, big_right):
        right = pl.DataFrame({"city": [f"city{i}" for i in range(4, 10)], "size": list(range(6))})
        other = in_parts(right, rows=2) if big_right else right
        merged = in_parts(frame.drop("tags")).merge(other, "city", how=how).to_polars()
        expected = frame.drop("tags").join(right, on="city", how=how, coalesce=True)
        keys = [c for c in ("id", "city") if c in expected.columns]
        assert merged.sort(keys).equals(expected.select(merged.columns).sort(keys))

    def test_merge_refuses_unequal_key_dtypes(self, frame):
        with pytest.raises(SchemaError, match="'id' is int64 on the left and string"):
            in_parts(frame).merge({"id": ["a"]}, "id")


class TestSplit:
    def test_random_split_is_exact_disjoint_and_seeded(self, frame):
        data = in_parts(frame)
        train, valid, test = data.split([0.7, 0.2, 0.1], seed=5)
        assert [train.num_rows, valid.num_rows, test.num_rows] == [700, 200, 100]
        ids = [set(d.to_polars()["id"]) for d in (train, valid, test)]
        assert set().union(*ids) == set(range(1000))
        again = data.repartition(3).split([0.7, 0.2, 0.1], seed=5)[0]
        assert set(again.to_polars()["id"]) == ids[0], "the split must not depend on the partitions"
        assert set(data.split([0.7, 0.2, 0.1], seed=6)[0].to_polars()["id"]) != ids[0]

    def test_stratified_split_keeps_shares_of_each_value(self):
        frame = pl.DataFrame({"id": np.arange(1000), "label": [int(i % 10 == 0) for i in range(1000)]})
        train, valid = in_parts(frame).split([0.8, 0.2], stratify="label")
        assert valid.to_polars()["label"].sum() == 20
        assert train.to_polars()["label"].sum() == 80

    def test_split_by_key_keeps_users_whole(self, frame):
        train, valid = in_parts(frame).split([0.5, 0.5], by="city")
        left, right = set(train.to_polars()["city"]), set(valid.to_polars()["city"])
        assert not left & right
        assert train.num_rows + valid.num_rows == 1000

    def test_split_by_time_puts_the_latest_last(self, frame):
        shuffled = in_parts(frame.sample(fraction=1, shuffle=True, seed=3))
        train, valid = shuffled.split([0.9, 0.1], time="id")
        assert train.to_polars()["id"].max() == 899
        assert valid.num_rows == 100

    def test_sample(self, frame):
        data = in_parts(frame)
        assert data.sample(0.25).num_rows == 250
        assert data.sample(num_rows=7).num_rows == 7
        with pytest.raises(ParameterError, match="from 0 to 1000"):
            data.sample(num_rows=1001)
        with pytest.raises(ParameterError):
            data.sample()

    def test_bad_fractions(self, frame):
        with pytest.raises(ParameterError, match="fractions"):
            in_parts(frame).split([1.0])
        with pytest.raises(ParameterError, match="at most one"):
            in_parts(frame).split([0.5, 0.5], by="id", time="id")


class TestWriting:
    def test_row_groups_and_files(self, frame, tmp_path):
        report = in_parts(frame).to_parquet(tmp_path / "out", row_group_size=64, num_files=3)
        assert len(report.files) == 3
        sizes = [
            pq.read_metadata(f).row_group(g).num_rows
            for f in report.files
            for g in range(pq.read_metadata(f).num_row_groups)
        ]
        assert max(sizes) == 64
        assert sum(sizes) == 1000
        assert Dataset(tmp_path / "out").to_polars().equals(frame)

    def test_more_files_than_partitions(self, frame, tmp_path):
        assert len(Dataset(frame).to_parquet(tmp_path / "out", num_files=5).files) == 5
        assert Dataset(tmp_path / "out").to_polars().equals(frame)

    def test_hive_folders_round_trip(self, frame, tmp_path):
        in_parts(frame).to_parquet(tmp_path / "out", partition_by="city")
        assert (tmp_path / "out" / "city=city3").is_dir()
        read = Dataset(tmp_path / "out").to_polars().sort("id")
        assert read.select(frame.columns).equals(frame)

    def test_hive_values_have_the_dtype_they_were_written_with(self, frame, tmp_path):
        whole = frame.with_columns(pl.Series("day", np.arange(1000) % 3))
        in_parts(whole).to_parquet(tmp_path / "out", partition_by=["day", "city"])
        read = Dataset(tmp_path / "out").to_polars().sort("id")
        assert read.select(whole.columns).equals(whole)

    def test_shuffle_modes(self, frame, tmp_path):
        for mode in ("partition", "full"):
            in_parts(frame).to_parquet(tmp_path / mode, shuffle=mode)
            ids = Dataset(tmp_path / mode).to_polars()["id"]
            assert not ids.is_sorted()
            assert ids.sort().to_list() == list(range(1000))
        with pytest.raises(ParameterError, match="shuffle must be one of"):
            in_parts(frame).to_parquet(tmp_path / "x", shuffle="maybe")

    def test_existing_output_is_refused_and_untouched(self, frame, tmp_path):
        in_parts(frame).to_parquet(tmp_path / "out")
        with pytest.raises(OutputExistsError, match="overwrite=True"):
            in_parts(frame[:5]).to_parquet(tmp_path / "out")
        assert Dataset(tmp_path / "out").num_rows == 1000
        in_parts(frame[:5]).to_parquet(tmp_path / "out", overwrite=True)
        assert Dataset(tmp_path / "out").num_rows == 5

    def test_failure_in_the_middle_leaves_the_old_output_and_no_debris(self, frame, tmp_path):
        in_parts(frame).to_parquet(tmp_path / "out")

        def explode(rows: pl.DataFrame) -> pl.DataFrame:
            if rows["id"][0] >= 500:
                raise RuntimeError("boom")
            return rows

        data = in_parts(frame)
        with pytest.raises(RuntimeError, match="boom"):
            data.map(explode, data.schema).to_parquet(tmp_path / "out", overwrite=True)
        assert Dataset(tmp_path / "out").num_rows == 1000
        assert [p.name for p in tmp_path.iterdir()] == ["out"]

    def test_unwritable_place(self, frame, tmp_path):
        (tmp_path / "file").write_text("in the way")
        with pytest.raises(Exception, match="choose a writable folder"):
            in_parts(frame).to_parquet(tmp_path / "file" / "out")

    def test_empty_data_set_keeps_its_schema(self, frame, tmp_path):
        Dataset(frame.clear()).to_parquet(tmp_path / "out")
        assert Dataset(tmp_path / "out").to_polars().schema == frame.schema

    def test_pandas_out(self, frame):
        out = in_parts(frame.drop("tags")).to_pandas()
        assert isinstance(out, pd.DataFrame)
        assert len(out) == 1000


class TestPandasColumnsOfSeveralKinds:
    @pytest.mark.parametrize("values", [[1, None, "x"], ["x", 1], [[1], "x"], [[1], ["x"]], [b"x", 1]])
    def test_the_error_names_the_column_and_what_it_holds(self, values) -> None:
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({"fine": range(len(values)), "mixed": pandas.Series(values, dtype=object)})
        with pytest.raises(
            DataError, match=r"column 'mixed' of the pandas frame has no single dtype, it holds .*astype"
        ):
            Dataset(frame)
