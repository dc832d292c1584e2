"""Batches from one process to another over a socket: the trainer listens, data loaders connect.

A frame is its kind, its length and its content. A data loader introduces itself (HELLO), the trainer answers (WELCOME
or REFUSED). Every BATCH is acknowledged (TAKEN) when it lies in the trainer's bounded queue, and only a few may be
under way, so a slow trainer slows its data loaders. A data loader ends with END, or FAILED and a reason; a trainer that
wants no more says DONE, or FAILED and a reason. Whoever vanishes without a word is named in the other's error.

Nothing is believed of who has not shown the job's token: only a short HELLO is read, within a bounded time, from a
bounded number of connections. Memory is taken as bytes arrive and not as a frame announces them.
"""

from __future__ import annotations

import hmac
import json
import socket
import struct
import threading
import time
from collections.abc import Container, Sequence
from contextlib import suppress
from typing import Any

from penstock.compat.persia._message import from_bytes
from penstock.compat.persia._stream import Stream, StreamError, TrainerLostError
from penstock.compat.persia.logger import get_default_logger
from penstock.core.errors import DataError, PenstockError
from penstock.core.runtime.forks import Process
from penstock.core.runtime.threads import start_thread

PROTOCOL = 1
HELLO, WELCOME, REFUSED, BATCH, TAKEN, END, FAILED, DONE = b"HWRBTEFD"
_FRAME = struct.Struct("<4sBQ")
_MARK = b"PSTR"
_WORDS = 1 << 16  # bytes of an introduction, and of a reason
_LARGEST = dict.fromkeys((HELLO, WELCOME, REFUSED, FAILED, DONE), _WORDS) | {BATCH: 1 << 32, TAKEN: 0, END: 0}
_AT_ONCE = 1 << 24  # bytes for which memory is taken before they have arrived
_MOST_LOADERS = 1 << 16
_MOST_STRANGERS = 64  # connections that have not shown the token
_UNDER_WAY = 2  # batches sent and not yet taken
_HANDSHAKE = 30.0  # seconds for the first words
_SAY = 10.0  # seconds between words on waiting
_LINGER = 1.0  # seconds for the last ones
_BREATH = 0.05  # seconds before a connection is taken again where one could not be

Address = tuple[str, int]


def parse_address(text: str, setting: str) -> Address:
    """`host:port` as a pair.

    >>> parse_address("127.0.0.1:8000", "TRAINER_SERVICE")
    ('127.0.0.1', 8000)
    """
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise PenstockError(f"{setting} must be host:port, got {text!r}")
    return host.strip(), int(port)


def write_frame(connection: socket.socket, kind: int, content: bytes = b"") -> None:
    """Send one frame; a reason that is too long is cut."""
    if len(content) > _LARGEST[kind]:
        if kind == BATCH:
            raise DataError(f"a batch of {len(content):,} bytes is larger than {_LARGEST[kind]:,}; send fewer samples")
        content = content[: _LARGEST[kind]]
    connection.sendall(_FRAME.pack(_MARK, kind, len(content)))
    if content:
        connection.sendall(content)


def read_frame(
    connection: socket.socket, kinds: Container[int] = _LARGEST, until: float | None = None
) -> tuple[int, bytearray]:
    """The next frame.

    Args:
        connection: to read from.
        kinds: that may come.
        until: when it must be there, in `time.monotonic()`; None waits for it.

    Returns:
        Its kind and its content.

    Raises:
        DataError: what comes is no such frame.
        ConnectionError: the other end is gone.
        TimeoutError: it did not come in time.
    """
    mark, kind, length = _FRAME.unpack(_read(connection, _FRAME.size, until))
    if mark != _MARK or kind not in _LARGEST or kind not in kinds or length > _LARGEST[kind]:
        raise DataError("what came over the connection is not from a data loader or trainer of Penstock")
    return kind, _read(connection, length, until)


def _read(connection: socket.socket, size: int, until: float | None = None) -> bytearray:
    content, at = bytearray(min(size, _AT_ONCE)), 0
    while at < size:
        if at == len(content):
            content.extend(bytes(min(at, size - at)))  # twice as much, since that much has come
        if until is not None:
            if (remaining := until - time.monotonic()) <= 0:
                raise TimeoutError("timed out")
            connection.settimeout(remaining)
        with memoryview(content) as view:
            count = connection.recv_into(view[at:])
        if count == 0:
            raise ConnectionError("the connection was closed")
        at += count
    return content


