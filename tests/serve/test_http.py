"""The service over real sockets: answers equal offline prediction, and whatever is wrong is said as JSON."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from penstock.core.errors import PenstockError
from penstock.embedding import FeedWriter
from penstock.serve import Predictor, save_model
from penstock.serve.card import ModelCard
from penstock.serve.http import HttpServer, Limits
from penstock.serve.http.page import front_page

JSON = {"Content-Type": "application/json"}
HEAD = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def same(found, expected) -> bool:
    """Equal but for the rounding that another batch brings."""
    return np.allclose(np.asarray(found, np.float32), expected, rtol=0, atol=1e-6)


class Client:
    """One kept-open connection."""

    def __init__(self, server: HttpServer) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)

    def ask(self, method: str, path: str, body=None, headers=JSON):
        body = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        self.connection.request(method, path, body, headers)
        answer = self.connection.getresponse()
        text = answer.read()
        is_json = "json" in answer.headers["Content-Type"]
        return answer.status, json.loads(text) if is_json else text.decode(), answer.headers

    def predict(self, rows):
        return self.ask("POST", "/predict", {"rows": rows})

    def scores(self, rows) -> np.ndarray:
        status, answer, _ = self.predict(rows)
        assert status == 200, answer
        return np.array(answer["probabilities"], np.float32)

    def error(self, body, status: int = 400, headers=JSON) -> dict:
        got, answer, _ = self.ask("POST", "/predict", body, headers)
        assert got == status and set(answer) == {"error"} and set(answer["error"]) == {"message", "row", "field"}
        return answer["error"]

    def metric(self, name: str) -> float:
        text = self.ask("GET", "/metrics")[1]
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        assert found, f"{name} is not in\n{text}"
        return float(found[1])


@pytest.fixture(scope="module")
def server(place):
    with HttpServer(place, port=0, limits=Limits(max_rows=200, max_body="100kB")) as server:
        yield server


@pytest.fixture
def client(server):
    client = Client(server)
    yield client
    client.connection.close()


@pytest.fixture(scope="module")
def rows(trained):
    return [{**row, "ad": f"{row['ad']:08x}"} for row in trained.frame.drop("click").to_dicts()]


@pytest.fixture(scope="module")
def offline(place, trained):
    with Predictor(place) as predictor:
        return predictor.predict(trained.frame)


class Gate:
    """Holds the service's predictions back until it is opened, and notes what was asked."""

    def __init__(self, server: HttpServer) -> None:
        self.batcher, self.open, self.sizes = server.service.batcher, threading.Event(), []
        self.entered = threading.Event()

    def __enter__(self):
        self.original = self.batcher.predict

        def held(rows):
            self.sizes.append(len(rows))
            self.entered.set()
            assert self.open.wait(300)
            return self.original(rows)

        self.batcher.predict = held
        return self

    def __exit__(self, *_: object) -> None:
        self.open.set()
        self.batcher.predict = self.original

    def wait_for_queue(self, rows: int) -> None:
        until = time.monotonic() + 300
        while self.batcher.queued_rows != rows and time.monotonic() < until:
            time.sleep(0.005)
        assert self.batcher.queued_rows == rows


# Predictions.


def test_answers_equal_offline_prediction_to_the_last_bit(client, rows, place) -> None:
    with Predictor(place) as offline:
        for part in (rows[:1], rows[7:8], rows[:2], rows[:33], rows[:200]):
            np.testing.assert_array_equal(client.scores(part), offline.predict(part))


def test_concurrent_requests_are_batched_and_differ_by_rounding_at_most(server, client, rows, offline) -> None:
    before = client.metric("penstock_batch_rows_count"), client.metric("penstock_rows_total")

    def some(start: int) -> np.ndarray:
        own, parts = Client(server), []
        for i in range(start, 300, 16):
            parts.append(own.scores(rows[i : i + 1 + i % 3]) - offline[i : i + 1 + i % 3])
        return np.concatenate(parts)

    with Gate(server) as gate, ThreadPoolExecutor(16) as pool:
        futures = [pool.submit(some, start) for start in range(16)]
        assert gate.entered.wait(300)
        gate.wait_for_queue(sum(1 + i % 3 for i in range(16)) - gate.sizes[0])
        gate.open.set()
        assert np.abs(np.concatenate([future.result() for future in futures])).max() < 1e-6
    batches = client.metric("penstock_batch_rows_count") - before[0]
    predicted = client.metric("penstock_rows_total") - before[1]
    assert predicted == sum(min(1 + i % 3, 300 - i) for i in range(300))
    assert batches < 250, "300 requests from 16 clients"


def test_no_rows_no_probabilities(client, server) -> None:
    status, answer, _ = client.predict([])
    assert status == 200 and answer["probabilities"] == []
    assert answer["model"] == server.service.predictor.fingerprint and answer["packet"] is None


