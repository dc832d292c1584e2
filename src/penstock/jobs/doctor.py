"""What `penstock doctor` finds out: what is installed, what the machine has, and whether it all works together."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from penstock.report.machine import gpus, machine_facts
from penstock.report.words import data_size

_REQUIREMENT = re.compile(r"^([\w.-]+)(?:\[([\w,-]+)\])?([^;]*)(?:;.*extra == ['\"]([\w-]+)['\"])?")
_BOUND = re.compile(r"(>=|<=|<|>|==|!=)\s*([\w.]+)")
_INSTEAD = {"tensorflow-cpu": ("tensorflow", "tensorflow-gpu", "tf-nightly")}  # the same under other names
_NOT_FOR_USERS = ("all", "dev", "docs")
_LEAST_DISK = 2_000_000_000  # bytes below which spilled rows may not fit


def examine(run_self_test: bool = True) -> dict[str, Any]:
    """Everything as plain data; `problems` are what keeps Penstock from working, `hints` what it could do besides.

    >>> found = examine(run_self_test=False)
    >>> found["ok"], found["packages"][0]["name"]
    (True, 'numpy')
    """
    test = self_test() if run_self_test else None
    version = _version("penstock")
    packages, extras = requirements(metadata.requires("penstock") or [] if version is not None else [])
    temporary = tempfile.gettempdir()
    free = shutil.disk_usage(temporary).free
    problems = [f"{p['name']}: {p['problem']}; run: pip install '{p['wanted']}'" for p in packages if p["problem"]]
    if test is not None and not test["ok"]:
        problems.append(f"the self-test failed at {test['stage']}: {test['error']}")
    hints = [f"{temporary} has {data_size(free)} free; set PENSTOCK_SCRATCH to a larger disk"] * (free < _LEAST_DISK)
    hints += [f"extra {e['name']}: {p}; run: {e['command']}" for e in extras for p in e["problems"]]
    if version is None:
        hints.append("penstock runs from its sources and is not installed, so what it requires is not known here")
    found = gpus()
    if not found and shutil.which("nvidia-smi"):
        hints.append("an NVIDIA driver is here, and torch sees no GPU; install a torch that was built with CUDA")
    return {
        "ok": not problems,
        "penstock": version,
        "machine": {**machine_facts(), "gpus": found, "temporary": temporary, "free_bytes": free},
        "packages": packages,
        "extras": extras,
        "self_test": test,
        "problems": problems,
        "hints": hints,
    }


# What is installed.


def requirements(lines: Iterable[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The base packages and the extras, from the requirements in a distribution's metadata.

    >>> base, extras = requirements(["numpy>=2.0", "nosuchthing>=1; extra == 'x'", "penstock[x]; extra == 'y'"])
    >>> base[0]["problem"], [(e["name"], e["state"], e["missing"]) for e in extras]
    (None, [('x', 'missing', ['nosuchthing']), ('y', 'missing', ['nosuchthing'])])
    """
    groups: dict[str, list[dict[str, Any]]] = {"": []}
    includes: dict[str, list[str]] = {}
    for line in lines:
        matched = _REQUIREMENT.match(line.strip())
        if matched is None:
            continue
        name, others, bounds, extra = matched[1], matched[2], matched[3].strip(), matched[4] or ""
        if name == "penstock":
            includes.setdefault(extra, []).extend((others or "").split(","))
            groups.setdefault(extra, [])
        else:
            groups.setdefault(extra, []).append(_package(name, bounds))
    extras = [_extra(name, groups, includes) for name in groups if name and name not in _NOT_FOR_USERS]
    return groups[""], sorted(extras, key=lambda extra: extra["name"])


def _package(name: str, bounds: str) -> dict[str, Any]:
    version = next((v for n in (name, *_INSTEAD.get(name, ())) if (v := _version(n)) is not None), None)
    problem = None
    if version is None:
        problem = "is not installed"
    elif any(not _holds(version, sign, bound) for sign, bound in _BOUND.findall(bounds)):
        problem = f"is {version}, and {bounds} is needed"
    return {"name": name, "wanted": f"{name}{bounds}", "version": version, "problem": problem}


