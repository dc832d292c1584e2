"""Run a notebook from the top, old imports activated, showing each cell as it runs and keeping what it put out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.compat import cpu as cpu_mapping
from penstock.compat.missing import CompatError
from penstock.core.artefact import replacing
from penstock.core.errors import DataError
from penstock.core.extras import require


@dataclass(frozen=True)
class Outcome:
    """What running a notebook came to: where it was written, and the cell (from 1) and error it stopped at, if any."""

    output: Path
    cells: int
    seconds: float
    failed: int | None = None
    error: str = ""
    signal: int | None = None  # what stopped it from outside

    def __str__(self) -> str:
        if self.failed is None:
            return f"{self.cells} cells in {self.seconds:.1f} s, written to {self.output}"
        what = "failed: " * (self.signal is None) + self.error
        return f"cell {self.failed} {what}; what ran before it was written to {self.output}"


def run_notebook(
    notebook: str | Path,
    arguments: list[str] | None = None,
    output: str | Path | None = None,
    show: Callable[[str], None] = print,
    **activation: Any,
) -> Outcome:
    """Execute every cell in a fresh kernel of this interpreter and write the result, also when a cell fails.

    `output` is `NAME.executed.ipynb` beside the notebook by default; `arguments` become `sys.argv[1:]`; the rest goes
    to `penstock.compat.activate`. Like Jupyter it runs in the notebook's own folder.
    """
    source = Path(notebook)
    place = Path(output) if output is not None else source.with_name(f"{source.stem}.executed.ipynb")
    if not place.parent.is_dir():
        raise CompatError(f"cannot write {place}: there is no folder {place.parent}")
    content = read_notebook(source)
    for cell in content.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    started = time.perf_counter()
    outcome: dict[str, Any] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-") as sockets:
            screen = Screen(show)
            client = _client(content, source, screen, sockets)
            outcome = asyncio.run(_execute(client, _setup(source, arguments or [], activation), screen))
    finally:  # whatever happens: what has run is kept
        if any(cell.get("execution_count") for cell in content.cells):
            with replacing(place) as partial:
                require("nbformat", "notebook").write(content, partial)
    return Outcome(place, outcome.pop("cells"), time.perf_counter() - started, **outcome)


def read_notebook(path: Path) -> Any:
    """The notebook in nbformat 4, or an error that names the file and what is wrong with it."""
    nbformat = require("nbformat", "notebook")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CompatError(f"cannot open {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a notebook: {error}") from error
    try:
        content = nbformat.reads(text, as_version=4)
        nbformat.validate(content)
    except (nbformat.ValidationError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise DataError(f"{path} is not a notebook: {reason}") from error
    return content


def _setup(source: Path, arguments: list[str], activation: dict[str, Any]) -> str:
    # Keras tells a notebook by that module of IPython, which newer ones import late: there `plot_model` does not fail.
    return (
        f"import sys, penstock.compat, IPython.core.magics.namespace\nsys.argv = {[str(source), *arguments]!r}\n"
        f"penstock.compat.activate(**{activation!r})\ndel sys, penstock, IPython"
    )


def _client(content: Any, source: Path, screen: Screen, sockets: str) -> Any:
    nbclient: Any = require("nbclient", "notebook")

    class Showing(nbclient.NotebookClient):
        """Hands on every output as it arrives."""

        def process_message(self, message: dict, cell: Any, cell_index: int) -> Any:
            output = super().process_message(message, cell, cell_index)
            if output is not None:
                screen.show(output)
            return output

    return Showing(
        content, kernel_manager_class=_kernel_manager(sockets), kernel_name="python3", timeout=None,
        record_timing=False, coalesce_streams=True, resources={"metadata": {"path": str(source.resolve().parent)}},
    )  # fmt: skip


def _kernel_manager(sockets: str) -> type:
    """A kernel of this interpreter, whatever kernel the notebook names: that one may be another machine's."""
    require("ipykernel", "notebook")
    from ipykernel.kernelspec import make_ipkernel_cmd
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager

    class Here(AsyncKernelManager):
        kernel_spec = KernelSpec(argv=make_ipkernel_cmd(), display_name="Python 3", language="python")

        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            if os.name == "posix":
                self.transport, self.ip = "ipc", f"{sockets}/kernel"  # over TCP others on the machine could listen

    return Here


