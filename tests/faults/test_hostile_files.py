"""Files that nobody writes by accident: pipes, bombs, aliases without end, links, names that a terminal obeys."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather
from tests.cli.conftest import call, fails
from tests.faults.writers import fitted, store

from penstock import Workflow
from penstock.core.artefact import MANIFEST
from penstock.core.errors import ArtefactError, DataError, ParameterError, PenstockError, SchemaError
from penstock.core.printable import printable
from penstock.core.signing import SIGNATURE, new_key, sign
from penstock.core.yaml_files import parse_yaml, read_yaml
from penstock.data import Dataset
from penstock.data.formats import names, text_bytes, unpacking
from penstock.embedding import Store

GIVEN_UP = 60  # seconds after which something that waits for ever has failed


@contextmanager
def not_for_ever() -> Iterator[None]:
    """Whatever still waits after a minute raises, so that a failure is one and no hang."""

    def raise_error(*_: object) -> None:
        raise AssertionError("it waits for ever")

    before = signal.signal(signal.SIGALRM, raise_error)
    signal.alarm(GIVEN_UP)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed workflow, and its key beside it."""
    place = tmp_path_factory.mktemp("hostile")
    fitted(1).save(place / "flow")
    sign(place / "flow", new_key(place / "key"))
    return place / "flow"


# Pipes, which keep whoever opens them waiting.


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.tsv", "a.csv.gz", "a.jsonl", "a.arrow", "a.avro", "a"])
def test_a_pipe_is_no_data(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with not_for_ever(), pytest.raises(DataError, match=r"is a pipe or a device.*write it to a file first"):
        Dataset(tmp_path / name)


@pytest.mark.parametrize("name", [MANIFEST, SIGNATURE, "workflow.json"])
def test_a_pipe_in_the_place_of_an_artefacts_file(name: str, flow: Path, tmp_path: Path) -> None:
    place = shutil.copytree(flow, tmp_path / "flow")
    (place / name).unlink()
    os.mkfifo(place / name)
    with not_for_ever(), pytest.raises(ArtefactError, match=name):
        Workflow.load(place, verify=flow.parent / "key")


def test_a_pipe_in_the_place_of_a_journal_or_a_key(flow: Path, tmp_path: Path) -> None:
    place = shutil.copytree(flow, tmp_path / "flow")
    os.mkfifo(tmp_path / ".flow.journal")
    os.mkfifo(tmp_path / "key")
    with not_for_ever():
        Workflow.load(place)
        os.mkfifo(tmp_path / ".other.journal")
        fitted(2).save(place, overwrite=True)  # which sweeps what lies beside it
        with pytest.raises(ParameterError, match="a pipe or a device"):
            Workflow.load(place, verify=tmp_path / "key")


def test_pipes_in_the_place_of_recipes_and_stores(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "recipe.yaml")
    store(1).save(tmp_path / "store")
    (tmp_path / "store" / "store.json").unlink()
    os.mkfifo(tmp_path / "store" / "store.json")
    with not_for_ever():
        with pytest.raises(ParameterError, match="does not exist"):
            read_yaml(tmp_path / "recipe.yaml")
        with pytest.raises(ArtefactError, match=r"store\.json"):
            Store.open(tmp_path / "store")


# Names that others would cut off, or take for one another.


def test_two_columns_of_one_name_are_refused_by_it(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(table, tmp_path / "a.parquet")
    feather.write_feather(table, tmp_path / "a.arrow")
    for name in ("a.parquet", "a.arrow"):
        with pytest.raises(DataError, match=rf"{name} has 2 columns of the name 'a'"):
            Dataset(tmp_path / name)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow", "avro"])
def test_far_too_many_columns_are_refused(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "MAX_COLUMNS", 20)
    frame, path = pl.DataFrame({f"c{n}": [n] for n in range(21)}), tmp_path / f"a.{suffix}"
    {"parquet": frame.write_parquet, "csv": frame.write_csv, "arrow": frame.write_ipc, "avro": frame.write_avro}[
        suffix
    ](path)
    with pytest.raises(DataError, match=r"a\.\w+ has 21 columns, and at most 20 are read"):
        Dataset(path)
    monkeypatch.setattr(names, "MAX_COLUMNS", 21)
    assert len(Dataset(path).schema) == 21


def test_a_header_of_a_million_names_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(",".join(f"c{n}" for n in range(200_000)) + "\n1,2\n")
    with pytest.raises(DataError, match=r"a\.csv: the first line is longer than a megabyte"):
        Dataset(tmp_path / "a.csv")


def test_a_nought_in_a_name_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a\0b": [1], "a": [2]}), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_bytes(b"a\0b,c\n1,2\n")
    (tmp_path / "utf-32.csv").write_bytes("name,n\nx,1\n".encode("utf-32"))  # which nothing but the noughts shows
    for file in sorted(tmp_path.iterdir()):
        with pytest.raises(DataError, match=f"{file.name}.*nought"):
            Dataset(file, on_error="null" if file.suffix == ".csv" else "raise")
    with pytest.raises(SchemaError, match="nought"):
        Dataset({"a\0": [1]})


def test_text_holds_no_lists(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("[1],2\n")
    with pytest.raises(ParameterError, match=r"dtypes=\{'l': 'list\[int64\]'\}: a field of text is one value"):
        Dataset(tmp_path / "a.csv", names=["l", "n"], dtypes={"l": "list[int64]", "n": "int64"}, header=False)


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "\udcff"], ids=["a nought", "too long", "no UTF-8"])
def test_paths_that_nothing_can_be_called_by(name: str, tmp_path: Path) -> None:
    place = tmp_path / name
    flow = fitted(1)
    if name != "\udcff":  # which text can be called, and polars cannot open
        with pytest.raises(DataError, match=r"nought|too long"):
            Dataset(f"{place}.csv")
    for write in (flow.save, store(1).save, Dataset({"x": [1]}).to_parquet, flow.to_yaml):
        with pytest.raises(ArtefactError, match=r"nought|too long|UTF-8"):
            write(place)
    assert not list(tmp_path.iterdir())


def test_a_parquet_file_that_is_not_named_in_utf8(tmp_path: Path) -> None:
    pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.parquet").rename(tmp_path / "\udcff.parquet")
    with pytest.raises(DataError, match="not named in UTF-8"):
        Dataset(tmp_path / "\udcff.parquet").to_polars()


# What unfolds without measure.


def test_a_bomb_of_gzip_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "_FREE_BYTES", 1 << 16)
    (tmp_path / "bomb.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"1,1\n" * (1 << 20)))
    with pytest.raises(DataError, match=r"bomb.csv.gz unfolds to more than 200 times its size; .* unpack it"):
        Dataset(tmp_path / "bomb.csv.gz")
    rows = b"a,b\n" + b"".join(b"%d,%d\n" % (i * 7919, i) for i in range(20_000))
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(rows))
    assert Dataset(tmp_path / "rows.csv.gz").num_rows == 20_000


