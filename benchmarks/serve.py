"""Serving over HTTP: `python benchmarks/serve.py [--seconds S] [--rounds N] [--no-wrk]`.

A DLRM over the 39 Criteo columns behind `penstock serve`, asked on loopback with hexadecimal ids in JSON, by wrk where
it is installed and by a small asyncio client elsewhere. The service, its peers and the load share the machine's cores.

`serve/latency`: milliseconds, one connection, one row; median, with the 99th percentile beside it.
`serve/rows`: rows/s, 64 connections, one row a request: batching is what helps here.
`serve/rows_32`: the same with 32 connections.
`serve/rows_100`: rows/s, 32 connections, 100 rows a request.

Peers: `naive_fastapi`, the same Predictor called once for each request from a FastAPI function with a pydantic body, as
one would write it first; `limit`, the Predictor in this process, called with one row, or with as many rows as there are
connections, without HTTP or JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from harness import Claim, report

SETTINGS = {"latency": (1, 1), "rows_32": (32, 1), "rows": (64, 1), "rows_100": (32, 100)}  # connections, rows

LUA = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local file = io.open("{body}"); wrk.body = file:read("*a"); file:close()
function done(summary, latency, requests)
  local wrong = summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.timeout
  io.write(string.format("RESULT %d %d %d %f %f\\n", summary.requests, summary.duration, wrong,
                         latency:percentile(50), latency:percentile(99)))
end
"""


@dataclass
class Load:
    """What one run of the load generator saw."""

    rows_per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us_per_row: float = float("nan")


def make_model(folder: Path, num_rows: int) -> tuple[Path, list[dict[str, Any]]]:
    """A saved DLRM with embeddings for the ids of a log, and raw rows to ask for."""
    import torch

    from penstock import Dataset, Workflow
    from penstock.data.synthetic import CRITEO_DTYPES, CRITEO_NAMES, criteo
    from penstock.embedding import Adagrad, Store, slots_from_schema
    from penstock.etl import presets
    from penstock.loader.torch import Loader
    from penstock.nn import DLRM
    from penstock.serve import save_model

    source = folder / "clicks.tsv"
    criteo(source, num_rows)
    recipe = presets.load("criteo")
    roles = recipe["input"]["roles"]
    data = Dataset(source, names=CRITEO_NAMES, dtypes=CRITEO_DTYPES).with_roles(**roles)
    workflow = Workflow.from_recipe(recipe)
    loader = Loader(Dataset(workflow.fit_transform(data).to_polars(), schema=workflow.output_schema), 8192)
    torch.manual_seed(0)
    model = DLRM(workflow.output_schema, 16)
    with Store(slots_from_schema(workflow.output_schema, 16), Adagrad()) as store:
        for batch in loader:
            columns = batch[0]
            store.lookup({name: columns[name] for name in model.categorical})  # a row for every id
        save_model(folder / "model", workflow, model, store)
    rows = []
    for line in source.read_text().splitlines()[:100]:
        fields = dict(zip(CRITEO_NAMES, line.split("\t"), strict=True))
        del fields["label"]
        rows.append({n: (v if n[0] == "C" else int(v)) if v else None for n, v in fields.items()})
    return folder / "model", rows


