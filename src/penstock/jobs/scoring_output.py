"""Frames written one after another to one file, which appears when it is whole."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from penstock.core.artefact import replacing
from penstock.core.errors import ArtefactError, ParameterError, PenstockError
from penstock.data.formats import FORMATS, Format, FrameWriter
from penstock.data.formats.text import TextWriter

Opener = Callable[[Any], AbstractContextManager[FrameWriter]]


def writer_of(output: str | Path) -> Opener:
    """How a file of that name is written: by its suffix, or `-` for CSV on standard output.

    >>> writer_of("a.xls")
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: cannot tell the format of a.xls from its name; use .parquet, .csv, .tsv or -
    """
    if str(output) == "-":
        return _on_stdout
    suffix = Path(output).suffix.lower()
    known = [made for made in FORMATS.values() if made.can_write]
    for made in known:
        if suffix in made.suffixes:
            return partial(_in_file, made)
    use = ", ".join(made.suffixes[0] for made in known)
    raise ParameterError(f"cannot tell the format of {output} from its name; use {use} or -")


@contextmanager
def _on_stdout(_: Any) -> Iterator[FrameWriter]:
    yield TextWriter(sys.stdout, ",")
    sys.stdout.flush()


@contextmanager
def _in_file(made: Format, output: str | Path) -> Iterator[FrameWriter]:
    place = Path(output)
    if not place.parent.is_dir():
        raise ArtefactError(f"cannot write {place}: the folder {place.parent} does not exist")
    if place.is_dir():
        raise ArtefactError(f"cannot write {place}: it is a folder; name a file")
    if not os.access(place.parent, os.W_OK):
        raise ArtefactError(f"cannot write {place}: the folder {place.parent} is not writable; choose another")
    with _named(place), replacing(place) as unfinished, made.writer(unfinished) as writer:
        yield writer


@contextmanager
def _named(place: Path) -> Iterator[None]:
    """What the system refuses, with the file that was to be written."""
    try:
        yield
    except OSError as error:
        if isinstance(error, PenstockError):
            raise
        raise ArtefactError(f"cannot write {place}: {error.strerror or error}; choose another place") from error
