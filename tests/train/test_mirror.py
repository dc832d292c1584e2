"""Checkpoints that are copied to another file system: whatever breaks off, what is there is whole."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import polars as pl
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem

from penstock import Dataset
from penstock.core import artefact
from penstock.core.errors import ArtefactError, DataError, OutputExistsError, ParameterError
from penstock.embedding import Adagrad, SlotConfig, Store
from penstock.jobs import TrainJob
from penstock.loader.torch import Loader
from penstock.nn import MLP
from penstock.train import Checkpointer, fit
from penstock.train.mirror import Mirror, MirrorWarning


class TimeoutWithoutBase(Exception):
    """What a client of some protocol raises: nothing that Python has a name for."""


class Breaking(MemoryFileSystem):  # type: ignore[misc]
    """A file system whose network breaks down after so many files were written or removed."""

    protocol = "breaking"
    left = 10**6
    answers = True

    def _count(self) -> None:
        if Breaking.left <= 0:
            raise OSError("the network is down")
        Breaking.left -= 1

    def exists(self, *given: Any, **named: Any) -> bool:
        if not Breaking.answers:
            raise TimeoutWithoutBase("nobody answers")
        return bool(super().exists(*given, **named))

    def put_file(self, *given: Any, **named: Any) -> None:
        self._count()
        super().put_file(*given, **named)

    def pipe_file(self, *given: Any, **named: Any) -> None:
        self._count()
        super().pipe_file(*given, **named)

    def rm_file(self, path: str) -> None:
        self._count()
        super().rm_file(path)


fsspec.register_implementation("breaking", Breaking, clobber=True)


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    Breaking.left = 10**6
    return f"breaking://bucket/{uuid.uuid4().hex}"


def write(directory: Path, name: str, content: str) -> None:
    kind = "training" if name.startswith("step") else "embedding-store"
    with artefact.writing(directory / name, kind, 1, overwrite=True) as folder:
        (folder / "rows").mkdir()
        (folder / "about.json").write_text(content)
        (folder / "rows" / "one").write_text(content * 3)


def contents(directory: Path) -> dict[str, str]:
    """What can be loaded of a folder of checkpoints, and all of it can."""
    found = {}
    for path in sorted(directory.iterdir()) if directory.exists() else []:
        kind = "training" if path.name.startswith("step") else "embedding-store"
        found[path.name] = artefact.read(path, kind, 1, lambda saved: saved.file("about.json").read_text())
    return found


def test_copies_are_those_of_the_last_call(url: str, tmp_path: Path) -> None:
    mirror, here = Mirror(url), tmp_path / "here"
    for number in range(3):
        for kind in ("step", "store"):
            write(here, f"{kind}-0000000{number}", str(number))
        mirror.send(
            here, [f"{kind}-0000000{n}" for kind in ("step", "store") for n in range(max(0, number - 1), number + 1)]
        )
    mirror.wait()
    assert mirror.fetch(tmp_path / "there") == ["store-00000001", "store-00000002", "step-00000001", "step-00000002"]
    assert contents(tmp_path / "there") == {k: v for k, v in contents(here).items() if v != "0"}
    assert mirror.fetch(tmp_path / "there") == []  # they are there


def test_whenever_a_copy_breaks_off_what_can_be_fetched_is_whole(url: str, tmp_path: Path) -> None:
    here, mirror = tmp_path / "here", Mirror(url)
    for kind in ("store", "step"):
        write(here, f"{kind}-00000001", "first")
    mirror.send(here, ["store-00000001", "step-00000001"])
    mirror.wait()
    for kind in ("store", "step"):
        write(here, f"{kind}-00000001", "other")  # of the same step, after a resumption
        write(here, f"{kind}-00000002", "second")
    broken = 0
    for left in range(100):
        Breaking.left = left
        mirror.send(here, ["store-00000001", "store-00000002", "step-00000002"])
        try:
            mirror.wait()
        except ArtefactError as error:
            assert "could not be copied to breaking://" in str(error) and "the network is down" in str(error)
            broken += 1
        Breaking.left = 10**6
        mirror.fetch(tmp_path / f"there-{left}")
        found = contents(tmp_path / f"there-{left}")
        assert "step-00000002" not in found or "store-00000002" in found
        if broken == left:
            break
    assert broken > 5
    assert found == {"store-00000001": "other", "store-00000002": "second", "step-00000002": "second"}


def test_a_copy_that_failed_is_told_of_and_tried_again(url: str, tmp_path: Path) -> None:
    mirror = Mirror(url)
    write(tmp_path, "step-00000001", "first")
    Breaking.left = 1
    mirror.send(tmp_path, ["step-00000001"])
    while (thread := mirror._thread) is not None:
        thread.join()
    Breaking.left = 10**6
    with pytest.warns(MirrorWarning, match="could not be copied .* the network is down; it is tried again"):
        mirror.send(tmp_path, ["step-00000001"])
    mirror.wait()
    assert mirror.fetch(tmp_path / "there") == ["step-00000001"]


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ({"files": {"../../outside": {"bytes": 1}}}, "lies outside the artefact"),
        ({"files": {"about.json": {"bytes": 999}}}, "truncated or altered: its manifest says 999 bytes"),
        ({"files": {"about.json": {"bytes": -1}}}, "'bytes' must be"),
        ({"files": []}, "'files' must be a mapping of files"),
        ({}, "lacks 'files'"),
    ],
    ids=str,
)
def test_manifests_of_strangers_are_refused(url: str, tmp_path: Path, manifest: dict[str, Any], said: str) -> None:
    mirror = Mirror(url)
    mirror._files.pipe_file(f"{mirror._root}/step-00000001/about.json", b"{}")
    mirror._files.pipe_file(f"{mirror._root}/step-00000001/manifest.json", json.dumps(manifest).encode())
    with pytest.raises(ArtefactError, match=said):
        mirror.fetch(tmp_path / "there")
    assert not (tmp_path / "outside").exists() and not (tmp_path / "there" / "step-00000001").exists()


def test_protocols_that_are_not_there_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"cannot be copied: nowhere://here cannot be reached: .*nowhere"):
        Checkpointer("nowhere://here")


def test_a_file_system_that_does_not_answer_is_named(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Breaking, "answers", False)
    said = f"{url}.* cannot be reached: TimeoutWithoutBase: nobody answers"
    for reach in (
        Mirror(url).check_free,
        lambda: Mirror(url).fetch(tmp_path),
        lambda: Dataset(f"{url}/clicks.parquet"),
    ):
        with pytest.raises(DataError, match=said):
            reach()


def trained(directory: str, steps: int, **settings: Any) -> tuple[torch.nn.Module, Store, Any]:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"user": rng.integers(0, 40, 160), "click": rng.integers(0, 2, 160).astype(np.float32)})
    loader = Loader(frame, 16, categorical=["user"], labels=["click"], shuffle=True)
    torch.manual_seed(0)
    model, store = MLP(loader.schema, embedding_dim=4, hidden=[4]), Store([SlotConfig("user", 4)], Adagrad(lr=0.1))
    history = fit(
        model, loader, store, epochs=4, max_steps=steps, staleness=1, checkpoint_dir=directory, checkpoint_every=3,
        progress=False, **settings,
    )  # fmt: skip
    return model, store, history


def test_training_goes_on_from_copies_where_its_own_disk_is_gone(url: str) -> None:
    whole, rows, _ = trained(f"{url}/whole", 20)
    trained(f"{url}/parts", 8)  # its scratch folder goes with it
    with pytest.raises(OutputExistsError, match="holds checkpoints already"):
        trained(f"{url}/parts", 20, resume=False)
    model, store, history = trained(f"{url}/parts", 20)
    assert history.stats["steps"] == 20 and Checkpointer(f"{url}/parts").steps() == [18, 20]
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weight, whole.state_dict()[name], rtol=0, atol=0)
    every = {"user": np.arange(40)}
    np.testing.assert_array_equal(store.lookup(every, train=False).packed, rows.lookup(every, train=False).packed)


@pytest.mark.slow
def test_a_run_copies_its_checkpoints_and_refuses_those_of_another(url: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = {"user": rng.integers(0, 40, 400), "price": rng.normal(size=400), "click": rng.integers(0, 2, 400)}
    data = Dataset(pl.DataFrame(rows)).with_roles(categorical=["user"], continuous=["price"], label=["click"])
    data.to_parquet(tmp_path / "features")
    settings = {
        "model": {"name": "MLP", "hidden": [4]}, "epochs": 1, "batch_size": 40, "checkpoint_every": 3, "device": "cpu",
        "select_by": "last", "copy_checkpoints_to": url,
    }  # fmt: skip
    TrainJob(tmp_path / "features", tmp_path / "run", settings={**settings, "max_steps": 6}).run()
    with pytest.raises(OutputExistsError, match="holds checkpoints already; resume that run, or name another URL"):
        TrainJob(tmp_path / "features", tmp_path / "other", settings=settings).run()
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    found = TrainJob.resumed(tmp_path / "run", {"max_steps": 8}).run()
    assert found.steps == 8 and Checkpointer(url).steps() == [6, 8]


def test_training_ends_well_where_copies_cannot_be_made(url: str) -> None:
    Breaking.left = 0
    with pytest.warns(MirrorWarning, match="could not be copied to breaking://"):
        _, _, history = trained(url, 4)
    assert history.stats["steps"] == 4


@pytest.mark.parametrize("begin", ["file://", ""])
def test_copies_may_go_to_a_folder_that_is_not_there(tmp_path: Path, begin: str) -> None:
    url = f"{begin}{tmp_path}/not/there"
    with artefact.writing(tmp_path / "own" / "step-00000001", "training", 1) as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "about.json").write_text("{}")
    mirror = Mirror(url)
    mirror.send(tmp_path / "own", ["step-00000001"])
    mirror.wait()
    assert (tmp_path / "not" / "there" / "step-00000001" / "deep" / "about.json").read_text() == "{}"
    assert Mirror(url).fetch(tmp_path / "again") == ["step-00000001"]
    assert Checkpointer(f"{begin}{tmp_path}/own").steps() == [1]


def test_folders_of_a_run_are_those_of_who_starts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for given, kept in (("copies", str(tmp_path / "copies")), ("file:///copies", "/copies"), ("s3://a/b", "s3://a/b")):
        job = TrainJob("rows.csv", "run", settings={"copy_checkpoints_to": given})
        assert job.settings.copy_checkpoints_to == kept  # type: ignore[union-attr]
