"""What is set while much is imported, and that it is as it was behind it."""

from __future__ import annotations

import gc
import sys

import pytest

from penstock.core.runtime.long_imports import long_imports
from penstock.core.runtime.switching import QUICK


@pytest.fixture(autouse=True)
def as_before():
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()


@pytest.mark.parametrize("was_enabled", [True, False])
def test_no_garbage_is_looked_for_and_threads_have_the_lock_soon(was_enabled):
    (gc.enable if was_enabled else gc.disable)()
    before = sys.getswitchinterval()
    with pytest.raises(ImportError), long_imports():
        assert not gc.isenabled()
        assert sys.getswitchinterval() == pytest.approx(min(before, QUICK), rel=0.05)
        import nobody_has_this  # noqa: F401
    assert gc.isenabled() is was_enabled
    assert sys.getswitchinterval() == before
