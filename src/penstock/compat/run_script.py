"""Run a script as `python SCRIPT` would: its `__main__`, arguments, path, exit code and traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from penstock.compat import cpu
from penstock.compat.missing import CompatError

INTERRUPTED = 130


def run_script(script: str, arguments: list[str]) -> None:
    """Execute `script` as the main program; an error in it is shown as Python shows it, and ends the process with 1.

    What the process is afterwards belongs to the script: use it only as the last thing a program does.
    """
    file = os.path.abspath(script)  # noqa: PTH100  (as python does it: links are not followed here)
    try:
        source = Path(file).read_bytes()
    except OSError as error:
        raise CompatError(f"cannot open {script}: {error.strerror}") from error
    main = _main_module(file)
    sys.argv = [script, *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = str(Path(file).resolve().parent)
    sys.modules["__main__"] = main
    try:
        exec(compile(source, file, "exec", dont_inherit=True), main.__dict__)
    except Exception as error:
        if (hint := cpu.hint(str(error))) is not None:
            error.add_note(hint)
        _show(error, file)
        raise SystemExit(1) from None
    except KeyboardInterrupt as error:
        _show(error, file)
        raise SystemExit(INTERRUPTED) from None


def run_in_child(
    script: str, arguments: list[str], *, force: bool = False, nvtabular: str | None = None, cpu: bool = False
) -> int:
    """Run `script` in an interpreter of its own and return its exit code; ends with this process."""
    options = ["--force"] * force + ["--cpu"] * cpu + ([f"--nvtabular={nvtabular}"] if nvtabular else [])
    child = subprocess.Popen([sys.executable, "-m", "penstock.compat", *options, "--", script, *arguments])
    try:
        while True:
            try:
                code = child.wait()
                return code if code >= 0 else 128 - code  # as a shell counts what a signal has ended
            except KeyboardInterrupt:
                continue  # the terminal has sent it to the script too, which decides what it means
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()


def _main_module(file: str) -> ModuleType:
    main: Any = ModuleType("__main__")
    main.__file__ = file
    main.__builtins__ = __builtins__
    main.__loader__ = SourceFileLoader("__main__", file)
    main.__annotations__ = {}
    main.__spec__ = main.__package__ = main.__cached__ = None
    return main


def _show(error: BaseException, file: str) -> None:
    """What Python prints, from the script's own first frame on; a syntax error in the script has none."""
    frame: TracebackType | None = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename != file:
        frame = frame.tb_next
    sys.excepthook(type(error), error.with_traceback(frame), frame)
