"""Threads, pools and fork hooks are made in `core/runtime` and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import penstock

ROOT = Path(penstock.__file__).parent
MODULES = [p for p in sorted(ROOT.rglob("*.py")) if "core/runtime/" not in p.as_posix()]
# What makes a thread, asks which process this is, hooks into forks, or counts cores.
OWNED = {
    "Thread", "Timer", "ThreadPoolExecutor", "ThreadPool", "register_at_fork", "getpid", "fork", "cpu_count",
    "sched_getaffinity", "process_cpu_count", "start_new_thread",
}  # fmt: skip
MODULES_OF = ("threading", "_thread", "os", "multiprocessing", "concurrent.futures", "multiprocessing.pool")


def uses(source: str) -> Iterator[tuple[int, str]]:
    """`(line, name)` of every use of an owned name of the standard library; `threading.Thread` as a type is none."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in MODULES_OF:
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in OWNED)
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", None)
            if name in OWNED and ast.unparse(node.func).rpartition(".")[0] in MODULES_OF:
                yield node.lineno, name


def test_only_the_runtime_makes_threads() -> None:
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in MODULES}
    # Reading is cheap, parsing is not: only files that have one of the names.
    texts = {path: text for path, text in texts.items() if any(name in text for name in OWNED)}
    found = {path: names for path, text in texts.items() if (names := list(uses(text)))}
    assert not found, f"{found}; use penstock.core.runtime"


def test_the_check_sees_what_it_should() -> None:
    source = "import os\nfrom concurrent.futures import ThreadPoolExecutor\nthreading.Thread()\nos.getpid()\n"
    assert [name for _, name in uses(source)] == ["ThreadPoolExecutor", "Thread", "getpid"]
    assert not list(uses("import threading\nx: threading.Thread\nclass Thread: ...\nThread()"))
