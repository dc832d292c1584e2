"""Checkpoints in the directories that scripts name: `dense.pt` is the folder `dense`, embeddings are in `embedding`.

Each is an artefact: safetensors, Parquet and JSON behind checksums, in place when whole. A `dense.pt` that PERSIA wrote
is read with `torch.load(weights_only=True)`, which runs no code; its embedding files are not read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from penstock.compat.persia._config import GlobalConfig
from penstock.compat.persia._message import PersiaTrainingBatch, rows_of
from penstock.core import artefact
from penstock.core.batch import Ragged
from penstock.core.errors import ArtefactError, ParameterError
from penstock.core.runtime.threads import new_thread
from penstock.embedding.feed import FeedWriter
from penstock.embedding.feed_reader import FeedReader
from penstock.embedding.store import EmbeddingStore, Store
from penstock.train.state import read_state, write_state

KIND, VERSION = "torch-state", 1
EMBEDDINGS = "embedding"


def local_folder(directory: str | Path) -> Path:
    """The folder that a script names; PERSIA also wrote to HDFS.

    >>> local_folder("hdfs://cluster/out")
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: checkpoints are written to and read from folders of this machine (or ones that
    are mounted here), got 'hdfs://cluster/out'; copy them with hdfs dfs -put and -get
    """
    text = str(directory)
    if "://" in text:
        kind = text.partition("://")[0]
        how = "hdfs dfs -put and -get" if kind == "hdfs" else f"the tools of {kind}"
        raise ParameterError(
            f"checkpoints are written to and read from folders of this machine (or ones that are mounted here), got "
            f"{text!r}; copy them with {how}"
        )
    return Path(directory)


def place_of(directory: str | Path, file_name: str) -> Path:
    """Where the state that scripts call `file_name` lies.

    >>> place_of("out", "dense.pt").as_posix()
    'out/dense'
    """
    directory = local_folder(directory)
    path = Path(directory) / file_name
    return path.with_suffix("") if path.suffix in (".pt", ".pth", ".bin") else path.with_name(path.name + ".state")


def dump_state(holder: Any, directory: str | Path, file_name: str) -> None:
    """Write the `state_dict` of a model or optimizer."""
    place = place_of(directory, file_name)
    Path(directory).mkdir(parents=True, exist_ok=True)
    with artefact.writing(place, KIND, VERSION, overwrite=True) as folder:
        write_state(folder, "state", dict(holder.state_dict()))


def dump_script(model: torch.nn.Module, directory: str | Path, file_name: str) -> None:
    """Write a model as TorchScript, for servers that run it without Python."""
    local_folder(directory).mkdir(parents=True, exist_ok=True)
    try:
        script = torch.jit.script(model)
    except Exception as error:
        raise ParameterError(
            f"with_jit_model: torch cannot make TorchScript of {type(model).__name__}: {str(error).splitlines()[0]}"
        ) from error
    with artefact.replacing(Path(directory) / file_name) as partial:
        torch.jit.save(script, str(partial))


def load_state(holder: Any, path: str | Path, map_location: Any = None) -> bool:
    """Restore a model or optimizer from what `dump_state` wrote, or a file of PERSIA's; False if neither is there."""
    path = local_folder(path)
    place = place_of(path.parent, path.name)
    if place.is_dir() or path.is_dir():
        found = place if place.is_dir() else path
        state = artefact.read(found, KIND, VERSION, lambda folder: read_state(folder, "state"))
    elif path.is_file():
        try:
            state = torch.load(path, map_location=map_location or "cpu", weights_only=True)
        except Exception as error:
            raise ArtefactError(
                f"{path} is not a file of tensors that can be read without running code: {error}"
            ) from error
    else:
        return False
    try:
        holder.load_state_dict(state)
    except (RuntimeError, ValueError, KeyError) as error:
        raise ArtefactError(
            f"{place if place.exists() else path} holds the state of another model or optimizer: {error}"
        ) from error
    return True


def dump_given(ctx: Any, directory: str | Path, model: Any, optimizer: Any, blocking: bool) -> None:
    """A checkpoint of a model and an optimizer that the script names, as it did in 2021, and of the embeddings."""
    ctx.dump_torch_state_dict(model, directory, "dense.pt")
    if hasattr(optimizer, "state_dict"):
        ctx.dump_torch_state_dict(optimizer, directory, "opt.pt")
    ctx.dump_embedding(directory, blocking=blocking)


def load_given(ctx: Any, directory: str | Path, model: Any, optimizer: Any, blocking: bool) -> None:
    """Restore what `dump_given` wrote, or any checkpoint, into a model and an optimizer that the script names."""
    folder = local_folder(directory)
    load_state(model, folder / "dense.pt")
    if hasattr(optimizer, "state_dict"):
        load_state(optimizer, folder / "opt.pt")
    ctx.load_embedding(directory, blocking=blocking)


class Background:
    """Work that a script may wait for later; what goes wrong is raised then."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def run(self, work: Callable[[], None], blocking: bool) -> None:
        """Do it now, or begin."""
        self.wait()

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                self._error = error

        self._thread = new_thread("checkpoint", guarded, keeps_process_alive=True)
        self._thread.start()
        if blocking:
            self.wait()

    def wait(self) -> None:
        """Until it is done."""
        if self._thread is not None:
            self._thread.join()
        self._thread, error, self._error = None, self._error, None
        if error is not None:
            raise error


# Incremental updates: what training changed goes to `incremental_dir`, and those who only look up follow it.

_EVERY = 1.0  # seconds between looks for what is new


class IncrementalWriter:
    """Publishes after every `incremental_buffer_size` ids that were trained, and at the end."""

    def __init__(self, store: EmbeddingStore, config: GlobalConfig) -> None:
        if not isinstance(store, Store):
            raise ParameterError("enable_incremental_update is for embeddings in the trainer's memory, not on Ray")
        self._feed = FeedWriter(store, str(config.incremental_dir), whole_every=100)
        self._limit, self._changed = config.incremental_buffer_size, 0

    def __call__(self, batch: PersiaTrainingBatch) -> None:
        ids = batch.message.ids.values()
        self._changed += sum(len(part.values) if isinstance(part, Ragged) else rows_of(part) for part in ids)
        if self._changed >= self._limit:
            self.publish()

    def publish(self) -> None:
        """Write what has changed since the last time."""
        if self._changed:
            self._feed.publish()
            self._changed = 0

    def close(self) -> None:
        """Publish what is left and let another writer in."""
        try:
            self.publish()
        finally:
            self._feed.close()


class IncrementalReader:
    """Takes over what was published, looking once a second at most."""

    def __init__(self, store: Store, directory: str | Path) -> None:
        self._feed, self._next = FeedReader(directory, store), 0.0

    def poll(self) -> int:
        """Apply what is new."""
        if time.monotonic() < self._next:
            return 0
        self._next = time.monotonic() + _EVERY
        return self._feed.poll() if self._feed.directory.is_dir() else 0