def _let_last_words_arrive(connection: socket.socket) -> None:
    """Wait a moment for the other end to close: closing before what it sent is read would take back what was said."""
    connection.shutdown(socket.SHUT_WR)
    until, left = time.monotonic() + _LINGER, _AT_ONCE
    while left > 0 and (remaining := until - time.monotonic()) > 0:
        connection.settimeout(remaining)
        count = len(connection.recv(_WORDS))
        if count == 0:
            return
        left -= count


def _introduction(**about: Any) -> bytes:
    return json.dumps({"protocol": PROTOCOL, "pid": Process().number, **about}).encode()


class Server:
    """The trainer's end: takes what data loaders send into a stream."""

    def __init__(
        self, stream: Stream, address: Address, rank: int = 0, token: str = "", trainers: Sequence[Address] = ()
    ) -> None:
        self._stream, self._rank, self._token = stream, rank, token
        self._trainers = [f"{host}:{port}" for host, port in trainers]
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._strangers: dict[socket.socket, None] = {}  # oldest first
        self._closing = False
        try:
            self._socket = socket.create_server(address)
        except OSError as error:
            raise PenstockError(
                f"the trainer cannot listen on {address[0]}:{address[1]}: {error.strerror}; choose another port"
            ) from error
        self.address: Address = self._socket.getsockname()[:2]
        start_thread("accept", self._accept)

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                if self._closing or self._socket.fileno() < 0:
                    return
                time.sleep(_BREATH)  # no file is free, or who came is gone: the next one may have better luck
                continue
            self._make_room_for_strangers()
            self._strangers[connection] = None
            start_thread("receive", self._serve, connection)

    def _make_room_for_strangers(self) -> None:
        """Let go of whoever has been silent longest, so that nobody can keep data loaders out by being silent."""
        while len(self._strangers) >= _MOST_STRANGERS:
            with suppress(OSError, KeyError, StopIteration, RuntimeError):
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                oldest.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads it

    def _serve(self, connection: socket.socket) -> None:
        number = None
        with connection:
            try:
                number = self._welcome(connection)
                connection.settimeout(None)
                self._receive(connection, number)
            except Exception as error:  # whatever came over the connection, the trainer goes on
                if number is not None:
                    lost = f"it ended without finishing ({error}); its own output says why"
                    self._stream.end(number, lost if isinstance(error, OSError) else str(error))
                with suppress(OSError):
                    self._answer(connection, REFUSED, str(error).encode(errors="replace"))
                    _let_last_words_arrive(connection)
            finally:
                self._strangers.pop(connection, None)
                self._connections.pop(connection, None)

    def _welcome(self, connection: socket.socket) -> int:
        _, content = read_frame(connection, (HELLO,), time.monotonic() + _HANDSHAKE)
        connection.settimeout(_HANDSHAKE)
        hello = _decoded(content)
        token = hello.get("token")
        given = token.encode(errors="replace") if isinstance(token, str) else b""
        if not hmac.compare_digest(given, self._token.encode()):
            raise DataError("this trainer belongs to another job (its token differs)")
        if hello.get("protocol") != PROTOCOL:
            raise DataError(f"this trainer speaks protocol {PROTOCOL}, the data loader {hello.get('protocol')!r:.20}")
        self._strangers.pop(connection, None)
        number, loaders = (hello.get(name) for name in ("replica_index", "replica_size"))
        if type(number) is not int or type(loaders) is not int or not 0 <= number < loaders <= _MOST_LOADERS:
            raise DataError("the data loader does not say which of how many it is (replica_index, replica_size)")
        self._stream.open(number, f"data loader {number} (pid {hello.get('pid')!r:.20})", loaders)
        self._connections[connection] = threading.current_thread()
        self._answer(connection, WELCOME, _introduction(rank=self._rank, trainers=self._trainers))
        return number

    def _receive(self, connection: socket.socket, number: int) -> None:
        while True:
            kind, content = read_frame(connection, (BATCH, END, FAILED))
            if kind == BATCH:
                if self._stream.put(
                    number, from_bytes(content)
                ):  # else the last word has been said: read on, to the end
                    self._answer(connection, TAKEN)
            elif kind == END:
                self._stream.end(number)
                return self._answer(connection, TAKEN)
            else:
                return self._stream.end(number, content.decode(errors="replace"))

    def _answer(self, connection: socket.socket, kind: int, content: bytes = b"") -> None:
        with self._lock:
            if not self._closing:
                write_frame(connection, kind, content)

    def close(self, failure: str | None = None) -> None:
        """Stop listening; data loaders that are under way hear that training is over, or why it failed."""
        with self._lock:
            self._closing = True
            connections = dict(self._connections)
            for connection in connections:
                with suppress(OSError):
                    write_frame(connection, FAILED if failure else DONE, (failure or "").encode(errors="replace"))
                    connection.shutdown(socket.SHUT_WR)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._socket.close()
        self._stream.close()
        deadline = time.monotonic() + _LINGER
        for thread in connections.values():
            thread.join(max(0.0, deadline - time.monotonic()))