class Server:
    """A serving process on a port of its own."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found, f"{command} said {line!r}"
        self.port = int(found[1])
        for _ in range(200):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)

    def ask(self, body: bytes) -> Any:
        url, headers = f"http://127.0.0.1:{self.port}/predict", {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
            return json.load(answer)

    def cpu_seconds(self) -> float:
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return float("nan")
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def loaded(server: Server, body: Path, connections: int, rows: int, seconds: float, with_wrk: bool) -> Load:
    before = server.cpu_seconds()
    generate = with_wrk_client if with_wrk else with_own_client
    requests, took, p50, p99 = generate(server.port, body, connections, seconds)
    cpu = (server.cpu_seconds() - before) / max(1, requests * rows) * 1e6
    return Load(requests * rows / took, p50 / 1000, p99 / 1000, cpu)


def with_wrk_client(port: int, body: Path, connections: int, seconds: float) -> tuple[int, float, float, float]:
    script = body.with_suffix(".lua")
    script.write_text(LUA.replace("{body}", str(body)))
    whole = max(1, round(seconds))
    command = ["wrk", "-t1", f"-c{connections}", f"-d{whole}s", "-s", str(script), f"http://127.0.0.1:{port}/predict"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\S+) (\S+)", out)
    assert found and found[3] == "0", out
    return int(found[1]), int(found[2]) / 1e6, float(found[4]), float(found[5])


def with_own_client(port: int, body: Path, connections: int, seconds: float) -> tuple[int, float, float, float]:
    content = body.read_bytes()
    head = (
        "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    request, times = head.encode() + content, []

    async def ask(until: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < until:
            began = time.perf_counter()
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200 "), answer
            length = re.search(rb"content-length: (\d+)", answer)
            assert length
            await reader.readexactly(int(length[1]))
            times.append((time.perf_counter() - began) * 1e6)
        writer.close()

    async def all_of_them() -> None:
        until = time.perf_counter() + seconds
        await asyncio.gather(*(ask(until) for _ in range(connections)))

    began = time.perf_counter()
    asyncio.run(all_of_them())
    cuts = statistics.quantiles(times, n=100)
    return len(times), time.perf_counter() - began, cuts[49], cuts[98]


def serve_naively(model: str) -> None:
    """The peer: what one writes first."""
    import socket

    import uvicorn
    from fastapi import Body, FastAPI

    from penstock.serve import Predictor

    predictor, app = Predictor(model), FastAPI()

    @app.post("/predict")
    def predict(rows: list[dict[str, Any]] = Body(embed=True)) -> dict[str, list[float]]:  # noqa: B008
        return {"probabilities": predictor.predict(rows).tolist()}

    @app.get("/healthz")
    def healthz() -> dict[str, bool]:
        return {"ready": True}

    with socket.create_server(("127.0.0.1", 0)) as bound:
        print(f"http://127.0.0.1:{bound.getsockname()[1]}", flush=True)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        server.run([bound])


def in_process(model: Path, rows: list[dict[str, Any]], seconds: float) -> dict[str, Load]:
    """The Predictor by itself, for each setting."""
    from penstock.serve import Predictor

    out = {}
    with Predictor(model) as predictor:
        for name, (connections, count) in SETTINGS.items():
            batch = (rows * 40)[: connections * count]
            predictor.predict(batch)
            times, until = [], time.perf_counter() + seconds
            while time.perf_counter() < until or len(times) < 3:
                began = time.perf_counter()
                predictor.predict(batch)
                times.append(time.perf_counter() - began)
            quietest = min(statistics.median(times[i : i + 20]) for i in range(0, len(times), 20))
            out[name] = Load(len(batch) / min(times), quietest * 1e3, max(times) * 1e3)
    return out


def better(one: Load | None, other: Load) -> Load:
    return other if one is None or other.rows_per_second > one.rows_per_second else one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="of the log that the model is made from")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each run of the load generator")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--no-wrk", action="store_true", help="use the asyncio client also where wrk is installed")
    parser.add_argument("--naive", metavar="MODEL_DIR", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.naive:
        serve_naively(args.naive)
        return
    with_wrk = shutil.which("wrk") is not None and not args.no_wrk
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model, rows = make_model(folder, args.rows)
        bodies = {}
        for count in (1, 100):
            bodies[count] = folder / f"rows-{count}.json"
            bodies[count].write_text(json.dumps({"rows": rows[:count]}))
        limit = in_process(model, rows, min(1.0, args.seconds))
        command = [sys.executable, "-m", "penstock", "serve", str(model), "--port", "0"]
        servers = {"penstock": Server(command)}
        try:
            servers["naive_fastapi"] = Server([sys.executable, __file__, "--naive", str(model)])
            expected = check(model, rows, servers, bodies[100].read_bytes())
            found = measured(servers, bodies, args, with_wrk)
        finally:
            for server in servers.values():
                server.stop()
    client = "wrk" if with_wrk else "asyncio client"
    report(f"A DLRM over 39 columns behind HTTP, asked by {client}; {expected}", claims(found, limit))


def check(model: Path, rows: list[dict[str, Any]], servers: dict[str, Server], body: bytes) -> str:
    """Both services give what the predictor gives."""
    from penstock.serve import Predictor

    with Predictor(model) as predictor:
        offline = predictor.predict(rows)
    for server in servers.values():
        assert np.array_equal(np.array(server.ask(body)["probabilities"], np.float32), offline)
    return "answers equal offline prediction"


def measured(servers: dict[str, Server], bodies: dict[int, Path], args: Any, with_wrk: bool) -> dict[str, Any]:
    """The best of several rounds for each setting and server, the servers taking turns."""
    found: dict[str, dict[str, Load]] = {name: {} for name in SETTINGS}
    for _ in range(args.rounds):
        for setting, (connections, count) in SETTINGS.items():
            for name, server in servers.items():
                load = loaded(server, bodies[count], connections, count, args.seconds, with_wrk)
                found[setting][name] = better(found[setting].get(name), load)
    return found


def claims(found: dict[str, dict[str, Load]], limit: dict[str, Load]) -> list[Claim]:
    out = []
    for setting, loads in found.items():
        own, naive, bare = loads["penstock"], loads["naive_fastapi"], limit[setting]
        extra: dict[str, object] = {
            "p50_ms": {"penstock": round(own.p50_ms, 3), "naive_fastapi": round(naive.p50_ms, 3)},
            "p99_ms": {"penstock": round(own.p99_ms, 3), "naive_fastapi": round(naive.p99_ms, 3)},
            "cpu_us_per_row": {"penstock": round(own.cpu_us_per_row), "naive_fastapi": round(naive.cpu_us_per_row)},
        }
        if setting == "latency":
            peers = {"naive_fastapi": naive.p50_ms, "limit": bare.p50_ms}
            out.append(Claim("serve/latency", "ms", own.p50_ms, peers, higher_is_better=False, extra=extra))
        else:
            peers = {"naive_fastapi": naive.rows_per_second, "limit": bare.rows_per_second}
            out.append(Claim(f"serve/{setting}", "rows/s", own.rows_per_second, peers, extra=extra))
    return out


if __name__ == "__main__":
    main()
