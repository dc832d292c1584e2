"""The live view over real sockets: what it serves, whom it refuses, and that nothing keeps the run from ending."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from pathlib import Path

import pytest

from penstock.core.errors import ParameterError
from penstock.jobs import RunRecorder
from penstock.jobs.events import RunBegan, RunDone
from penstock.report.live import LiveView, PortTakenError
from penstock.train import record_from_dict


def get(view: LiveView, path: str, host: str | None = None, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection(view.host, view.port, timeout=300)
    try:
        connection.request(method, path, headers={"Host": host or f"{view.host}:{view.port}"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def changes(view: LiveView, since: int | str) -> dict:
    status, body = get(view, f"/changes?since={since}")
    assert status == 200
    return json.loads(body)


@pytest.fixture
def recorder(tmp_path: Path) -> RunRecorder:
    recorder = RunRecorder(tmp_path, title="A run")
    recorder(RunBegan({"epochs": 3}, "run"))
    return recorder


def record(step: int) -> dict:
    return {"kind": "train", "step": step, "loss": 1 / step, "auc": 0.7, "rows": 10 * step, "rows_per_second": 100.0}


def test_changes_come_as_the_run_goes_on(recorder: RunRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.report.live._FRESH", 0.0)
    with LiveView(recorder) as view:
        status, page = get(view, "/")
        assert status == 200 and "<h1>A run</h1>" in page and "data-live=" in page and "connect-src 'self'" in page
        first = changes(view, -1)
        assert len(first["sections"]) == 9 and first["state"] == "running"
        recorder.record(record_from_dict(record(50)))
        recorder.record(record_from_dict(record(100)))
        second = changes(view, first["version"])
        assert "training" in second["sections"] and "machine" not in second["sections"]
        assert "step 100" in second["sections"]["training"]
        recorder(RunDone({"auc": 0.7}))
        third = changes(view, second["version"])
        assert third["state"] == "done" and third["path"] == str(recorder.path)
        assert changes(view, third["version"])["sections"] == {}
        assert json.loads(get(view, "/report.json")[1])["state"] == "done"


def test_other_paths_hosts_and_methods_are_refused(recorder: RunRecorder) -> None:
    with LiveView(recorder) as view:
        assert get(view, "/../../etc/passwd")[0] == 404
        assert get(view, "/", host="evil.example")[0] == 403
        assert get(view, "/report.json", host="evil.example:80")[0] == 403
        assert get(view, "/", host=f"localhost:{view.port}")[0] == 200
        assert get(view, "/", host="[::1]:80")[0] == 200
        assert get(view, "/", method="POST")[0] == 501
        for since in ("nonsense", "--5", "-", "1" * 5_000, "%D9%A3", "", "1.5"):
            assert get(view, f"/changes?since={since}")[0] == (200 if since == "" else 400), since
        assert get(view, "http://[/")[0] == 400


def test_a_page_that_cannot_be_made_says_why(recorder: RunRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    with LiveView(recorder) as view:
        monkeypatch.setattr(recorder, "report", lambda: {"version": 1, "records": 7})
        assert get(view, "/") == (500, "the page could not be made: TypeError: 'int' object is not iterable")
        monkeypatch.undo()
        assert get(view, "/")[0] == 200


def test_a_port_that_is_taken_is_named(recorder: RunRecorder) -> None:
    with LiveView(recorder) as view:
        with pytest.raises(PortTakenError, match=f"port {view.port} on 127.0.0.1 cannot be used.*or 0 for any"):
            LiveView(recorder, port=view.port).__enter__()
        with LiveView(recorder, port=0) as other:
            assert other.port not in (0, view.port)
    with pytest.raises(ParameterError, match="port"):
        LiveView(recorder, port=70_000)
    with LiveView(recorder, port=view.port) as again:  # free again at once
        assert get(again, "/")[0] == 200


def test_browsers_that_hang_or_hang_up_disturb_nobody(
    recorder: RunRecorder, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.report.live._Handler.timeout", 600.0)
    with LiveView(recorder) as view:
        silent = [socket.create_connection((view.host, view.port)) for _ in range(5)]
        for number in range(5):
            rude = socket.create_connection((view.host, view.port))
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closing sends a reset
            rude.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            if number % 2:
                rude.recv(10)
            rude.close()
        assert get(view, "/")[0] == 200
        began = time.monotonic()
    assert time.monotonic() - began < 300
    for client in silent:
        client.close()
    assert capfd.readouterr() == ("", "")  # the terminal belongs to the run


def test_the_end_waits_for_a_page_that_is_open(recorder: RunRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.report.live._FRESH", 0.0)
    monkeypatch.setattr("penstock.report.live._READER_IS_THERE", 600.0)
    monkeypatch.setattr("penstock.report.live._PATIENCE", 600.0)
    heard: list[str] = []
    with LiveView(recorder) as view:
        state = changes(view, -1)

        def read_on() -> None:
            time.sleep(0.5)
            heard.append(changes(view, state["version"])["state"])

        reader = threading.Thread(target=read_on)
        recorder(RunDone({}))
        reader.start()
    reader.join()
    assert heard == ["done"]


def test_nobody_there_and_the_end_comes_at_once(recorder: RunRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.report.live._PATIENCE", 600.0)
    with LiveView(recorder):
        recorder(RunDone({}))
        began = time.monotonic()
    assert time.monotonic() - began < 300


def test_rendering_beside_a_run_that_reports_all_the_time(recorder: RunRecorder) -> None:
    with LiveView(recorder) as view:
        stop = threading.Event()

        def report() -> None:
            for step in range(50, 100_000, 50):
                recorder.record(record_from_dict(record(step)))
                if stop.wait(0.001):
                    return

        writer = threading.Thread(target=report)
        writer.start()
        try:
            for _ in range(10):
                assert get(view, "/report.json")[0] == 200
                assert get(view, "/")[0] == 200
        finally:
            stop.set()
            writer.join()


def test_a_run_writes_its_report_now_and_then(recorder: RunRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.jobs.recorder._WRITE_EVERY", 0.0)
    recorder.record(record_from_dict(record(50)))
    assert json.loads((recorder.directory / "report.json").read_text())["state"] == "running"
