"""What the launcher's commands do: which processes they start, and what those are told."""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from penstock.compat.persia import _config, _service
from penstock.compat.persia._processes import LOADER, TRAINER, Process, supervise
from penstock.compat.persia._sockets import Address
from penstock.compat.run_script import run_in_child
from penstock.core.errors import ParameterError

PORT = 23777  # where the first trainer listens that was started by itself
_EXEC = "PENSTOCK_PERSIA_EXEC"  # the folder that `exec` has put on the path
_MASTER = 1000  # from there to the port where trainers of several machines meet
# A module that is found first under `exec`, and puts Penstock's in its place.
_PERSIA = """import sys

from penstock.compat import activate

del sys.modules["persia"]
activate(packages=["persia"], force=True)
import persia
"""


# The commands.


def everything(given: argparse.Namespace) -> int:
    """`run`: data loaders and trainers, watched until the training ends."""
    for name, path in (("--data-loader", given.data_loader), ("--nn-worker", given.nn_worker)):
        if path is None or not shlex.split(path):
            raise ParameterError(f"persia-launcher run needs {name} SCRIPT.py")
        _check_script(shlex.split(path)[0])
    count = given.nproc_per_node
    own = free_ports(count) if given.port is None else [given.port + rank for rank in range(count)]
    [master] = free_ports(1)
    common = _configured(given) | _store(given, count) | _job(own)
    started: list[Process] = []
    try:
        for rank in range(count):
            told = common | _rank(rank, count, rank, ("127.0.0.1", master)) | _port_2021(own[rank])
            started.append(Process(TRAINER, rank, _command(shlex.split(given.nn_worker), given.cpu), told))
        for index in range(given.replica_size):
            told = common | _replica(index, given.replica_size)
            started.append(Process(LOADER, index, _command(shlex.split(given.data_loader), given.cpu), told))
    except BaseException:
        for process in started:
            process.signal(signal.SIGKILL)
        raise
    return supervise(started)


def trainers(given: argparse.Namespace) -> int:
    """`nn-worker`: the trainers of one machine, one in this very terminal, or several behind their names."""
    _check_script(given.filepath)
    here, machines, machine = given.nproc_per_node, given.nnodes, given.node_rank
    if not 0 <= machine < machines:
        raise ParameterError(f"--node-rank must be from 0 to {machines - 1}, got {machine}")
    world = here * machines
    known = _trainer_addresses(world, given.port)
    master = _meeting_place(known[0], alone=machines == 1)
    common = _configured(given) | _store(given, world) | {_service.ADDRESS: _addresses(known)}
    if world == 1:
        os.environ.update(common | _rank(0, 1, 0, master) | _port_2021(known[0][1]))
        return run_in_child(given.filepath, given.arguments, cpu=given.cpu, force=_inside_exec())
    common.setdefault(_service.JOB, os.environ.get(_service.JOB) or f"persia-{known[0][1]}")
    command = _command([given.filepath, *given.arguments], given.cpu)
    started = []
    for local in range(here):
        rank = machine * here + local
        told = common | _rank(rank, world, local, master) | _port_2021(known[rank][1])
        started.append(Process(TRAINER, rank, command, told))
    return supervise(started)


def loader(given: argparse.Namespace) -> int:
    """`data-loader`: one of them, which finds its trainers through the first."""
    _check_script(given.filepath)
    if not 0 <= given.replica_index < given.replica_size:
        raise ParameterError(f"--replica-index must be from 0 to {given.replica_size - 1}, got {given.replica_index}")
    known = {} if _service.addresses() else {_service.ADDRESS: _addresses([("127.0.0.1", given.port or PORT)])}
    numbers = {"--replica-index": given.replica_index, "--replica-size": given.replica_size}
    passed = [str(part) for pair in numbers.items() for part in pair] if given.command == "compose" else []
    os.environ.update(_configured(given) | known | _replica(given.replica_index, given.replica_size))
    return run_in_child(given.filepath, [*passed, *given.arguments], cpu=given.cpu, force=_inside_exec())


def stay(given: argparse.Namespace) -> int:
    """A server's command, or that of NATS: there is nothing to do, for as long as the job takes."""
    _configured(given)
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    try:
        for number in numbers:
            signal.signal(number, _stop)
        print(
            f"{given.command}: nothing to do. Embeddings live in the trainer, or on Ray (--store ray); data loaders "
            "talk to trainers directly. Staying until it is stopped.",
            flush=True,
        )
        threading.Event().wait()
    except _StopError:
        pass
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    return 0


class _StopError(BaseException):
    """A signal has come. It is raised, since a handler that sets an event would wait for the lock of who waits."""


def _stop(*_: object) -> None:
    raise _StopError


