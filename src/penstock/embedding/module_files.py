"""Embeddings that are torch modules as a folder: their tensors behind a manifest."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from penstock.core import artefact
from penstock.core.errors import ArtefactError
from penstock.embedding.tensor_files import read_tensors, write_tensors

KIND, VERSION = "embedding-tables", 1
_FILE = "tables.safetensors"


def save_module(module: nn.Module, path: str | Path, overwrite: bool) -> None:
    """Write a module's state as an artefact.

    Args:
        module: the embeddings.
        path: the folder to write.
        overwrite: replace one that is there.

    Raises:
        OutputExistsError: there is something at `path` and `overwrite` is false.
    """
    with artefact.writing(Path(path), KIND, VERSION, overwrite) as folder:
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}
        write_tensors(state, folder / _FILE)


def load_module(module: nn.Module, path: str | Path) -> None:
    """Fill a module with what `save_module` wrote.

    Raises:
        ArtefactError: the folder is damaged, or holds the state of other tables.
    """
    state = artefact.read(path, KIND, VERSION, lambda folder: read_tensors(folder, _FILE))
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise ArtefactError(f"{path} does not hold the state of these {type(module).__name__}: {error}") from error
