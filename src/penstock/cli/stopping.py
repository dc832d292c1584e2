"""Ctrl-C and SIGTERM in the middle of a training: it ends with a checkpoint, not in the middle of a step."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any, Self

from penstock.cli.app import say

if TYPE_CHECKING:
    from penstock.jobs.events import Event


class GracefulStop:
    """Handles both signals while the block runs.

    During training the first one is kept for the job to ask for (`stop=`), and training ends behind its next record
    with a checkpoint. A second one, or one at another stage, ends the work at once (KeyboardInterrupt).
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._training = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python takes signals nowhere else
            self._before = {n: signal.signal(n, self._signalled) for n in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __call__(self) -> bool:
        """Whether training should end."""
        return self.number is not None

    def listen(self, event: Event) -> None:
        """A listener of the job."""
        from penstock.jobs.events import StageBegan, StageEnded, Trained

        match event:
            case StageBegan(name="train"):
                self._training = True
            case Trained() | StageEnded(name="train"):
                self._training = False

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that a signal ended."""
        return 128 + (self.number or signal.SIGINT)

    def _signalled(self, number: int, _: Any) -> None:
        first, self.number = self.number is None, number
        if first and self._training:
            say("stopping: a checkpoint of this step is written; once more stops at once")
        else:
            raise KeyboardInterrupt
