"""Files beside data, runs and artefacts that somebody else may have written: each is read, or refused by its name."""

from __future__ import annotations

import ast
import io
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.faults.test_hostile_files import not_for_ever
from tests.faults.writers import store

import penstock
from penstock import Dataset, Workflow, ops
from penstock.compat.merlin.dataloader._embeddings import _table
from penstock.compat.merlin.schema._tensorflow_metadata import TensorflowMetadata
from penstock.compat.nvtabular.workflow import saved_json
from penstock.compat.persia._config import read_yaml
from penstock.compat.run_notebook import read_notebook
from penstock.core import array_files
from penstock.core.errors import ArtefactError, ParameterError, PenstockError
from penstock.core.params import Real
from penstock.data.described import schema_beside
from penstock.data.manifest import read_manifest
from penstock.embedding import EmbeddingConfig, SlotConfig, Store
from penstock.embedding.feed import FeedWriter
from penstock.embedding.feed_reader import FeedReader
from penstock.jobs.comparing import compare_runs
from penstock.jobs.recorder import _records_of
from penstock.jobs.run_folder import RunFolder

CONTENTS: dict[str, bytes] = {
    "nothing": b"",
    "null": b"null",
    "a list": b"[3]",
    "a number": b"3",
    "text": b'"a"',
    "a mapping of nothing": b"{}",
    "depth": b"[" * 100_000,
    "depth of mappings": b'{"a":' * 100_000,
    "depth that is closed": b"[" * 3_000 + b"]" * 3_000,
    "digits": b'{"version":' + b"9" * 6_000 + b"}",
    "no UTF-8": b"\xff\xfe{",
    "noughts": b"\0" * 10,
    "a key twice": b'{"version":1,"version":1}',
    "columns that are none": b'{"version":1,"columns":[3],"feature":[3],"nodes":[3],"output_node_id":1}',
    "names that are none": b'{"version":1,"columns":[{"name":3}],"feature":[{"name":[]}],"records":[3]}',
    "values of other kinds": b'{"version":1,"columns":[{"name":"x","dtype":[],"tags":3}],"nodes":3}',
}


def _saved_by_nvtabular(file: Path) -> object:
    return saved_json.load(shutil.copytree(file.parent, file.parent / "saved"))


def _compared(file: Path) -> object:
    return compare_runs([file.parent, shutil.copytree(file.parent, file.parent / "other")], file.parent / "page.html")


def _vocabulary(file: Path) -> object:
    return Workflow(["c"] >> ops.Categorify(vocabs={"c": str(file)})).fit(pl.DataFrame({"c": ["a"]}))


def _similarity(file: Path) -> object:
    rows = pl.DataFrame({"i": [0], "j": [0]})
    return Workflow([["i", "j"]] >> ops.ColumnSimilarity(str(file))).fit(rows).transform(rows)


# The file that is forged, how it is read, and whether some of the contents are fine there.
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "schema of a data set": ("_schema.json", lambda file: schema_beside(str(file.parent), ["a"], None)),
    "schema of a file": ("a.schema.json", lambda file: schema_beside("a", [str(file.parent / "a")], None)),
    "manifest of a data set": ("_manifest.json", lambda file: read_manifest(file.parent)),
    "configuration of a run": ("config.yaml", lambda file: RunFolder(file.parent).read()),
    "reports compared": ("report.json", _compared),
    "records of a run": ("report.json", _records_of),
    "vocabulary": ("v.parquet", _vocabulary),
    "features": ("f.npz", _similarity),
    "embeddings": ("e.npy", lambda file: _table(file, None, False)),
    "embeddings in parquet": ("e.parquet", lambda file: _table(file, None, False)),
    "NVTabular's workflow": ("graph.json", _saved_by_nvtabular),
    "Merlin's schema": ("schema.json", TensorflowMetadata.from_json_file),
    "Merlin's schema as text": ("schema.pbtxt", TensorflowMetadata.from_proto_text_file),
    "PERSIA's settings": ("global_config.yml", read_yaml),
    "a notebook": ("a.ipynb", read_notebook),
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
def test_it_is_read_or_refused_by_its_name(reader: str, tmp_path: Path) -> None:
    name, read = READERS[reader]
    refused = 0
    for number, (case, content) in enumerate(CONTENTS.items()):
        file = tmp_path / str(number) / name
        file.parent.mkdir()
        file.write_bytes(content)
        try:
            with not_for_ever():
                read(file)
        except PenstockError as error:
            assert str(file) in str(error) or str(file.parent) in str(error), f"{case}: {error}"
            refused += 1
        except Exception as error:
            pytest.fail(f"{reader}, {case}: a raw {type(error).__name__}: {error}")
    assert refused > 3


