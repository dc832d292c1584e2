"""A model behind HTTP, asked by several clients at once: python examples/serve_client.py [ROWS]

Trains a small click model on made-up logs, serves it on a free port of this machine, and sends it raw rows from eight
threads, as a web tier would. Answers are compared with offline prediction. To ask a service that runs already, all it
takes is `ask()`.
"""

import json
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.data.synthetic import CRITEO_NAMES, criteo
from penstock.etl import presets
from penstock.jobs import TrainJob
from penstock.serve import Predictor
from penstock.serve.http import HttpServer


def ask(url: str, rows: list[dict]) -> list[float]:
    """The probabilities of some rows."""
    body = json.dumps({"rows": rows}).encode()
    request = urllib.request.Request(f"{url}/predict", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["probabilities"]


def raw_rows(source: Path, count: int) -> list[dict]:
    """Rows as a service gets them: counts as numbers, hashed ids as text, missing values as None."""
    rows = []
    for line in source.read_text().splitlines()[:count]:
        fields = dict(zip(CRITEO_NAMES, line.split("\t"), strict=True))
        del fields["label"]
        rows.append({name: (text if name[0] == "C" else int(text)) if text else None for name, text in fields.items()})
    return rows


def main(num_rows: int = 50_000) -> None:
    place = Path(tempfile.mkdtemp(prefix="penstock-example-"))
    criteo(place / "day.tsv", num_rows, cardinalities=5_000)
    found = TrainJob(place / "day.tsv", place / "run", presets.load("criteo"), settings={"epochs": 1}).run()
    print(f"trained: AUC {found.auc:.4f}")

    rows = raw_rows(place / "day.tsv", 1_000)
    with HttpServer(place / "run", port=0) as server:
        print(f"serving on {server.url}")
        began = time.perf_counter()
        with ThreadPoolExecutor(8) as clients:
            answers = list(clients.map(lambda row: ask(server.url, [row])[0], rows))
        seconds = time.perf_counter() - began
        with urllib.request.urlopen(f"{server.url}/metrics") as metrics:
            counted = dict(line.rsplit(" ", 1) for line in metrics.read().decode().splitlines() if line[0] != "#")
        batches = float(counted["penstock_batch_rows_count"])
        print(f"{len(rows)} requests of one row in {seconds:.2f} s, predicted in {batches:.0f} batches")

    with Predictor(place / "run" / "model") as offline:
        largest = max(abs(one - two) for one, two in zip(answers, offline.predict(rows).tolist(), strict=True))
    print(f"largest difference to offline prediction: {largest:.1e}")
    assert largest < 1e-6


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