def test_an_unknown_category_predicts_and_is_counted(client, rows) -> None:
    before = client.metric('penstock_unknown_categories_total{column="user"}')
    assert 0 < client.scores([{**rows[0], "user": "nobody has this name"}])[0] < 1
    assert client.metric('penstock_unknown_categories_total{column="user"}') == before + 1


def test_a_body_in_chunks(server, rows, offline) -> None:
    body = json.dumps({"rows": rows[:3]}).encode()
    client = Client(server)
    status, answer, _ = client.ask("POST", "/predict", iter([body[:50], body[50:60], body[60:]]))
    assert status == 200 and same(answer["probabilities"], offline[:3])


# The other pages.


def test_health_schema_and_pages(client, server, rows) -> None:
    status, health, _ = client.ask("GET", "/healthz")
    assert status == 200 and health["live"] and health["ready"] and health["feed"] is None
    assert health["model"]["fingerprint"] == server.service.predictor.fingerprint
    assert health["model"]["class"] == "DLRM"
    status, schema, _ = client.ask("GET", "/schema")
    assert status == 200 and [column["name"] for column in schema["columns"]] == list(rows[0])
    assert client.predict(schema["example"]["rows"])[0] == 200
    status, described, _ = client.ask("GET", "/openapi.json")
    assert status == 200 and {"/predict", "/healthz", "/metrics", "/schema"} <= set(described["paths"])
    row = described["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert row["properties"]["rows"]["items"]["required"] == list(rows[0])
    assert "swagger" in client.ask("GET", "/docs")[1]
    front = client.ask("GET", "/")[1]
    assert (
        f"curl -s {server.url}/predict" in front
        and "Columns of a row" in front
        and "hexadecimal text" in front
        and "https://" not in front
    )


def test_the_front_page_escapes_what_others_named(server) -> None:
    schema = server.service.schema()
    schema["columns"][0]["name"] = schema["example"]["rows"][0]["user"] = "</td><script>alert(1)</script>"
    card = ModelCard(data=["<script>alert(2)</script>"], example={})
    page = front_page(server.service.health(), schema, server.url, card)
    assert page.count("<script>") == 1 and "&lt;script&gt;alert(1)" in page and "&lt;script&gt;alert(2)" in page
    assert "<script>alert" not in page


def test_metrics_count_by_status(client, rows) -> None:
    client.predict(rows[:2])
    before = client.metric('penstock_requests_total{status="200"}')
    client.predict(rows[:2])
    client.error({"rows": [{}]})
    assert client.metric('penstock_requests_total{status="200"}') == before + 1
    assert client.metric('penstock_requests_total{status="400"}') >= 1
    assert client.metric("penstock_request_seconds_count") > before
    assert client.metric("penstock_queue_rows") == 0
    assert client.metric("penstock_feed_packet") == 0


def test_paths_that_are_not_there(client) -> None:
    status, answer, _ = client.ask("GET", "/nowhere")
    assert status == 404 and "POST /predict" in answer["error"]["message"]
    status, answer, headers = client.ask("GET", "/predict")
    assert status == 405 and "method not allowed" in answer["error"]["message"] and headers["Allow"] == "POST"


# What goes wrong in a request.


@pytest.mark.parametrize(
    ("body", "row", "words"),
    [
        (b"", None, "malformed JSON"),
        (b"{", None, "malformed JSON"),
        (b'{"rows": [{"user": "a"}, {"user" "b"}]}', 1, "malformed JSON"),
        (b'{"rows": [{"user": "a"}] oh}', None, "malformed JSON"),
        (b'{"rows": [{"user": "\xff"}]}', None, "malformed JSON"),
        (b"[" * 30_000, None, "nested too deeply"),
        ([], None, 'must be {"rows"'),
        ({"row": []}, None, 'must be {"rows"'),
        ({"rows": {"user": "a"}}, None, 'must be {"rows"'),
        ({"rows": [3]}, 0, "a row is an object"),
    ],
)
def test_malformed_bodies(client, body, row, words) -> None:
    error = client.error(body)
    assert words in error["message"] and error["row"] == row and error["field"] is None


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"user": 7}, "user", "must be a string or null, got 7"),
        ({"ad": "xyz"}, "ad", "hexadecimal text"),
        ({"ad": "123456789"}, "ad", "from 0 to 4294967295"),
        ({"tags": 3}, "tags", "a list"),
        ({"tags": ["x"]}, "tags", "a list, each item an integer"),
        ({"price": "cheap"}, "price", "a finite number"),
        ({"price": float("nan")}, "price", "NaN or infinity"),
        ({"price": float("-inf")}, "price", "NaN or infinity"),
        ({"price": 1e300}, "price", "float32"),
    ],
)
def test_rows_with_a_wrong_value(client, rows, change, field, words) -> None:
    error = client.error({"rows": [*rows[:4], {**rows[4], **change}, rows[5]]})
    assert error["row"] == 4 and error["field"] == field and words in error["message"]


