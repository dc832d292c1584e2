"""PERSIA's launcher: `penstock persia-launcher`, or `python -m persia.launcher`.

`run` starts data loaders and trainers together, ends them together, and prints what they say behind their names. The
commands of PERSIA start one part each, and those for its servers say that there is nothing to start: the embeddings
live in the trainer's memory, or on Ray. Scripts are run as `penstock run` runs them.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.compat.persia import _config, _service
from penstock.compat.persia._processes import LOADER, TRAINER, Process, supervise
from penstock.compat.run_script import run_in_child
from penstock.core.errors import ParameterError, PenstockError

__all__ = ["cli"]

PORT = 23777  # where a trainer listens that was started by itself
_SERVERS = ("embedding-worker", "embedding-parameter-server", "middleware", "server")


def cli(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say; the exit code.

    >>> cli(["embedding-worker", "--replica-size", "4"])
    embedding-worker: nothing to start. ...
    0
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    cut = words.index("--") if "--" in words else len(words)
    given = _parser().parse_args(words[:cut])
    given.arguments = words[cut + 1 :]
    if given.arguments and not hasattr(given, "filepath"):
        raise ParameterError(f"{given.command} takes nothing behind --; arguments of a script stand in quotes with it")
    return given.do(given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock persia-launcher",
        description="Run data loaders and trainers written for PERSIA; there are no servers to start.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    _add_run(commands)
    trainer = commands.add_parser("nn-worker", aliases=["trainer"], help="a trainer by itself")
    _add_script(trainer, "PERSIA_NN_WORKER_ENTRY")
    trainer.add_argument("--nproc-per-node", "--gpu-num", type=_positive, default=1, metavar="N", help="trainers")
    trainer.add_argument("--nnodes", type=_positive, default=1)
    trainer.add_argument("--node-rank", type=int, default=0)
    _add_common(trainer)
    trainer.set_defaults(do=_trainer_alone)
    loader = commands.add_parser("data-loader", aliases=["compose"], help="a data loader by itself")
    _add_script(loader, "PERSIA_DATALOADER_ENTRY")
    loader.add_argument("--replica-index", type=int, default=0, help="which of the data loaders this is")
    loader.add_argument("--replica-size", type=_positive, default=1, help="how many data loaders there are")
    _add_common(loader)
    loader.set_defaults(do=_loader_alone)
    for name in _SERVERS:
        server = commands.add_parser(name, help="nothing to start: it is part of the trainer")
        server.add_argument("--port", type=int)
        server.add_argument("--replica-index", type=int)
        server.add_argument("--replica-size", type=int)
        _add_configs(server)
        server.set_defaults(do=_server)
    return parser


def _add_run(commands: Any) -> None:
    run = commands.add_parser("run", help="data loaders and trainers together, ended together")
    run.add_argument("--data-loader", metavar="SCRIPT", default=os.environ.get("PERSIA_DATALOADER_ENTRY"),
                     help="the data loader's script; with arguments in quotes: 'loader.py --day 7'")  # fmt: skip
    run.add_argument("--nn-worker", metavar="SCRIPT", default=os.environ.get("PERSIA_NN_WORKER_ENTRY"),
                     help="the trainer's script, in the same way")  # fmt: skip
    run.add_argument("--replica-size", type=_positive, default=1, metavar="N", help="data loaders")
    run.add_argument(
        "--nproc-per-node", type=_positive, default=1, metavar="N", help="trainers (more than one: --store ray)"
    )
    run.add_argument("--store", choices=("memory", "ray"), help="where the embeddings live")
    run.add_argument("--parameter-servers", type=_positive, default=1, metavar="N", help="shards of a store on Ray")
    _add_common(run)
    run.set_defaults(do=_run_all)


def _add_script(parser: argparse.ArgumentParser, variable: str) -> None:
    default = os.environ.get(variable)
    text = "the script; its own arguments stand behind --"
    parser.add_argument("filepath", metavar="SCRIPT.py", nargs="?" if default else None, default=default, help=text)


def _add_common(parser: argparse.ArgumentParser) -> None:
    _add_configs(parser)
    parser.add_argument("--port", type=_positive, metavar="N", help="of the (first) trainer")
    parser.add_argument("--cpu", action="store_true", help="without CUDA, run on the CPU what asks for it")


def _add_configs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--embedding-config", metavar="FILE", default=os.environ.get(_service.EMBEDDING_CONFIG))
    parser.add_argument("--global-config", metavar="FILE", default=os.environ.get(_service.GLOBAL_CONFIG))


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an int ≥ 1, got {text!r}")
    return int(text)


# The commands.


def _run_all(given: argparse.Namespace) -> int:
    for name, path in (("--data-loader", given.data_loader), ("--nn-worker", given.nn_worker)):
        if path is None or not shlex.split(path):
            raise ParameterError(f"persia-launcher run needs {name} SCRIPT.py")
        _check_script(shlex.split(path)[0])
    common = _configured(given)
    trainers = given.nproc_per_node
    own = _free_ports(trainers) if given.port is None else [given.port + rank for rank in range(trainers)]
    [master] = _free_ports(1)
    store = given.store or ("ray" if trainers > 1 else "memory")
    common |= {
        _service.ADDRESS: _addresses(own),
        _service.TOKEN: secrets.token_hex(16),
        _service.JOB: f"persia-{secrets.token_hex(4)}",
        _service.STORE: store,
        _service.SERVERS: str(given.parameter_servers),
    }
    processes: list[Process] = []
    try:
        for rank in range(trainers):
            variables = common | _rank(rank, trainers, master) | _port_2021(own[rank])
            processes.append(Process(TRAINER, rank, _command(given.nn_worker, given.cpu), variables))
        for index in range(given.replica_size):
            variables = common | _replica(index, given.replica_size)
            processes.append(Process(LOADER, index, _command(given.data_loader, given.cpu), variables))
    except BaseException:
        for process in processes:
            process.signal(9)
        raise
    return supervise(processes)


def _trainer_alone(given: argparse.Namespace) -> int:
    _check_script(given.filepath)
    if given.nproc_per_node * given.nnodes > 1:
        raise ParameterError("several trainers are started together: persia-launcher run --nproc-per-node …")
    port = given.port or PORT
    known = {} if _service.addresses() else {_service.ADDRESS: _addresses([port])}
    return _wait_for(given, _configured(given) | known | _rank(0, 1, port + 1) | _port_2021(port))


def _loader_alone(given: argparse.Namespace) -> int:
    _check_script(given.filepath)
    if not 0 <= given.replica_index < given.replica_size:
        raise ParameterError(f"--replica-index must be from 0 to {given.replica_size - 1}, got {given.replica_index}")
    known = {} if _service.addresses() else {_service.ADDRESS: _addresses([given.port or PORT])}
    numbers = {"--replica-index": given.replica_index, "--replica-size": given.replica_size}
    passed = [str(part) for pair in numbers.items() for part in pair] if given.command == "compose" else []
    return _wait_for(given, _configured(given) | known | _replica(given.replica_index, given.replica_size), passed)


def _server(given: argparse.Namespace) -> int:
    _configured(given)
    print(
        f"{given.command}: nothing to start. Embeddings live in the trainer's memory, or on Ray "
        "(persia-launcher run --store ray); data loaders talk to trainers directly."
    )
    return 0


def _wait_for(given: argparse.Namespace, variables: dict[str, str], more: Sequence[str] = ()) -> int:
    os.environ.update(variables)
    return run_in_child(given.filepath, [*more, *given.arguments], cpu=given.cpu)


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


def _rank(rank: int, trainers: int, master_port: int) -> dict[str, str]:
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": trainers, "MASTER_PORT": master_port}
    return {"MASTER_ADDR": "127.0.0.1"} | {name: str(number) for name, number in numbers.items()}


def _replica(index: int, loaders: int) -> dict[str, str]:
    return {"REPLICA_INDEX": str(index), "REPLICA_SIZE": str(loaders)}


def _port_2021(port: int) -> dict[str, str]:
    """What scripts of 2021 read from their environment."""
    return {"TRAINER_PORT": str(port), "FORWARD_QUEUE_SIZE": os.environ.get("FORWARD_QUEUE_SIZE", "10")}


def _addresses(ports: Sequence[int]) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in ports)


def _command(script: str, cpu: bool) -> list[str]:
    return [sys.executable, "-m", "penstock.compat", *["--cpu"] * cpu, "--", *shlex.split(script)]


def _check_script(path: str) -> None:
    if not Path(path).is_file():
        raise ParameterError(f"there is no script {path}")


def _free_ports(count: int) -> list[int]:
    """Ports that nothing listens on, all different."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


if __name__ == "__main__":
    try:
        sys.exit(cli())
    except PenstockError as error:
        sys.exit(f"error: {error}")