def test_a_file_without_lines_is_not_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of holes takes no room on the disk, and has any size."""
    monkeypatch.setattr(text_bytes, "_LONGEST_LINE", 1 << 20)
    options = {"names": ["a"], "dtypes": {"a": "int64"}, "part_size": "1MB"}
    for name, head, words in (("a.tsv", b"1\n2\n", "no line ends within"), ("a.csv", b'1\n"', "a quote is not closed")):
        (tmp_path / name).write_bytes(head)
        os.truncate(tmp_path / name, 20 << 20)
        with pytest.raises(DataError, match=rf"{name}: .*{words}"):
            Dataset(tmp_path / name, header=False, **options)


LAUGHS = "a: &a [1, 1]\n" + "".join(f"{b}: &{b} [*{a}, *{a}, *{a}]\n" for a, b in pairwise("abcdefghijklmn"))
YAMLS: dict[str, tuple[str, str]] = {
    "aliases that unfold a millionfold": (LAUGHS, "unfolds by its aliases to more than"),
    "a list in itself": ("a: &a [*a]\n", "holds itself"),
    "a mapping in itself": ("&a {b: {c: *a}}\n", "holds itself"),
    "depth": ("a: " + "[" * 5_000, "not valid YAML"),
    "a day that is none": ("a: 2024-99-99\n", "not valid YAML"),
    "a number of thousands of digits": ("a: " + "9" * 5_000, "not valid YAML"),
    "a key that stands twice": ("a: 1\nb: 2\na: 3\n", "'a' stands there twice"),
    "a key that stands twice, deep inside": ("a: [{b: 1, b: 2}]\n", "'b' stands there twice"),
    "a key that cannot be one": ("? [a]\n: 1\n? {b: 1}\n: 2\n", "not valid YAML"),
    "code": ("a: !!python/object/apply:os.system [ls]\n", "not valid YAML"),
}


@pytest.mark.parametrize("case", YAMLS)
def test_yaml_that_nobody_means(case: str) -> None:
    content, words = YAMLS[case]
    with not_for_ever(), pytest.raises(ParameterError, match=f"recipe.yaml.*{words}"):
        parse_yaml(content, "recipe.yaml")


def test_yaml_that_people_write_is_read() -> None:
    content = "base: &base {ops: [A, B], n: 1}\none: *base\ntwo: {<<: *base, n: 2}\nthree: [*base, *base]\n"
    base = {"ops": ["A", "B"], "n": 1}
    expected = {"base": base, "one": base, "two": {"ops": ["A", "B"], "n": 2}, "three": [base, base]}
    assert parse_yaml(content, "here") == expected


def test_a_recipe_of_megabytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_bytes(b"#" * (5 << 20))
    with pytest.raises(ParameterError, match="bytes long"):
        read_yaml(tmp_path / "recipe.yaml")


def test_json_that_says_a_thing_twice_is_refused(flow: Path, tmp_path: Path) -> None:
    place = shutil.copytree(flow, tmp_path / "flow")
    manifest = (place / MANIFEST).read_text()
    (place / MANIFEST).write_text(manifest.replace('"version": 1', '"version": 1, "version": 1', 1))
    with pytest.raises(ArtefactError, match=r"manifest.json is not valid JSON: it says 'version' twice"):
        Workflow.load(place)


# Links.


def test_a_file_that_a_link_leads_out_to_is_refused(flow: Path, tmp_path: Path) -> None:
    place = shutil.copytree(flow, tmp_path / "flow")
    (place / "workflow.json").rename(tmp_path / "elsewhere.json")
    (place / "workflow.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(ArtefactError, match="lies outside the artefact"):
        Workflow.load(place)


def test_what_replaces_a_link_leaves_alone_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "letter.txt").write_text("dear")
    (tmp_path / "flow").symlink_to(tmp_path / "own")
    fitted(1).save(tmp_path / "other")
    writers: list[Callable[[Path], object]] = [
        lambda place: fitted(1).save(place, overwrite=True),
        lambda place: store(1).save(place, overwrite=True),
        lambda place: Dataset({"x": [1]}).to_parquet(place, overwrite=True, progress=False),
    ]
    for write in writers:
        with suppress(PenstockError):  # refusing what is not one of ours is fine
            write(tmp_path / "flow")
        assert (tmp_path / "own" / "letter.txt").read_text() == "dear"


# Names and values on a terminal.

EVIL = "na\x1b[2Jme\x07\u202e\u2028\x9b31m"


def test_what_a_terminal_would_obey_is_spelled_out(tmp_path: Path) -> None:
    pl.DataFrame({EVIL: ["a\x1b]0;b\x07", "c"], "n": [1, 2]}).write_parquet(tmp_path / "a.parquet")
    said = call("inspect", tmp_path / "a.parquet")
    assert said.exit_code == 0, said.output
    assert "na\\x1b[2Jme" in said.stdout
    (tmp_path / "b.csv").write_text(f"{EVIL},n\n1,x\n2,y\n")
    failed = fails(1, "etl", tmp_path / "b.csv", "-o", tmp_path / "out", "--recipe", tmp_path / f"{EVIL}.yaml")
    for output in (said.stdout, failed):
        assert not set(output) & set("\x1b\x07\u202e\u2028\x9b"), output


def test_only_what_does_harm_is_spelled_out() -> None:
    plain = "price in €, naïve, 価格, 👩‍👧, tab\tand line\n"
    assert printable(plain) == plain
    assert printable("\x00\x1b\x7f\x85\u2066\ud800") == "\\x00\\x1b\\x7f\\x85\\u2066\\ud800"


def test_a_path_with_a_newline_is_a_path(tmp_path: Path) -> None:
    place = tmp_path / "a\nb"
    place.mkdir()
    (place / "c\nd.csv").write_text("x,y\n1,2\n3,4\n")
    data = Dataset(place / "c\nd.csv")
    data.to_parquet(place / "out\n", progress=False)
    assert Dataset(place / "out\n").to_polars().rows() == [(1, 2), (3, 4)]
    assert json.loads((place / "out\n" / "_manifest.json").read_text())["files"]
    assert "out" in fails(1, "inspect", place / "out\n" / "none")  # one line
