"""Small helpers of PERSIA that scripts use."""

from __future__ import annotations

import os
import random
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from penstock.compat.persia._config import read_yaml
from penstock.core.artefact import replacing
from penstock.core.errors import ParameterError
from penstock.core.extras import require

__all__ = ["MAXIMUM_LOCAL_PORT_NUM", "dump_yaml", "find_free_port", "load_yaml", "run_command", "setup_seed"]

MAXIMUM_LOCAL_PORT_NUM = 65535


def setup_seed(seed: int) -> None:
    """Seed Python, NumPy and torch, and have torch use deterministic algorithms.

    >>> before = random.getstate(), np.random.get_state()
    >>> setup_seed(3)
    >>> random.setstate(before[0]), np.random.set_state(before[1])
    (None, None)
    >>> import torch
    >>> torch.use_deterministic_algorithms(False)
    """
    torch = require("torch", "torch")
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or matrix products refuse to be deterministic
    torch.use_deterministic_algorithms(True)


def load_yaml(filepath: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file.

    >>> load_yaml("not/there.yml")
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: not/there.yml does not exist
    """
    return read_yaml(filepath)


def dump_yaml(content: Mapping[str, Any], filepath: str | Path) -> None:
    """Write a mapping as YAML.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.yml"
    >>> dump_yaml({"x": 1}, path)
    >>> load_yaml(path)
    {'x': 1}
    """
    with replacing(filepath) as partial:
        partial.write_text(yaml.safe_dump(dict(content)), encoding="utf-8")


def run_command(cmd: Sequence[Any], env: Mapping[str, str] | None = None) -> None:
    """Run a program and wait for it; a failure is `subprocess.CalledProcessError`.

    >>> run_command(["true"])
    """
    subprocess.run([str(part) for part in cmd], env=None if env is None else dict(env), check=True)


def find_free_port(port: int = 10000, interval: int = 1) -> int:
    """The first port from `port` on, in steps, that nothing listens on.

    >>> 10000 <= find_free_port() <= MAXIMUM_LOCAL_PORT_NUM
    True
    """
    for candidate in range(port, MAXIMUM_LOCAL_PORT_NUM + 1, interval):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("127.0.0.1", candidate))
            except OSError:
                continue
            return candidate
    raise ParameterError(f"no port from {port} to {MAXIMUM_LOCAL_PORT_NUM} is free")
