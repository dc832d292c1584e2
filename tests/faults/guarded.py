"""Cases by seed in a process with limits on memory and time, so that one that crashes or hangs is a finding.

A script calls `serve(check)`; a test calls `sweep(script, seeds)`. The worker notes in a small file which case
it is at, and whether it is asking Penstock or a peer: a peer that dies is no finding of ours.
"""

from __future__ import annotations

import mmap
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

MEMORY = 3 << 30  # bytes beyond what the process has when it begins
SECONDS = 10  # of processor time for one case
PATIENCE = 120  # seconds by the clock
OURS, PEERS = 0, 1
_RECORD = struct.Struct("<qq")
_place: mmap.mmap | None = None
_seed = 0


@dataclass
class Found:
    """What a sweep came to: `findings` are (seed, what happened)."""

    tries: int = 0
    read: int = 0
    refused: int = 0
    peer_deaths: int = 0
    findings: list[tuple[int, str]] = field(default_factory=list)


def asking(whom: int) -> None:
    """Called by a check before it asks a peer, and before it asks Penstock again."""
    if _place is not None:
        _place[: _RECORD.size] = _RECORD.pack(_seed, whom)


def serve(check: Callable[[int], str]) -> None:
    """Run `check(seed)` for the seeds that the command line names; it says "read", "refused" or what is wrong."""
    global _place, _seed
    note, seeds = sys.argv[1], [int(seed) for seed in Path(sys.argv[2]).read_text().split()]
    with Path(note).open("r+b") as file:
        _place = mmap.mmap(file.fileno(), _RECORD.size)
    check(seeds[0])  # compiles and imports before limits are set
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * mmap.PAGESIZE + MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for _seed in seeds:
        asking(OURS)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(PATIENCE)
        print(_seed, check(_seed).replace("\n", " ")[:400], flush=True)
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.alarm(0)


def sweep(script: Path, seeds: Iterable[int], environment: dict[str, str] | None = None) -> Found:
    """Run the cases of these seeds (no seed twice); a worker that dies is replaced behind the case it died of."""
    found, left = Found(), list(seeds)
    with tempfile.TemporaryDirectory() as folder:
        note, list_of_seeds = Path(folder) / "note", Path(folder) / "seeds"
        while left:
            note.write_bytes(_RECORD.pack(left[0], OURS))
            list_of_seeds.write_text(" ".join(map(str, left)))
            worker = subprocess.run(
                [sys.executable, str(script), str(note), str(list_of_seeds)],
                capture_output=True, text=True, env={**os.environ, **(environment or {}), "TMPDIR": folder},
            )  # fmt: skip
            _count(found, worker.stdout)
            if worker.returncode == 0:
                break
            seed, whom = _RECORD.unpack(note.read_bytes())
            found.tries += 1
            if whom == PEERS:
                found.peer_deaths += 1
            else:
                code = worker.returncode
                how = signal.Signals(-code).name if code < 0 else f"exit {code}"
                found.findings.append((seed, f"died: {how}: {worker.stderr[-800:]}"))
            left = left[left.index(seed) + 1 :]
    return found


def _count(found: Found, lines: str) -> None:
    for line in lines.splitlines():
        seed, _, what = line.partition(" ")
        found.tries += 1
        if what == "read":
            found.read += 1
        elif what == "refused":
            found.refused += 1
        else:
            found.findings.append((int(seed), what))


def main(script: str) -> None:
    """Sweep by hand: `python <script> sweep FIRST COUNT` prints what was found."""
    first, count = int(sys.argv[2]), int(sys.argv[3])
    found = sweep(Path(script), range(first, first + count))
    for seed, what in found.findings:
        print(f"seed {seed}: {what}")
    print(f"{found.tries} tries: {found.read} read, {found.refused} refused, {len(found.findings)} findings, "
          f"{found.peer_deaths} deaths of peers")  # fmt: skip
