"""Places to write in: hidden beside the target until everything is written, gone when that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from penstock.core.claims import Claim
from penstock.core.durable import beside, is_leftover, make_folders, publish, remove, settle, sweep
from penstock.core.errors import ArtefactError, OutputExistsError
from penstock.core.file_names import check_path
from penstock.core.saved_folder import MANIFEST

SCHEMA_FILE = "_schema.json"  # what marks a folder of data
_SPARE = 20  # what staging puts around a name


@contextmanager
def staged(place: str | Path, overwrite: bool = False) -> Iterator[Path]:
    """A fresh folder beside `place` that takes its place when the block ends well, and vanishes when it does not.

    Args:
        place: what will be there is the folder as the block has left it, on the disk.
        overwrite: replace what is there now, if Penstock wrote it.

    Yields:
        The folder to write into.

    Raises:
        OutputExistsError: the place is taken.
        ArtefactError: nothing can be written there.
    """
    place = Path(place)
    if is_leftover(place.name) and place.is_dir() and not any(place.iterdir()):
        yield place  # somebody's staging: it is theirs to publish, together with the rest
        return
    with working_folder(place, overwrite) as staging:
        yield staging
        publish([(staging, place)])


@contextmanager
def staged_together(places: Sequence[Path], overwrite: bool = False) -> Iterator[list[Path]]:
    """Folders beside several places, which they take together when the block ends well: all of them, or none."""
    with ExitStack() as stack:
        folders = [stack.enter_context(working_folder(place, overwrite)) for place in places]
        yield folders
        publish(list(zip(folders, places, strict=True)))


@contextmanager
def working_folder(place: Path, overwrite: bool = False) -> Iterator[Path]:
    """A fresh folder beside `place`, claimed while the block runs and removed after it."""
    check_path(place, ArtefactError, _SPARE)
    settle(place)
    check_free(place, overwrite)
    try:
        make_folders(place.parent)
        sweep(place.parent)
        staging, claim = _claimed(place, Path.mkdir)
    except OSError as error:
        raise ArtefactError(f"cannot write to {place.parent}: {error.strerror}; choose a writable folder") from error
    with claim:
        try:
            yield staging
        finally:  # also on Ctrl-C: nothing half-written stays behind
            settle(place)  # what was promised is done before its folder goes
            remove(staging)


def _claimed(place: Path, make: Callable[[Path], None]) -> tuple[Path, Claim]:
    """A new file or folder beside `place`, and the claim that tells other writers that it is in use."""
    while True:
        staging = beside(place)
        make(staging)
        try:
            claim = Claim(staging, wait=True)  # another writer that sweeps holds it for a moment, or until it is gone
        except FileNotFoundError:  # another writer has swept it before it was claimed
            continue
        if claim.is_current():
            return staging, claim
        claim.close()


def check_free(place: Path, overwrite: bool) -> None:
    """Refuse a place that is taken, and never replace a folder that Penstock did not write."""
    if not place.exists() or (place.is_dir() and not any(place.iterdir())):
        return
    if not overwrite:
        raise OutputExistsError(f"{place} exists already; pass overwrite=True to replace it, or choose another path")
    if place.is_dir() and not any((place / mark).is_file() for mark in (MANIFEST, SCHEMA_FILE)):
        raise OutputExistsError(
            f"{place} was not written by Penstock (it has neither {SCHEMA_FILE} nor {MANIFEST}); remove it yourself, "
            f"or choose another path"
        )


@contextmanager
def replacing(file: str | Path) -> Iterator[Path]:
    """A path beside `file` to write to, renamed over it when the block ends well.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "a.yaml"
    >>> with replacing(target) as partial:
    ...     _ = partial.write_text("x: 1")
    >>> target.read_text(), len(list(target.parent.iterdir()))
    ('x: 1', 1)
    """
    file = Path(file)
    check_path(file, ArtefactError, _SPARE)
    sweep(file.parent)
    partial, claim = _claimed(file, lambda path: path.touch(exist_ok=False))
    with claim:
        try:
            yield partial
            publish([(partial, file)])
        finally:
            partial.unlink(missing_ok=True)
