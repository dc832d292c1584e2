"""The examples in docstrings of modules that need a heavy framework: imported here, not while tests are collected."""

from __future__ import annotations

import doctest
import importlib

import pytest
from tests.conftest import FRAMEWORK_MODULES

from penstock.core.errors import MissingExtraError

AS_IN_PYPROJECT = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.parametrize("place", FRAMEWORK_MODULES)
def test_examples_hold(place: str) -> None:
    try:
        module = importlib.import_module(place.removesuffix(".py").replace("/", "."))
    except MissingExtraError as error:
        pytest.skip(str(error))
    done = doctest.testmod(module, optionflags=AS_IN_PYPROJECT)
    assert done.attempted and not done.failed
