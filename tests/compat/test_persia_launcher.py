"""Programs of two scripts, as users start them: real processes, real sockets."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.compat.persia import _service, launcher
from penstock.core.errors import ParameterError
from penstock.data.synthetic import criteo

EXAMPLE = Path(__file__).parents[2] / "examples" / "persia_dlrm"
CONFIGS = ["--embedding-config", str(EXAMPLE / "embedding_config.yml"), "--global-config", str(EXAMPLE / "global_config.yml")]  # fmt: skip  # noqa: E501

LOADER = """
import sys, numpy as np
from persia.ctx import DataCtx
from persia.embedding.data import IDTypeFeatureWithSingleID, PersiaBatch
from persia.env import get_replica_index

with DataCtx() as ctx:
    for number in range({count}):
        ctx.send_data(PersiaBatch([IDTypeFeatureWithSingleID("user", np.array([number], np.uint64))]))
        if number == {fail}:
            raise ValueError(f"row {{number}} is broken")
print("loader", get_replica_index(), "is done")
"""

# A trainer that only reads, which starts faster than one that trains.
TRAINER = """
import sys, time
from penstock.compat.persia._service import service

service().listen(capacity=4)
reader, count = service().stream.reader(in_turns=True), 0
while (batch := reader.get(60.0)) is not None:
    count += 1
    if count == {enough}:
        break
service().stop_listening()
print("took", count, "batches")
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


def launched(*arguments: str, timeout: float = 120, **variables: str) -> subprocess.CompletedProcess[str]:
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

    def test_in_one_process(self, log: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "penstock.compat", "--", str(EXAMPLE / "together.py"), log],
            capture_output=True,
            text=True,
            timeout=120,
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
        done = launched(*scripts(count=10**9, enough=5), timeout=60)
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
            assert running.wait(timeout=30) == code
        assert number == signal.SIGTERM or "launcher       | stopped; ending all processes" in output
        assert not any(is_running(pid) for pid in pids)


class TestByHand:
    def test_two_commands_find_each_other(self, scripts, tmp_path: Path) -> None:
        scripts(count=5)
        [port] = launcher._free_ports(1)
        trainer = subprocess.Popen(
            command("nn-worker", str(tmp_path / "trainer.py"), "--port", str(port)), stdout=subprocess.PIPE, text=True
        )
        done = launched("data-loader", str(tmp_path / "loader.py"), "--port", str(port), "--replica-size", "1")
        output, _ = trainer.communicate(timeout=60)
        assert (done.returncode, trainer.returncode) == (0, 0)
        assert "loader 0 is done" in done.stdout and "took 5 batches" in output

    def test_a_data_loader_without_a_trainer_is_told(self, scripts, tmp_path: Path) -> None:
        scripts(count=5)
        alone = [sys.executable, "-m", "penstock.compat", "--", str(tmp_path / "loader.py")]
        done = subprocess.run(alone, capture_output=True, text=True, timeout=60)
        assert "5 batches were sent and nothing in this process trained on them" in done.stderr

    def test_a_script_of_2021_gets_its_numbers_as_arguments(self, tmp_path: Path) -> None:
        (tmp_path / "compose.py").write_text("import sys; print(sys.argv[1:])")
        done = launched("compose", str(tmp_path / "compose.py"), "--replica-size", "2", "--", "--day", "7")
        assert done.stdout.strip() == "['--replica-index', '0', '--replica-size', '2', '--day', '7']"

    @pytest.mark.parametrize("name", ["embedding-worker", "embedding-parameter-server", "middleware", "server"])
    def test_servers_need_not_be_started(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert launcher.cli([name, *CONFIGS, "--replica-index", "0", "--replica-size", "2", "--port", "8887"]) == 0
        assert f"{name}: nothing to start" in capsys.readouterr().out


class TestWrongUse:
    def test_what_is_missing_is_named(self, scripts, tmp_path: Path) -> None:
        arguments = scripts()
        with pytest.raises(ParameterError, match="needs --nn-worker"):
            launcher.cli(arguments[:3])
        with pytest.raises(ParameterError, match="there is no script"):
            launcher.cli([*arguments[:4], str(tmp_path / "none.py")])
        with pytest.raises(ParameterError, match="replica-index must be from 0 to 1"):
            launcher.cli(["data-loader", arguments[2], "--replica-index", "2", "--replica-size", "2"])
        with pytest.raises(ParameterError, match="nproc-per-node"):
            launcher.cli(["nn-worker", arguments[4], "--nproc-per-node", "2"])
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
def test_two_trainers_share_embeddings_on_ray(scripts, tmp_path: Path) -> None:
    arguments = scripts(count=21)
    (tmp_path / "trainer.py").write_text(DDP_TRAINER.format(directory=str(tmp_path / "ckpt")))
    (tmp_path / "e.yml").write_text("slots_config: {user: {dim: 4}}")
    settings = ["--embedding-config", str(tmp_path / "e.yml"), "--nproc-per-node", "2", "--parameter-servers", "2"]
    done = launched(*arguments, *settings, timeout=300)
    assert done.returncode == 0, done.stdout
    assert "the last 1 batches are left out: 2 trainers share evenly" in done.stdout
    assert re.search(r"nn-worker.0 .* rank 0 took 10 of 20 rows in \[\d+, \d+\]", done.stdout), done.stdout
    assert re.search(r"nn-worker.1 .* rank 1 took 10 of", done.stdout), done.stdout
    [first, second] = re.findall(r"weight (\S+)", done.stdout)
    assert first == second  # the dense model is the same everywhere
    assert (tmp_path / "ckpt" / "embedding" / "manifest.json").is_file()
