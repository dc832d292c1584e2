"""PERSIA's launcher: `persia-launcher`, `penstock persia-launcher`, or `python -m persia.launcher`.

`run` starts data loaders and trainers together, ends them together, and prints what they say behind their names. The
commands of PERSIA start one part each. Those for its servers, and `nats`, have nothing to do and stay until they are
stopped, so that start-up files which watch their processes (honcho, docker-compose) go on working; `exec` runs such a
file's own commands where `import persia` is Penstock's. Scripts are run as `penstock run` runs them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from penstock.compat.persia import _launch, _service
from penstock.core.errors import ParameterError, PenstockError

__all__ = ["cli"]

_SERVERS = ("embedding-worker", "embedding-parameter-server", "middleware", "server", "nats", "nats-server")


def cli(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say; the exit code.

    >>> cli(["data-loader", "loader.py"])
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: there is no script loader.py
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["exec"]:
        return _launch.execute(words[1:])
    cut = words.index("--") if "--" in words else len(words)
    given, unknown = _parser().parse_known_args(words[:cut])
    if unknown and given.command not in ("nats", "nats-server"):  # whose options are those of a program not run
        _parser().error(f"unrecognized arguments: {' '.join(unknown)}")
    given.arguments = words[cut + 1 :]
    if given.arguments and not hasattr(given, "filepath"):
        raise ParameterError(f"{given.command} takes nothing behind --; arguments of a script stand in quotes with it")
    return given.do(given)


def main() -> None:
    """The executable `persia-launcher`: what is wrong is one line."""
    try:
        sys.exit(cli())
    except PenstockError as error:
        sys.exit(f"error: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="persia-launcher",
        description="Run data loaders and trainers written for PERSIA; there are no servers to start.",
        epilog="persia-launcher exec COMMAND …: a start-up file's own command, with import persia and nats-server",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    _add_run(commands)
    trainer = commands.add_parser("nn-worker", aliases=["trainer"], help="the trainers of one machine by themselves")
    _add_script(trainer, "PERSIA_NN_WORKER_ENTRY")
    trainer.add_argument("--nproc-per-node", "--gpu-num", type=_positive, default=1, metavar="N", help="trainers here")
    trainer.add_argument("--nnodes", type=_positive, default=1, metavar="N", help="machines with trainers")
    trainer.add_argument("--node-rank", type=int, default=0, metavar="N", help="which of them this is, from 0")
    _add_store(trainer)
    _add_common(trainer)
    trainer.set_defaults(do=_launch.trainers)
    loader = commands.add_parser("data-loader", aliases=["compose"], help="a data loader by itself")
    _add_script(loader, "PERSIA_DATALOADER_ENTRY")
    index, size = os.environ.get("REPLICA_INDEX", "0"), os.environ.get("REPLICA_SIZE", "1")
    loader.add_argument("--replica-index", type=int, default=index, help="which of the data loaders this is")
    loader.add_argument("--replica-size", type=_positive, default=size, help="how many data loaders there are")
    _add_common(loader)
    loader.set_defaults(do=_launch.loader)
    for name in _SERVERS:
        server = commands.add_parser(name, help="nothing to do: stays until it is stopped")
        server.add_argument("--port", type=int)
        server.add_argument("--replica-index", type=int)
        server.add_argument("--replica-size", type=int)
        _add_configs(server)
        server.set_defaults(do=_launch.stay)
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
    _add_store(run)
    _add_common(run)
    run.set_defaults(do=_launch.everything)


def _add_script(parser: argparse.ArgumentParser, variable: str) -> None:
    default = os.environ.get(variable)
    text = "the script; its own arguments stand behind --"
    parser.add_argument("filepath", metavar="SCRIPT.py", nargs="?" if default else None, default=default, help=text)


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", choices=("memory", "ray"), default=os.environ.get(_service.STORE),
                        help="embeddings: in the trainer's memory, or in processes of their own on Ray")  # fmt: skip
    parser.add_argument("--parameter-servers", type=_positive, default=os.environ.get(_service.SERVERS, "1"),
                        metavar="N", help="processes of a store on Ray")  # fmt: skip


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


if __name__ == "__main__":
    main()
