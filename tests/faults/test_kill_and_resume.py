"""Trainings killed at any moment and resumed end with the same bits; a damaged checkpoint is passed over."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.faults.killed_training import bits, train, write_rows
from tests.faults.writers import training, versions_of_training

from penstock.core.errors import ArtefactError
from penstock.train import Checkpointer

ROOT = Path(__file__).parents[2]
LARGE, SEED = 50, 15


@dataclass
class Reference:
    """A run that nobody disturbed: its rows, what it learned, and how many events it had."""

    data: Path
    output: Path
    bits: dict[str, bytes]
    events: int


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    root = tmp_path_factory.mktemp("reference")
    write_rows(root / "rows.tsv")
    events = train(root / "rows.tsv", root / "run")
    return Reference(root / "rows.tsv", root / "run", bits(root / "run"), events)


def _killed(data: Path, output: Path, at: int) -> bool:
    """Whether a process that goes on with the run was killed before its event `at`; else it has finished."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.faults.killed_training", str(data), str(output), str(at)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr[-2000:]
    return ended.returncode != 0


def test_killed_and_resumed(reference: Reference, tmp_path: Path) -> None:
    """Past its middle; earlier states of its folder are stopped at in tests/faults/test_stopped_writers.py."""
    assert _killed(reference.data, tmp_path / "run", reference.events * 2 // 3)
    train(reference.data, tmp_path / "run")
    assert bits(tmp_path / "run") == reference.bits


@pytest.mark.slow
def test_killed_many_times_and_resumed(reference: Reference, tmp_path: Path) -> None:
    draw, kills, runs = random.Random(SEED), 0, 0
    while kills < LARGE:
        output = tmp_path / f"run-{runs}"
        while _killed(reference.data, output, draw.randrange(reference.events)):
            kills += 1
            print(f"seed {SEED}: run {runs}, {kills} kills", flush=True)
        assert bits(output) == reference.bits, f"seed {SEED}: run {runs}, {kills} kills so far"
        shutil.rmtree(output)
        runs += 1
    print(f"seed {SEED}: {kills} kills in {runs} trainings of {reference.events} events, all ended with the same bits")


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a flipped bit in the weights": ("step-00000002/model.safetensors", _flip),
    "a file cut off": ("step-00000002/training.json", lambda path: path.write_bytes(path.read_bytes()[:-3])),
    "a file that is gone": ("step-00000002/about.json", Path.unlink),
    "no manifest": ("step-00000002/manifest.json", Path.unlink),
    "a manifest that is no JSON": ("step-00000002/manifest.json", lambda path: path.write_text("{")),
    "no manifest of the store": ("store-00000002/manifest.json", Path.unlink),
    "a flipped bit in the store": ("store-00000002/store.json", _flip),
    "a store that is gone": ("store-00000002", shutil.rmtree),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_checkpoint_is_passed_over(damage: str, tmp_path: Path) -> None:
    checkpoints = Checkpointer(tmp_path)
    checkpoints.save(training(0))
    checkpoints.save(training(1))
    name, harm = DAMAGES[damage]
    harm(tmp_path / name)
    with pytest.warns(UserWarning, match=r"newest checkpoint is damaged \(.*0000002.*goes on from .*step-00000001"):
        assert versions_of_training(tmp_path) == {0}
    checkpoints = Checkpointer(tmp_path)
    checkpoints.save(training(1))  # what comes to the same step again takes its place
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert versions_of_training(tmp_path) == {1}


def test_no_whole_checkpoint_is_an_error_that_names_the_newest(tmp_path: Path) -> None:
    checkpoints = Checkpointer(tmp_path)
    checkpoints.save(training(0))
    checkpoints.save(training(1))
    for path in tmp_path.glob("step-*/model.safetensors"):
        _flip(path)
    with pytest.raises(ArtefactError, match=r"step-00000002/model.safetensors was altered"):
        versions_of_training(tmp_path)


def test_a_run_goes_on_from_the_checkpoint_before_and_ends_the_same(reference: Reference, tmp_path: Path) -> None:
    run = shutil.copytree(reference.output, tmp_path / "run")
    shutil.rmtree(run / "model")
    newest = sorted(run.glob("checkpoints/step-*"))[-1]
    _flip(newest / "model.safetensors")
    with pytest.warns(UserWarning, match=f"newest checkpoint is damaged .*{newest.name}"):
        train(reference.data, run)
    assert bits(run) == reference.bits
