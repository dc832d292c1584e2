"""The socket between PERSIA's data loaders and trainers against strangers: nothing is believed before the token."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import numpy as np
import pytest

from penstock.compat.persia import _sockets
from penstock.compat.persia._message import Message, from_bytes, to_bytes
from penstock.compat.persia._sockets import BATCH, END, HELLO, Client, Server
from penstock.compat.persia._stream import Stream, StreamError
from penstock.core.errors import DataError

FRAME = struct.Struct("<4sBQ")
SEED = 20261116
GOOD = {"protocol": 1, "pid": 1, "token": "secret", "replica_index": 0, "replica_size": 1}


@pytest.fixture
def stream() -> Stream:
    return Stream(capacity=3)


@pytest.fixture
def server(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    failures: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    made = Server(stream, ("127.0.0.1", 0), token="secret")
    yield made
    made.close()
    assert failures == [], "a thread of the trainer died"


def frame(kind: int, content: bytes = b"", length: int | None = None, mark: bytes = b"PSTR") -> bytes:
    return FRAME.pack(mark, kind, len(content) if length is None else length) + content


def hello(**changes: object) -> bytes:
    return frame(HELLO, json.dumps({**GOOD, **changes}).encode())


def attack(server: Server, data: bytes, ends: bool = True) -> bytes:
    """Send bytes; what the trainer says to them until it closes."""
    parts = []
    with socket.create_connection(server.address, timeout=300) as line, suppress(ConnectionError):
        line.sendall(data)
        if ends:
            with suppress(OSError):  # it may have closed already
                line.shutdown(socket.SHUT_WR)
        while part := line.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def batch_arrives(stream: Stream, server: Server) -> None:
    """An honest data loader comes through."""
    connection = Client(server.address, 0, 1, "secret", timeout=300.0)
    connection.send(to_bytes(Message({"user": np.array([7], np.uint64)})))
    found = stream.reader().get(300.0)
    assert found.ids["user"].tolist() == [7]
    threading.Thread(target=connection.finish, daemon=True).start()
    assert stream.reader().get(300.0) is None


@pytest.mark.parametrize("length", [(1 << 16) + 1, 1 << 32, (1 << 64) - 1])
def test_a_long_hello_is_refused_before_any_of_it_is_read(stream, server, length) -> None:
    answer = attack(server, frame(HELLO, b"{}  ", length), ends=False)  # and the connection stays open
    assert b"not from a data loader" in answer
    batch_arrives(stream, server)


@pytest.mark.parametrize("kind", [BATCH, END, 0, 255])
def test_nothing_but_a_hello_comes_first(stream, server, kind) -> None:
    assert b"not from a data loader" in attack(server, frame(kind, b"x", 1 << 31), ends=False)
    batch_arrives(stream, server)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", b"cannot be read"),
        (b"[" * 60_000, b"cannot be read"),
        (b"\xff\xfe", b"cannot be read"),
        (b"[]", b"another job"),
        (b'{"token": 7}', b"another job"),
        (b'{"token": "\\ud800"}', b"another job"),
        (b'{"token": "secre"}', b"another job"),
        (b'{"token": "secret"}', b"speaks protocol 1"),
        *((json.dumps({**GOOD, **changes}).encode(), b"which of how many") for changes in (
            {"replica_index": -1}, {"replica_index": 1}, {"replica_index": "0"}, {"replica_size": None},
            {"replica_index": 2**60, "replica_size": 2**61}, {"replica_index": True}, {"replica_size": 1e300},
        )),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_introduction_is_said(stream, server, content, words) -> None:
    assert words in attack(server, frame(HELLO, content))
    batch_arrives(stream, server)


def test_the_silent_keep_nobody_out(stream, server) -> None:
    with ExitStack() as stack:
        lines = [stack.enter_context(socket.create_connection(server.address, timeout=300)) for _ in range(150)]
        for line in lines[::2]:
            with suppress(OSError):
                line.sendall(hello()[:10])
        batch_arrives(stream, server)
        assert len(server._strangers) <= 64


def test_a_hello_that_trickles_is_cut_off(server, monkeypatch) -> None:
    monkeypatch.setattr(_sockets, "_HANDSHAKE", 0.5)
    with socket.create_connection(server.address, timeout=300) as line, pytest.raises(OSError):
        for byte in hello() + b" " * 1000:
            line.sendall(bytes([byte]))
            time.sleep(0.02)


def test_memory_is_taken_as_bytes_arrive(monkeypatch) -> None:
    monkeypatch.setattr(_sockets, "_AT_ONCE", 1 << 10)
    ours, theirs = socket.socketpair()
    content = np.random.default_rng(SEED).bytes(1_000_003)
    with ours, theirs:
        threading.Thread(target=ours.sendall, args=(frame(BATCH, content),), daemon=True).start()
        kind, found = _sockets.read_frame(theirs)
        assert kind == BATCH and bytes(found) == content


def test_a_trainer_that_is_none_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            line, _ = listener.accept()
            with line:
                line.sendall(frame(HELLO, b"", 1 << 40))
                line.recv(1000)

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(StreamError, match="did not answer: what came over the connection is not from"):
            Client(listener.getsockname()[:2], 0, 1, "", timeout=300.0)


def _mutated(rng: random.Random, good: bytes) -> bytes:
    data = bytearray(good)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data))
        if rng.random() < 0.7:
            data[at] = rng.randrange(256)
        else:
            data[at : at + rng.randint(0, 9)] = rng.randbytes(rng.randint(0, 9))
    return bytes(data)


def _resealed(data: bytes) -> bytes:
    """Make length and checksum of a batch fit, so that its description is what is looked at."""
    if len(data) < 28:
        return data
    head = struct.pack("<8sIIQ", b"\x93PSBATCH", 1, zlib.crc32(data[24:]), len(data))
    return head + data[24:]


def _fuzz(stream: Stream, server: Server, tries: int) -> None:
    print(f"seed {SEED}, {tries} tries")
    parts = Message({"user": np.arange(5, dtype=np.uint64)}, meta=b"words")
    batch = to_bytes(parts)
    for number in range(tries):
        rng = random.Random(SEED + number)
        forged = _resealed(_mutated(rng, batch))
        with suppress(DataError):
            from_bytes(forged)
        if number % 3 == 0:
            attack(server, _mutated(rng, hello(token="guess") + frame(BATCH, batch) + frame(END)))
        if number % 50 == 0:
            reader = stream.reader()
            with suppress(StreamError):  # a loader that sends nonsense is named; the stream can be used again
                attack(server, hello() + frame(BATCH, forged) + frame(END))
                while reader.get(300.0) is not None:
                    pass
    batch_arrives(stream, server)


def test_random_bytes(stream, server) -> None:
    _fuzz(stream, server, 300)


@pytest.mark.slow
def test_random_bytes_at_length(stream, server) -> None:
    _fuzz(stream, server, 20_000)