def _npz(**arrays: object) -> bytes:
    out = io.BytesIO()
    np.savez(out, **{name: np.asarray(array) for name, array in arrays.items()})
    return out.getvalue()


def _npy(array: object) -> bytes:
    out = io.BytesIO()
    np.save(out, np.asarray(array))
    return out.getvalue()


SPARSE = {"data": [1.0, 1.0], "indices": [0, 0], "indptr": [0, 1, 2], "shape": [2, 2]}
ARRAYS: dict[str, bytes] = {
    "a shape of one number": _npz(**{**SPARSE, "shape": 3}),
    "a shape of words": _npz(**{**SPARSE, "shape": ["a", "b"]}),
    "more columns than fit": _npz(**{**SPARSE, "shape": [2, 2**61]}),
    "fewer columns than none": _npz(**{**SPARSE, "shape": [2, -1]}),
    "words": _npz(**{**SPARSE, "data": ["a", "b"]}),
    "a table where a list should be": _npz(**{**SPARSE, "data": np.ones((2, 2))}),
    "places that are no integers": _npz(**{**SPARSE, "indices": [np.nan, 1e300]}),
    "an array less": _npz(data=[1.0]),
    "cut off": _npz(data=np.ones(200))[:200],
    "no whole archive": b"PK\x03\x04" + bytes(40),
    "a head that is no head": _npy(np.zeros((2, 2)))[:10] + b"(" * 118 + bytes(32),
    "code in the place of the head": _npy(np.zeros((2, 2)))[:10] + b"__import__('os')".ljust(117) + b"\n" + bytes(32),
    "fewer values than it says": _npy(np.zeros((2, 2)))[:-4],
    "a list": _npy(np.zeros(3)),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_forged_arrays(case: str, tmp_path: Path) -> None:
    (tmp_path / "f.npz").write_bytes(ARRAYS[case])
    with pytest.raises(ParameterError, match=r"left_features"):
        _similarity(tmp_path / "f.npz")


def test_arrays_that_unfold_without_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "FREE_BYTES", 1 << 16)
    np.savez_compressed(tmp_path / "f.npz", **{**SPARSE, "data": np.zeros(1 << 18)})
    with pytest.raises(ParameterError, match=r"would unfold from \d+ to \d+ bytes"):
        _similarity(tmp_path / "f.npz")


def test_wide_features_take_memory_by_what_is_in_them(tmp_path: Path) -> None:
    wide = {**SPARSE, "indices": [2**40, 2**40], "shape": [2, 2**41]}
    (tmp_path / "f.npz").write_bytes(_npz(**wide))
    rows = pl.DataFrame({"i": [0], "j": [1]})
    for metric, product in (("inner", 1.0), ("tfidf", 0.0)):
        flow = Workflow([["i", "j"]] >> ops.ColumnSimilarity(str(tmp_path / "f.npz"), metric=metric)).fit(rows)
        assert flow.transform(rows).to_series(-1).to_list() == [product]