class Client:
    """A data loader's end of one connection to a trainer."""

    def __init__(self, address: Address, replica_index: int, replica_size: int, token: str, timeout: float) -> None:
        self.name = f"the trainer at {address[0]}:{address[1]}"
        self._under_way, self._done = 0, False
        self._socket = _connect(address, self.name, timeout)
        hello = _introduction(token=token, replica_index=replica_index, replica_size=replica_size)
        self._socket.settimeout(_HANDSHAKE)
        try:
            write_frame(self._socket, HELLO, hello)
            kind, content = read_frame(self._socket, (WELCOME, REFUSED, FAILED, DONE), time.monotonic() + _HANDSHAKE)
        except (OSError, DataError) as error:
            self._socket.close()
            raise StreamError(f"{self.name} did not answer: {error}") from error
        if kind != WELCOME:
            raise StreamError(f"{self.name} refused this data loader: {content.decode(errors='replace')}")
        welcome = _decoded(content)
        self.name += f" (pid {welcome.get('pid')})"
        self.trainers = _trainers_of(welcome)
        self._socket.settimeout(None)

    def send(self, content: bytes) -> bool:
        """Send a batch, waiting while the trainer is behind; False when it wants no more."""
        try:
            while self._under_way >= _UNDER_WAY:
                if not self._hear():
                    return False
            write_frame(self._socket, BATCH, content)
        except OSError as error:
            return self._last_word(error)
        self._under_way += 1
        return True

    def finish(self, failure: str | None = None) -> None:
        """End, once everything sent has been taken; or say what went wrong."""
        try:
            if failure is not None:
                self._part(failure)
            elif not self._done:
                write_frame(self._socket, END)
                self._under_way += 1
                while self._under_way and self._hear():
                    pass
        except OSError as error:
            if failure is None:
                self._last_word(error)
        finally:
            self._socket.close()

    def _part(self, failure: str) -> None:
        """Say what went wrong, and read on for a moment: closing on what was not read would take the words back."""
        write_frame(self._socket, FAILED, failure.encode(errors="replace"))
        self._socket.shutdown(socket.SHUT_WR)
        self._socket.settimeout(_LINGER)
        while self._socket.recv(1 << 16):
            pass

    def _hear(self) -> bool:
        """Read one answer; False when the trainer wants no more."""
        kind, content = read_frame(self._socket, (TAKEN, DONE, FAILED, REFUSED))
        if kind == TAKEN:
            self._under_way -= 1
            return True
        if kind == DONE:
            self._done = True
            return False
        raise TrainerLostError(f"{self.name} failed: {content.decode(errors='replace') or 'its own output says why'}")

    def _last_word(self, error: OSError) -> bool:
        """What the trainer said before the connection broke; else the error that names it."""
        with suppress(OSError):
            while self._hear():
                pass
            return False
        raise TrainerLostError(f"{self.name} is gone ({error}); its own output says why") from error


def _trainers_of(welcome: dict[str, Any]) -> list[Address]:
    """Where all trainers of the job listen, by rank, as one of them says."""
    named = welcome.get("trainers")
    return [parse_address(str(text), "a trainer's address") for text in named] if isinstance(named, list) else []


def _connect(address: Address, name: str, timeout: float) -> socket.socket:
    """Connect as soon as the trainer listens."""
    began = time.monotonic()
    say = began + _SAY
    while True:
        try:
            connection = socket.create_connection(address, timeout=_HANDSHAKE)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except OSError as error:
            if time.monotonic() > began + timeout:
                raise StreamError(f"{name} did not listen within {timeout:g} s ({error}); is it running?") from error
            if time.monotonic() > say:
                get_default_logger().info(f"waiting for {name}")
                say += _SAY
            time.sleep(0.05)


def _decoded(content: bytearray) -> dict[str, Any]:
    try:
        found = json.loads(bytes(content))
    except (ValueError, RecursionError) as error:
        raise DataError(f"an introduction that cannot be read: {error}") from error
    return found if isinstance(found, dict) else {}
