"""What the tests of NVTabular's and Merlin's names share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.compat import activate, deactivate


@pytest.fixture(autouse=True)
def elsewhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old code leaves vocabularies in the working directory, so that is a folder of its own."""
    monkeypatch.chdir(tmp_path_factory.mktemp("work"))


@pytest.fixture
def old_names() -> Iterator[None]:
    """`import nvtabular` and `import merlin` resolve here while a test runs."""
    activate(packages=["nvtabular", "merlin"])
    yield
    deactivate()
