"""Programs of two scripts, as users start them: real processes, real sockets."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.compat.persia import _launch, _service, launcher
from penstock.core.errors import ParameterError
from penstock.data.synthetic import criteo

EXAMPLE = Path(__file__).parents[2] / "examples" / "persia_dlrm"
CONFIGS = ["--embedding-config", str(EXAMPLE / "embedding_config.yml"), "--global-config", str(EXAMPLE / "global_config.yml")]  # fmt: skip  # noqa: E501

LOADER = """
import sys, numpy as np
from persia.ctx import DataCtx
from persia.embedding.data import IDTypeFeatureWithSingleID, Label, PersiaBatch
from persia.env import get_replica_index

with DataCtx() as ctx:
    for number in range({count}):
        user = IDTypeFeatureWithSingleID("user", np.array([number], np.uint64))
        ctx.send_data(PersiaBatch([user], labels=[Label(np.ones((1, 1), np.float32))]))
        if number == {fail}:
            raise ValueError(f"row {{number}} is broken")
print(f"loader {{get_replica_index()}} is done")
"""

# A trainer that only reads, which starts faster than one that trains.
TRAINER = """
import sys, time
from penstock.compat.persia._service import service

service().listen(capacity=4)
reader, count = service().stream.reader(in_turns=True), 0
while (batch := reader.get(600.0)) is not None:
    count += 1
    if count == {enough}:
        break
