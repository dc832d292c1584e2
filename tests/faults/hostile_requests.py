"""Requests that no honest client sends, made from one that an honest client does; a seed decides.

    python tests/faults/hostile_requests.py PORT BODY FIRST_SEED COUNT THREADS

sends so many of them and prints how many were answered with which status.
"""

from __future__ import annotations

import json
import random
import re
import socket
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def request(body: bytes, *headers: bytes) -> bytes:
    """A whole request for predictions."""
    lines = b"".join(header + b"\r\n" for header in headers)
    return HEAD + lines + b"Content-Length: %d\r\n\r\n" % len(body) + body


def _flipped(rng: random.Random, good: bytes) -> bytes:
    data = bytearray(request(good))
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def _cut(rng: random.Random, good: bytes) -> bytes:
    data = request(good)
    return data[: rng.randrange(len(data))]


def _bad_json(rng: random.Random, good: bytes) -> bytes:
    text = bytearray(good)
    at = rng.randrange(len(text))
    text[at : at + rng.randint(0, 4)] = rng.choice(
        [b"{", b"[" * 2_000, b"}", b'"', b"\\ud800", b"\xff\xfe", b"NaN", b"-", b"1e999", b"9" * 5_000, b"\0", b",,"]
    )
    return request(bytes(text))


def _bad_value(rng: random.Random, good: bytes) -> bytes:
    content = json.loads(good)
    values = ["\ud800", "\U0001f600", -1, 2**70, 1e308, True, None, [], [[]], {}, [None], " 0x1_a ", "\0", "x" * 10_000]
    deep: object = 0
    for _ in range(rng.randint(1, 900)):
        deep = [deep]
    for row in content["rows"]:
        name = rng.choice([*row, "\udfff", "more"])
        row[name] = rng.choice([*values, deep])
    if rng.random() < 0.3:
        content["rows"] = rng.choice([content["rows"] * 500, [deep], [{}] * 2_000, deep, None, "rows"])
    return request(json.dumps(content).encode())


def _many_fields(rng: random.Random, good: bytes) -> bytes:
    fields = b",".join(b'"f%d":1' % number for number in range(rng.choice([5_000, 20_000, 350_000])))
    return request(b'{"rows":[{' + fields + b"}]}")


def _many_rows(rng: random.Random, good: bytes) -> bytes:
    return request(b'{"rows":[' + b"{}," * rng.choice([10_000, 400_000, 1_300_000]) + rng.choice([b"{}]}", b"x"]))


def _many_headers(rng: random.Random, good: bytes) -> bytes:
    return request(good, *[b"X-%d: 1" % number for number in range(rng.choice([150, 5_000, 50_000]))])


def _long_header(rng: random.Random, good: bytes) -> bytes:
    return request(good, b"X: " + b"a" * rng.choice([40_000, 400_000, 4_000_000]))


def _odd_line(rng: random.Random, good: bytes) -> bytes:
    lines = [
        b"GET /\xff HTTP/1.1", b"GET * HTTP/1.1", b"CONNECT a:1 HTTP/1.1", b"GET http://[/ HTTP/1.1",
        b"GET /%ff%00 HTTP/1.1",
        b"PRI * HTTP/2.0", b"GET / HTTP/9.9", b"\x16\x03\x01\x02\x00", b"GET /" + b"a" * 200_000 + b" HTTP/1.1",
        b"DELETE /predict HTTP/1.1", b"HEAD /docs HTTP/1.1", b"GET /schema?" + b"%" * 300 + b" HTTP/1.1",
    ]  # fmt: skip
    hosts = [b"Host: [", b"Host: evil.example", b"Host: \xff", b"", b"Host: a\r\nHost: b", b"Host: localhost"]
    return rng.choice(lines) + b"\r\n" + rng.choice(hosts) + b"\r\n\r\n"


def _odd_framing(rng: random.Random, good: bytes) -> bytes:
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    return rng.choice([
        chunked + b"ffffffffffffffff\r\n" + good,
        chunked + b"-1\r\n" + good,
        chunked + b"5;" + b"x" * 100_000 + b"\r\n",
        chunked + b"0\r\nX: " + b"y" * 100_000,
        chunked + b"1\r\n{\r\n" * 3_000,
        HEAD + b"Content-Length: 99999999999999999999\r\n\r\n" + good,
        HEAD + b"Content-Length: -5\r\n\r\n" + good,
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + good,
        HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + good,
        HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n" + good,
    ])  # fmt: skip


def _pipelined(rng: random.Random, good: bytes) -> bytes:
    return b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * rng.choice([3, 100, 2_000])


KINDS: list[Callable[[random.Random, bytes], bytes]] = [
    _flipped, _cut, _bad_json, _bad_value, _many_fields, _many_rows, _many_headers, _long_header, _odd_line,
    _odd_framing, _pipelined,
]  # fmt: skip


def hostile(seed: int, good: bytes) -> bytes:
    """The bytes of one hostile client; `good` is the body of an honest one."""
    rng = random.Random(seed)
    return KINDS[seed % len(KINDS)](rng, good)


def attack(port: int, data: bytes, timeout: float = 10.0) -> bytes:
    """Send bytes to a service, then wait for all that it has to say."""
    parts = []
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as line:
        with suppress(OSError):  # it may have closed in the middle of them
            line.sendall(data)
            line.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):  # a reset ends it too
            while part := line.recv(1 << 16):
                parts.append(part)
    return b"".join(parts)


def final_status(answer: bytes) -> int | None:
    """The status of the first answer that is one."""
    statuses = [int(found) for found in re.findall(rb"HTTP/1\.1 (\d\d\d) ", answer)]
    return next((status for status in statuses if status != 100), None)


def main(port: int, body: str, first_seed: int, count: int, threads: int) -> None:
    """Attack from this process, and print a JSON object: status to number of requests."""

    def one(seed: int) -> int | None:
        return final_status(attack(port, hostile(seed, body.encode()), timeout=60.0))

    with ThreadPoolExecutor(threads) as pool:
        print(json.dumps(Counter(map(str, pool.map(one, range(first_seed, first_seed + count))))))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
