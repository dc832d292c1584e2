"""`penstock run`: scripts behave as under python, notebooks are shown and kept, CUDA becomes the CPU when asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.compat import CompatError, cpu, run_notebook
from penstock.core.errors import DataError

pytest.importorskip("nbclient")


def python(*arguments: object, cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=600
    )  # fmt: skip


def penstock_run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess:
    return python("-m", "penstock", "run", *arguments, cwd=cwd)


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 600
    while not file.exists():
        assert time.monotonic() < deadline, f"{file.name} never came"
        time.sleep(0.02)


# scripts


def test_a_script_finds_the_world_as_under_python(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "beside.py").write_text("value = 3\n")
    (folder / "main.py").write_text(
        "import sys, beside, pickle\n"
        "class Thing: pass\n"
        "pickle.loads(pickle.dumps(Thing()))\n"
        "print(sys.argv, __name__, __file__, sys.path[0], beside.value, sys.modules['__main__'].Thing is Thing)\n"
        "print(__spec__, __package__, 'typer' in sys.modules, [n for n in dir() if not n.startswith('__')])\n"
        "sys.exit(7)\n"
    )
    ours, theirs = (f("project/main.py", "--cpu", "-x", cwd=tmp_path) for f in (penstock_run, python))
    assert (ours.returncode, ours.stdout, ours.stderr) == (7, theirs.stdout, theirs.stderr)
    assert "['project/main.py', '--cpu', '-x'] __main__" in ours.stdout


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    raise KeyError('x')\nf()\n",
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('why') from e\n",
        "x = (\n",
        "raise SystemExit('a message')\n",
        "import warnings\nwarnings.warn('old', DeprecationWarning)\nwarnings.warn('careful')\n",
    ],
    ids=["traceback", "cause", "syntax", "exit-text", "warnings"],
)
def test_errors_read_as_under_python(source: str, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(source)
    ours, theirs = (f("main.py", cwd=tmp_path) for f in (penstock_run, python))
    assert (ours.returncode, ours.stderr) == (theirs.returncode, theirs.stderr)


def test_what_is_not_a_script(tmp_path: Path) -> None:
    done = penstock_run("absent.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "error: cannot open absent.py: No such file or directory\n")
    (tmp_path / "main.py").write_text("")
    refused = CliRunner().invoke(app, ["run", "--output", "x.ipynb", str(tmp_path / "main.py")])
    assert refused.exit_code == 2
    assert "only a notebook is written" in refused.stderr


@pytest.mark.parametrize("method", ["spawn", "forkserver"] if os.name == "posix" else ["spawn"])
def test_old_imports_work_in_children(method: str, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "import multiprocessing as mp\n"
        "import persia\n"
        "def child(queue):\n"
        "    import nvtabular, persia\n"
        "    queue.put((nvtabular.__name__, persia.__name__, __name__))\n"
        "if __name__ == '__main__':\n"
        f"    context = mp.get_context({method!r})\n"
        "    queue = context.Queue()\n"
        "    process = context.Process(target=child, args=(queue,))\n"
        "    process.start()\n"
        "    print(queue.get(timeout=600))\n"
        "    process.join()\n"
    )
    done = penstock_run("main.py", cwd=tmp_path)
    assert done.stdout == "('penstock.compat.nvtabular', 'penstock.compat.persia', '__mp_main__')\n", done.stderr


@pytest.mark.skipif(os.name != "posix", reason="signals as on POSIX")
def test_a_signal_reaches_the_script(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path('ended').touch(), sys.exit(5)))\n"
        "pathlib.Path('started').touch()\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-m", "penstock", "run", "main.py"], cwd=tmp_path)
    try:
        wait_for(tmp_path / "started")
        process.send_signal(signal.SIGTERM)
        assert process.wait(600) == 143
    finally:
        process.kill()
    assert (tmp_path / "ended").exists()


def test_without_cuda_the_error_points_to_the_option(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    (tmp_path / "main.py").write_text("import torch\nprint(torch.ones(2).cuda().sum().item())\n")
    plain, mapped = penstock_run("main.py", cwd=tmp_path), penstock_run("--cpu", "main.py", cwd=tmp_path)
    assert plain.returncode == 1
    assert plain.stderr.splitlines()[-2:] == ["AssertionError: Torch not compiled with CUDA enabled", cpu.HINT]
    assert (mapped.returncode, mapped.stdout, mapped.stderr) == (0, "2.0\n", cpu.SAID + "\n")


# CUDA on the CPU


@pytest.fixture
def mapped() -> Iterator[Any]:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    cpu.map_to_cpu()
    yield torch
    cpu.unmap()


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type:UserWarning")
def test_tensors_and_modules_stay_on_the_cpu(mapped: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = mapped
    tensor, device = torch.ones(2), torch.device("cuda", 0)
    made = [
        tensor.cuda(), tensor.to("cuda"), tensor.to(device, torch.float64), tensor.to(device="cuda:1"), tensor.to(0),
        torch.zeros(2, device="cuda"), torch.tensor([1.0], device=device), torch.randn(2, device="cuda"),
        tensor.new_zeros(3, device="cuda"), tensor.pin_memory(), torch.cuda.FloatTensor([1.0, 2.0]),
        torch.nn.Linear(2, 2).cuda().weight, torch.nn.Linear(2, 2).to("cuda").weight,
        torch.nn.Linear(2, 2, device="cuda").weight,
    ]  # fmt: skip
    assert {t.device.type for t in made} == {"cpu"}
    assert made[2].dtype == torch.float64
    assert tensor.to(torch.int64).dtype == torch.int64
    assert tensor.type(torch.cuda.LongTensor).dtype == torch.int64
    torch.set_default_tensor_type("torch.cuda.FloatTensor")
    torch.set_default_device("cuda")
    assert torch.ones(1).device.type == "cpu"
    torch.set_default_device(None)
    torch.save({"w": tensor}, tmp_path / "w.pt")
    assert torch.equal(torch.load(tmp_path / "w.pt", map_location="cuda")["w"], tensor)
    assert capsys.readouterr().err == cpu.SAID + "\n"


@pytest.mark.filterwarnings("ignore:.*torch.cuda.amp.*deprecated:FutureWarning")
def test_a_mixed_precision_step_runs_in_full_precision(mapped: Any) -> None:
    torch = mapped
    model, x = torch.nn.Linear(2, 1).cuda(), torch.ones(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before = model.weight.detach().clone()
    for autocast, scaler in (
        (torch.cuda.amp.autocast(), torch.cuda.amp.GradScaler(init_scale=2.0**10)),
        (torch.autocast("cuda", dtype=torch.float16), torch.amp.GradScaler("cuda")),
    ):
        with autocast:
            loss = model(x).sum()
        assert loss.dtype == torch.float32
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert not torch.equal(before, model.weight)


def test_the_rest_of_cuda_does_nothing_quietly(mapped: Any) -> None:
    torch = mapped
    torch.cuda.set_device(torch.cuda.current_device())
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(0):
        torch.cuda.synchronize()
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 0
    assert torch.cuda.get_device_name(0) == "CPU"
    assert not torch.cuda.is_available()


def test_unmap_restores_torch() -> None:
    torch = pytest.importorskip("torch")
    before = (torch.zeros, torch.Tensor.to, torch.cuda.Event, torch.nn.Module.cuda)
    cpu.map_to_cpu()
    cpu.map_to_cpu()
    cpu.unmap()
    assert (torch.zeros, torch.Tensor.to, torch.cuda.Event, torch.nn.Module.cuda) == before


# notebooks


def notebook(place: Path, *cells: str) -> Path:
    from nbformat import v4, write

    write(v4.new_notebook(cells=[v4.new_markdown_cell("# Text"), *map(v4.new_code_cell, cells)]), place)
    return place


def outputs(place: Path) -> list[str]:
    cells = [c for c in json.loads(place.read_text())["cells"] if c["cell_type"] == "code"]
    return ["".join(o.get("text") or o.get("data", {}).get("text/plain") or [o["ename"]])
            for c in cells for o in c["outputs"]]  # fmt: skip


def test_a_notebook_is_shown_and_kept(tmp_path: Path) -> None:
    (tmp_path / "beside.txt").write_text("found")
    source = notebook(
        tmp_path / "a.ipynb",
        "import sys, nvtabular, merlin, persia\nprint(nvtabular.__name__, sys.argv[1:])",
        "# a comment\nopen('beside.txt').read()",
    )
    result = CliRunner().invoke(app, ["run", str(source), "one", "two"])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "[1/2] import sys, nvtabular, merlin, persia … (2 lines)"
    assert lines[1] == "    penstock.compat.nvtabular ['one', 'two']"
    assert lines[3:5] == ["[2/2] open('beside.txt').read() … (2 lines)", "    'found'"]
    assert "2 cells in" in lines[-1]
    assert "a.executed.ipynb" in lines[-1]
    executed = outputs(tmp_path / "a.executed.ipynb")
    assert executed == ["penstock.compat.nvtabular ['one', 'two']\n", "'found'"]
    assert json.loads(source.read_text())["cells"][1]["outputs"] == []


def test_a_failing_cell_keeps_what_ran_before(tmp_path: Path) -> None:
    source = notebook(tmp_path / "a.ipynb", "print('before')", "1 / 0", "print('after')")
    result = CliRunner().invoke(app, ["run", "--output", str(tmp_path / "b.ipynb"), str(source)])
    assert result.exit_code == 1
    assert "cell 2 failed: ZeroDivisionError: division by zero; what ran before it was written" in result.stderr
    assert outputs(tmp_path / "b.ipynb") == ["before\n", "ZeroDivisionError"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.ipynb", "b.ipynb"]


@pytest.mark.skipif(os.name != "posix", reason="signals as on POSIX")
def test_ctrl_c_keeps_what_ran_before(tmp_path: Path) -> None:
    source = notebook(tmp_path / "a.ipynb", "print('before')", "open('started', 'w')\nimport time\ntime.sleep(600)")
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "run", str(source)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        wait_for(tmp_path / "started")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 130
    assert said.startswith("cell 2 stopped; what ran before it was written to "), said
    assert outputs(tmp_path / "a.executed.ipynb") == ["before\n", "KeyboardInterrupt"]


def test_a_kernel_that_dies(tmp_path: Path) -> None:
    source = notebook(tmp_path / "a.ipynb", "print('before', flush=True)", "import os\nos._exit(3)")
    outcome = run_notebook.run_notebook(source, show=lambda _: None)
    assert outcome.failed == 2
    assert "the kernel died" in outcome.error
    assert outputs(outcome.output) == ["before\n"]


def test_a_refusal_comes_before_the_first_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real" / "nvtabular").mkdir(parents=True)
    (tmp_path / "real" / "nvtabular" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "real"))
    source = notebook(tmp_path / "a.ipynb", "print('ran')")
    result = CliRunner().invoke(app, ["run", str(source)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the real nvtabular is installed" in result.stderr
    assert not (tmp_path / "a.executed.ipynb").exists()
    assert CliRunner().invoke(app, ["run", "--force", str(source)]).exit_code == 0


@pytest.mark.parametrize(
    ("content", "reason"), [("not json", "does not appear to be JSON"), ("{}", "missing a key: cells"), ("[1]", "")]
)
def test_what_is_not_a_notebook(content: str, reason: str, tmp_path: Path) -> None:
    source = tmp_path / "a.ipynb"
    source.write_text(content)
    with pytest.raises(DataError, match=rf"a\.ipynb is not a notebook: .*{reason}"):
        run_notebook.run_notebook(source)
    with pytest.raises(CompatError, match=r"cannot open .*absent\.ipynb"):
        run_notebook.run_notebook(tmp_path / "absent.ipynb")
    with pytest.raises(CompatError, match="there is no folder"):
        run_notebook.run_notebook(source, output=tmp_path / "no" / "b.ipynb")


def test_without_the_extra_the_pip_command_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nbformat", None)  # type: ignore[arg-type]
    result = CliRunner().invoke(app, ["run", str(tmp_path / "a.ipynb")])
    assert result.exit_code == 1
    assert "pip install 'penstock[notebook]'" in result.stderr


def test_options_after_a_notebook_are_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["run", str(tmp_path / "a.ipynb"), "--cpu"])
    assert result.exit_code == 2
    assert "options stand before the notebook" in result.stderr
