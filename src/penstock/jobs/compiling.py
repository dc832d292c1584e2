"""Kernels compiled before they are needed, by helper processes: beside a first job, or at the end of an installation.

numba compiles one kernel at a time in a process. Helpers compile those of `penstock.kernels.kernel_lines`, each the
next one that nobody has begun, and keep them where a job finds them; what it needs while a helper is at it, it waits
for (see `penstock.kernels.kernel_cache`). They run no job, so they leave nothing but compiled kernels.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import util
from pathlib import Path

from penstock.core.errors import PenstockError
from penstock.core.runtime.memory import available_memory
from penstock.core.runtime.threads import available_cores, start_thread
from penstock.kernels.kernel_home import is_all_compiled, is_kept, note_all_compiled
from penstock.kernels.kernel_lines import kernel_lines

_MOST = 8  # with more, the longest kernel would be waited for, and most of a helper's time be its imports
_MEMORY = 500_000_000  # bytes that a helper may come to
_NICENESS = 3  # the job goes first; but it may wait for a helper, which others must not starve
_NUMBER = 2  # bytes of a line's number
_ROWS = 3_000
_beside: list[Helpers] = []  # of the job that runs


class Helpers:
    """Processes that compile kernels; they end with this process, whatever ends it.

    Args:
        number: of processes.
        lines: of the table, by default all.

    Raises:
        OSError: the system has no room for them.
    """

    def __init__(self, number: int, lines: Iterable[str] | None = None) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        self._holding: int | None
        held, self._holding = os.pipe()  # which the system closes with this process
        numbers, filled = os.pipe()
        try:
            known = kernel_lines()
            asked = known if lines is None else lines
            os.write(filled, b"".join(known.index(line).to_bytes(_NUMBER) for line in asked))
            command = [sys.executable, "-P", "-m", __name__, str(numbers)]
            for _ in range(number):
                self._processes.append(
                    subprocess.Popen(
                        command, stdin=held, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                        pass_fds=[numbers],
                    )
                )  # fmt: skip
        except BaseException:
            self.stop()
            raise
        finally:
            for handle in (held, numbers, filled):
                os.close(handle)

    def wait(self) -> None:
        """Until all is compiled.

        Raises:
            PenstockError: a kernel could not be compiled.
        """
        said = [process.communicate()[1] for process in self._processes]
        for process, words in zip(self._processes, said, strict=True):
            if process.returncode:
                raise PenstockError(f"compiling ahead failed: {(words.strip().splitlines() or ['no words'])[-1]}")

    def stop(self) -> bool:
        """End them at once; whether they had compiled everything."""
        are_done = all(process.poll() == 0 for process in self._processes)
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            assert process.stderr is not None
            process.stderr.close()
        if self._holding is not None:
            os.close(self._holding)
            self._holding = None
        return are_done


def number_of_helpers(spare_cores: int) -> int:
    """How many pay where so many cores are left to others; none where there is no room for one."""
    memory = available_memory()
    room = _MOST if memory is None else memory // _MEMORY - 1  # the job needs some, too
    return max(0, min(available_cores() - spare_cores, _MOST, room))


@contextmanager
def compiled_beside() -> Iterator[None]:
    """A block beside which kernels are compiled, where that has not been done. What fails there is told to nobody."""
    number = number_of_helpers(spare_cores=1) if is_kept() and not is_all_compiled() else 0
    helpers = None
    with contextlib.suppress(OSError):
        helpers = Helpers(number) if number else None
    if helpers is None:
        yield
        return
    _beside.append(helpers)
    try:
        yield
    finally:
        _beside.remove(helpers)
        if helpers.stop():
            note_all_compiled()


def is_compiling() -> bool:
    """Whether kernels are being compiled beside a job of this process, or were when it began."""
    return bool(_beside)


def compile_ahead() -> float:
    """Have every kernel that text to features, training and scoring use compiled and kept; the seconds it took.

    A small job then does the whole, which compiles what is left and shows that it works.

    Raises:
        PenstockError: a kernel could not be compiled, or the job failed.
    """
    began = time.perf_counter()
    helpers = Helpers(max(1, number_of_helpers(spare_cores=0)))
    try:
        helpers.wait()
    finally:
        helpers.stop()
    note_all_compiled()
    if util.find_spec("torch") is not None:
        command = [sys.executable, "-P", "-m", __name__, "whole"]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            words = done.stderr.strip().splitlines() or ["no words"]
            raise PenstockError(f"compiling ahead failed (the whole way): {words[-1]}")
    return time.perf_counter() - began


def whole_way(place: Path) -> None:
    """A small job from click logs to scores.

    Args:
        place: a folder for it.
    """
    from penstock.jobs.demo import run_demo
    from penstock.jobs.scoring import evaluate_model, predict_files

    run_demo(None, _ROWS, place / "demo", progress=False, cardinality_cap=50)
    rows = place / "demo" / "clicks.tsv"
    evaluate_model(place / "demo", rows, progress=False)
    predict_files(place / "demo", rows, place / "scores.parquet", progress=False)


def _help(numbers: int) -> None:
    """What a helper does: lines whose numbers it takes, and at the end those that somebody was at."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; when the job ends is up to the job
    start_thread("owner", _end_with_owner)
    os.nice(_NICENESS)
    from penstock.kernels.kernel_types import compile_line, is_taken

    lines, later = kernel_lines(), []
    while number := os.read(numbers, _NUMBER):
        line = lines[int.from_bytes(number)]
        if is_taken(line):
            later.append(line)
        else:
            compile_line(line)
    for line in later:
        compile_line(line)


def _end_with_owner() -> None:
    os.read(sys.stdin.fileno(), 1)  # nothing comes, until the other end is closed
    os._exit(1)


if __name__ == "__main__":
    if sys.argv[1] == "whole":
        from penstock.data.scratch import Scratch

        scratch = Scratch()
        whole_way(scratch.path)
    else:
        _help(int(sys.argv[1]))
