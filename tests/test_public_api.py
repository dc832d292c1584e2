"""The public names: flat, sorted, each there and documented."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

import penstock
from penstock import compat, jobs, ops, report
from penstock.core import errors
from penstock.data import synthetic


@pytest.mark.parametrize("module", [penstock, compat, jobs, ops, report, synthetic], ids=lambda m: m.__name__)
def test_all_is_sorted_and_complete(module: ModuleType) -> None:
    assert list(module.__all__) == sorted(module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_the_first_names_are_there() -> None:
    first = {"ColumnSchema", "ColumnSelector", "Dataset", "Role", "Schema", "Workflow", "ops"}
    first |= {"Adagrad", "DLRM", "Predictor", "Store", "fit", "save_model", "slots_from_schema"}
    assert first <= set(penstock.__all__)


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert penstock.__version__ == version("penstock")


def test_dir_shows_no_stray_public_names() -> None:
    """What is public without being in `__all__` is a subpackage, which Python puts there when it is imported."""
    stray = [n for n in vars(penstock) if not n.startswith("_") and n not in penstock.__all__]
    assert [n for n in stray if not inspect.ismodule(getattr(penstock, n))] == []


@pytest.mark.parametrize("name", ops.__all__)
def test_operators_are_documented(name: str) -> None:
    assert (inspect.getdoc(getattr(ops, name)) or "").strip(), f"ops.{name} has no docstring"


def test_every_error_is_a_penstock_error() -> None:
    own = [e for e in vars(errors).values() if inspect.isclass(e) and e.__module__ == errors.__name__]
    assert own
    for error in own:
        assert issubclass(error, errors.PenstockError)
