"""The service against clients that mean it harm, over loopback: none is a 500, none stops the others."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import numpy as np
import pytest
from tests.faults import hostile_requests
from tests.faults.hostile_requests import HEAD, KINDS, final_status, hostile, request

import penstock as ps
from penstock import ops
from penstock.embedding import SGD, Store, slots_from_schema
from penstock.nn import MLP
from penstock.serve import save_model
from penstock.serve.http import HttpServer, Limits
from penstock.serve.http.connection import Waiting
from penstock.serve.http.turns import PORTION

ROW = {"user": "ann", "ad": "1a", "price": 0.5}
GOOD = json.dumps({"rows": [ROW, {**ROW, "user": None}]}).encode()
LIMITS = Limits(head_seconds=30, body_seconds=30, max_connections=60)  # nobody here waits for the clock
PATIENCE = 120  # seconds until something that never comes is given up
SEED = 20261116


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    columns = ps.Schema([
        ps.ColumnSchema("user", "string"), ps.ColumnSchema("ad", "uint32", properties={"text": "hex"}),
        ps.ColumnSchema("price", "float32"), ps.ColumnSchema("click", "int8"),
    ])  # fmt: skip
    rows = {"user": ["ann", "bob"], "ad": [26, 27], "price": [0.5, 1.5], "click": [0, 1]}
    data = ps.Dataset(rows, schema=columns).with_roles(label=["click"])
    workflow = ps.Workflow((["user", "ad"] >> ops.Categorify()) + (["price"] >> ops.Normalize()) + ["click"]).fit(data)
    place = tmp_path_factory.mktemp("attacked") / "model"
    model = MLP(workflow.output_schema, 4, hidden=())
    save_model(place, workflow, model, Store(slots_from_schema(workflow.output_schema, 4), SGD()))
    return place


@pytest.fixture(scope="module")
def server(place):
    with HttpServer(place, port=0, limits=LIMITS) as server:
        yield server
        assert _failures(server) == [], "a request was answered 500"


def _failures(server: HttpServer) -> list[str]:
    text = server.service.metrics.text().decode()
    return [
        line for line in re.findall(r'^penstock_requests_total\{status="5.*', text, re.MULTILINE) if '"503"' not in line
    ]


def connect(server: HttpServer, timeout: float = 10.0) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=timeout)


def everything(line: socket.socket) -> bytes:
    """What comes until the service closes; a reset ends it too."""
    parts = []
    with suppress(ConnectionError):
        while part := line.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def attack(server: HttpServer, data: bytes) -> bytes:
    return hostile_requests.attack(server.port, data)


def good_client(server: HttpServer) -> None:
    """Ask as an honest client does."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    connection.request("POST", "/predict", GOOD, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = json.load(answer)
    connection.close()
    assert answer.status == 200 and len(content["probabilities"]) == 2


def wait_for(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.001)


def look_later(server: HttpServer, seconds: float) -> None:
    """Let the guard look at its connections as if so many seconds more had passed."""
    looked = threading.Event()
    loop = next(iter(server._guard._connections)).loop

    def look() -> None:
        for connection in list(server._guard._connections):
            connection.check_time(loop.time() + seconds)
        looked.set()

    loop.call_soon_threadsafe(look)
    assert looked.wait(PATIENCE)


