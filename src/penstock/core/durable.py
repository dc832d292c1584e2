"""What takes a name takes it in one step, and is on the disk before: whatever moment a process or a machine stops at.

A name changes hands by one rename, or by one exchange of two names where something is there already. Where that takes
several steps (a file system that cannot exchange names, two folders that belong together), the steps are written to a
*journal* beside the place first, and whoever opens the place next finishes them (`settle`).

>>> import tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> for name in ("old", "new"):
...     (folder / name).mkdir()
...     _ = (folder / name / "a.txt").write_text(name)
>>> publish([(folder / "new", folder / "old")])
>>> [p.name for p in folder.iterdir()], (folder / "old" / "a.txt").read_text()
(['old'], 'new')
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.core.claims import Claim
from penstock.core.plain_files import open_plain
from penstock.core.runtime.threads import thread_pool

_EXCHANGE, _HERE = 2, -100  # RENAME_EXCHANGE and AT_FDCWD of linux/fs.h and fcntl.h
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)
_STAGING = re.compile(r"\..+\.[0-9a-f]{8}\.(partial|old)")
_MOST_JOURNAL = 1 << 16
_AT_ONCE = 8  # files that are synced together
Moves = Sequence[tuple[Path, Path]]


def beside(place: Path, suffix: str = "partial") -> Path:
    """A hidden name of its own beside `place`, which `sweep` knows as a leftover once its writer is dead."""
    return place.parent / f".{place.name}.{uuid.uuid4().hex[:8]}.{suffix}"


def is_leftover(name: str) -> bool:
    """Whether a file of this name is what a writer works in until it is done.

    >>> is_leftover(".model.0123abcd.partial"), is_leftover(".model.partial")
    (True, False)
    """
    return _STAGING.fullmatch(name) is not None


# To the disk.


def sync_file(path: Path) -> None:
    """Wait until a file's content is on the disk."""
    _sync(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk; systems that cannot open folders keep them by themselves."""
    if os.name != "nt":
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def sync_tree(path: Path) -> None:
    """Wait until a file, or a folder with all that is in it, is on the disk."""
    if not path.is_dir():
        sync_file(path)
        return
    waits: list[tuple[Callable[[Path], None], Path]] = []
    for folder, _, names in os.walk(path):
        waits += [(sync_file, Path(folder, name)) for name in names]
        waits.append((sync_folder, Path(folder)))
    # Nobody knows the tree yet, so the order is free, and many at once take a disk hardly longer than one.
    with thread_pool(_AT_ONCE, "sync") as pool:
        try:
            waiting = [pool.submit(wait, place) for wait, place in waits] if len(waits) > 2 else []
        except RuntimeError:  # the interpreter is ending, and starts no more threads
            waiting = []
        for done in waiting:
            done.result()
    if not waiting:
        for wait, place in waits:
            wait(place)


def _sync(path: Path, flags: int) -> None:
    file = os.open(path, flags)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in _CANNOT:  # some network file systems do not sync folders
            raise
    finally:
        os.close(file)


def make_folders(folder: Path) -> None:
    """Make a folder and those above it, the new names on the disk."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        sync_folder(path.parent)


# Names that change hands.


def publish(moves: Moves) -> None:
    """Let each `(staging, place)` of `moves` take its place, all of them or none, what was there before removed."""
    for staging, _ in moves:
        sync_tree(staging)
    if len(moves) == 1 and move(*moves[0]):
        sync_folder(moves[0][1].parent)
    else:
        _publish_by_journal(moves)
    for staging, place in moves:
        remove(staging)  # an exchange has left there what was at `place`
        sync_folder(place.parent)


def move(staging: Path, place: Path) -> bool:
    """Rename `staging` to `place` in one step, whatever is there; False where the file system cannot."""
    if not os.path.lexists(place) or (place.is_file() and staging.is_file()):
        staging.replace(place)
        return True
    return exchange(staging, place)


def exchange(first: Path, second: Path) -> bool:
    """Swap two names in one step; False where the system or the file system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # not Linux, or a C library without it
        return False
    if rename(_HERE, os.fsencode(first), _HERE, os.fsencode(second), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), str(first), None, str(second))


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there and nobody works in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


# Journals.


def _journal_of(place: Path) -> Path:
    return place.parent / f".{place.name}.journal"


def _publish_by_journal(moves: Moves) -> None:
    """Write down what will be done, do it, and cross it out. The first place's journal decides; the others name it."""
    first, *others = (_journal_of(place) for _, place in moves)
    for journal in others:
        _write_journal(journal, {"journal": 1, "see": os.path.relpath(first, journal.parent)})
    steps = [
        {
            "staging": os.path.relpath(staging, first.parent),
            "place": os.path.relpath(place, first.parent),
            "inode": staging.stat().st_ino,
        }
        for staging, place in moves
    ]
    _write_journal(first, {"journal": 1, "moves": steps})  # from here on it will happen
    settle(moves[0][1])
    for journal in others:
        journal.unlink(missing_ok=True)


def _write_journal(journal: Path, content: dict[str, object]) -> None:
    partial = beside(journal)
    partial.write_text(json.dumps(content))
    sync_file(partial)
    partial.replace(journal)
    sync_folder(journal.parent)


def settle(place: str | Path) -> None:
    """Finish what a writer that was stopped had begun to put at `place`."""
    journal = _journal_of(Path(place))
    while journal.exists():
        try:
            claim = Claim(journal, wait=True)
        except FileNotFoundError:  # somebody finished it meanwhile
            return
        with claim:
            if not claim.is_current():
                continue
            content = _read_journal(journal)
            if "see" not in content:
                _finish(journal, content.get("moves"))
                return
        named = journal.parent / str(content["see"])
        if named.name.endswith(".journal") and named.exists() and "moves" in _read_journal(named):
            settle(named.parent / named.name.removeprefix(".").removesuffix(".journal"))
        return


def _read_journal(journal: Path) -> dict[str, object]:
    try:
        with open_plain(journal) as file:
            found = json.loads(file.read(_MOST_JOURNAL))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _finish(journal: Path, moves: object) -> None:
    """Do the moves that are still to be done: a folder keeps its inode when it is renamed, which tells."""
    for step in moves if isinstance(moves, list) else ():
        try:
            staging, place = (journal.parent / str(step[key]) for key in ("staging", "place"))
            inode = int(step["inode"])
        except (TypeError, KeyError, ValueError):
            continue
        if staging.parent != place.parent or not is_leftover(staging.name):
            continue  # no writer of ours moves anything else
        if _inode(place) == inode or _inode(staging) != inode:
            continue
        if not move(staging, place):
            old = beside(place, "old")
            place.replace(old)
            staging.replace(place)
            remove(old)
        sync_folder(place.parent)
    journal.unlink(missing_ok=True)
    sync_folder(journal.parent)


def _inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except OSError:
        return None


def sweep(folder: Path) -> None:
    """Remove what writers that are dead have left in a folder: a live one holds a claim on what it works in."""
    try:
        with os.scandir(folder) as found:
            names = sorted(entry.name for entry in found if entry.name.startswith("."))
    except OSError:
        return
    for name in names:
        if name.endswith(".journal"):
            settle(folder / name.removeprefix(".").removesuffix(".journal"))
    for name in filter(is_leftover, names):
        _remove_if_dead(folder / name)


def _remove_if_dead(path: Path) -> None:
    try:
        if hasattr(os, "getuid") and path.lstat().st_uid != os.getuid():
            return
        with Claim(path) as claim:
            if claim.held:
                remove(path)
    except OSError:  # gone meanwhile, or not ours to touch
        return
