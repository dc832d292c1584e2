"""An artefact of large files is verified by several threads, and what is wrong is told as one thread would tell it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core import artefact
from penstock.core.errors import ArtefactError


@pytest.fixture(params=[0, 1 << 30], ids=["threads", "one thread"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(artefact, "_LARGE", request.param)
    with artefact.writing(tmp_path / "saved", kind="demo", version=1) as folder:
        for number in range(6):
            (folder / f"{number}.bin").write_bytes(bytes([number]) * 5000)
    return tmp_path / "saved"


def test_what_is_whole_is_read(place: Path) -> None:
    assert len(artefact.read(place, "demo", 1, lambda saved: saved.names())) == 6


@pytest.mark.parametrize(
    ("content", "words"), [(b"x" * 5000, "checksum differs"), (b"x", "truncated or altered"), (None, "is missing")]
)
def test_the_first_file_that_is_wrong_is_named(place: Path, content: bytes | None, words: str) -> None:
    for number in (2, 4):
        file = place / f"{number}.bin"
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)
    with pytest.raises(ArtefactError, match=rf"2\.bin .*{words}"):
        artefact.read(place, "demo", 1, lambda saved: saved.names())