# Each limit by itself.


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (HEAD + b"X: " + b"a" * 3_000_000, 431, b"longer than the 32,000 bytes"),
        (HEAD + b"X: 1\r\n" * 101, 431, b"more than the 100 headers"),
        (b"GET /" + b"a" * 40_000, 431, b"longer than the 32,000 bytes"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"a" * 3_000_000, 431, b"longer than the 32,000 bytes"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5;" + b"a" * 3_000_000, 431, b"longer than the 32,000 bytes"),
        (b"nonsense\r\n\r\n", 400, b"not a request of HTTP"),
        (HEAD, 400, b"ended before the request did"),
        (request(GOOD)[:-5], 400, b"ended before the request did"),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421, b"--allow-host"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, b"one Host header"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400, b"one Host header"),
        (request(b'{"rows":[' + b"{}," * 1_300_000), 413, b"lists and objects that are taken"),
        (request(b'{"rows":[' + b"{}," * 9_000), 413, b"more than 1,000 rows"),
        (request(b'{"rows":[' + b'{"user": "somebody"},' * 1_001 + b"{}]}"), 413, b"more than 1,000 rows"),
        (request(b'{"rows":[{' + b",".join(b'"%d":1' % n for n in range(350_000)) + b"}]}"), 413, b"is longer than"),
        (request(b'{"rows":[{' + b",".join(b'"%d":1' % n for n in range(20_000)) + b"}]}"), 413, b"row 0 is longer"),
        (request(b'{"rows":[{},{"user":"' + b"a" * 3_000_000 + b'"}]}'), 413, b"is longer than the 64,000"),
        (request(b'{"rows":[{},{"user":"' + b"a" * 200_000 + b'"}]}'), 413, b"row 1 is longer"),
        (request(b'{"rows":[{"user":"' + b"a" * 70_000 + b'\xff"}]}'), 400, b"at byte 70018"),
        (
            request(b'{"rows":[{"user":' + b'{"a":[' * 9 + b"0," * 9_000 + b"0" + b"]}" * 9 + b"}]}" + b" " * 50_000),
            400,
            b"nested",
        ),
        (
            request(b'{"rows":[' + b",".join([b'{"user":' + b"[" * 400 + b"]" * 400 + b"}"] * 999) + b"]}"),
            413,
            b"lists",
        ),
        (request(b'{"rows":[{"user":"\\ud800","ad":1,"price":1}]}'), 400, b"field 'user': must be a string"),
        (request(b'{"rows":[{"\\udfff":"a"}]}'), 400, b"is missing"),
        (request(b'{"rows":[{"user":"a","ad":" 0x1_a ","price":1}]}'), 400, b"must be hexadecimal text"),
        (request(b'{"rows":[{"user":"a","ad":1,"price":' + b"[" * 800 + b"]" * 800 + b"}]}"), 400, b"field 'price'"),
        (request(b'{"rows":[{"user":' + b"9" * 5_000 + b"}]}"), 400, b"malformed JSON"),
        (request(GOOD, b"Content-Encoding: br"), 415, b"the content encoding is br"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else str(value),
)
def test_what_is_refused_and_how(server, data, status, words) -> None:
    answer = attack(server, data)
    assert final_status(answer) == status and words in answer, answer[:300]
    good_client(server)


