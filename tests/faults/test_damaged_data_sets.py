"""Data sets whose files were exchanged, cut off, flipped or forged: refused, near and far, by frames and by loaders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import fsspec
import numpy as np
import parquet_mutations
import polars as pl
import pytest
from thrift_tree import get, put, write_struct

from penstock import Dataset
from penstock.core.errors import DataError
from penstock.loader import Loader


def rows(value: int) -> pl.DataFrame:
    return pl.DataFrame({"x": np.full(300, value), "word": [f"w{value}-{'z' * (i // 100)}" for i in range(300)]})


def write(place: str | Path, value: int, files: int = 3) -> None:
    data = Dataset(rows(value), part_size=600)
    data.to_parquet(place, num_files=files, row_group_size=50, overwrite=True, progress=False, engine="local:1")


@pytest.mark.parametrize("columns", [["x"], ["word"], ["x", "word"]], ids="-".join)
def test_files_that_took_the_place_of_others_are_not_read(columns: list[str], tmp_path: Path) -> None:
    write(tmp_path / "data", 1)
    data = Dataset(tmp_path / "data")
    write(tmp_path / "data", 2)  # of the same shape: only the files' times tell
    with pytest.raises(DataError, match="was replaced after the data set was opened"):
        data.select(columns).to_polars()


def test_a_loader_does_not_read_files_that_took_the_place_of_others(tmp_path: Path) -> None:
    write(tmp_path / "data", 1)
    before = Dataset(tmp_path / "data").select(["x"])
    write(tmp_path / "data", 2)
    with pytest.raises(DataError, match="was replaced after the data set was opened"):
        list(Loader(before, 64))
    during = Loader(Dataset(tmp_path / "data").select(["x"]), 10, shuffle=False, chunk_rows=50, num_threads=1)
    batches = iter(during)
    assert (next(batches)[0]["x"] == 2).all()
    write(tmp_path / "data", 3)
    with pytest.raises(DataError, match=r"was replaced|was changed|cannot be opened"):
        assert all((features["x"] == 2).all() for features, _ in batches)


def _flips(folder: Path) -> list[tuple[Path, int]]:
    """Places in the pages of a data set's files: some of each file, none of the footers."""
    found = []
    for path in sorted(folder.glob("*.parquet")):
        content = path.read_bytes()
        end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        found += [(path, int(at)) for at in np.linspace(5, end - 1, 12)]
    return found


def test_every_flipped_bit_of_what_penstock_wrote_shows(tmp_path: Path) -> None:
    write(tmp_path / "data", 1)
    whole = Dataset(tmp_path / "data").to_polars()
    numbers = [features["x"] for features, _ in Loader(Dataset(tmp_path / "data").select(["x"]), 50, shuffle=False)]
    for path, at in _flips(tmp_path / "data"):
        content = path.read_bytes()
        path.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        for read in (
            lambda: Dataset(tmp_path / "data").to_polars().equals(whole),
            lambda: all(
                np.array_equal(features["x"], known)
                for (features, _), known in zip(
                    Loader(Dataset(tmp_path / "data").select(["x"]), 50, shuffle=False), numbers, strict=True
                )
            ),
        ):
            try:
                assert read(), f"{path.name}, byte {at}: other values without a word"
            except DataError as error:
                assert path.name in str(error)
        path.write_bytes(content)


@pytest.mark.parametrize("name", ["few", "many", "bytes", "lists"])
@pytest.mark.parametrize("variant", range(3), ids=["dictionary", "plain", "delta"])
def test_a_page_that_promises_two_gigabytes_is_refused(name: str, variant: int, tmp_path: Path) -> None:
    file = parquet_mutations.take_apart(parquet_mutations.text_original(variant))
    column, pages = next(c for c in file.chunks if get(c[0], 3)[1][0] == name.encode())
    put(pages[-1].header, 2, 2**31 - 1)
    data = file.data()
    (tmp_path / "a.parquet").write_bytes(data + parquet_mutations.ending(write_struct(file.footer)))
    with pytest.raises(DataError, match=rf"a\.parquet: column '{name}', row group 0: page {len(pages) - 1} is damaged"):
        Dataset(tmp_path / "a.parquet").to_polars()
    assert column


