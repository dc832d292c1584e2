"""How a training from text starts: reading goes on beside torch's import, and ends with whatever goes wrong there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from penstock import Dataset, Workflow
from penstock.core.errors import PenstockError
from penstock.data.formats.text_partition import TextPartition
from penstock.data.synthetic import criteo
from penstock.etl import presets
from penstock.etl.input_section import open_input
from penstock.jobs import TrainJob, training
from penstock.jobs.preparation import RawRows
from penstock.jobs.run_folder import RunFolder
from penstock.jobs.settings import TrainSettings

PART_SIZE, SEED = 20_000, 5
# What a test does in a process of its own: torch's import begins once a partition was parsed beside it, or in vain.
_WATCHED = """
import gc, json, sys, threading, time
from pathlib import Path
from penstock.data.formats.text_partition import TextPartition

parsed, read = threading.Event(), TextPartition.read

def noted(part, columns=None):
    frame = read(part, columns)
    if len(columns or ()) == 40:  # not the label alone, which is looked at before
        parsed.set()
        time.sleep(PAUSE)
    return frame

class Importing:
    seen = []

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "torch" and not cls.seen:
            cls.seen.append(parsed.wait(5))
            when_torch_is_imported()

TextPartition.read = noted

def watch():
    sys.meta_path.insert(0, Importing)
"""
_REFUSED_AND_RUN = """
from penstock.core.errors import PenstockError
from penstock.etl import presets
from penstock.jobs import TrainJob

PAUSE, when_torch_is_imported = 0, lambda: None
place, found = Path(sys.argv[1]), {}

def job(name, hidden):
    settings = {"etl": {"part_size": int(sys.argv[2])}, "seed": int(sys.argv[3]), "epochs": 1, "batch_size": 256}
    settings |= {"embedding_dim": 4, "device": "cpu", "model": {"name": "MLP", "hidden": [4], **hidden}}
    return TrainJob(place / "day.tsv", place / name, presets.load("criteo"), settings=settings, progress=False)

def left():
    threads = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    return [*threads, *(path.name for path in (place / "scratch").glob("*"))]

refused, good = job("refused", {"deep": 3}), job("run", {})
found["made"] = ["torch" in sys.modules, left()]
watch()
try:
    refused.run()
except PenstockError as error:
    found["refused"] = [type(error).__name__, str(error), left(), (place / "refused").exists()]
found["beside"] = Importing.seen
good.run()
found["run"] = [left(), gc.isenabled(), round(sys.getswitchinterval(), 3)]
print(json.dumps(found))
"""
_INTERRUPTED = """
from penstock.cli import main

PAUSE, importing = 0.3, Path(sys.argv.pop(1))

def when_torch_is_imported():
    importing.touch()
    time.sleep(30)

