"""Checkpoints of a whole training: model, optimizer, store, position in the data, random generators.

A directory holds `step-00000050` (the dense side, an artefact with checksums) and `store-00000050` (the store's own
checkpoint, in its final place so that a restarted shard finds it, and the base of later incremental ones). The dense
side is written last and names the store's by its checksum: whatever moment a process is killed at, the newest
`step-…` folder is whole and fits its store.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from penstock.core import artefact
from penstock.core.artefact import SavedFolder
from penstock.core.bounded import check_fields, read_json
from penstock.core.errors import ArtefactError, ParameterError, PenstockError
from penstock.core.keys import SIGNATURE
from penstock.core.params import BOOL, NONE, STR, Instance, Int, check_all
from penstock.core.runtime.memory import available_memory
from penstock.core.runtime.threads import LastingPool
from penstock.data.files import is_remote
from penstock.data.scratch import Scratch
from penstock.embedding.checkpoint import CheckpointLostError, OtherBaseError, read_chain
from penstock.embedding.locks import SecondWriterError, write_lock
from penstock.embedding.protocol import is_on_host
from penstock.embedding.store import Store
from penstock.loader.base import BaseLoader
from penstock.train import distributed
from penstock.train.mirror import Mirror
from penstock.train.state import StateCopy, random_state, read_state, set_random_state

if TYPE_CHECKING:
    from penstock.train.context import TrainContext
    from penstock.train.executors.captured import CapturedExecutor

    Training: TypeAlias = TrainContext | CapturedExecutor

KIND, VERSION = "training", 1
_PATIENCE = 20.0  # seconds; the right to save ends 15 after the last sign of life of who has it
_MAPPING = Instance(dict, "a mapping")
_STEP_NAMES = {"about.json", "model.json", "model.safetensors", "training.json", "training.safetensors", SIGNATURE}
_STORE_NAMES = {"store.json", "rows", SIGNATURE}
_FIELDS = {
    "step": Int(min=0),
    "store": NONE | _MAPPING,
    "position": NONE | _MAPPING,
    "counters": _MAPPING,
    "extra": _MAPPING,
}
_COUNTERS = {"steps": Int(min=0), "rows": Int(min=0), "skipped_steps": Int(min=0), "dropped_gradients": _MAPPING}


class CheckpointSkippedWarning(UserWarning):
    """A shard died while it wrote a checkpoint beside training; the message says which."""


class Resumable(Protocol):
    """A loader that knows its position, as those of `penstock.loader` do."""

    def state_dict(self) -> dict[str, Any]:
        """Where it stands, as plain data."""

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Go on from there."""