# Far away.


def _remove_one(store: fsspec.AbstractFileSystem) -> None:
    store.rm("/far/data/part-00001.parquet")


def _add_one(store: fsspec.AbstractFileSystem) -> None:
    store.copy("/far/data/part-00001.parquet", "/far/data/part-00009.parquet")


def _cut_one(store: fsspec.AbstractFileSystem) -> None:
    store.pipe_file("/far/data/part-00001.parquet", store.cat_file("/far/data/part-00001.parquet")[:-9])


def _exchange_one(store: fsspec.AbstractFileSystem) -> None:
    content = store.cat_file("/far/data/part-00000.parquet")
    size = len(store.cat_file("/far/data/part-00001.parquet"))
    store.pipe_file("/far/data/part-00001.parquet", content[:4] + bytes(size - len(content)) + content[4:])


def _spoil_manifest(store: fsspec.AbstractFileSystem) -> None:
    store.pipe_file("/far/data/_manifest.json", b"{")


def _alter_schema(store: fsspec.AbstractFileSystem) -> None:
    store.pipe_file("/far/data/_schema.json", store.cat_file("/far/data/_schema.json").replace(b"word", b"wore"))


def _remove_schema(store: fsspec.AbstractFileSystem) -> None:
    store.rm("/far/data/_schema.json")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (_remove_one, r"part-00001\.parquet is missing"),
        (_add_one, r"part-00009\.parquet does not belong"),
        (_cut_one, r"part-00001\.parquet is truncated or altered"),
        (_exchange_one, r"part-00001\.parquet was altered|is truncated or altered"),
        (_spoil_manifest, r"_manifest\.json is not valid JSON"),
        (_alter_schema, r"_schema\.json was altered"),
        (_remove_schema, r"_schema\.json is missing"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_a_remote_data_set_is_as_it_was_written(harm: Callable[..., None], words: str) -> None:
    store = fsspec.filesystem("memory")
    store.rm("/far", recursive=True) if store.exists("/far") else None
    write("memory://far/data", 1)
    assert Dataset("memory://far/data").num_rows == 300
    harm(store)
    with pytest.raises(DataError, match=words):
        Dataset("memory://far/data")


def test_copies_keep_their_manifest(tmp_path: Path) -> None:
    write(tmp_path / "data", 1)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    assert Dataset(tmp_path / "copy").to_polars().equals(Dataset(tmp_path / "data").to_polars())


def test_every_flipped_bit_of_a_schema_shows(tmp_path: Path) -> None:
    """Names, roles and cardinalities are text: a flip there is mostly good JSON still."""
    write(tmp_path / "data", 1, files=1)
    file = tmp_path / "data" / "_schema.json"
    content = file.read_bytes()
    for at in range(0, len(content), 3):
        file.write_bytes(content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :])
        with pytest.raises(DataError, match=r"_schema\.json was altered"):
            Dataset(tmp_path / "data")
    file.unlink()
    with pytest.raises(DataError, match=r"_schema\.json is missing"):
        Dataset(tmp_path / "data")
    (tmp_path / "data" / "_manifest.json").unlink()
    assert Dataset(tmp_path / "data").num_rows == 300  # as the message says


def test_manifests_that_know_no_schema_are_read(tmp_path: Path) -> None:
    """Those that were written before."""
    write(tmp_path / "data", 1)
    manifest = tmp_path / "data" / "_manifest.json"
    found = json.loads(manifest.read_text())
    del found["schema"]
    manifest.write_text(json.dumps(found))
    assert Dataset(tmp_path / "data").num_rows == 300
