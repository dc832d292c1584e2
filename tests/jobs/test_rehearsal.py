"""The small training beside the features: it trains, keeps nothing, and its failures are nobody's."""

import stat
import sys
import threading
import warnings

import pytest
import torch

from penstock.core.errors import PenstockError
from penstock.data.synthetic import criteo
from penstock.etl import presets
from penstock.jobs import rehearsal
from penstock.jobs.preparation import RawRows
from penstock.jobs.settings import TrainSettings
from penstock.kernels.gpu_triton import has_triton

SETTINGS = {"tables": "fused", "device": "cpu", "model": {"name": "MLP", "hidden": [4]}, "feed": "a-feed"}


@pytest.fixture
def rows(tmp_path):
    criteo(tmp_path / "day.tsv", 600, cardinalities=20, progress=False)
    return RawRows(tmp_path / "day.tsv", None, presets.load("criteo"), TrainSettings.resolve(SETTINGS))


def test_it_trains_a_few_steps_and_publishes_nothing(rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "rehearsed"
    rehearsal.rehearse(rows.data, rows.recipe, rows.settings, place)
    assert (place / "run" / "model").is_dir()
    assert not (tmp_path / "a-feed").exists()


def test_the_block_waits_for_it(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(rehearsal, "_WORTH_IT", 0)
    monkeypatch.setenv("PENSTOCK_SCRATCH", str(tmp_path / "scratch"))
    trained, places = [], []

    def train(*arguments):
        assert not has_triton() or "penstock.kernels.gpu_embedding" in sys.modules, "imported before it begins"
        trained.append(threading.current_thread().name)
        places.append((arguments[-1].parent, stat.S_IMODE(arguments[-1].stat().st_mode)))

    monkeypatch.setattr(rehearsal, "rehearse", train)
    with rehearsal.rehearsing(rows.data, rows.recipe, rows.settings, torch.device("cuda")):
        pass
    assert trained == ["penstock-rehearsal"]
    assert places == [(tmp_path / "scratch", 0o700)]
    assert not list((tmp_path / "scratch").iterdir())


def test_warnings_beside_it_are_shown(rows, monkeypatch):
    """And its own are not, nor do they count as shown."""
    monkeypatch.setattr(rehearsal, "_WORTH_IT", 0)
    began, told = threading.Event(), threading.Event()

    def warn(*_):
        began.set()
        told.wait(10)
        _doubt()

    monkeypatch.setattr(rehearsal, "rehearse", warn)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        with rehearsal.rehearsing(rows.data, rows.recipe, rows.settings, torch.device("cuda")):
            began.wait(10)
            warnings.warn("lines were skipped", UserWarning, stacklevel=1)
            told.set()
        _doubt()
    assert [str(one.message) for one in found] == ["lines were skipped", "a doubt"]


def _doubt():
    warnings.warn("a doubt", UserWarning, stacklevel=1)


def test_no_scratch_is_no_failure(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(rehearsal, "_WORTH_IT", 0)
    (tmp_path / "file").touch()
    monkeypatch.setenv("PENSTOCK_SCRATCH", str(tmp_path / "file"))
    with rehearsal.rehearsing(rows.data, rows.recipe, rows.settings, torch.device("cuda")):
        pass


def test_a_failure_is_not_told(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(rehearsal, "_WORTH_IT", 0)

    def fail(*_):
        raise PenstockError("too few rows")

    monkeypatch.setattr(rehearsal, "rehearse", fail)
    with rehearsal.rehearsing(rows.data, rows.recipe, rows.settings, torch.device("cuda")):
        pass


def test_few_rows_and_cpus_are_not_rehearsed(rows, monkeypatch):
    monkeypatch.setattr(rehearsal, "start_thread", lambda *_: pytest.fail("it began"))
    with rehearsal.rehearsing(rows.data, rows.recipe, rows.settings, torch.device("cuda")):
        pass
    monkeypatch.setattr(rehearsal, "_WORTH_IT", 0)
    with rehearsal.rehearsing(rows.data, rows.recipe, rows.settings, torch.device("cpu")):
        pass


def test_an_exception_of_the_block_is_raised_after_it(rows, monkeypatch):
    monkeypatch.setattr(rehearsal, "_WORTH_IT", 0)
    done = []
    monkeypatch.setattr(rehearsal, "rehearse", lambda *_: done.append(True))
    with pytest.raises(KeyError), rehearsal.rehearsing(rows.data, rows.recipe, rows.settings, torch.device("cuda")):
        raise KeyError("a column")
    assert done
