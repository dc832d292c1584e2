"""Tensors into an artefact, and out of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from penstock.core.artefact import SavedFolder
from penstock.core.errors import ArtefactError


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a safetensors file.

    Args:
        tensors: by name, contiguous and on the host.
        path: of the file.

    Raises:
        OSError: the system refuses it, as where a disk is full; safetensors has an error of its own for that.
    """
    try:
        save_file(dict(tensors), path)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


def read_tensors(folder: SavedFolder, name: str) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Args:
        folder: of a verified artefact.
        name: of the file in it.

    Returns:
        Each tensor by its name, in memory of its own.

    Raises:
        ArtefactError: the file is not listed, or its header does not fit its content.
    """
    path = folder.file(name)
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError, AttributeError) as error:
        raise ArtefactError(f"{path} cannot be read as tensors: {error}") from error
