"""Contract 7: what is saved is plain data behind checksums; altered, truncated and foreign artefacts are refused."""

from __future__ import annotations

import json
import shutil

import polars as pl
import pytest

from penstock import Workflow, ops
from penstock.core import artefact
from penstock.core.errors import ArtefactError, NotFittedError, OutputExistsError, ParameterError

FRAME = pl.DataFrame(
    {"city": ["b", "a", "b", None, "c"], "price": [1.0, 2.0, None, 4.0, 5.0], "click": [0, 1, 0, 1, 1]}
)


def fitted() -> Workflow:
    cats = ["city"] >> ops.Categorify()
    conts = ["price"] >> ops.FillMissing(0.0) >> ops.Normalize()
    return Workflow(cats + conts + ["click"]).fit(FRAME)


@pytest.fixture
def saved(tmp_path):
    fitted().save(tmp_path / "flow")
    return tmp_path / "flow"


def test_round_trip(saved):
    flow = Workflow.load(saved)
    assert flow.transform(FRAME).equals(fitted().transform(FRAME))
    assert flow.output_schema == fitted().output_schema
    assert flow.input_schema == fitted().input_schema


def test_only_json_and_parquet(saved):
    assert {p.suffix for p in saved.rglob("*") if p.is_file()} == {".json", ".parquet"}


def test_saving_twice_gives_the_same_bytes(saved, tmp_path):
    fitted().save(tmp_path / "again")
    for path in saved.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "again" / path.relative_to(saved)).read_bytes()


def test_every_altered_file_is_refused(saved):
    for path in [p for p in saved.rglob("*") if p.is_file() and p.name != "manifest.json"]:
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(ArtefactError, match=f"{path.name} was altered"):
            Workflow.load(saved)
        path.write_bytes(content[:-1])
        with pytest.raises(ArtefactError, match=f"{path.name} is truncated"):
            Workflow.load(saved)
        path.unlink()
        with pytest.raises(ArtefactError, match=f"{path.name} is missing"):
            Workflow.load(saved)
        path.write_bytes(content)
    Workflow.load(saved)


def test_foreign_and_other_versions_are_refused(saved, tmp_path):
    with pytest.raises(ArtefactError, match="is not a folder"):
        Workflow.load(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArtefactError, match="was never finished"):
        Workflow.load(tmp_path / "empty")
    manifest = json.loads((saved / "manifest.json").read_text())
    for change, message in (({"penstock": "checkpoint"}, "holds a checkpoint"), ({"version": 99}, "format 99")):
        (saved / "manifest.json").write_text(json.dumps({**manifest, **change}))
        with pytest.raises(ArtefactError, match=message):
            Workflow.load(saved)
    (saved / "manifest.json").write_text("{]")
    with pytest.raises(ArtefactError, match="not a readable manifest"):
        Workflow.load(saved)


def test_a_manifest_cannot_point_outside(saved):
    manifest = json.loads((saved / "manifest.json").read_text())
    manifest["files"]["../evil"] = {"bytes": 0, "sha256": ""}
    (saved / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtefactError, match="outside the artefact"):
        Workflow.load(saved)


def test_existing_is_refused_unless_overwritten(saved):
    before = (saved / "manifest.json").read_bytes()
    with pytest.raises(OutputExistsError, match="overwrite=True"):
        fitted().save(saved)
    assert (saved / "manifest.json").read_bytes() == before
    fitted().save(saved, overwrite=True)


def test_an_interrupted_write_leaves_the_old_one_whole(saved):
    with pytest.raises(KeyboardInterrupt), artefact.writing(saved, "workflow", 1, overwrite=True) as folder:
        (folder / "half").write_text("x")
        raise KeyboardInterrupt
    Workflow.load(saved)
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_unfitted_and_unsaveable_are_refused(tmp_path):
    with pytest.raises(NotFittedError):
        Workflow(["city"] >> ops.Categorify()).save(tmp_path / "x")
    flow = Workflow(["price"] >> ops.LambdaOp(lambda s: s * 2)).fit(FRAME)
    with pytest.raises(ParameterError, match="lambda cannot be saved"):
        flow.save(tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_update_after_load_counts_rare_values_too(tmp_path):
    first = pl.DataFrame({"city": ["a", "a", "b"]})
    Workflow(["city"] >> ops.Categorify(freq_threshold=2)).fit(first).save(tmp_path / "flow")
    flow = Workflow.load(tmp_path / "flow")
    flow.update(pl.DataFrame({"city": ["b", "c"]}))
    assert flow.transform(pl.DataFrame({"city": ["a", "b", "c"]}))["city"].to_list() == [3, 4, 2]
    again = Workflow.load(tmp_path / "flow")
    shutil.rmtree(tmp_path / "flow")
    assert again.transform(first)["city"].to_list() == [3, 3, 2]
    with pytest.raises(ArtefactError, match="is gone"):
        again.update(first)
