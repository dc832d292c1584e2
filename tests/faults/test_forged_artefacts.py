"""Artefacts changed by someone who also fits the manifest: every failure is an `ArtefactError` with a reason."""

from __future__ import annotations

import copy
import json
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.faults.writers import WRITERS, fitted, training

from penstock import Workflow
from penstock.core import artefact, bounded
from penstock.core.errors import ArtefactError, PenstockError
from penstock.embedding import EmbeddingConfig, SlotConfig, Store
from penstock.embedding.feed_reader import FeedReader
from penstock.serve import Predictor
from penstock.train import Checkpointer

BUDGET, LARGE = 25, 2000
ODD: list[Any] = [
    None, True, -1, 0, 2**63, 10**40, 1e308, -0.5, "", "x", "../../written", "/etc/passwd", "a\0b", "\ud800", "é" * 300,
    [], {}, [[]], {"": None}, [1, "a", None], {"path": "../../.."},
]  # fmt: skip


def _read_packets(place: Path) -> None:
    config = EmbeddingConfig([SlotConfig("user", dim=2), SlotConfig("ad", dim=3)])
    reader = FeedReader(place, Store(config, seed=0), patience=0)
    reader.poll()
    time.sleep(0.001)
    reader.poll()


# What is written, the artefact inside it to forge, its kind, and how it is read.
KINDS: dict[str, tuple[str, str, Callable[[Path], Any]]] = {
    "workflow": ("", "workflow", Workflow.load),
    "store": ("", "embedding-store", Store.open),
    "model": ("model", "model", lambda place: Predictor(place).close()),
    "training": ("step-00000002", "training", lambda place: Checkpointer(place).load(training(1))),
    "packets": ("packet-00000001", "embedding-packet", _read_packets),
}


def _mutate_json(data: Any, draw: random.Random) -> Any:
    data = copy.deepcopy(data)
    places: list[tuple[Any, Any]] = []
    waiting = [data]
    while waiting:
        item = waiting.pop()
        for key in list(item) if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ():
            places.append((item, key))
            waiting.append(item[key])
    if not places:
        return draw.choice(ODD)
    holder, key = draw.choice(places)
    what = draw.randrange(4)
    if what == 0:
        del holder[key]
    elif what == 1 and isinstance(holder, dict):
        holder[draw.choice([o for o in ODD if isinstance(o, str)])] = holder.pop(key)
    elif what == 2 and isinstance(holder[key], (int, float)) and not isinstance(holder[key], bool):
        holder[key] = draw.choice([holder[key] + 1, -holder[key], holder[key] * 1000, float(holder[key]), 2**31])
    else:
        holder[key] = copy.deepcopy(draw.choice(ODD))
    return data


def _mutate_bytes(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 4])):
        at = draw.choice([draw.randrange(len(changed)), draw.randrange(min(200, len(changed)))]) if changed else 0
        what = draw.randrange(4)
        if what == 0 and changed:
            changed[at] ^= 1 << draw.randrange(8)
        elif what == 1:
            del changed[at : at + draw.randrange(1, 40)]
        elif what == 2:
            changed[at:at] = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 9)))
        elif changed:
            changed[at : at + 8] = draw.choice([b"\xff" * 8, b"\0" * 8, (2**40).to_bytes(8, "little")])
    return bytes(changed)


def _forge(place: Path, kind: str, draw: random.Random) -> None:
    """Change one file and fit the manifest."""
    files = sorted(p for p in place.rglob("*") if p.is_file() and p != place / artefact.MANIFEST)
    # Pages of Parquet are the business of the parquet suites.
    file = draw.choice([p for p in files if p.suffix in (".json", ".safetensors") and p.name != artefact.MANIFEST])
    if file.suffix == ".json" and draw.random() < 0.9:
        file.write_text(json.dumps(_mutate_json(json.loads(file.read_text()), draw)))
    else:
        file.write_bytes(_mutate_bytes(file.read_bytes(), draw))
    _seal(place, kind)


def _seal(place: Path, kind: str) -> None:
    for inner in sorted(place.rglob(artefact.MANIFEST)):
        if inner.parent != place:
            _write_manifest(inner.parent, json.loads(inner.read_text())["penstock"])
    _write_manifest(place, kind)


def _write_manifest(folder: Path, kind: str) -> None:
    (folder / artefact.MANIFEST).unlink(missing_ok=True)
    content = {"penstock": kind, "version": 1, "files": artefact.describe_files(folder)}
    (folder / artefact.MANIFEST).write_text(json.dumps(content))


def _try(kind: str, root: Path, seed: int) -> str:
    inside, name, read = KINDS[kind]
    place = root / "forged"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(root / "whole", place)
    _forge(place / inside if inside else place, name, random.Random(seed))
    try:
        read(place)
    except ArtefactError:
        return "refused"
    except PenstockError as error:
        pytest.fail(f"{kind}, seed {seed}: {type(error).__name__}: {error}")
    except Exception as error:
        pytest.fail(f"{kind}, seed {seed}: a raw {type(error).__name__}: {error}")
    return "read"