def test_a_missing_column(client, rows) -> None:
    short = {name: value for name, value in rows[1].items() if name != "price"}
    error = client.error({"rows": [rows[0], {**short, "prize": 1.0}]})
    assert error["row"] == 1 and error["field"] == "price" and "did you mean 'prize'?" in error["message"]


def test_the_wrong_content_type(client, rows) -> None:
    body = json.dumps({"rows": rows[:1]}).encode()
    for headers in ({"Content-Type": "text/plain"}, {}):
        assert "application/json" in client.error(body, 415, headers)["message"]
    for kind in ("application/json; charset=utf-8", "application/vnd.x+json"):
        assert client.ask("POST", "/predict", body, {"Content-Type": kind})[0] == 200


def test_too_many_rows(client, rows) -> None:
    assert "more than 200 rows in one request" in client.error({"rows": [{}] * 201}, 413)["message"]
    assert len(client.scores(rows[:200])) == 200


def test_a_body_that_is_too_large_is_not_read(server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=300) as line:
        line.sendall(f"{HEAD}Content-Length: 1000000000\r\n\r\n".encode())  # and not one byte of it
        answer = b"".join(iter(lambda: line.recv(4096), b""))
        assert answer.startswith(b"HTTP/1.1 413 ") and b"100,000 bytes" in answer and b"connection: close" in answer
    for body in (b"x" * 3_000_000, iter([b"x" * 60_000] * 20)):  # with its length, and in chunks without
        error = Client(server).error(body, 413)
        assert "larger than the 100,000 bytes" in error["message"]


def test_a_body_that_never_comes(place, rows, offline) -> None:
    limits = Limits(body_seconds=0.2)
    with (
        HttpServer(place, port=0, limits=limits) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=300) as line,
    ):
        head = (
            "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n"
        )
        line.sendall(head.encode() + b'{"rows"')
        assert same(Client(server).scores(rows[:1]), offline[:1])  # nobody else waits for it
        answer = b"".join(iter(lambda: line.recv(4096), b""))
        assert answer.startswith(b"HTTP/1.1 408 ") and b"did not arrive within" in answer


def test_a_client_that_hangs_up_is_dropped_and_others_are_answered(server, client, rows, offline) -> None:
    dropped = client.metric("penstock_requests_dropped_total")
    body = json.dumps({"rows": rows[:7]}).encode()
    head = f"{HEAD}Content-Length: {len(body)}\r\n\r\n"
    with Gate(server) as gate, ThreadPoolExecutor(2) as pool:
        first = pool.submit(Client(server).scores, rows[:1])
        assert gate.entered.wait(300)
        line = socket.create_connection(("127.0.0.1", server.port))
        line.sendall(head.encode() + body)
        gate.wait_for_queue(7)
        second = pool.submit(Client(server).scores, rows[1:3])
        gate.wait_for_queue(9)
        own = line.getsockname()
        line.close()
        while own in [one.transport.get_extra_info("peername") for one in list(server._guard._connections)]:
            time.sleep(0.001)  # until the service has noticed
        gate.open.set()
        assert same(first.result(), offline[:1]) and same(second.result(), offline[1:3])
    assert gate.sizes == [1, 2], "the seven rows of the client that went away were not predicted"
    assert client.metric("penstock_requests_dropped_total") == dropped + 1
    half = socket.create_connection(("127.0.0.1", server.port))
    half.sendall(head.encode() + body[:20])  # and gone in the middle of its body
    half.close()
    assert same(client.scores(rows[:1]), offline[:1])


def test_a_full_queue_says_when_to_come_again(place, rows, offline) -> None:
    limits = Limits(max_queue=4)
    with HttpServer(place, port=0, limits=limits) as server, Gate(server) as gate, ThreadPoolExecutor(2) as pool:
        first = pool.submit(Client(server).scores, rows[:1])
        assert gate.entered.wait(300)
        second = pool.submit(Client(server).scores, rows[:3])
        gate.wait_for_queue(3)
        status, answer, headers = Client(server).predict(rows[:2])
        assert status == 503 and headers["Retry-After"] == "1" and "rows are waiting" in answer["error"]["message"]
        gate.open.set()
        assert same(np.concatenate([first.result(), second.result()]), offline[[0, 0, 1, 2]])