def test_the_number_of_a_node_does_not_lead_out(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    pl.DataFrame({"c": ["a"]}).write_parquet(secret / "unique.c.parquet")
    folder = tmp_path / "saved"
    folder.mkdir()
    node = {
        "id": "x/../../../secret", "op_class": "nvtabular.ops.categorify.Categorify", "parent_ids": [],
        "op_state": {"categories": [{"key": "c", "path": "unique.c.parquet"}]}, "input_schema": [{"name": "c"}],
    }  # fmt: skip
    (folder / "graph.json").write_text(json.dumps({"nodes": [node], "output_node_id": 0}))
    with pytest.raises(ArtefactError, match=r"graph.json, a node: 'id' must be an int"):
        saved_json.load(folder)


def test_a_pipe_in_the_place_of_a_packets_manifest(tmp_path: Path) -> None:
    writer = FeedWriter(store(1), tmp_path, whole_every=1)
    packet = writer.publish()
    assert packet is not None
    (packet / "manifest.json").unlink()
    os.mkfifo(packet / "manifest.json")
    config = EmbeddingConfig([SlotConfig("user", dim=2), SlotConfig("ad", dim=3)])
    reader = FeedReader(tmp_path, Store(config, seed=0), patience=0)
    with not_for_ever():
        assert reader.poll() == 0
        time.sleep(0.001)
        with pytest.raises(ArtefactError, match=r"manifest.json cannot be read: a pipe or a device"):
            reader.poll()
    writer.close()


def test_a_number_of_hundreds_of_digits_is_no_real_number() -> None:
    assert not Real().accepts(10**400) and Real().accepts(10**300)


def test_a_data_set_with_a_forged_schema_says_which_file(tmp_path: Path) -> None:
    Dataset({"x": [1, 2]}).to_parquet(tmp_path / "rows", progress=False)
    (tmp_path / "rows" / "_schema.json").write_text("[" * 100_000)
    with pytest.raises(PenstockError, match=r"rows/_schema.json"):
        Dataset(tmp_path / "rows")


# One place for each: whoever reads such files elsewhere has to say here why that is safe.

ROOT = Path(penstock.__file__).parent
READS = {
    "json.loads", "json.load", "yaml.safe_load", "yaml.load", "np.load", "pickle.loads", "pickle.load", "torch.load",
    "pl.read_parquet", "pl.read_csv", "pl.read_ipc", "pl.read_avro", "pq.read_table",
}  # fmt: skip
ALLOWED = {
    "core/bounded.py", "core/yaml_files.py", "core/array_files.py",  # the places
    "core/schema.py",  # text that the caller has
    "core/durable.py", "embedding/feed_reader.py",  # a journal and a manifest, both bounded
    "serve/http/parsing.py",  # requests, within their own limits
    "embedding/ray_messages.py", "embedding/ray_coordinator.py", "embedding/ray_lines.py",  # the cluster's own words
    "compat/persia/_sockets.py", "compat/persia/_message.py", "compat/persia/_checkpoints.py",  # frames; weights only
    "data/formats/avro.py", "data/formats/text_partition.py", "data/formats/text_sample.py",  # errors become
    "data/formats/json_lines.py",  # DataError
    "etl/references.py", "train/checkpoint.py",  # what was written a moment ago
    "etl/vocabulary.py",  # scratch of this process
    "etl/ops/categorify_values.py",  # errors become ParameterError
    "compat/names/__init__.py", "compat/migrate_rules.py",  # files of the package
    "compat/nvtabular/workflow/saved_tables.py",  # footers are checked before
}  # fmt: skip


def _reads(source: str) -> set[str]:
    if not any(name.partition(".")[2] + "(" in source for name in READS):
        return set()
    return {ast.unparse(node.func) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)} & READS


def test_files_of_others_are_read_in_few_places() -> None:
    found = {path.relative_to(ROOT).as_posix(): _reads(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}
    elsewhere = {name: reads for name, reads in found.items() if reads and name not in ALLOWED}
    assert {name for name, reads in found.items() if reads} >= ALLOWED, "a file that reads nothing is allowed to"
    assert not elsewhere, f"{elsewhere}: use penstock.core.bounded, yaml_files or array_files"
    assert _reads("import json\njson.loads(x)\nnp.load(y)\nfoo.load(z)") == {"json.loads", "np.load"}


@pytest.mark.parametrize("name", ["a/b", "../../a", "x" * 300, "käse", "a\\b", "100%"])
def test_names_of_columns_become_names_of_files(name: str, tmp_path: Path) -> None:
    flow = Workflow([name] >> ops.Categorify(out_path=str(tmp_path / "deep" / "er"))).fit(pl.DataFrame({name: ["a"]}))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 2 and {path.parent for path in files} == {tmp_path / "deep" / "er" / "categories"}
    assert flow.transform(pl.DataFrame({name: ["a"]}))[name].to_list() == [3]


def test_half_a_character_in_a_report_is_spelled_out_on_the_page(tmp_path) -> None:
    """JSON can spell it, UTF-8 has none: the comparison of runs ended in a raw error."""
    from penstock.jobs.text_output import write_text

    write_text(tmp_path / "page.html", "half \ud800 of it")
    assert (tmp_path / "page.html").read_text() == "half \\ud800 of it"