def _fuzz(kind: str, root: Path, seeds: range) -> dict[str, int]:
    [writer] = [w for w in WRITERS if w.name == kind]
    writer.write(root / "whole", 1)
    (root / "forged").mkdir()
    outcomes = [_try(kind, root, seed) for seed in seeds]
    assert sorted(p.name for p in root.iterdir()) == ["forged", "whole"], "something was written outside"
    return {name: outcomes.count(name) for name in set(outcomes)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_every_failure_is_an_artefact_error(kind, tmp_path):
    assert _fuzz(kind, tmp_path, range(BUDGET)).get("refused", 0) > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_every_failure_is_an_artefact_error_large(kind, tmp_path):
    seed = random.SystemRandom().randrange(2**32)
    print(f"{kind}: seeds from {seed}: {_fuzz(kind, tmp_path, range(seed, seed + LARGE))}")


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "a//b", "./a", "a\0b", "x" * 300, "C:\\x", ""])
def test_names_stay_inside(tmp_path, name):
    fitted(1).save(tmp_path / "flow")
    manifest = json.loads((tmp_path / "flow" / "manifest.json").read_text())
    manifest["files"][name] = {"bytes": 0, "sha256": "0" * 64}
    (tmp_path / "flow" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtefactError, match=r"manifest\.json names"):
        Workflow.load(tmp_path / "flow")


def test_the_name_of_a_node_does_not_lead_out(tmp_path):
    recipe = {"recipe": 1, "nodes": {"../../../written": {"columns": ["user"], "ops": ["Categorify"]}}}
    flow = Workflow.from_recipe(recipe).fit(pl.DataFrame({"user": ["a", "b"]}))
    place = tmp_path / "deep" / "er" / "flow"
    flow.save(place)
    assert [p.name for p in tmp_path.iterdir()] == ["deep"]
    assert Workflow.load(place).transform(pl.DataFrame({"user": ["b"]}))["user"].to_list() == [4]


def test_what_the_manifest_does_not_list_is_not_read(tmp_path):
    fitted(1).save(tmp_path / "flow")
    state = next((tmp_path / "flow" / "state").iterdir())
    (tmp_path / "flow" / "notes.txt").write_text("kept beside")
    Workflow.load(tmp_path / "flow")
    manifest = json.loads((tmp_path / "flow" / "manifest.json").read_text())
    for name in [n for n in manifest["files"] if n.startswith(f"state/{state.name}/")]:
        del manifest["files"][name]
    (tmp_path / "flow" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtefactError, match="does not list it"):
        Workflow.load(tmp_path / "flow")


def test_deep_and_long_json(tmp_path, monkeypatch):
    for text in ("[" * 100_000, "[" * 400 + "]" * 400, '{"a":' * 100_000, "9" * 10_000, '"\\ud800"'):
        with artefact.writing(tmp_path / "flow", "workflow", 1, overwrite=True) as folder:
            (folder / "workflow.json").write_text(text)
        with pytest.raises(ArtefactError, match=r"workflow\.json"):
            Workflow.load(tmp_path / "flow")
    monkeypatch.setattr(bounded, "MOST_JSON_BYTES", 5)
    with pytest.raises(ArtefactError, match="longer than the 5 bytes"):
        Workflow.load(tmp_path / "flow")


def test_a_parquet_file_that_unfolds_without_measure(tmp_path):
    """Half a gigabyte of equal numbers in a few kilobytes."""
    path = tmp_path / "bomb.parquet"
    pl.DataFrame({"x": np.zeros(60_000_000, np.int8)}).write_parquet(path, compression="zstd")
    assert path.stat().st_size < 1 << 20
    with pytest.raises(ArtefactError, match="no such file is read"):
        bounded.read_frame(path)


def test_the_rows_of_a_parquet_file_are_those_that_were_written_down(tmp_path):
    pl.DataFrame({"x": [1, 2, 3]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(ArtefactError, match="holds 3 rows, and the manifest says 2"):
        bounded.read_frame(tmp_path / "a.parquet", 2)


CODE = [
    "canary_of_a_forger:boom",
    "subprocess:getoutput",
    "penstock.core.extras:require",
    {"LambdaOp": {"f": "os:system"}},
]


def _places(data: Any) -> list[tuple[Any, Any]]:
    """Every place of plain data: what holds it, and its key."""
    found, waiting = [], [data]
    while waiting:
        item = waiting.pop()
        keys = list(item) if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ()
        found += [(item, key) for key in keys]
        waiting += [item[key] for key in keys]
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "file"), [("workflow", "workflow.json"), ("model", "model/model.json")])
def test_no_field_names_code(kind, file, tmp_path, monkeypatch):
    """Every place of what describes an artefact is given a function's name, one after the other."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "canary_of_a_forger.py").write_text("def boom(*given): raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(tmp_path / "lib")
    [writer] = [w for w in WRITERS if w.name == kind]
    place, (inside, name, read) = tmp_path / "whole", KINDS[kind]
    writer.write(place, 1)
    whole = json.loads((place / file).read_text())
    for number in range(len(_places(whole))):
        forged = copy.deepcopy(whole)
        holder, key = _places(forged)[number]
        holder[key] = copy.deepcopy(CODE[number % len(CODE)])
        (place / file).write_text(json.dumps(forged))
        _seal(place / inside if inside else place, name)
        try:
            found = read(place)
            if isinstance(found, Workflow):
                found.transform(pl.DataFrame({"user": ["a"], "price": [1.0], "click": [0]}))
        except PenstockError:
            pass
        assert "canary_of_a_forger" not in sys.modules, f"{key!r} of {file}"


def test_what_was_learned_of_other_columns_is_refused(tmp_path):
    nodes = {"x": {"columns": ["price"], "ops": [{"Rename": {"postfix": "_a"}}, "Normalize"]}}
    Workflow.from_recipe({"recipe": 1, "nodes": nodes}).fit(pl.DataFrame({"price": [1.0, 2.0]})).save(tmp_path / "flow")
    file = tmp_path / "flow" / "workflow.json"
    file.write_text(file.read_text().replace('"_a"', '"_b"'))
    _seal(tmp_path / "flow", "workflow")
    with pytest.raises(ArtefactError, match="was learned of other columns than 'price_b'"):
        Workflow.load(tmp_path / "flow")
