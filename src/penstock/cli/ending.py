"""The end of a process: what has to run does, and the system takes the rest at once.

Python would take all that the process has apart first, object by object and library by library, for a second or more.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import sys
import threading

_WRITTEN = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


def end_at_once(error: SystemExit) -> None:
    """End this process as the exception would, but for the taking apart.

    Waited for are threads that keep a process alive; called is what was registered for the end: scratch folders go,
    logs are closed, Ray is told. Returns where a debugger or a profiler is to see the end, or where what was printed
    cannot be written: then Python ends the process, and says why.
    """
    first = [getattr(threading, "_shutdown", None), getattr(atexit, "_run_exitfuncs", None)]  # as Python does
    if None in first or sys.gettrace() is not None or sys.getprofile() is not None:
        return
    code = _code_of(error)
    for function in first:
        function()  # type: ignore[misc]
    _flush_files()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BrokenPipeError:  # nobody reads any more
            continue
        except OSError:
            return
    os._exit(code)


def _code_of(error: SystemExit) -> int:
    """As Python reads it: nothing is 0, a number itself, and words are told, with 1."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _flush_files() -> None:
    """Files that nobody has closed, a user's own code say, get what was written to them."""
    for found in gc.get_objects():
        if type(found) in _WRITTEN and found is not sys.stdout and found is not sys.stderr:
            with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads it
                found.flush()