def _extra(name: str, groups: Mapping[str, list[dict[str, Any]]], includes: Mapping[str, list[str]]) -> dict[str, Any]:
    packages = [*groups[name], *(p for other in includes.get(name, []) for p in groups.get(other, []))]
    missing = [p["name"] for p in packages if p["version"] is None]
    wrong = [f"{p['name']} {p['problem']}" for p in packages if p["problem"] and p["version"] is not None]
    state = "missing" if missing else ("outdated" if wrong else "installed")
    return {
        "name": name,
        "state": state,
        "versions": {p["name"]: p["version"] for p in packages if p["version"] is not None},
        "missing": missing,
        "problems": wrong,
        "command": None if state == "installed" else f"pip install 'penstock[{name}]'",
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _holds(version: str, sign: str, bound: str) -> bool:
    ours, other = _numbers(version), _numbers(bound)
    length = max(len(ours), len(other))
    a, b = (tuple(n) + (0,) * (length - len(n)) for n in (ours, other))
    return {">=": a >= b, "<=": a <= b, "<": a < b, ">": a > b, "==": a == b, "!=": a != b}[sign]


def _numbers(version: str) -> list[int]:
    """The release of a version: what stands before `+cpu`, `rc1` and the like.

    >>> _numbers("2.13.0+cpu"), _numbers("1.0rc2")
    ([2, 13, 0], [1, 0])
    """
    return [int(n) for n in re.match(r"[\d.]*", version)[0].strip(".").split(".") if n]  # type: ignore[index]


# Whether it works.


@dataclass
class _SelfTest:
    """Stages one after the other; the first that fails ends it."""

    stage: str = "begin"
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, stage: str) -> Any:
        self.stage = stage
        began = time.perf_counter()
        yield
        self.seconds[stage] = round(time.perf_counter() - began, 3)


def self_test(num_rows: int = 2_000) -> dict[str, Any]:
    """Click logs → features → batches → a few training steps → a saved model → predictions, for real.

    Without torch it ends behind the batches. Gives `ok`, the seconds of each stage, and, when it failed, the `stage`
    and the `error`.
    """
    test = _SelfTest()
    with tempfile.TemporaryDirectory(prefix="penstock-doctor-") as place:
        try:
            trained = _run(test, Path(place), num_rows)
        except Exception as error:  # whatever is broken here is the finding
            found = {"error": f"{type(error).__name__}: {error}", "stage": test.stage, "ok": False, "trained": False}
        else:
            found = {"error": None, "stage": None, "ok": True, "trained": trained}
    return {**found, "seconds": {**test.seconds, "total": round(sum(test.seconds.values()), 3)}}


def _run(test: _SelfTest, place: Path, num_rows: int) -> bool:
    with test.timed("import"):
        from penstock.data import synthetic
        from penstock.etl import presets
        from penstock.jobs.etl import EtlJob
        from penstock.loader import Loader
    with test.timed("synth"):
        made = synthetic.criteo(place / "day.tsv", num_rows, cardinalities=50, progress=False)
    with test.timed("etl"):
        EtlJob([str(made.path)], str(place / "features"), recipe=presets.load("criteo"), progress=False).run()
    with test.timed("loader"):
        rows = sum(len(labels) for _, labels in Loader(str(place / "features"), 256, shuffle=True))
        _expect(rows == num_rows, f"the loader gave {rows} of {num_rows} rows")
    if _version("torch") is None:
        return False
    with test.timed("import torch"):
        from penstock.jobs import TrainJob
        from penstock.serve import Predictor  # brings it
    with test.timed("train"):
        settings = {"epochs": 1, "batch_size": 256, "embedding_dim": 8, "device": "cpu"}
        found = TrainJob(place / "features", place / "run", settings=settings, progress=False, num_examples=0).run()
        _expect(found.embedding_rows > 0 and found.auc is not None, "training left no embeddings")
    with test.timed("predict"), Predictor(found.model) as predictor:
        lines = made.path.read_text().splitlines()[:4]
        names = presets.load("criteo")["input"]["names"]
        raw = [_row(line, names) for line in lines]
        scores = predictor.predict(raw)
        _expect(len(scores) == 4 and all(0 < score < 1 for score in scores), f"predictions were {scores}")
    return True


def _row(line: str, names: list[str]) -> dict[str, Any]:
    """A raw row as a service would send it: numbers as numbers, hashed categories as text."""
    pairs = zip(names, line.split("\t"), strict=True)
    return {n: None if not v else (v if n.startswith("C") else int(v)) for n, v in pairs if n != "label"}


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise RuntimeError(otherwise)
