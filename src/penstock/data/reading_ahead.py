"""Text that is going to be spilled, parsed by threads while the one that needs it does something else."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from penstock.core.progress import bar
from penstock.core.runtime.threads import new_thread
from penstock.data import tasks
from penstock.data.dataset import Dataset
from penstock.data.partition import Partition
from penstock.data.spill import SpilledPartition
from penstock.engine import Engine


class ReadingAhead:
    """Parses all of what is spilled, on an engine's threads, from `begin` until it is done or stopped.

    Whoever begins it stops it, whatever happens in between. Partitions that it has not come to are read by those who
    need them.

    Args:
        data: a data set as `spilling` gives it; of any other nothing is read.
        engine: whose threads read.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.data.spill import spilling
    >>> from penstock.engine.local import LocalEngine
    >>> file, engine = Path(tempfile.mkdtemp()) / "clicks.csv", LocalEngine(1)
    >>> _ = file.write_text("click,user\\n1,7\\n0,8\\n")
    >>> with spilling(Dataset(file), ["click", "user"], engine) as data:
    ...     reading = ReadingAhead(data, engine)
    ...     reading.begin()
    ...     reading.wait(progress=False)
    ...     reading.stop()
    ...     data.partitions[0].num_rows
    2
    """

    def __init__(self, data: Dataset, engine: Engine) -> None:
        self._parts = [part for part in data.partitions if isinstance(part, SpilledPartition)]
        self._engine = engine
        self._is_stopped = threading.Event()
        self._done: SimpleQueue[int | None] = SimpleQueue()  # rows of each partition, and None behind the last
        self._error: BaseException | None = None
        self._thread = new_thread("read", self._read)

    def begin(self) -> None:
        """Start to read."""
        if self._parts:
            self._thread.start()

    def wait(self, progress: bool | None) -> None:
        """Return once all is read; called once.

        The bar is drawn by who waits: what others print meanwhile stays whole.

        Args:
            progress: draw a bar; None draws it on a terminal.

        Raises:
            PenstockError: the text cannot be read.
        """
        if not self._parts:
            return
        with bar("read", sum(part.estimated_rows for part in self._parts), show=progress) as drawn:
            while (rows := self._done.get()) is not None:
                drawn.advance(rows)
            if self._error is not None:
                raise self._error

    def stop(self) -> None:
        """Drop what has not begun, and wait for what has; what failed in it is nobody's."""
        self._is_stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _read(self) -> None:
        try:
            for _ in self._engine.map(self._count, self._parts, self._note):
                if self._is_stopped.is_set():
                    break
        except BaseException as error:  # is raised where somebody waits
            self._error = error
        self._done.put(None)

    def _count(self, part: Partition) -> None:
        if not self._is_stopped.is_set():
            tasks.count(part)

    def _note(self, index: int) -> None:
        self._done.put(self._parts[index].estimated_rows)