def test_a_failure_inside_is_a_500_and_the_service_goes_on(server, client, rows, offline, caplog) -> None:
    batcher = server.service.batcher
    original, batcher.predict = batcher.predict, lambda rows: 1 / 0
    try:
        assert "log says why" in client.error({"rows": rows[:1]}, 500)["message"]
    finally:
        batcher.predict = original
    assert "ZeroDivisionError" in caplog.text
    assert same(client.scores(rows[:1]), offline[:1])


# The feed.


def test_it_follows_a_feed(place, trained, rows, tmp_path) -> None:
    writer = FeedWriter(trained.store, tmp_path / "feed")
    writer.publish()
    with HttpServer(place, port=0, feed=tmp_path / "feed", poll_seconds=0.02) as server:
        client = Client(server)
        before = client.scores(rows)
        assert client.predict(rows[:1])[1]["packet"] == 1
        found = trained.store.lookup({"user": np.arange(3, 23), "ad": np.full(20, 3), "tags": np.full(20, 3)})
        trained.store.update(found, {"user": np.ones((20, 4), np.float32)})
        writer.publish()
        until = time.monotonic() + 300
        while client.ask("GET", "/healthz")[1]["feed"]["packet"] < 2 and time.monotonic() < until:
            time.sleep(0.01)
        with Predictor(place, feed=tmp_path / "feed", poll_seconds=0) as offline:
            assert same(client.scores(rows), offline.predict(trained.frame))
        assert (client.scores(rows) != before).any()
        assert client.metric("penstock_feed_packets_total") == 2 == client.metric("penstock_feed_packet")
        health = client.ask("GET", "/healthz")[1]["feed"]
        assert health["error"] is None and abs(health["applied_at"] - time.time()) < 600

        server.service.predictor._feed.patience = 0.0
        (tmp_path / "feed" / "packet-00000003").mkdir()  # a packet that never becomes whole
        while not (error := client.ask("GET", "/healthz")[1]["feed"]["error"]) and time.monotonic() < until:
            time.sleep(0.01)
        assert "packet-00000003" in error and len(client.scores(rows[:2])) == 2

        (tmp_path / "feed" / "packet-00000003" / "manifest.json").write_text('{"penstock": "embedding-packet"}')
        writer.close()
        writer = FeedWriter(trained.store, tmp_path / "feed")
        writer.publish()  # the next good one
        while client.ask("GET", "/healthz")[1]["feed"]["packet"] < 4 and time.monotonic() < until:
            time.sleep(0.01)
        assert client.ask("GET", "/healthz")[1]["feed"]["error"] is None and len(client.scores(rows[:2])) == 2
    writer.close()


# Starting and stopping.


def test_rows_of_features_where_there_is_no_workflow(trained, tmp_path) -> None:
    save_model(tmp_path / "m", None, trained.model, trained.store)
    features = trained.features.drop("click").to_dicts()
    with HttpServer(tmp_path / "m", port=0) as server, Predictor(tmp_path / "m") as offline:
        client = Client(server)
        assert same(client.scores(features[:50]), offline.predict(trained.features)[:50])
        error = client.error({"rows": [features[0], {**features[1], "price": None}]})
        assert error["row"] == 1 and error["field"] == "price"
        assert client.error({"rows": [{**features[0], "user": -1}]})["field"] == "user"


def test_a_port_that_is_taken(server, place) -> None:
    with pytest.raises(PenstockError, match=f"port {server.port} of 127.0.0.1 is taken by another program; choose"):
        HttpServer(place, port=server.port)
    with pytest.raises(PenstockError, match=r"cannot listen on 'no\.such\.host\.invalid'"):
        HttpServer(place, host="no.such.host.invalid")


def test_beyond_this_machine_it_says_so(place, rows) -> None:
    with pytest.warns(UserWarning, match=r"listening on 0\.0\.0\.0, not only on this machine: .* without a password"):
        open_to_all = HttpServer(place, host="0.0.0.0", port=0)
    with open_to_all as server:
        assert server.url == f"http://127.0.0.1:{server.port}" and Client(server).predict(rows[:1])[0] == 200
    HttpServer(place, host="localhost", port=0).stop()  # no warning, which would be an error here


def test_stopping_answers_what_is_under_way(place, rows, offline) -> None:
    server = HttpServer(place, port=0)
    server.start()
    with Gate(server) as gate, ThreadPoolExecutor(2) as pool:
        first = pool.submit(Client(server).scores, rows[:2])
        assert gate.entered.wait(300)
        second = pool.submit(Client(server).scores, rows[2:5])
        gate.wait_for_queue(3)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        with pytest.raises(ConnectionError):
            while True:  # until nobody listens any more
                socket.create_connection(("127.0.0.1", server.port), timeout=300).close()
        gate.open.set()
        assert same(np.concatenate([first.result(), second.result()]), offline[:5])
        stopping.join(300)
        assert not stopping.is_alive()
