"""Checkpoints of a whole training: model, optimizer, store, position in the data, random generators.

The dense side (`step-…`) is written last and names the store's (`store-…`) by its checksum: whatever moment a process
is killed at, the newest `step-…` folder is whole and fits its store.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core import artefact
from penstock.core.errors import ArtefactError
from penstock.core.params import BOOL, NONE, STR, Int, check_all
from penstock.core.runtime.threads import LastingPool
from penstock.data.files import is_remote, local_path
from penstock.data.scratch import Scratch
from penstock.embedding.checkpoint import CheckpointLostError
from penstock.embedding.locks import write_lock
from penstock.embedding.protocol import is_on_host
from penstock.loader.base import BaseLoader
from penstock.train import checkpoint_folder, distributed, training_parts
from penstock.train.checkpoint_folder import KIND, VERSION, saved_steps, step_place
from penstock.train.checkpoint_store import StoreCheckpoints, beginning, check_store
from penstock.train.mirror import Mirror
from penstock.train.state import StateCopy, random_state, set_random_state
from penstock.train.training_parts import Resumable

if TYPE_CHECKING:
    from penstock.train.training_parts import Training


class CheckpointSkippedWarning(UserWarning):
    """A shard died while it wrote a checkpoint beside training; the message says which."""


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
            that is left is written before training goes on. In `fit`, a checkpoint that comes due while the one before
            is still being written is left out; that of the best evaluation and the last one wait for it.
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
        self._under_way: tuple[int, Future[None]] | None = None  # of which step, written by the thread
        self.directory, self.keep = Path(local_path(directory)), keep
        self.full_every, self.any_world = full_every, any_world
        self._stores = StoreCheckpoints(full_every)
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
        return saved_steps(self.directory)

    def is_writing(self) -> bool:
        """Whether a checkpoint is being written beside training.

        Returns:
            False on all workers but the first.
        """
        return self._under_way is not None and not self._under_way[1].done()

    def steps_to_be(self) -> list[int]:
        """The steps there are checkpoints of, or will be: nobody waits for the one that is being written.

        Returns:
            In ascending order.
        """
        coming = [] if self._under_way is None else [self._under_way[0]]
        return sorted({*saved_steps(self.directory), *coming})

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
        return step_place(self.directory, steps[-1]) if steps else None

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
            ArtefactError: it, or the one before, cannot be written; earlier ones are whole.
        """
        place = step_place(self.directory, ctx.steps)
        position = training_parts.position(ctx, loader)
        self._join()
        with ctx.paused():
            generators = distributed.all_gather(random_state())
            distributed.barrier()
            if distributed.rank() == 0:
                begin = beginning(ctx.embeddings) if self.asynchronous else None
                write = self._begin(place, ctx, position, generators, extra or {}, begin)
                if self.asynchronous and (begin is not None or not is_on_host(ctx.embeddings)):
                    self._under_way = ctx.steps, self._writer.submit(write)
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
            under_way[1].result()
        except CheckpointLostError as error:
            self._stores.forget_base()
            warnings.warn(f"a checkpoint is left out: {error}", CheckpointSkippedWarning, stacklevel=4)

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """A block that is left when nothing is written any more, whatever it ends with.

        Returns:
            A block.
        """
        try:
            yield
        finally:
            if self._under_way is not None:
                futures.wait([self._under_way[1]])

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
        model = training_parts.modules(ctx)
        training = {**training_parts.stepping(ctx), "generators": generators}
        states = StateCopy("model", model), StateCopy("training", training)
        counters = training_parts.counters(ctx)
        # It is plain data, or refused at once.
        content = json.dumps({"step": ctx.steps, "position": position, "counters": counters, "extra": dict(extra)})
        # The last that may fail: what is begun must be finished.
        save_store = self._stores.begin(ctx.embeddings, checkpoint_folder.store_place(self.directory, ctx.steps), begin)

        def write() -> None:
            with write_lock(self.directory / "training"):
                store = save_store()
                checkpoint_folder.clear(place, checkpoint_folder.STEP_NAMES)
                try:
                    with artefact.writing(place, KIND, VERSION, overwrite=True) as folder:
                        for state in states:
                            state.write(folder)
                        (folder / "about.json").write_text(json.dumps({**json.loads(content), "store": store}))
                except OSError as error:
                    reason = error.strerror or str(error)
                    raise ArtefactError(f"cannot write {place}: {reason}; earlier checkpoints are whole") from error
                checkpoint_folder.prune(self.directory, self.keep, self._spared)
                if self._mirror is not None:
                    self._mirror.send(self.directory, checkpoint_folder.folder_names(self.directory))

        return write

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
        about, model, training = artefact.read(place, KIND, VERSION, checkpoint_folder.read_dense)
        with artefact.explaining(place, KIND):
            training_parts.restore_modules(ctx, model, place)
            training_parts.restore_stepping(ctx, training, place)
            self._stores.load(ctx.embeddings, about["store"], place)
            training_parts.restore_counters(ctx, about["counters"])
            ctx.position = about["position"]
            generators = training["generators"]
            set_random_state(generators[min(distributed.rank(), len(generators) - 1)])
        position = about["position"]
        if self.any_world and position is not None and isinstance(loader, BaseLoader):
            position = loader.share_of(position)
        training_parts.restore_position(loader, position, place)
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
        place = step_place(self.directory, step)
        about, model, _ = artefact.read(place, KIND, VERSION, checkpoint_folder.read_dense)
        with artefact.explaining(place, KIND), ctx.paused():
            training_parts.restore_modules(ctx, model, place)
            self._stores.load(ctx.embeddings, about["store"], place)

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
            place = step_place(self.directory, step)
            try:
                artefact.read(place, KIND, VERSION, lambda folder: check_store(folder, self.directory))
            except ArtefactError as error:
                first = first or error
                continue
            if first is not None:
                message = f"the newest checkpoint is damaged ({first}); training goes on from {place}"
                warnings.warn(message, stacklevel=4)
            return place
        return first
