"""Between data loaders and a trainer: bounded queues, sockets, and what happens when one of them dies."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from penstock.compat.persia import _sockets
from penstock.compat.persia._message import Message, to_bytes
from penstock.compat.persia._sockets import Client, Server
from penstock.compat.persia._stream import Stream, StreamError, StreamTimeout
from penstock.compat.persia.data import FixedOrder, StreamSource
from penstock.core.errors import PenstockError
from penstock.train.store_thread import StoreThread


def message(number: int) -> Message:
    return Message({"user": np.array([number], np.uint64)})


def number_of(found: Message) -> int:
    return int(found.ids["user"][0])  # type: ignore[index]


@pytest.fixture
def stream() -> Stream:
    return Stream(capacity=3)


@pytest.fixture
def server(stream: Stream) -> Iterator[Server]:
    made = Server(stream, ("127.0.0.1", 0), token="secret")
    yield made
    made.close()


def client(server: Server, index: int = 0, size: int = 1, token: str = "secret") -> Client:
    return Client(server.address, index, size, token, timeout=300.0)


class TestStream:
    def test_who_is_ahead_waits(self, stream: Stream) -> None:
        stream.open(0, "loader")
        sent: list[int] = []

        def send() -> None:
            for number in range(8):
                stream.put(0, number)
                sent.append(number)
            stream.end(0)

        thread = threading.Thread(target=send)
        thread.start()
        while len(sent) < 3:
            time.sleep(0.001)
        time.sleep(0.1)
        assert len(sent) == 3  # no more than there is room for
        reader = stream.reader()
        assert [reader.get(300.0) for _ in range(9)] == [*range(8), None]
        thread.join()

    def test_in_turns_the_order_does_not_depend_on_who_is_faster(self, stream: Stream) -> None:
        for loader in (1, 0):
            stream.open(loader, f"loader {loader}", loaders=2)
        for batch in range(3):
            stream.put(1, f"1.{batch}")
        reader = stream.reader(in_turns=True)
        threading.Timer(0.1, lambda: [stream.put(0, f"0.{batch}") for batch in range(2)]).start()
        assert [reader.get(300.0) for _ in range(4)] == ["0.0", "1.0", "0.1", "1.1"]
        stream.end(0)
        assert reader.get(300.0) == "1.2"
        stream.end(1)
        assert reader.get(300.0) is None

    def test_it_does_not_end_before_all_loaders_have_come(self, stream: Stream) -> None:
        stream.open(0, "loader 0", loaders=2)
        stream.end(0)
        with pytest.raises(StreamTimeout, match=r"no batch came within 0\.1 s"):
            stream.reader().get(0.1)

    def test_a_failure_is_named_behind_what_had_arrived(self, stream: Stream) -> None:
        stream.open(0, "data loader 0")
        stream.put(0, "batch")
        stream.end(0, "ValueError: no such file")
        reader = stream.reader()
        assert reader.get(300.0) == "batch"
        with pytest.raises(StreamError, match="data loader 0 failed: ValueError: no such file"):
            reader.get(1.0)

    def test_two_of_one_number_are_refused(self, stream: Stream) -> None:
        stream.open(0, "data loader 0")
        with pytest.raises(StreamError, match="connected already"):
            stream.open(0, "data loader 0")

    def test_sending_all_before_training_is_an_error_and_no_deadlock(self, stream: Stream) -> None:
        stream.open(0, "me", thread=threading.main_thread())
        with pytest.raises(StreamError, match="nothing in this process trains on them"):
            for number in range(4):
                stream.put(0, number)

    def test_sending_between_two_loops_is_no_deadlock_either(self, stream: Stream) -> None:
        stream.reader()
        stream.open(0, "me", thread=threading.current_thread())
        with pytest.raises(StreamError, match="nothing in this process trains on them"):
            for number in range(4):
                stream.put(0, number)

    def test_a_reader_can_be_interrupted(self, stream: Stream) -> None:
        reader = stream.reader()
        threading.Timer(0.1, reader.interrupt).start()
        assert reader.get(300.0) is None


class TestSockets:
    def test_batches_arrive_in_order_and_the_end_is_the_end(self, stream: Stream, server: Server) -> None:
        def send() -> None:
            connection = client(server)
            for number in range(20):
                assert connection.send(to_bytes(message(number)))
            connection.finish()

        thread = threading.Thread(target=send)
        thread.start()
        reader, found = stream.reader(), []
        while (batch := reader.get(300.0)) is not None:
            found.append(number_of(batch))
        thread.join()
        assert found == list(range(20))

    def test_a_slow_trainer_slows_its_data_loader(self, stream: Stream, server: Server) -> None:
        sent: list[int] = []

        def send() -> None:
            connection = client(server)
            for number in range(30):
                connection.send(to_bytes(message(number)))
                sent.append(number)
            connection.finish()

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        time.sleep(0.5)
        assert len(sent) <= 3 + 3  # in the queue, and on their way
        reader = stream.reader()
        while reader.get(300.0) is not None:
            pass
        thread.join(300.0)
        assert len(sent) == 30

    def test_a_data_loader_that_vanishes_is_named(self, stream: Stream, server: Server) -> None:
        connection = client(server, index=0)
        connection.send(to_bytes(message(1)))
        reader = stream.reader()
        assert number_of(reader.get(300.0)) == 1
        connection._socket.close()
        with pytest.raises(StreamError, match=rf"data loader 0 \(pid {os.getpid()}\) failed: it ended without"):
            reader.get(300.0)

    def test_a_data_loader_that_is_killed_is_named(self, stream: Stream, server: Server) -> None:
        code = (
            "import sys, time\nfrom penstock.compat.persia._sockets import Client\n"
            f"Client(('127.0.0.1', {server.address[1]}), 0, 1, 'secret', 300.0)\n"
            "print('there', flush=True)\ntime.sleep(600)"
        )
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None and child.stdout.readline() == "there\n"
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        with pytest.raises(StreamError, match=rf"data loader 0 \(pid {child.pid}\) failed"):
            stream.reader().get(300.0)

    def test_a_trainer_that_vanishes_is_named(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))

        def vanish() -> None:
            connection, _ = listener.accept()
            _sockets.read_frame(connection)
            _sockets.write_frame(connection, _sockets.WELCOME, b'{"pid": 4711}')
            connection.close()

        threading.Thread(target=vanish, daemon=True).start()
        connection = Client(listener.getsockname()[:2], 0, 1, "", timeout=300.0)
        with pytest.raises(StreamError, match=r"the trainer at 127.0.0.1:\d+ \(pid 4711\) is gone"):
            for number in range(100):
                connection.send(to_bytes(message(number)))
        listener.close()

    def test_a_trainer_that_has_enough_says_so(self, stream: Stream, server: Server) -> None:
        connection = client(server)
        assert connection.send(to_bytes(message(0)))
        server.close()
        assert not all(connection.send(to_bytes(message(number))) for number in range(50))

    def test_a_trainer_that_fails_says_why(self, stream: Stream, server: Server) -> None:
        connection = client(server)
        assert connection.send(to_bytes(message(0)))
        server.close("RuntimeError: out of memory")
        with pytest.raises(StreamError, match="failed: RuntimeError: out of memory"):
            for number in range(50):
                connection.send(to_bytes(message(number)))

    def test_no_trainer_is_named(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            address = probe.getsockname()[:2]
        with pytest.raises(StreamError, match=rf"the trainer at 127.0.0.1:{address[1]} did not listen within 0.2 s"):
            Client(address, 0, 1, "", timeout=0.2)

    def test_a_port_that_is_taken_is_named(self, stream: Stream, server: Server) -> None:
        with pytest.raises(PenstockError, match=f"cannot listen on 127.0.0.1:{server.address[1]}"):
            Server(stream, server.address)

    def test_a_stranger_is_refused(self, server: Server) -> None:
        with pytest.raises(StreamError, match="refused this data loader: this trainer belongs to another job"):
            client(server, token="other")

    def test_the_same_number_twice_is_refused(self, server: Server) -> None:
        first = client(server)
        with pytest.raises(StreamError, match="two data loaders have the number 0"):
            client(server)
        first.finish()

    def test_bytes_that_are_no_frames_are_refused(self, stream: Stream, server: Server) -> None:
        with socket.create_connection(server.address) as raw:
            raw.sendall(b"GET / HTTP/1.")
            raw.settimeout(5.0)
            assert b"not from a data loader" in raw.makefile("rb").read()

    def test_a_batch_that_was_altered_is_an_error_of_its_data_loader(self, stream: Stream, server: Server) -> None:
        connection = client(server)
        data = bytearray(to_bytes(message(0)))
        data[-1] ^= 1
        connection.send(bytes(data))
        with pytest.raises(StreamError, match=r"data loader 0 .* failed: the message was altered"):
            stream.reader().get(300.0)


class TestPipelineOverAStream:
    def test_updates_do_not_wait_for_a_batch_that_is_late(self) -> None:
        stream = Stream()
        stream.open(0, "loader")
        stream.put(0, 1)
        stream.put(0, 2)
        source = StreamSource(stream.reader(), 30.0, lambda: True)
        thread = StoreThread(source, lambda n: n, lambda n: n, ahead=4)
        assert thread.next_batch() == 1
        updated = threading.Event()
        thread.submit(updated.set)
        assert updated.wait(300.0)  # though batches 3 and 4 have been asked for and are not there
        thread.drain(5.0)
        stream.put(0, 3)
        stream.end(0)
        assert [thread.next_batch() for _ in range(3)] == [2, 3, None]
        thread.stop()

    def test_looking_up_again_keeps_the_order(self) -> None:
        stream = Stream()
        stream.open(0, "loader")
        for number in range(3):
            stream.put(0, number)
        source = StreamSource(stream.reader(), 30.0, lambda: True)
        thread = StoreThread(source, lambda n: n, lambda n: n + 100, ahead=4)
        assert thread.next_batch() == 0
        thread.drain(5.0)
        thread.look_up_again()
        stream.put(0, 3)
        stream.end(0)
        found = [thread.next_batch() for _ in range(4)]
        assert [number % 100 for number in found[:3]] == [1, 2, 3] and found[3] is None
        thread.stop()

    def test_in_fixed_order_updates_wait_until_the_loop_is_left(self) -> None:
        stream = Stream()
        stream.open(0, "loader")
        stream.put(0, 1)
        source = FixedOrder(StreamSource(stream.reader(), 30.0, lambda: True))
        thread = StoreThread(source, lambda n: n, lambda n: n, ahead=4)
        assert thread.next_batch() == 1
        updated = threading.Event()
        thread.submit(updated.set)
        assert not updated.wait(0.2)  # batch 2 comes first
        thread.stop()  # interrupts the source: nobody waits for batch 2 any more
        assert updated.is_set()
