"""A process with the kernels of a GPU on Triton's interpreter: runs the programs that it is told to, one after another.

What to interpret is settled when kernels are imported, so it takes a process of its own; loading torch takes longer
than most of the programs. A line in is a list of a file and its arguments, a line out what came of it, both as JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import sys
import traceback
from pathlib import Path


def run(program: str, *arguments: str) -> dict[str, str]:
    """What a program prints, and the traceback of what it failed with, if it did."""
    os.environ["TRITON_INTERPRET"] = "1"  # programs turn it off for a while
    sys.argv, said, error = [program, *arguments], io.StringIO(), ""
    sys.path.insert(0, str(Path(program).parent))
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_path(program, run_name="__main__")
    except BaseException:
        error = traceback.format_exc()
    finally:
        sys.path.pop(0)
    return {"printed": said.getvalue(), "error": error}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(*json.loads(line))), flush=True)