watch()
main()
"""


def began(script: str, place: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _WATCHED + script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PENSTOCK_SCRATCH": str(place / "scratch")},
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    criteo(folder / "day.tsv", 600, cardinalities=30, progress=False)
    (folder / "config.yaml").write_text(f"etl: {{part_size: {PART_SIZE}}}\n")
    return folder


@pytest.fixture(scope="module")
def found(place) -> dict:
    """What a process saw that was refused a setting, and then trained."""
    child = began(_REFUSED_AND_RUN, place, place, PART_SIZE, SEED)
    out, errors = child.communicate(timeout=120)
    assert child.returncode == 0, errors
    return json.loads(out.splitlines()[-1])


def test_text_is_read_beside_torchs_import(found):
    assert found["beside"] == [True]


def test_a_job_that_is_only_made_reads_nothing(found):
    assert found["made"] == [False, []]


def test_a_refused_setting_leaves_nothing(found):
    name, words, left, is_there = found["refused"]
    assert name == "ParameterError" and words.startswith("MLP has no argument 'deep'")
    assert left == [] and not is_there


def test_what_was_set_for_the_import_is_as_it_was(found):
    assert found["run"] == [[], True, 0.005]


def test_features_are_those_of_separate_passes(found, place):
    recipe = presets.load("criteo")
    train, valid = open_input(place / "day.tsv", recipe["input"], part_size=PART_SIZE).split([0.9, 0.1], seed=SEED)
    assert train.num_partitions > 3
    workflow = Workflow.from_recipe(recipe).fit(train)
    for name, raw in (("features", train), ("valid", valid)):
        assert Dataset(place / "run" / name).to_polars().equals(workflow.transform(raw).to_polars())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_beside_the_import_ends_it(place, number):
    importing, output = place / f"importing-{number}", place / f"interrupted-{number}"
    options = ["train", place / "day.tsv", "--preset", "criteo", "--config", place / "config.yaml", "-o", output]
    child = began(_INTERRUPTED, place, importing, *options)
    try:
        for _ in range(600):
            if importing.exists() or child.poll() is not None:
                break
            time.sleep(0.05)
        assert importing.exists(), child.communicate()[1]
        child.send_signal(number)
        _, errors = child.communicate(timeout=20)
    finally:
        child.kill()
    assert child.returncode == 128 + number
    assert "stopped; nothing was written" in errors and "Traceback" not in errors
    assert not output.exists() and not list((place / "scratch").iterdir())


@pytest.mark.parametrize("way", ["file", "group:C1", "none"])
def test_text_is_parsed_once_also_where_no_rows_are_counted(tmp_path, place, monkeypatch, way):
    """What was read until its rows are needed is kept, and the rest is read by those who need it."""
    settings = {"etl": {"part_size": PART_SIZE}, "model": {"name": "MLP"}}
    settings |= {"valid_by": way} if way.startswith("group") else {"valid_share": 0.0} if way == "none" else {}
    valid = (
        criteo(tmp_path / "valid.tsv", 200, cardinalities=30, seed=1, progress=False).path if way == "file" else None
    )
    rows = RawRows(place / "day.tsv", valid, presets.load("criteo"), TrainSettings.resolve(settings))
    parsed, read = [], TextPartition.read

    def noted(part, columns=None):
        parsed.append((part.path, part.start))
        return read(part, columns)

    monkeypatch.setattr(TextPartition, "read", noted)
    with closing(rows):
        rows.begin_reading()
        rows.run(RunFolder(tmp_path / "run"), lambda event: None, False)
    parsed = [start for path, start in parsed if path.endswith("day.tsv")]
    assert len(parsed) == len(set(parsed)) == rows.data.num_partitions > 3


def compiling(monkeypatch, are_compiled: bool) -> None:
    """As on a machine where kernels are compiled beside the run: its data is opened beside torch's import."""
    monkeypatch.setattr(training, "is_compiling", lambda: are_compiled)


def test_a_first_run_is_a_run(tmp_path, monkeypatch):
    compiling(monkeypatch, True)
    criteo(tmp_path / "day.tsv", 2000, cardinalities=50, seed=SEED)
    settings = {"model": {"name": "MLP", "hidden": [8]}, "epochs": 1, "batch_size": 256}
    job = TrainJob(tmp_path / "day.tsv", tmp_path / "run", presets.load("criteo"), settings=settings, progress=False)
    assert job.run().rows == {"train": 1800, "valid": 200}


@pytest.mark.parametrize("what", ["missing.tsv", "empty.tsv", "text.tsv"])
def test_a_first_run_refuses_what_another_refuses(tmp_path, monkeypatch, what):
    (tmp_path / "empty.tsv").touch()
    (tmp_path / "text.tsv").write_text("no\tlog\n")
    said = []
    for are_compiled in (False, True):
        compiling(monkeypatch, are_compiled)
        with pytest.raises(PenstockError) as error:
            TrainJob(tmp_path / what, tmp_path / "run", presets.load("criteo"), overwrite=True, progress=False).run()
        said.append(str(error.value))
        assert not [t.name for t in threading.enumerate() if t.name.startswith("penstock-opening")]
    assert said[0] == said[1]
