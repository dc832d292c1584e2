"""Data loaders and trainers as processes of one launcher: started together, watched, ended together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from penstock.core.runtime.threads import new_thread

INTERRUPTED, TERMINATED = 130, 143
LOADER, TRAINER = "data-loader", "nn-worker"
_GLANCE = 0.05  # seconds between looks at the processes
_GRACE = 10.0  # seconds to end after being asked to
_AFTERMATH = 15.0  # seconds for a trainer to say what it lacks, once a data loader has failed
_MOMENT = 1.0  # seconds for data loaders to hear that their trainer has failed
_printing = threading.Lock()


class Process:
    """One process in a session of its own; what it prints appears line by line behind its role."""

    def __init__(self, role: str, number: int, command: Sequence[str], variables: Mapping[str, str]) -> None:
        self.role, self.name = role, f"{role}.{number}"
        self._popen = subprocess.Popen(
            list(command),
            env={**os.environ, "PYTHONUNBUFFERED": "1", **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # so that all it starts can be ended with it
        )
        self._pump = new_thread(self.name, self._print_lines)
        self._pump.start()

    def _print_lines(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            with suppress(OSError):  # nobody listens any more, as behind `| head`: the process must not wait for that
                say(self.name, line.rstrip("\n"))

    @property
    def code(self) -> int | None:
        """The exit code as a shell counts it; None while it runs."""
        code = self._popen.poll()
        return 128 - code if code is not None and code < 0 else code

    def signal(self, number: int) -> None:
        """Send a signal to it and all it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, number)

    def collect(self) -> None:
        """Take what is left of its output."""
        self._popen.wait()
        self._pump.join(5.0)


def say(who: str, line: str) -> None:
    """A line of output, whole, behind the name of who says it."""
    with _printing:
        print(f"{who:<14} | {line}", flush=True)


def supervise(processes: Sequence[Process]) -> int:
    """Wait for the end of training; the exit code: 0, that of a process that failed, or 130 after Ctrl-C."""
    # Also where a shell started this in the background, which makes programs deaf to Ctrl-C's signal.
    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, _terminate),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
    }
    try:
        return _watch(processes)
    except KeyboardInterrupt:
        say("launcher", "stopped; ending all processes")
        with suppress(KeyboardInterrupt):  # a second one ends the waiting
            _end(processes, signal.SIGINT)
        return INTERRUPTED
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _end(processes, signal.SIGTERM)


def _terminate(*_: object) -> None:
    raise SystemExit(TERMINATED)


def _watch(processes: Sequence[Process]) -> int:
    trainers = [process for process in processes if process.role == TRAINER]
    loaders = [process for process in processes if process.role == LOADER]
    while True:
        if any(process.code for process in processes):
            return _failure(processes, trainers)
        if all(process.code == 0 for process in trainers):
            _wait(loaders, _GRACE)
            return 0
        time.sleep(_GLANCE)


def _failure(processes: Sequence[Process], trainers: Sequence[Process]) -> int:
    """Say who has failed, once a trainer that misses its data loader (or the other way round) has said so too."""
    first = next(process for process in processes if process.code)
    others = trainers if first.role == LOADER else [process for process in processes if process.role == LOADER]
    _wait(others, _AFTERMATH if first.role == LOADER else _MOMENT)
    failed = [process for process in processes if process.code]
    ends = " and ".join(f"{process.name} with exit code {process.code}" for process in failed)
    say("launcher", f"ended: {ends}; ending the others")
    return failed[0].code or 1


def _wait(processes: Sequence[Process], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(process.code is None for process in processes) and time.monotonic() < deadline:
        time.sleep(_GLANCE)


def _end(processes: Sequence[Process], first: int) -> None:
    """End what still runs: with a signal, and with force where that does not help."""
    running = [process for process in processes if process.code is None]
    for process in running:
        process.signal(first)
    try:
        _wait(running, _GRACE)
    finally:
        for process in processes:
            process.signal(signal.SIGKILL)  # also what a process that has ended left behind
            process.collect()
    sys.stdout.flush()
