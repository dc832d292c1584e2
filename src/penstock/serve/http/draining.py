"""What a client goes on sending although it was refused: thrown away, so that it comes to its answer."""

from __future__ import annotations

import asyncio
import os
import socket

from penstock.serve.http.turns import Turns

_SECONDS = 0.01  # between two reads: no hurry, and who attacks without rest waits meanwhile
_UNREAD = bytearray(1 << 20)  # taken at once; on Linux nothing is copied into it
_FLAGS = getattr(socket, "MSG_TRUNC", 0)


class Drain:
    """Reads from a connection that nobody else reads from any more, and keeps nothing of it.

    Closed at once, the answer would be lost to a client that is still sending: it would see a reset.

    Args:
        transport: whose reading rests.
        turns: each read is one.
    """

    def __init__(self, transport: asyncio.Transport, turns: Turns) -> None:
        self._transport, self._turns, self._loop = transport, turns, asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()  # when the client has stopped
        self._later()

    def close(self) -> None:
        """Read no more."""
        if not self.ended.done():
            self.ended.set_result(None)

    def _later(self) -> None:
        self._loop.call_later(_SECONDS, self._turns.add, self)

    def work(self) -> bool:
        """Read once; more of it is another turn's, later."""
        self._read()
        return True

    def _read(self) -> None:
        if self.ended.done() or self._transport.is_closing():
            self.close()
            return
        line: socket.socket = self._transport.get_extra_info("socket")
        try:
            with socket.socket(line.family, line.type, fileno=os.dup(line.fileno())) as own:
                own.setblocking(False)
                if own.recv_into(_UNREAD, 0, _FLAGS) == 0:
                    self.close()
                    return
        except BlockingIOError:
            pass  # nothing has come meanwhile
        except OSError:
            self.close()
            return
        self._later()
