"""Pages, recipes and figures as files of text, where a person asked for them."""

from __future__ import annotations

from pathlib import Path

from penstock.core.artefact import replacing
from penstock.core.errors import ArtefactError


def write_text(output: str | Path, text: str) -> None:
    """Text at its place, in one step; folders on the way are made.

    Args:
        output: the file.
        text: what is in it then.

    Raises:
        ArtefactError: it cannot be written there.
    """
    place = Path(output)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as partial:
            partial.write_text(text, encoding="utf-8", errors="backslashreplace")  # halves of characters
    except OSError as error:
        raise ArtefactError(f"{place} cannot be written: {error.strerror or error}; choose another output") from error