async def _execute(client: Any, setup: str, screen: Screen) -> dict[str, Any]:
    """Run the cells one by one; what they came to, as arguments of `Outcome`."""
    exceptions = require("nbclient.exceptions", "notebook")
    cells = [(i, cell) for i, cell in enumerate(client.nb.cells) if cell.cell_type == "code" and cell.source.strip()]
    client.reset_execution_trackers()
    async with client.async_setup_kernel():
        signals = _on_signals(client)
        await _prepare(client, setup)
        for number, (index, cell) in enumerate(cells, 1):
            screen.line(f"[{number}/{len(cells)}] {head_of(cell.source)}")
            began = time.perf_counter()
            try:
                await client.async_execute_cell(cell, index)
            except exceptions.CellExecutionError as error:
                text = "stopped" if signals else _error_of(error.ename, error.evalue)
                return {"cells": number, "failed": number, "error": text, "signal": next(iter(signals), None)}
            except exceptions.DeadKernelError:
                text = "stopped" if signals else "the kernel died (out of memory?)"
                return {"cells": number, "failed": number, "error": text, "signal": next(iter(signals), None)}
            screen.line(f"    {time.perf_counter() - began:.1f} s")
        return {"cells": len(cells)}


async def _prepare(client: Any, setup: str) -> None:
    """Activate the old names, before the first cell and without a trace in the notebook."""
    silently = {"silent": True, "store_history": False, "output_hook": lambda message: None}
    reply = (await client.kc.execute_interactive(setup, **silently))["content"]
    if reply["status"] != "ok":
        raise CompatError(f"{reply.get('evalue', reply['status'])}")
    info = await client.async_wait_for_reply(client.kc.kernel_info())
    client.nb.metadata["language_info"] = info["content"]["language_info"]


def _on_signals(client: Any) -> list[int]:
    """Ctrl-C and SIGTERM interrupt the cell that runs, a second one ends the kernel; the list of what has come."""
    loop, came = asyncio.get_running_loop(), list[int]()

    def stop(number: int) -> None:
        came.append(number)
        end = client.km.interrupt_kernel() if len(came) == 1 else client.km.shutdown_kernel(now=True)
        pending.add(loop.create_task(end))

    pending: set[Any] = set()  # a task that nobody holds may vanish
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # Windows; not the main thread
            loop.add_signal_handler(number, stop, number)
    return came


def _error_of(name: str, value: str) -> str:
    said = f"{name}: {value}"
    hint = cpu_mapping.hint(said)
    return f"{said} ({hint})" if hint else said


# What a notebook puts out, as lines on a terminal.

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_REWRITES = re.compile(r"[\r\b]+")  # how progress bars go back to the beginning of their line
_INDENT = "    "


class Screen:
    """Shows outputs as they come: whole lines only, so that a progress bar is one line and not hundreds.

    >>> screen = Screen(print)
    >>> screen.show({"output_type": "stream", "text": "1/2"})
    >>> screen.show({"output_type": "stream", "text": "\\r2/2 done\\nnext"})
        2/2 done
    >>> screen.line("[2/2] x = 1")
        next
    [2/2] x = 1
    """

    def __init__(self, show: Callable[[str], None], most: int = 20) -> None:
        self._show, self._most, self._open = show, most, ""

    def line(self, text: str) -> None:
        """A line of our own, after what is still open."""
        self._finish()
        self._show(text)

    def show(self, output: Any) -> None:
        """An output of the kernel: text as it is, of anything else its plain form; what is long is cut."""
        if output["output_type"] == "stream":
            *lines, self._open = (self._open + output["text"]).split("\n")
            self._print([_REWRITES.split(line)[-1] for line in lines])
            return
        self._finish()
        if output["output_type"] == "error":
            self._print("\n".join(output["traceback"]).splitlines(), cut=False)
        else:
            data = output.get("data", {})
            self._print(str(data.get("text/plain") or f"<{', '.join(data)}>").splitlines())

    def _finish(self) -> None:
        left, self._open = _REWRITES.split(self._open)[-1], ""
        self._print([left] if left else [])

    def _print(self, lines: list[str], cut: bool = True) -> None:
        shown = lines[: self._most] if cut else lines
        if more := len(lines) - len(shown):
            shown = [*shown, f"… ({more} more lines)"]
        for line in shown:
            self._show(_INDENT + _COLOURS.sub("", line))


def head_of(source: str, width: int = 100) -> str:
    """The first line of a cell that says something.

    >>> head_of("# load\\nimport os\\nimport sys")
    'import os … (3 lines)'
    """
    lines = [line for line in source.splitlines() if line.strip()]
    line = next((line for line in lines if not line.lstrip().startswith("#")), lines[0])
    more = "" if len(lines) == 1 else f" … ({len(lines)} lines)"
    return line[:width] + ("…" if len(line) > width else "") + more
