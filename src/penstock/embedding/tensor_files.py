"""Tensors out of an artefact."""

from __future__ import annotations

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from penstock.core.artefact import SavedFolder
from penstock.core.errors import ArtefactError


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
