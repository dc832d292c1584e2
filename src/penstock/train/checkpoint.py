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
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.core import artefact
from penstock.core.errors import ArtefactError, ParameterError
from penstock.core.params import Int, check_all
from penstock.embedding.locks import write_lock
from penstock.embedding.protocol import is_on_host
from penstock.train import distributed
from penstock.train.state import random_state, read_state, set_random_state, write_state

if TYPE_CHECKING:
    from penstock.train.context import TrainContext
    from penstock.train.executors.captured import CapturedExecutor

    Training: TypeAlias = TrainContext | CapturedExecutor

KIND, VERSION = "training", 1


class Checkpointer:
    """Saves and restores the state of a training: of a `TrainContext`, or of `fit`.

    Args:
        directory: where checkpoints go.
        keep: how many to keep; older ones are deleted.
        full_every: every how many checkpoints the store is written whole; those between hold what changed since the
            one before.

    >>> import tempfile
    >>> Checkpointer(tempfile.mkdtemp()).latest() is None
    True
    """

    def __init__(self, directory: str | Path, keep: int = 2, full_every: int = 1) -> None:
        check_all({"keep": keep, "full_every": full_every}, {"keep": Int(1), "full_every": Int(1)}, "Checkpointer")
        self.directory, self.keep, self.full_every = Path(directory), keep, full_every
        self._base: Path | None = None
        self._since_full = 0

    def steps(self) -> list[int]:
        """The steps there are checkpoints of."""
        numbers = (path.name.removeprefix("step-") for path in self.directory.glob("step-*"))
        return sorted(int(number) for number in numbers if number.isdigit())

    def latest(self) -> Path | None:
        """The newest checkpoint."""
        steps = self.steps()
        return self._place("step", steps[-1]) if steps else None

    def _place(self, kind: str, step: int) -> Path:
        return self.directory / f"{kind}-{step:08d}"

    # Saving.

    def save(self, ctx: Training, loader: Any = None, extra: Mapping[str, Any] | None = None) -> Path:
        """Write a checkpoint of the last step; with several workers all of them call this."""
        place = self._place("step", ctx.steps)
        position = _position(ctx, loader)
        with ctx.paused():
            generators = distributed.all_gather(random_state())
            distributed.barrier()
            if distributed.rank() == 0:
                self._save(place, ctx, position, generators, extra or {})
            distributed.barrier()
        return place

    def _save(self, place: Path, ctx: Training, position: Any, generators: list, extra: Mapping[str, Any]) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        with write_lock(self.directory / "training"):
            store = self._save_store(ctx)
            try:
                with artefact.writing(place, KIND, VERSION, overwrite=True) as folder:
                    write_state(folder, "model", _modules(ctx))
                    write_state(folder, "training", {**_stepping(ctx), "generators": generators})
                    about = {"step": ctx.steps, "store": store, "position": position, "counters": _counters(ctx)}
                    (folder / "about.json").write_text(json.dumps({**about, "extra": dict(extra)}))
            except OSError as error:
                reason = error.strerror or str(error)
                raise ArtefactError(f"cannot write {place}: {reason}; earlier checkpoints are whole") from error
            self._prune()

    def _save_store(self, ctx: Training) -> dict[str, str] | None:
        if not is_on_host(ctx.embeddings):
            return None
        place = self._place("store", ctx.steps)
        whole = self._base is None or self._since_full + 1 >= self.full_every or self._base == place
        if self.full_every == 1 or whole:
            ctx.embeddings.save(place, overwrite=True)
            self._since_full = 0
        else:
            ctx.embeddings.save(place, overwrite=True, base=self._base)
            self._since_full += 1
        self._base = place
        return {"path": place.name, "manifest": _checksum(place)}

    def _prune(self) -> None:
        """Delete what is older than the last `keep`, but not the stores that later ones build on."""
        steps = self.steps()
        for step in steps[: -self.keep]:
            shutil.rmtree(self._place("step", step), ignore_errors=True)
        needed: set[str] = set()
        for step in steps[-self.keep :]:
            needed |= _chain(self._place("store", step))
        for path in self.directory.glob("store-*"):
            if path.name not in needed:
                path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
        for path in self.directory.glob(".*.partial"):  # of a process that was killed while it wrote
            shutil.rmtree(path, ignore_errors=True)

    # Restoring.

    def load(self, ctx: Training, loader: Any = None, path: str | Path | None = None) -> dict[str, Any]:
        """Restore the newest checkpoint (or the one at `path`); what was saved as `extra`."""
        place = Path(path) if path is not None else self.latest()
        if place is None:
            raise ArtefactError(f"{self.directory} holds no checkpoint")
        folder = artefact.verified(place, KIND, VERSION)
        about = _read_about(folder)
        _restore_modules(ctx, read_state(folder, "model"), place)
        training = read_state(folder, "training")
        _restore_stepping(ctx, training, place)
        self._load_store(ctx, about["store"], place)
        if loader is not None and about["position"] is not None:
            state = dict(about["position"])
            if "rank" in state:  # rank 0 saved for all: they stand at the same batch
                state["rank"] = getattr(loader, "rank", state["rank"])
            loader.load_state_dict(state)
        _set_counters(ctx, about["counters"])
        ctx.position = about["position"]
        generators = training["generators"]
        set_random_state(generators[min(distributed.rank(), len(generators) - 1)])
        return about["extra"]

    def _load_store(self, ctx: Training, named: Mapping[str, str] | None, place: Path) -> None:
        if not is_on_host(ctx.embeddings):
            return
        if named is None:
            raise ArtefactError(f"{place} was saved without a store, and this training has one")
        store = place.parent / named["path"]
        if not store.exists():
            raise ArtefactError(f"{place} belongs to the store checkpoint {store}, which is not there; copy it along")
        if _checksum(store) != named["manifest"]:
            raise ArtefactError(f"{store} is not the store checkpoint that {place} was saved with")
        if distributed.rank() == 0:
            ctx.embeddings.load(store)
        distributed.barrier()
        self._base, self._since_full = store, len(_chain(store)) - 1


def _modules(ctx: Training) -> dict[str, Any]:
    tables = {} if ctx.tables is None else {"tables": dict(ctx.tables.state_dict())}
    return {"model": dict(ctx.module.state_dict()), **tables}


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


def _read_about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / "about.json").read_text())
        about["step"], about["store"], about["position"], about["counters"], about["extra"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(f"{folder / 'about.json'} does not describe a training: {error}") from error
    return about


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
        base = json.loads((store / "store.json").read_text()).get("base")
        if base is None:
            break
        store = store.parent / Path(base["path"]).name
    return names