service().stop_listening()
print(f"took {{count}} batches")  # in one piece, as others print beside it
sys.exit({code})
"""


@pytest.fixture
def scripts(tmp_path: Path):
    def write(count: int = 10, fail: int = -1, enough: int = -1, code: int = 0) -> list[str]:
        (tmp_path / "loader.py").write_text(LOADER.format(count=count, fail=fail))
        (tmp_path / "trainer.py").write_text(TRAINER.format(enough=enough, code=code))
        return ["run", "--data-loader", str(tmp_path / "loader.py"), "--nn-worker", str(tmp_path / "trainer.py")]

    return write


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "penstock.compat.persia.launcher", *arguments]


def launched(*arguments: str, timeout: float = 600, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=timeout, env={**os.environ, **variables}
    )


def is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


class TestTheExample:
    """A DLRM on click logs with empty fields, in the calls of 2021."""

    @pytest.fixture(scope="class")
    def log(self, tmp_path_factory: pytest.TempPathFactory) -> str:
        made = criteo(tmp_path_factory.mktemp("log") / "day.tsv", 8_000, cardinalities=100)
        text = Path(made.path).read_text()
        assert "\t\t" in text and "\t\n" in text  # fields that are empty, the last one too
        return str(made.path)

    @staticmethod
    def check(output: str) -> None:
        found = re.search(r"loss ([\d.]+) -> ([\d.]+), AUC ([\d.]+), (\d+) embeddings", output)
        assert found is not None, output
        first, last, auc = (float(number) for number in found.groups()[:3])
        assert last < 0.95 * first and auc > 0.6 and int(found[4]) > 1000

    def test_in_two_processes(self, log: str) -> None:
        scripts = ["--data-loader", str(EXAMPLE / "data_compose.py"), "--nn-worker", str(EXAMPLE / "train.py")]
        done = launched("run", *scripts, *CONFIGS, TRAIN_DATA=log)
        assert done.returncode == 0, done.stdout + done.stderr
        self.check(done.stdout)
        lines = done.stdout.splitlines()
        assert all(line.startswith(("data-loader.0  | ", "nn-worker.0    | ")) for line in lines)
        assert "data-loader.0  | sent 250 batches" in lines

    @pytest.mark.slow  # the launcher's way has all of it, and more
    def test_in_one_process(self, log: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "penstock.compat", "--", str(EXAMPLE / "together.py"), log],
            capture_output=True,
            text=True,
            timeout=600,
            env={**os.environ, _service.EMBEDDING_CONFIG: str(EXAMPLE / "embedding_config.yml")},
        )
        assert done.returncode == 0, done.stderr
        self.check(done.stdout)


class TestTogether:
    def test_several_data_loaders(self, scripts) -> None:
        done = launched(*scripts(count=7), "--replica-size", "3")
        assert done.returncode == 0, done.stdout
        assert "nn-worker.0    | took 21 batches" in done.stdout
        assert all(f"data-loader.{i}  | loader {i} is done" in done.stdout for i in range(3))

    def test_a_data_loader_that_fails_ends_all_and_is_named(self, scripts) -> None:
        done = launched(*scripts(count=10, fail=3))
        assert done.returncode == 1
        assert "data-loader.0  | ValueError: row 3 is broken" in done.stdout
        assert re.search(r"nn-worker.0 .*data loader 0 \(pid \d+\) failed: ValueError: row 3 is broken", done.stdout)

    def test_a_trainer_that_fails_gives_its_exit_code(self, scripts) -> None:
        done = launched(*scripts(count=10**9, enough=5, code=7))
        assert done.returncode == 7
        assert "launcher       | ended: nn-worker.0 with exit code 7; ending the others" in done.stdout

    def test_a_trainer_that_dies_is_one_line_in_the_data_loader(self, scripts, tmp_path: Path) -> None:
        arguments = scripts(count=10**9)
        trainer = tmp_path / "trainer.py"
        trainer.write_text(trainer.read_text().replace("    count += 1", "    import os; os._exit(9)"))
        done = launched(*arguments)
        assert done.returncode == 9
        lines = [line for line in done.stdout.splitlines() if line.startswith("data-loader.0")]
        assert len(lines) == 1
        assert re.search(r"error: the trainer at 127.0.0.1:\d+ \(pid \d+\) is gone", lines[0]), lines

    def test_a_trainer_that_has_enough_ends_an_endless_data_loader(self, scripts) -> None:
        done = launched(*scripts(count=10**9, enough=5), timeout=600)
        assert done.returncode == 0, done.stdout
        assert "took 5 batches" in done.stdout and "the trainer wants no more" in done.stdout

    def test_a_data_loader_of_2021_that_fails_is_named(self, scripts, tmp_path: Path) -> None:
        arguments = scripts()
        source = "from persia.ctx import init_backend\ninit_backend()\nimport sys\nraise KeyError(sys.argv[1])"
        (tmp_path / "loader.py").write_text(source)
        done = launched(*arguments[:2], f"{arguments[2]} day.tsv", *arguments[3:])
        assert done.returncode == 1
        assert re.search(r"nn-worker.0 .*data loader 0 \(pid \d+\) failed: KeyError: 'day.tsv'", done.stdout), (
            done.stdout
        )

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_ctrl_c_stops_all(self, scripts, tmp_path: Path, number: int, code: int) -> None:
        arguments = scripts(count=10**9)
        for name in ("loader.py", "trainer.py"):
            script = tmp_path / name
            script.write_text(f"import os; print('pid', os.getpid(), flush=True)\n{script.read_text()}")
        with subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            pids = [int(running.stdout.readline().split()[-1]) for _ in range(2)]
            time.sleep(0.5)
            running.send_signal(number)
            output = running.stdout.read()
            assert running.wait(timeout=600) == code
        assert number == signal.SIGTERM or "launcher       | stopped; ending all processes" in output
        assert not any(is_running(pid) for pid in pids)


class TestByHand:
    def test_two_commands_find_each_other(self, scripts, tmp_path: Path) -> None:
        scripts(count=5)
        [port] = _launch.free_ports(1)
        trainer = subprocess.Popen(
            command("nn-worker", str(tmp_path / "trainer.py"), "--port", str(port)), stdout=subprocess.PIPE, text=True
        )
        done = launched("data-loader", str(tmp_path / "loader.py"), "--port", str(port), "--replica-size", "1")
        output, _ = trainer.communicate(timeout=600)
        assert (done.returncode, trainer.returncode) == (0, 0)
        assert "loader 0 is done" in done.stdout and "took 5 batches" in output

    def test_a_data_loader_without_a_trainer_is_told(self, scripts, tmp_path: Path) -> None:
        scripts(count=5)
        alone = [sys.executable, "-m", "penstock.compat", "--", str(tmp_path / "loader.py")]
        done = subprocess.run(alone, capture_output=True, text=True, timeout=600)
        assert "5 batches were sent and nothing in this process trained on them" in done.stderr

    def test_a_script_of_2021_gets_its_numbers_as_arguments(self, tmp_path: Path) -> None:
        (tmp_path / "compose.py").write_text("import sys; print(sys.argv[1:])")
        done = launched("compose", str(tmp_path / "compose.py"), "--replica-size", "2", "--", "--day", "7")
        assert done.stdout.strip() == "['--replica-index', '0', '--replica-size', '2', '--day', '7']"

    @pytest.mark.parametrize(
        ("arguments", "number"),
        [
            (["embedding-worker", "--replica-index", "0", "--replica-size", "2", "--port", "8887"], signal.SIGTERM),
            (["embedding-parameter-server", *CONFIGS], signal.SIGINT),
            (["middleware"], signal.SIGTERM),
            (["server"], signal.SIGTERM),
            (["nats", "--jetstream", "-p", "4222"], signal.SIGTERM),
        ],
    )
    def test_servers_stay_until_they_are_stopped(
        self, arguments: list[str], number: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Stopped:
            """An event for which nobody waits long: the signal comes meanwhile."""

            def wait(self) -> None:
                os.kill(os.getpid(), number)
                time.sleep(60)

        before = signal.getsignal(number)
        monkeypatch.setattr(_launch, "threading", SimpleNamespace(Event=Stopped))
        assert launcher.cli(arguments) == 0
        said = capsys.readouterr().out
        assert signal.getsignal(number) is before and "Staying" in said
        assert said.startswith(f"{arguments[0]}: nothing to do")

    def test_two_trainers_are_found_through_the_first(self, scripts, tmp_path: Path) -> None:
        scripts(count=11)
        first, second = _launch.free_ports(2)
        both = os.environ | {_service.ADDRESS: f"127.0.0.1:{first},127.0.0.1:{second}"}
        arguments = command("nn-worker", str(tmp_path / "trainer.py"), "--nproc-per-node", "2")
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=both) as trainers:
            done = launched("data-loader", str(tmp_path / "loader.py"), "--port", str(first))
            output, _ = trainers.communicate(timeout=600)
        assert (done.returncode, trainers.returncode) == (0, 0), done.stderr + output
        assert all(f"nn-worker.{rank}    | took 5 batches" in output for rank in range(2)), output
        assert "the last 1 batches are left out: 2 trainers share evenly" in done.stderr + done.stdout

    @pytest.mark.slow
    def test_trainers_of_two_machines(self, scripts, tmp_path: Path) -> None:
        scripts(count=10)
        ports = _launch.free_ports(2)
        variables = os.environ | {_service.ADDRESS: ",".join(f"127.0.0.1:{port}" for port in ports)}
        machines = [
            subprocess.Popen(
                command("nn-worker", str(tmp_path / "trainer.py"), "--nnodes", "2", "--node-rank", str(number)),
                stdout=subprocess.PIPE,
                text=True,
                env=variables,
            )
            for number in range(2)
        ]
        done = launched("data-loader", str(tmp_path / "loader.py"), "--port", str(ports[0]))
        outputs = [machine.communicate(timeout=600)[0] for machine in machines]
        assert [done.returncode, *(machine.returncode for machine in machines)] == [0, 0, 0]
        assert [f"nn-worker.{rank}    | took 5 batches" in outputs[rank] for rank in range(2)] == [True, True]

    def test_what_trainers_of_several_machines_are_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert _launch._trainer_addresses(2, 8000) == [("127.0.0.1", 8000), ("127.0.0.1", 8001)]
        monkeypatch.setenv(_service.ADDRESS, "nn_worker:23777")
        assert _launch._trainer_addresses(2, None) == [("nn_worker", 23777), ("nn_worker", 23778)]
        assert _launch._meeting_place(("nn_worker", 23777), alone=False) == ("nn_worker", 24777)
        monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
        monkeypatch.setenv("MASTER_PORT", "29500")
        assert _launch._meeting_place(("nn_worker", 23777), alone=False) == ("10.0.0.1", 29500)
        monkeypatch.setenv(_service.ADDRESS, "a:1,b:2")
        with pytest.raises(ParameterError, match="names 2 trainers, and there are 3"):
            _launch._trainer_addresses(3, None)


# What honcho and foreman do with a Procfile: start every line in a shell; when one ends, end the others.
FOREMAN = """
import os, signal, subprocess, time
commands = dict(line.split(": ", 1) for line in open("Procfile").read().splitlines())
started = {name: subprocess.Popen(line, shell=True, start_new_session=True) for name, line in commands.items()}
while all(process.poll() is None for process in started.values()):
    time.sleep(0.02)