class Checkpointer:
    """Saves and restores the state of a training: of a `TrainContext`, or of `fit`.

    Args:
        directory: where checkpoints go: a path, or a URL (s3://…, as fsspec takes it). With a URL they are written to a
            scratch folder, and copied beside training; workers on several machines must share `PENSTOCK_SCRATCH`.
        keep: how many to keep; older ones are deleted.
        full_every: every how many checkpoints the store is written whole; those between hold what changed since the
            one before.
        any_world: whether training may go on with another number of workers than it was saved with. Within an epoch it
            goes on at the same share of it, so some rows of that epoch may come twice and others not at all.
        asynchronous: whether training goes on when all is copied in memory, and a thread (of a store on Ray: every
            shard) writes it, one checkpoint at a time. A store in this process that takes more than half of the memory
            that is left is written before training goes on.
        copy_to: a URL to which a thread copies them while training goes on; where `directory` has none, they are
            fetched from there.

    >>> import tempfile
    >>> Checkpointer(tempfile.mkdtemp()).latest() is None
    True
    """

    def __init__(
        self,
        directory: str | Path,
        keep: int = 2,
        full_every: int = 1,
        any_world: bool = False,
        copy_to: str | None = None,
        asynchronous: bool = False,
    ) -> None:
        given = {"keep": keep, "full_every": full_every, "any_world": any_world, "copy_to": copy_to}
        kinds = {"keep": Int(1), "full_every": Int(1), "any_world": BOOL, "copy_to": NONE | STR, "asynchronous": BOOL}
        check_all({**given, "asynchronous": asynchronous}, kinds, "Checkpointer")
        if isinstance(directory, str) and is_remote(directory):
            self._scratch = Scratch()
            copy_to, directory = directory, self._scratch.path / "checkpoints"
        self._mirror = None if copy_to is None else Mirror(copy_to)
        self._fetched = False
        self.asynchronous, self._writer = asynchronous, LastingPool(1, "checkpoint")
        self._under_way: Future[None] | None = None
        self.directory, self.keep, self.full_every, self.any_world = Path(directory), keep, full_every, any_world
        self._base: Path | None = None
        self._since_full = 0
        self._spared: int | None = None

    def spare(self, step: int | None) -> None:
        """Keep the checkpoint of a step however old it gets.

        Args:
            step: of the checkpoint, in the place of the one that was spared before; None spares none.
        """
        self._spared = step

    def steps(self) -> list[int]:
        """The steps there are checkpoints of.

        Returns:
            In ascending order.
        """
        self._fetch()
        self._join()
        return self._steps()

    def _steps(self) -> list[int]:
        numbers = (path.name.removeprefix("step-") for path in self.directory.glob("step-*"))
        return sorted(int(number) for number in numbers if number.isdigit())

    def fetch(self) -> None:
        """Bring the checkpoints from where they are copied to, where there are none here; all workers call this.

        Raises:
            ArtefactError: they cannot be read.
        """
        if self._mirror is not None:
            self._fetch()
            self.directory = distributed.all_gather(self.directory)[0]  # a scratch folder is that of the first worker

    def _fetch(self) -> None:
        if self._mirror is None or self._fetched or distributed.rank() > 0:
            return
        self._fetched = True
        if not list(self.directory.glob("step-*")):
            self._mirror.fetch(self.directory)

    def wait(self) -> None:
        """Wait until every checkpoint is where it is copied to.

        Raises:
            ArtefactError: the newest could not be copied.
        """
        self._join()
        if self._mirror is not None:
            self._mirror.wait()

    def latest(self) -> Path | None:
        """The newest checkpoint.

        Returns:
            Its folder, or None.
        """
        steps = self.steps()
        return self._place("step", steps[-1]) if steps else None

    def _place(self, kind: str, step: int) -> Path:
        return self.directory / f"{kind}-{step:08d}"

    # Saving.

    def save(self, ctx: Training, loader: Resumable | None = None, extra: Mapping[str, Any] | None = None) -> Path:
        """Write a checkpoint of the last step; with several workers all of them call this.

        Args:
            ctx: the training.
            loader: whose position is saved; by default the one that was trained from.
            extra: plain data to save with it.

        Returns:
            The folder.

        Raises:
            ArtefactError: it cannot be written; those before are whole.
        """
        place = self._place("step", ctx.steps)
        position = _position(ctx, loader)
        self._join()
        with ctx.paused():
            generators = distributed.all_gather(random_state())
            distributed.barrier()
            if distributed.rank() == 0:
                begin = _beginning(ctx.embeddings) if self.asynchronous else None
                write = self._begin(place, ctx, position, generators, extra or {}, begin)
                if self.asynchronous and (begin is not None or not is_on_host(ctx.embeddings)):
                    self._under_way = self._writer.submit(write)
                else:
                    write()
            distributed.barrier()
        return place

    def _join(self) -> None:
        """Wait for the checkpoint that is written beside training."""
        under_way, self._under_way = self._under_way, None
        if under_way is None:
            return
        try:
            under_way.result()
        except CheckpointLostError as error:
            self._base = None
            warnings.warn(f"a checkpoint is left out: {error}", CheckpointSkippedWarning, stacklevel=4)

    def _folders(self) -> set[str]:
        """What the checkpoints there are consist of."""
        steps = self._steps()
        stores = [_chain(self._place("store", step)) for step in steps]
        return {self._place("step", step).name for step in steps}.union(*stores)

    def _begin(
        self,
        place: Path,
        ctx: Training,
        position: Any,
        generators: list[Any],
        extra: Mapping[str, Any],
        begin: Callable[..., Any] | None,
    ) -> Callable[[], None]:
        """Copy what changes when training goes on; what writes the checkpoint."""
        self.directory.mkdir(parents=True, exist_ok=True)
        states = StateCopy("model", _modules(ctx)), StateCopy("training", {**_stepping(ctx), "generators": generators})
        about = {"step": ctx.steps, "position": position, "counters": _counters(ctx), "extra": dict(extra)}
        content = json.dumps(about)  # it is plain data, or refused at once
        save_store = self._begin_store(ctx, begin)  # the last that may fail: what is begun must be finished

        def write() -> None:
            with write_lock(self.directory / "training"):
                store = save_store()
                self._clear(place, _STEP_NAMES)
                try:
                    with artefact.writing(place, KIND, VERSION, overwrite=True) as folder:
                        for state in states:
                            state.write(folder)
                        (folder / "about.json").write_text(json.dumps({**json.loads(content), "store": store}))
                except OSError as error:
                    reason = error.strerror or str(error)
                    raise ArtefactError(f"cannot write {place}: {reason}; earlier checkpoints are whole") from error
                self._prune()
                if self._mirror is not None:
                    self._mirror.send(self.directory, self._folders())

        return write

    def _clear(self, place: Path, names: set[str]) -> None:
        """Remove a checkpoint that has lost its manifest: it was passed over, and is in the way of the next one."""
        if place.is_dir() and not (place / artefact.MANIFEST).is_file() and {p.name for p in place.iterdir()} <= names:
            shutil.rmtree(place)

    def _begin_store(self, ctx: Training, begin: Callable[..., Any] | None) -> Callable[[], dict[str, str] | None]:
        """Settle what the store's checkpoint holds, where it can be written aside; what writes it, or finishes that."""
        home: Any = ctx.embeddings
        if not is_on_host(home):
            return lambda: None
        place, base = self._place("store", ctx.steps), self._base
        self._clear(place, _STORE_NAMES)
        if self.full_every == 1 or self._since_full + 1 >= self.full_every or base == place:
            base = None
        begun = None
        if begin is not None:
            begun = _save_on(base, partial(_patiently, begin), place)

        def save() -> dict[str, str]:
            if begun is None:
                _, is_based = _save_on(base, home.save, place)
            else:
                saving, is_based = begun
                saving.finish()
            self._since_full = self._since_full + 1 if is_based else 0
            self._base = place
            return {"path": place.name, "manifest": _checksum(place)}

        return save

    def _prune(self) -> None:
        """Delete what is older than the last `keep`, but not the spared one, nor the stores that others build on."""
        steps = self._steps()
        kept = {*steps[-self.keep :], *(step for step in steps if step == self._spared)}
        for step in steps:
            if step not in kept:
                shutil.rmtree(self._place("step", step), ignore_errors=True)
        needed: set[str] = set()
        for step in kept:
            needed |= _chain(self._place("store", step))
        for path in self.directory.glob("store-*"):
            if path.name not in needed:
                path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)

    # Restoring.

    def load(self, ctx: Training, loader: Resumable | None = None, path: str | Path | None = None) -> dict[str, Any]:
        """Restore the newest checkpoint that is whole, or the one at `path`.

        Args:
            ctx: the training to put back.
            loader: the loader to put back, at the batch it had come to.
            path: a checkpoint; the newest by default. One that is damaged is passed over with a warning for the one
                before.

        Returns:
            What was saved as `extra`.

        Raises:
            ArtefactError: there is none that is whole, or it belongs to another training.
        """
        self._join()
        place = Path(path) if path is not None else self._newest_whole()
        about, model, training = artefact.read(place, KIND, VERSION, _read)
        with artefact.explaining(place, KIND):
            self._restore(ctx, place, about, model, training)
        position = about["position"]
        if self.any_world and position is not None and isinstance(loader, BaseLoader):
            position = loader.share_of(position)
        _restore_position(loader, position, place)
        extra: dict[str, Any] = about["extra"]
        return extra

    def load_weights(self, ctx: Training, step: int) -> None:
        """Restore the weights of a checkpoint, and nothing else: the training stands where it stood.

        Args:
            ctx: whose model and embeddings are put back.
            step: of the checkpoint.

        Raises:
            ArtefactError: it is not there, not whole, or of another training.
        """
        self._join()
        place = self._place("step", step)
        about, model, _ = artefact.read(place, KIND, VERSION, _read)
        with artefact.explaining(place, KIND), ctx.paused():
            _restore_modules(ctx, model, place)
            self._load_store(ctx, about["store"], place)

    def _restore(
        self,
        ctx: Training,
        place: Path,
        about: Mapping[str, Any],
        model: Mapping[str, Any],
        training: Mapping[str, Any],
    ) -> None:
        _restore_modules(ctx, model, place)
        _restore_stepping(ctx, training, place)
        self._load_store(ctx, about["store"], place)
        _set_counters(ctx, about["counters"])
        ctx.position = about["position"]
        generators = training["generators"]
        set_random_state(generators[min(distributed.rank(), len(generators) - 1)])

    def _newest_whole(self) -> Path:
        """The newest checkpoint whose files are as they were written, as the first worker finds it."""
        self.fetch()
        found: Path | ArtefactError | None = self._search() if distributed.rank() == 0 else None
        found = distributed.all_gather(found)[0]
        if isinstance(found, Path):
            return found
        raise found or ArtefactError(f"{self.directory} holds no checkpoint")

    def _search(self) -> Path | ArtefactError | None:
        first: ArtefactError | None = None
        for step in reversed(self.steps()):
            place = self._place("step", step)
            try:
                artefact.read(place, KIND, VERSION, lambda folder: _check_store(folder, self.directory))
            except ArtefactError as error:
                first = first or error
                continue
            if first is not None:
                message = f"the newest checkpoint is damaged ({first}); training goes on from {place}"
                warnings.warn(message, stacklevel=4)
            return place
        return first

    def _load_store(self, ctx: Training, named: Mapping[str, str] | None, place: Path) -> None:
        home: Any = ctx.embeddings
        if not is_on_host(home):
            return
        if named is None:
            raise ArtefactError(f"{place} was saved without a store, and this training has one")
        store = place.parent / named["path"]
        if not store.exists():
            raise ArtefactError(f"{place} belongs to the store checkpoint {store}, which is not there; copy it along")
        if _checksum(store) != named["manifest"]:
            raise ArtefactError(f"{store} is not the store checkpoint that {place} was saved with")
        if distributed.rank() == 0:
            home.load(store)
        distributed.barrier()
        self._base, self._since_full = store, len(_chain(store)) - 1