def execute(command: Sequence[str]) -> int:
    """`exec`: any command, where every Python finds `persia`, and `nats-server` is there also where it is not."""
    if not command:
        raise ParameterError("persia-launcher exec needs a command: persia-launcher exec honcho start")
    with tempfile.TemporaryDirectory(prefix="penstock-persia-") as folder:
        environment = os.environ | _on_the_path(Path(folder))
        if not _service.addresses():
            environment |= _job(free_ports(1))
        try:
            child = subprocess.Popen(list(command), env=environment)
        except OSError as error:
            raise ParameterError(f"cannot run {command[0]}: {error.strerror}") from error
        return _waited_for(child)


def _on_the_path(folder: Path) -> dict[str, str]:
    (folder / "persia.py").write_text(_PERSIA)
    own = f"exec {shlex.quote(sys.executable)} -m penstock.compat.persia.launcher"
    stand_ins = {"persia-launcher": own, "persia_launcher": own, "nats-server": f"{own} nats"}
    for name, line in stand_ins.items():
        if shutil.which(name) is None:
            script = folder / name
            script.write_text(f'#!/bin/sh\n{line} "$@"\n')
            script.chmod(0o700)
    paths = ("PATH", "PYTHONPATH")
    found = {name: os.pathsep.join(filter(None, [str(folder), os.environ.get(name)])) for name in paths}
    return found | {_EXEC: str(folder)}


def _waited_for(child: subprocess.Popen[bytes]) -> int:
    """The exit code of a child, as a shell counts it; signals that would end this process are the child's too."""
    before = signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
    try:
        while True:
            try:
                code = child.wait()
                return code if code >= 0 else 128 - code
            except KeyboardInterrupt:
                continue  # the terminal has sent it to the child too
    finally:
        signal.signal(signal.SIGTERM, before)


# What the processes are told.


def _configured(given: argparse.Namespace) -> dict[str, str]:
    """The configuration files, checked here so that a mistake is one line and not one for every process."""
    found: dict[str, str] = {}
    if given.embedding_config is not None:
        _config.embedding_config(_config.read_yaml(given.embedding_config), given.embedding_config)
        found[_service.EMBEDDING_CONFIG] = str(Path(given.embedding_config).absolute())
    if given.global_config is not None:
        _config.global_config(_config.read_yaml(given.global_config), given.global_config)
        found[_service.GLOBAL_CONFIG] = str(Path(given.global_config).absolute())
    return found


def _store(given: argparse.Namespace, trainers: int) -> dict[str, str]:
    kind = given.store or ("ray" if trainers > 1 else "memory")
    return {_service.STORE: kind, _service.SERVERS: str(given.parameter_servers)}


def _job(ports: Sequence[int]) -> dict[str, str]:
    """What is this job's alone: where its trainers listen, a secret, a name."""
    return {
        _service.ADDRESS: _addresses([("127.0.0.1", port) for port in ports]),
        _service.TOKEN: secrets.token_hex(16),
        _service.JOB: f"persia-{secrets.token_hex(4)}",
    }


def _trainer_addresses(trainers: int, port: int | None) -> list[Address]:
    """Where all trainers listen: as the environment says, or from a port of this machine on."""
    known = _service.addresses() if port is None else []
    if len(known) == trainers:
        return known
    if len(known) > 1:
        raise ParameterError(f"{_service.ADDRESS} names {len(known)} trainers, and there are {trainers}")
    host, first = known[0] if known else ("127.0.0.1", port or PORT)
    return [(host, first + rank) for rank in range(trainers)]


def _meeting_place(first: Address, alone: bool) -> Address:
    """Where the trainers find each other: torch's own variables, a free port, or one that all machines can work out."""
    host = os.environ.get("MASTER_ADDR") or ("127.0.0.1" if alone else first[0])
    port = os.environ.get("MASTER_PORT", "")
    return host, int(port) if port.isdigit() else free_ports(1)[0] if alone else first[1] + _MASTER


def _rank(rank: int, trainers: int, local: int, master: Address) -> dict[str, str]:
    numbers = {"RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": trainers, "MASTER_PORT": master[1]}
    return {"MASTER_ADDR": master[0]} | {name: str(number) for name, number in numbers.items()}


def _replica(index: int, loaders: int) -> dict[str, str]:
    return {"REPLICA_INDEX": str(index), "REPLICA_SIZE": str(loaders)}


def _port_2021(port: int) -> dict[str, str]:
    """What scripts of 2021 read from their environment."""
    return {"TRAINER_PORT": str(port), "FORWARD_QUEUE_SIZE": os.environ.get("FORWARD_QUEUE_SIZE", "10")}


def _addresses(known: Sequence[Address]) -> str:
    return ",".join(f"{host}:{port}" for host, port in known)


def _command(words: Sequence[str], cpu: bool) -> list[str]:
    options = ["--cpu"] * cpu + ["--force"] * _inside_exec()
    return [sys.executable, "-m", "penstock.compat", *options, "--", *words]


def _inside_exec() -> bool:
    """Whether the `persia` that Python finds is the one that `exec` has put there, which is nobody's to respect."""
    return _EXEC in os.environ


def _check_script(path: str) -> None:
    if not Path(path).is_file():
        raise ParameterError(f"there is no script {path}")


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on, all different."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