print("first", sorted(name for name, process in started.items() if process.poll() is not None))
for process in started.values():
    try:
        os.killpg(process.pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
print("codes", {name: process.wait(600) for name, process in started.items()})
"""
PROCFILE = """nn_worker: persia-launcher nn-worker trainer.py --nproc-per-node=$NPROC_PER_NODE --node-rank=0 --nnodes=1
data_loader: python3 loader.py && cat
embedding_server: persia-launcher embedding-parameter-server --replica-index 0 --replica-size $REPLICA_SIZE
embedding_worker: persia_launcher embedding-worker --replica-index 0 --replica-size $REPLICA_SIZE
nats_server: nats-server
"""


def test_a_procfile_of_persia_runs_as_it_is(scripts, tmp_path: Path) -> None:
    scripts(count=6)
    (tmp_path / "Procfile").write_text(PROCFILE)
    (tmp_path / "foreman.py").write_text(FOREMAN)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with subprocess.Popen(
        command("exec", sys.executable, "foreman.py"),
        cwd=tmp_path,
        env=os.environ | {"PATH": path, "NPROC_PER_NODE": "1", "REPLICA_SIZE": "1"},
        stdin=subprocess.PIPE,  # what `cat` waits for
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        output = running.stdout.read()
        assert running.wait(600) == 0
    assert "took 6 batches" in output  # the data loader may be ended before it says that it is done
    assert "first ['nn_worker']" in output  # so that all others had stayed until then


def test_exec_says_what_it_cannot_run() -> None:
    with pytest.raises(ParameterError, match="needs a command"):
        launcher.cli(["exec"])
    with pytest.raises(ParameterError, match="cannot run no-such-program: No such file"):
        launcher.cli(["exec", "no-such-program"])


def test_the_executables_are_the_launcher() -> None:
    scripts = tomllib.loads((EXAMPLE.parents[1] / "pyproject.toml").read_text())["project"]["scripts"]
    for name in ("persia-launcher", "persia_launcher"):
        module, _, function = scripts[name].partition(":")
        assert getattr(importlib.import_module(module), function) is launcher.main


class TestWrongUse:
    def test_what_is_missing_is_named(self, scripts, tmp_path: Path) -> None:
        arguments = scripts()
        with pytest.raises(ParameterError, match="needs --nn-worker"):
            launcher.cli(arguments[:3])
        with pytest.raises(ParameterError, match="there is no script"):
            launcher.cli([*arguments[:4], str(tmp_path / "none.py")])
        with pytest.raises(ParameterError, match="replica-index must be from 0 to 1"):
            launcher.cli(["data-loader", arguments[2], "--replica-index", "2", "--replica-size", "2"])
        with pytest.raises(ParameterError, match="node-rank must be from 0 to 1"):
            launcher.cli(["nn-worker", arguments[4], "--nnodes", "2", "--node-rank", "2"])
        with pytest.raises(ParameterError, match="run takes nothing behind --"):
            launcher.cli([*arguments, "--", "--day"])

    def test_a_bad_configuration_is_one_line_before_anything_starts(self, scripts, tmp_path: Path) -> None:
        (tmp_path / "e.yml").write_text("slots_config: {a: {dimm: 4}}")
        done = launched(*scripts(), "--embedding-config", str(tmp_path / "e.yml"))
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr.startswith(
            f"error: {tmp_path / 'e.yml'}: slots_config.a has no key 'dimm'; did you mean 'dim'?"
        )

    def test_a_command_that_is_none(self) -> None:
        done = launched("nn-workers")
        assert done.returncode == 2 and "invalid choice: 'nn-workers'" in done.stderr


DDP_TRAINER = """
import torch
from persia.ctx import TrainCtx
from persia.data import DataLoader, StreamingDataset
from persia.embedding.optim import Adagrad
from persia.env import get_rank

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.top = torch.nn.Linear(4, 1)
    def forward(self, numbers, embeddings):
        return self.top(embeddings[0])

model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with TrainCtx(Adagrad(lr=0.1), optimizer, model=model, mixed_precision=False) as ctx:
    count = 0
    for batch in DataLoader(StreamingDataset(4)):
        output, _ = ctx.forward(batch)
        ctx.backward((output - 1).square().mean())
        count += 1
    if get_rank() == 0:
        ctx.dump_checkpoint({directory!r})
    print("rank", get_rank(), "took", count, "of", sum(ctx.get_embedding_size()), "rows in", ctx.get_embedding_size())
    print("weight", ctx.model.module.top.weight.sum().item())
"""


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False], ids=["run", "nn-worker"])
def test_two_trainers_share_embeddings_on_ray(scripts, tmp_path: Path, together: bool) -> None:
    arguments = scripts(count=21)
    (tmp_path / "trainer.py").write_text(DDP_TRAINER.format(directory=str(tmp_path / "ckpt")))
    (tmp_path / "e.yml").write_text("slots_config: {user: {dim: 4}}")
    settings = ["--embedding-config", str(tmp_path / "e.yml"), "--nproc-per-node", "2", "--parameter-servers", "2"]
    if together:
        done = launched(*arguments, *settings, timeout=600)
        output = done.stdout
    else:
        ports = _launch.free_ports(2)
        both = os.environ | {_service.ADDRESS: ",".join(f"127.0.0.1:{port}" for port in ports)}
        starting = command("nn-worker", str(tmp_path / "trainer.py"), *settings)
        with subprocess.Popen(starting, stdout=subprocess.PIPE, text=True, env=both) as trainers:
            done = launched("data-loader", str(tmp_path / "loader.py"), "--port", str(ports[0]), timeout=600)
            output, _ = trainers.communicate(timeout=600)
            assert trainers.returncode == 0, output
        output += done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "the last 1 batches are left out: 2 trainers share evenly" in output
    assert re.search(r"nn-worker.0 .* rank 0 took 10 of 20 rows in \[\d+, \d+\]", output), output
    assert re.search(r"nn-worker.1 .* rank 1 took 10 of", output), output
    [first, second] = re.findall(r"weight (\S+)", output)
    assert first == second  # the dense model is the same everywhere
    assert (tmp_path / "ckpt" / "embedding" / "manifest.json").is_file()