HIDDEN = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
SMUGGLED: dict[str, bytes] = {
    "a length and pieces": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "pieces and a length": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + HIDDEN,
    "two lengths": HEAD + b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
    "a length with a sign": HEAD + b"Content-Length: +0\r\n\r\n" + HIDDEN,
    "a length in two parts": HEAD + b"Content-Length: 0, 0\r\n\r\n" + HIDDEN,
    "pieces that are almost named so": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "pieces inside something else": HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a blank before the colon": HEAD + b"Content-Length : 0\r\n\r\n" + HIDDEN,
    "a line that goes on": HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a piece of too many digits": HEAD + b"Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n" + HIDDEN,
    "a piece that ends otherwise": HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{X0\r\n\r\n" + HIDDEN,
    "pieces inside a packing": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "pieces in old HTTP": HEAD.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a nought in a header": HEAD + b"X: a\0b\r\nContent-Length: 0\r\n\r\n" + HIDDEN,
}


@pytest.mark.parametrize("case", SMUGGLED)
def test_no_second_request_hides_in_the_first(case, server) -> None:
    """A proxy and the service must not see different requests: what can be read in two ways is refused, all of it."""
    answer = attack(server, SMUGGLED[case])
    statuses = [int(found) for found in re.findall(rb"HTTP/1\.1 (\d\d\d) ", answer)]
    assert len(statuses) == 1 and 400 <= statuses[0] < 500, answer[:400]
    assert b'"ready"' not in answer  # what lies hidden was not answered


def test_a_client_that_stops_sending_gets_its_answer(server) -> None:
    answer = attack(server, request(GOOD))  # `attack` closes its sending half behind the request
    assert final_status(answer) == 200 and answer.count(b"0.") >= 2
    answer = attack(server, request(GOOD) * 3)
    assert answer.count(b"HTTP/1.1 200 OK") == 3


@pytest.mark.parametrize("wish", [b"h2c", b"websocket", b"TLS/1.0"])
def test_a_wish_for_another_protocol_is_passed_over(server, wish) -> None:
    """Java's client wishes for HTTP/2 with its first request, whatever that is: its body counts all the same."""
    data = request(GOOD, b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: " + wish, b"HTTP2-Settings: AAMAAABk")
    answer = attack(server, data * 2)
    assert re.findall(rb"HTTP/1\.1 ([2-5]\d\d) ", answer) == [b"200", b"200"] and answer.count(b"probabilities") == 2
    with connect(server, timeout=PATIENCE) as line:  # the body comes later than the head
        line.sendall(data[: -len(GOOD)])
        wait_for(lambda: any(c.waiting is Waiting.BODY for c in list(server._guard._connections)))
        line.sendall(data[-len(GOOD) :])
        line.shutdown(socket.SHUT_WR)
        assert b"probabilities" in everything(line)


def test_a_body_of_many_pieces_is_parsed_in_turns(server) -> None:
    """A read that brings thousands of pieces, headers or requests is worked off beside others; nothing is lost."""
    body = GOOD + b" " * 9_000
    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    data = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + pieces
    assert len(data) > 10 * PORTION
    with ThreadPoolExecutor(3) as pool:
        for answer in pool.map(lambda ending: attack(server, data * 2 + ending), [b"", HEAD[:20], b"nonsense"] * 2):
            assert re.findall(rb"HTTP/1\.1 ([2-5]\d\d) ", answer)[:2] == [b"200", b"200"]
            assert answer.count(b"probabilities") == 2
    whole = request(GOOD + b" " * 200_000) * 2
    assert attack(server, whole).count(b"probabilities") == 2
    assert server._guard.turns.are_idle()
    good_client(server)


def test_half_heads_keep_nobody_out(server) -> None:
    with ExitStack() as stack:
        lines = [stack.enter_context(connect(server)) for _ in range(3 * LIMITS.max_connections)]
        for line in lines:
            with suppress(OSError):
                line.sendall(HEAD[:30])
        good_client(server)  # long before a single head has been given up
        late = {line.getsockname() for line in lines[-5:]}

        def have_come() -> bool:
            here = [c for c in list(server._guard._connections) if c.waiting is Waiting.HEAD]
            return late <= {c.transport.get_extra_info("peername") for c in here}

        wait_for(have_come)
        look_later(server, LIMITS.head_seconds + 1)
        answers = [everything(line) for line in lines[-5:]]
        assert all(final_status(answer) == 408 and b"head did not arrive" in answer for answer in answers)


def test_where_all_connections_are_busy_a_newcomer_is_told(place) -> None:
    limits = Limits(max_connections=3, body_seconds=20)
    with HttpServer(place, port=0, limits=limits) as server, ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(connect(server)).sendall(HEAD + b"Content-Length: 10\r\n\r\n{")
        wait_for(lambda: [c.waiting for c in list(server._guard._connections)] == [Waiting.BODY] * 3)
        with connect(server) as line:
            answer = everything(line)
        assert final_status(answer) == 503 and b"retry-after: 1" in answer and b"come again" in answer


def test_stalled_bodies_share_a_budget(place) -> None:
    limits = Limits(max_bodies="2MB", max_body="1MB", body_seconds=20)
    with HttpServer(place, port=0, limits=limits) as server, ExitStack() as stack:
        lines = [stack.enter_context(connect(server)) for _ in range(4)]
        half = b'{"rows":[' + (b'{"user":"%s"},' % (b"a" * 988)) * 799 + b" " * 192
        assert len(half) > 799_000
        for number, line in enumerate(lines):
            line.sendall(HEAD + b"Content-Length: 900000\r\n\r\n" + half)
            held = min(2, number + 1) * (len(half) - (1 << 16))  # the first bytes of each do not count
            wait_for(lambda held=held: server.service.bodies.held >= held)
        assert server.service.bodies.held <= 2_000_000
        answer = everything(lines[0])  # the oldest makes room
        assert final_status(answer) == 503 and b"bytes are being read" in answer
        large = json.dumps({"rows": [ROW] * 500, "more": "x" * 50_000}).encode() + b" " * 500_000
        assert final_status(attack(server, request(large, b"Connection: close"))) == 200
        for line in lines:
            line.close()
        wait_for(lambda: server.service.bodies.held == 0)


def test_a_body_that_trickles_is_cut_off(place) -> None:
    with HttpServer(place, port=0, limits=Limits(body_seconds=0.2)) as server:
        for path in (b"/predict", b"/nowhere"):
            with connect(server) as line:
                line.sendall(HEAD.replace(b"/predict", path) + b"Content-Length: 100000\r\n\r\n")
                until, is_open = time.monotonic() + PATIENCE, True
                while is_open and time.monotonic() < until:
                    try:
                        line.sendall(b" ")
                    except OSError:
                        is_open = False
                    time.sleep(0.02)
                assert not is_open


def test_an_answer_that_nobody_takes_does_not_stay(server) -> None:
    """The guard's look at the clock is called with a later time than it is: nothing here waits for one."""
    with connect(server, timeout=60) as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        line.recv(1)  # it is there now
        address = line.getsockname()
        here = [c for c in list(server._guard._connections) if c.transport.get_extra_info("peername") == address]
        assert len(here) == 1
        connection = here[0]
        connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        # What the system does not take at once counts as not taken. The client's own buffer stays as large as it is:
        # a tiny one drops what comes back for its requests, and the system sends them again seconds later.
        connection.loop.call_soon_threadsafe(connection.transport.set_write_buffer_limits, 0)
        while connection._write_paused_since is None:  # ask, and take no answers, until they pile up
            answered = connection.server_state.total_requests
            line.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
            wait_for(
                lambda answered=answered: (
                    connection.server_state.total_requests > answered or connection._write_paused_since is not None
                )
            )
        look_later(server, LIMITS.body_seconds + 10)
        everything(line)  # ends: the service has hung up
        assert connection not in server._guard._connections
    good_client(server)


def test_long_bodies_are_parsed_as_short_ones_are() -> None:
    from penstock.serve.http.parsing import BodySize, in_one_go
    from penstock.serve.http.parsing import parse_rows as in_steps
    from penstock.serve.http.requests import RefusedError

    def parse_rows(body: bytes, size: BodySize) -> list:
        return in_one_go(in_steps(body, size))

    rng = np.random.default_rng(SEED)
    rows = [{"a": int(n), "b": ["x" * int(n % 7)], "c": {"d": None}} for n in rng.integers(0, 1 << 30, 3_000)]
    for text in (json.dumps({"rows": rows}), json.dumps({"x": [1], "rows": rows, "y": {}}, indent=1)):
        assert len(text) > 1 << 16 and parse_rows(text.encode(), BodySize(3_000, 500)) == rows
    assert parse_rows(json.dumps({"rows": rows, "more": 1, "x": "y" * 400}).encode(), BodySize(3_000, 500)) == rows

    long = [
        {
            "ids": list(range(9_000)),
            "texts": ["a,]}\\" * 3] * 900,
            "b": {str(n): [n, {"n": None}] for n in range(2_000)},
        },
        {"text": "x" * 60_000, "pairs": [[n, "["] for n in range(6_000)], "e": "\N{GRINNING FACE}" * 900},
        {str(n): [] if n % 3 else {"deep": [[n]]} for n in range(4_000)},
    ]
    size = BodySize(10, 600_000, lists=10_000)
    for indent in (None, 2):
        assert parse_rows(json.dumps({"rows": long}, indent=indent).encode(), size) == long
    rng, read = np.random.default_rng(SEED), 0
    body = json.dumps({"rows": [long[0], long[2]], "more": 1}).encode()
    for _ in range(60):
        changed = bytearray(body)
        at = int(rng.integers(len(body)))
        changed[at : at + int(rng.integers(3))] = rng.choice(
            [b",", b"]", b"}", b"[", b'"', b"{", b" ", b":", b"7", b""]
        )
        try:
            expected = json.loads(changed)["rows"]
        except (ValueError, KeyError):
            with pytest.raises(RefusedError, match=r"malformed JSON|the body must be"):
                parse_rows(bytes(changed), size)
        else:
            assert parse_rows(bytes(changed), size) == expected
            read += 1
    assert 0 < read < 60


# All of them together.


def test_hostile_clients_of_every_kind(server) -> None:
    print(f"seed {SEED}")
    with ThreadPoolExecutor(4) as pool:
        for seed, answer in zip(
            range(SEED, SEED + 99), pool.map(lambda seed: attack(server, hostile(seed, GOOD)), range(SEED, SEED + 99)),
            strict=True,
        ):  # fmt: skip
            assert final_status(answer) != 500, f"seed {seed} ({KINDS[seed % len(KINDS)].__name__})"
    good_client(server)
    threads = [thread.name for thread in threading.enumerate()]
    assert any("penstock-predict" in name for name in threads)


class Honest:
    """A client that keeps its connection, is busy four fifths of its time, and measures the seconds of each request."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self) -> float:
        began = time.perf_counter()
        self.connection.request("POST", "/predict", GOOD, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        answer.read()
        assert answer.status == 200
        took = time.perf_counter() - began
        time.sleep(took / 4)
        return took

    def p99(self, more: Callable[[int], bool]) -> tuple[float, int]:
        """Of requests for as long as there should be more."""
        found: list[float] = []
        while more(len(found)):
            found.append(self.ask())
        return float(np.quantile(found, 0.99)), len(found)


@contextmanager
def machine_of_its_own(core: int) -> Iterator[None]:
    """This process has a core before all others, where the system allows it: a client that waits for a processor, on
    which attackers run who would be on machines of their own, measures that and not the service."""
    cores, policy = os.sched_getaffinity(0), os.sched_getscheduler(0)
    try:
        os.sched_setaffinity(0, [core])
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        yield
    finally:
        os.sched_setscheduler(0, policy, os.sched_param(0))
        os.sched_setaffinity(0, cores)


@pytest.mark.slow
def test_ten_thousand_hostile_requests_under_load(place) -> None:
    """The 99th percentile of an honest client beside them stays under three times its quiet value.

    Service, attackers and the honest client are processes of their own. The attackers have one core, and what others
    leave of it, the honest client before them; the service has the rest, so that it is the service that is measured and
    not the fight for the machine. With fewer than four cores the figures are printed, and only the answers are checked.
    """
    cores = sorted(os.sched_getaffinity(0))
    count = int(os.environ.get("PENSTOCK_HOSTILE_REQUESTS", "10000"))
    command = [sys.executable, "-m", "penstock", "serve", str(place), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, cores[:-1] or cores)
    ) as service:
        try:
            assert service.stdout is not None
            port = int(re.findall(r":(\d+) ", service.stdout.readline())[-1])
            honest = Honest(port)
            attacker = [sys.executable, hostile_requests.__file__, str(port), GOOD.decode(), str(SEED), str(count), "4"]
            with machine_of_its_own(cores[-1]):
                quiet, _ = min(honest.p99(lambda asked: asked < 500) for _ in range(3))
                with subprocess.Popen(
                    attacker, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.nice(10)
                ) as attackers:
                    loud, asked = honest.p99(lambda asked: attackers.poll() is None)
                    statuses = json.loads(attackers.communicate()[0])
            honest.connection.request("GET", "/metrics")
            counted = honest.connection.getresponse().read().decode()
        finally:
            service.terminate()
    print(f"p99 quiet {quiet * 1e3:.2f} ms, beside {count} hostile requests {loud * 1e3:.2f} ms ({asked} asked)")
    print(f"answers to hostile requests, by status: {statuses}")
    assert sum(statuses.values()) == count and "500" not in statuses and 'total{status="500"}' not in counted
    if len(cores) >= 4:
        assert loud < 3 * quiet
