"""A process stopped before one of its file-system calls, and the power cut that drops what was not synced.

The calls are those that Python announces (`sys.addaudithook`): opening to write, making, renaming and removing files
and folders, and the exchange of names; and `os.fsync`. From the chosen call on every further one fails too, so that no
cleaning up takes place, as after `kill -9`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_WRITES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink"}
_MOST = 1 << 30


@dataclass(frozen=True)
class Rename:
    """A name that changed hands."""

    before: Path
    after: Path
    exchanged: bool
    replaced: bytes | None = None  # the file that had the name


class Stopped(BaseException):
    """The process ends here."""


class FileSystem:
    """Counts the calls made below a folder, and stops at the chosen one."""

    active: FileSystem | None = None

    def __init__(self, root: Path, stop_at: int | None = None) -> None:
        self.root, self.stop_at, self.calls = root.resolve(), stop_at, 0
        self.synced = {_inode(file): file.read_bytes() for file in _files(self.root)}
        self._counting = threading.Lock()
        self.renames: list[Rename] = []  # since their folder was last synced

    def run(self, write: Callable[[], Any]) -> bool:
        """Whether `write` came to its end."""
        install()
        FileSystem.active = self
        try:
            write()
        except Stopped:
            return False
        finally:
            FileSystem.active = None
        return True

    def step(self, path: Path | None) -> None:
        """One more call."""
        if path is not None and not _absolute(path).is_relative_to(self.root):
            return
        with self._counting:  # files are synced by several threads
            self.calls += 1
            calls = self.calls
        if self.stop_at is not None and calls > self.stop_at:
            raise Stopped

    def on_fsync(self, path: Path) -> None:
        if path.is_dir():
            self.renames = [move for move in self.renames if move.after.parent != path]
        elif path.exists():
            self.synced[_inode(path)] = path.read_bytes()

    def lose_content(self) -> None:
        """A power cut after which all names are as they were, and files hold what was last synced."""
        for file in _files(self.root):
            content = self.synced.get(_inode(file), b"")
            if file.read_bytes() != content:
                file.write_bytes(content)

    def lose_names(self) -> None:
        """A power cut after which renames are undone whose folder was not synced."""
        from penstock.core import durable

        for move in reversed(self.renames):
            if move.exchanged:
                durable.exchange(move.before, move.after)
            elif move.after.exists():
                move.after.rename(move.before)
                if move.replaced is not None:
                    move.after.write_bytes(move.replaced)


def install() -> None:
    """Listen to the calls of this process; a hook cannot be taken away again, so it sleeps while nothing is active."""
    if getattr(install, "done", False):
        return
    install.done = True  # type: ignore[attr-defined]
    sys.addaudithook(_heard)
    sync = os.fsync

    def fsync(file: int) -> None:
        watcher = FileSystem.active
        if watcher is None:
            sync(file)
            return
        path = Path(f"/proc/self/fd/{file}").readlink()
        watcher.step(path)
        sync(file)
        watcher.on_fsync(path)

    os.fsync = fsync  # type: ignore[assignment]
    from penstock.core import durable

    exchange = durable.exchange

    def exchanged(first: Path, second: Path) -> bool:
        watcher = FileSystem.active
        if watcher is None:
            return exchange(first, second)
        watcher.step(first)
        done = exchange(first, second)
        if done:
            watcher.renames.append(Rename(_absolute(first), _absolute(second), True))
        return done

    durable.exchange = exchanged


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    watcher = FileSystem.active
    if watcher is None:
        return
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, (str, bytes)) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            watcher.step(Path(os.fsdecode(path)))
    elif event in _WRITES:
        watcher.step(_named(arguments))
        if event == "os.rename":
            before, after = _absolute(arguments[0]), _absolute(arguments[1])
            replaced = after.read_bytes() if after.is_file() else None
            watcher.renames.append(Rename(before, after, False, replaced))


def _named(arguments: tuple[Any, ...]) -> Path:
    """The path that a call is about: a name, and perhaps the open folder that it is in."""
    path, last = Path(os.fsdecode(arguments[0])), arguments[-1]
    is_in_open_folder = isinstance(last, int) and last >= 0 and not path.is_absolute() and len(arguments) != 4
    return Path(f"/proc/self/fd/{last}").readlink() / path if is_in_open_folder else path


def _absolute(path: Any) -> Path:
    return Path(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100  (no file-system call while one is announced)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]


def _inode(path: Path) -> int:
    return path.stat().st_ino


def points(count: int, most: int) -> list[int]:
    """At most `most` of the numbers below `count`, spread evenly, the last ones all: that is where names change."""
    if count <= most:
        return list(range(count))
    ends = min(12, most // 2)
    spread = {round(i * (count - ends) / (most - ends)) for i in range(most - ends)}
    return sorted(spread | set(range(count - ends, count)))
