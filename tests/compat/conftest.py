"""What the tests of NVTabular's and Merlin's names share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.compat import activate, deactivate


@pytest.fixture
def old_names() -> Iterator[None]:
    """`import nvtabular` and `import merlin` resolve here while a test runs."""
    activate(packages=["nvtabular", "merlin"])
    yield
    deactivate()