def _save_on(base: Path | None, save: Callable[..., Any], place: Path) -> tuple[Any, bool]:
    """Save on a base, where there is one that can be built upon; what came of it, and whether it was built upon."""
    if base is not None:
        with suppress(OtherBaseError):  # a shard died while the last one was written: it is whole, but no base
            return save(place, overwrite=True, base=base), True
    return save(place, overwrite=True), False


def _beginning(home: Any) -> Callable[..., Any] | None:
    """How embeddings are saved beside training, where they can be, and a copy of theirs in this process has room."""
    begin: Callable[..., Any] | None = getattr(home, "begin_save", None)
    room = available_memory() if isinstance(home, Store) else None
    return None if room is not None and 2 * home.tables.bytes > room else begin


def _patiently(save: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Save, though a trainer that died while it saved has not lost the right to yet."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return save(*given, **named)
        except SecondWriterError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _modules(ctx: Training) -> dict[str, Any]:
    tables = {} if ctx.tables is None else {"tables": dict(ctx.tables.state_dict())}
    return {"model": dict(ctx.module.state_dict()), **tables}


def _restore_position(loader: Resumable | None, position: Mapping[str, Any] | None, place: Path) -> None:
    """Put the loader where it was. What its settings do not allow it says in its own words."""
    if loader is None or position is None:
        return
    try:
        state = dict(position)
        if "rank" in state:  # rank 0 saved for all: they stand at the same batch
            state["rank"] = getattr(loader, "rank", state["rank"])
        loader.load_state_dict(state)
    except PenstockError:
        raise
    except Exception as error:
        raise ArtefactError(f"{place} holds no position of a loader: {type(error).__name__}: {error}") from error


def _restore_modules(ctx: Training, state: Mapping[str, Any], place: Path) -> None:
    for name, module in {"model": ctx.module, "tables": ctx.tables}.items():
        if module is None:
            continue
        try:
            module.load_state_dict(state[name])
        except (RuntimeError, KeyError) as error:
            raise ArtefactError(f"{place} holds the weights of another {name}: {error}") from error


def _stepping(ctx: Training) -> dict[str, Any]:
    parts = {"optimizer": ctx.dense_optimizer, "scaler": ctx.grad_scaler, "scheduler": ctx.scheduler}
    return {name: None if part is None else part.state_dict() for name, part in parts.items()}


def _restore_stepping(ctx: Training, state: Mapping[str, Any], place: Path) -> None:
    parts = {"optimizer": ctx.dense_optimizer, "scaler": ctx.grad_scaler, "scheduler": ctx.scheduler}
    for name, part in parts.items():
        if (part is None) != (state[name] is None):
            had, has = ("with", "none") if part is None else ("without", "one")
            raise ArtefactError(f"{place} was saved {had} a {name}, and this training has {has}")
        if part is None:
            continue
        try:
            part.load_state_dict(state[name])
        except (ValueError, KeyError, RuntimeError) as error:
            raise ArtefactError(f"{place} holds the state of another {name}: {error}") from error


def _counters(ctx: Training) -> dict[str, Any]:
    return {"rows": ctx.rows, "skipped_steps": ctx.skipped_steps, "dropped_gradients": ctx.dropped_gradients,
            "steps": ctx.steps}  # fmt: skip


def _set_counters(ctx: Training, saved: Mapping[str, Any]) -> None:
    ctx.steps, ctx.rows, ctx.skipped_steps = saved["steps"], saved["rows"], saved["skipped_steps"]
    ctx.dropped_gradients = dict(saved["dropped_gradients"])


def _position(ctx: Training, loader: Any) -> Any:
    if ctx.position is not None or loader is None:
        return ctx.position
    if not hasattr(loader, "state_dict"):
        raise ParameterError(
            f"checkpoints need a loader that knows its position (state_dict, load_state_dict), as those of "
            f"penstock.loader do; {type(loader).__name__} does not"
        )
    return loader.state_dict()


def _read(folder: SavedFolder) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    about, model, training = _read_about(folder), read_state(folder, "model"), read_state(folder, "training")
    check_fields(model, {"model": _MAPPING}, folder.file("model.json"))
    parts = {"optimizer": NONE | _MAPPING, "scaler": NONE | _MAPPING, "scheduler": NONE | _MAPPING}
    check_fields(training, {**parts, "generators": Instance(list, "a list")}, folder.file("training.json"))
    return about, model, training


def _read_about(folder: SavedFolder) -> dict[str, Any]:
    about: dict[str, Any] = folder.json("about.json", _FIELDS)
    check_fields(about["counters"], _COUNTERS, folder.file("about.json"))
    if about["store"] is not None:
        check_fields(about["store"], {"path": STR, "manifest": STR}, folder.file("about.json"))
        artefact.check_name(about["store"]["path"], folder.file("about.json"))
    return about


def _check_store(folder: SavedFolder, directory: Path) -> None:
    """Refuse a checkpoint whose store is not there as it was saved."""
    named = _read_about(folder)["store"]
    if named is None:
        return
    store = directory / named["path"]
    if not store.exists():
        raise ArtefactError(f"{folder} belongs to the store checkpoint {store}, which is not there; copy it along")
    if _checksum(store) != named["manifest"]:
        raise ArtefactError(f"{store} is not the store checkpoint that {folder} was saved with")
    if (store / artefact.MANIFEST).is_file():
        read_chain(store, lambda chain: None)


def _checksum(saved: Path) -> str:
    """That of an artefact's manifest; of whatever else embeddings of one's own have written, that of its files."""
    if (saved / artefact.MANIFEST).is_file():
        return artefact.checksum(saved / artefact.MANIFEST)
    files = [saved] if saved.is_file() else sorted(path for path in saved.rglob("*") if path.is_file())
    parts = [f"{path.relative_to(saved.parent)} {artefact.checksum(path)}" for path in files]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _chain(store: Path) -> set[str]:
    """The names of a store checkpoint and those it builds on."""
    if not (store / "store.json").is_file():
        return {store.name} if store.exists() else set()
    names: set[str] = set()
    while (store / "store.json").is_file() and store.name not in names:
        names.add(store.name)
        try:
            base = read_json(store / "store.json", {"base": NONE | _MAPPING})["base"]
        except ArtefactError:  # damaged: nothing can build on it, and it names nothing
            break
        if base is None:
            break
        store = store.parent / Path(str(base["path"])).name
    return names
