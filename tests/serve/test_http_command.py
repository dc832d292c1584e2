"""`penstock serve` as a person and an init system meet it: a process, its lines, its signals, its exit status."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request

import numpy as np
import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.serve import Predictor


def started(*arguments: str) -> tuple[subprocess.Popen, str]:
    """A serving process and its address."""
    command = [sys.executable, "-m", "penstock", "serve", *arguments, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    line = process.stdout.readline()
    found = re.fullmatch(r"serving DLRM [0-9a-f]{16} on (http://127\.0\.0\.1:\d+) \(Ctrl-C stops\)\n", line)
    assert found, line + process.stderr.read()
    return process, found[1]


@pytest.mark.parametrize(
    "how",
    [pytest.param(signal.SIGTERM, id="SIGTERM"), pytest.param(signal.SIGINT, id="Ctrl-C", marks=pytest.mark.slow)],
)
def test_it_serves_until_it_is_told_to_stop_and_finishes_what_is_under_way(place, trained, how) -> None:
    rows = trained.frame.drop("click").to_dicts()[:3]
    body = json.dumps({"rows": rows}).encode()
    process, url = started(str(place))
    try:
        request = urllib.request.Request(f"{url}/predict", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer, Predictor(place) as offline:
            scores = np.array(json.load(answer)["probabilities"], np.float32)
            np.testing.assert_array_equal(scores, offline.predict(rows))
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=600) as line:
            head = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
            head += f"\r\nContent-Length: {len(body)}"
            line.sendall(f"{head}\r\nExpect: 100-continue\r\n\r\n".encode())
            assert line.recv(100).startswith(b"HTTP/1.1 100 ")  # the service is reading this request
            process.send_signal(how)
            line.sendall(body)
            answer = b""
            while part := line.recv(4096):
                answer += part
        assert answer.startswith(b"HTTP/1.1 200 ") and b'"probabilities"' in answer
        output, errors = process.communicate(timeout=600)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0 and output == ""
    assert errors == "stopped; every request under way was answered\n"


def refused(*arguments: str) -> str:
    """The one line with which the command ends."""
    result = CliRunner().invoke(app, ["serve", *arguments])
    assert result.exit_code == 1, result.output
    (line,) = result.stderr.splitlines()
    return line


def test_what_cannot_be_served_is_one_line(place, tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port} of 127.0.0.1 is taken" in refused(str(place), "--port", port)
    assert "does not exist; name the folder of a training run" in refused(str(tmp_path / "nothing"), "--port", "0")
    (tmp_path / "empty").mkdir()
    assert str(tmp_path / "empty") in refused(str(tmp_path / "empty"), "--port", "0")
    other = tmp_path / "other"
    shutil.copytree(place, other)
    manifest = other / "model" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 9', 1))
    assert "was saved in format 9; this Penstock reads format 1" in refused(str(other), "--port", "0")
    assert "torch" in refused(str(place), "--port", "0", "--device", "abacus")
    assert "'64MB'" in refused(str(place), "--port", "0", "--max-body", "huge")
    assert "leave one of them out" in refused(str(place), "--follow", "--feed", str(tmp_path))
    usage = CliRunner().invoke(app, ["serve", str(place), "--port", "70000"])
    assert usage.exit_code == 2 and "--port" in usage.stderr


def test_help_shows_every_option_with_its_default() -> None:
    text = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "140", "NO_COLOR": "1"}).output
    for default in ("127.0.0.1", "8000", "128", "2.0", "1000", "4MB", "4096", "1.0", "cpu"):
        assert f"[default: {default}]" in text, default
