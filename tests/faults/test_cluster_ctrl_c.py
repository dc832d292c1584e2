"""Ctrl-C on a run whose trainers, shards and Ray are processes of this machine, as a terminal sends it: to all."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from functools import partial
from pathlib import Path

import pytest

from penstock.data.synthetic import criteo

pytest.importorskip("ray")
QUICK = ("--batch-size", "256", "--model", "MLP", "--embedding-dim", "4", "--epochs", "1000")


def processes_with(mark: str) -> list[str]:
    """The processes that have inherited an environment with a mark, by their command."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (place / "environ").read_bytes():
                found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:100])
        except OSError:  # gone, or another user's
            continue
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_ctrl_c_keeps_a_checkpoint_and_leaves_no_process(tmp_path: Path) -> None:
    criteo(tmp_path / "day.tsv", 4000, cardinalities=50)
    place, mark = tmp_path / "run", uuid.uuid4().hex
    spread = ("--cluster", "local", "--trainers", "2", "--shards", "2", "--checkpoint-every", "8")
    arguments = ("train", str(tmp_path / "day.tsv"), "--preset", "criteo", "-o", str(place), *QUICK, *spread)
    default = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with (tmp_path / "said").open("w") as said:  # a pipe would wait for every process that has inherited it
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *arguments], stdout=said, stderr=said, preexec_fn=default,
            env={**os.environ, "MARK_OF_A_TEST": mark}, start_new_session=True,
        )  # fmt: skip
        try:
            while not list(place.glob("checkpoints/step-*")):
                assert process.poll() is None, (tmp_path / "said").read_text()
                time.sleep(0.02)
            os.killpg(process.pid, signal.SIGINT)
            code = process.wait()
        finally:
            process.kill()
    told = (tmp_path / "said").read_text()
    assert code == 130, told
    assert "stopping: a checkpoint of this step is written; once more stops at once" in told
    stopped = re.search(
        rf"stopped at step ([\d,]+) of 15,000; its checkpoint is in {place}; "
        rf"go on with: penstock train --resume --output {place}",
        told,
    )
    assert stopped, told
    step = int(stopped[1].replace(",", ""))
    assert (place / "checkpoints" / f"step-{step:08d}" / "manifest.json").is_file()
    while left := processes_with(mark):
        assert left
        time.sleep(0.05)
