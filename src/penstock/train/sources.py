"""What a source of batches may say of itself, beside being iterable."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Interruptible(Protocol):
    """A source that may wait for its next batch: a loop that ends calls `interrupt`, and the waiting ends."""

    def interrupt(self) -> None:
        """Let whoever waits for a batch go: iteration ends."""


@runtime_checkable
class LateSource(Protocol):
    """A source whose batches may be late, as those of a stream are: updates need not wait for them.

    Look-ups are fresher so than they would be, and their order depends on the stream.
    """

    def available(self, seconds: float) -> bool:
        """Whether the next batch (or the end) is there, now or within so many seconds."""
