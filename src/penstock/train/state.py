"""Nested state (optimizers, scalers, schedulers, generators) as tensors and plain data, and back. No pickle."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.core.artefact import SavedFolder
from penstock.core.errors import ArtefactError, ParameterError
from penstock.embedding.tensor_files import read_tensors, write_tensors


def encode(value: Any, tensors: dict[str, Tensor], place: str) -> Any:
    """Plain data for JSON; tensors go to `tensors` under the name of their place.

    >>> tensors = {}
    >>> encode({"step": torch.tensor(3.0), "betas": (0.9, 0.99), 0: None}, tensors, "adam")
    {'$items': [['step', {'$tensor': 'adam/step'}], ['betas', {'$tuple': [0.9, 0.99]}], [0, None]]}
    >>> list(tensors)
    ['adam/step']
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        tensors[place] = value.detach().to("cpu", copy=True).contiguous()
        return {"$tensor": place}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {"$items": [[_key(k, place), encode(v, tensors, f"{place}/{k}")] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        items = [encode(item, tensors, f"{place}/{number}") for number, item in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    raise ParameterError(f"{place} holds a {type(value).__name__}, which a checkpoint cannot hold; it takes plain data")


def decode(data: Any, tensors: Mapping[str, Tensor]) -> Any:
    """What `encode` was given."""
    if isinstance(data, list):
        return [decode(item, tensors) for item in data]
    if not isinstance(data, dict):
        return data
    if "$tensor" in data:
        if data["$tensor"] not in tensors:
            raise ArtefactError(f"the checkpoint lacks the tensor {data['$tensor']!r}")
        return tensors[data["$tensor"]]
    if "$tuple" in data:
        return tuple(decode(item, tensors) for item in data["$tuple"])
    return {key: decode(item, tensors) for key, item in data["$items"]}


def _key(key: Any, place: str) -> Any:
    if not isinstance(key, (str, int)):
        raise ParameterError(f"{place} has a key {key!r}, which a checkpoint cannot hold; keys are strings or ints")
    return key


class StateCopy:
    """A state as it is now, to be written later."""

    def __init__(self, name: str, value: Any) -> None:
        self._name, self._tensors = name, dict[str, Tensor]()
        self._data = encode(value, self._tensors, name)

    def write(self, folder: Path) -> None:
        """As `name.json` and `name.safetensors`."""
        (folder / f"{self._name}.json").write_text(json.dumps(self._data))
        write_tensors(self._tensors, folder / f"{self._name}.safetensors")


def write_state(folder: Path, name: str, value: Any) -> None:
    """`value` as `name.json` and `name.safetensors`."""
    StateCopy(name, value).write(folder)


def read_state(folder: SavedFolder, name: str) -> Any:
    """What was written of a state."""
    data, tensors = folder.json(f"{name}.json"), read_tensors(folder, f"{name}.safetensors")
    try:
        return decode(data, tensors)
    except (ValueError, KeyError, TypeError) as error:
        raise ArtefactError(f"{folder.file(f'{name}.json')} does not describe a state: {error}") from error


def random_state() -> dict[str, Any]:
    """The generators of torch (all devices), NumPy and Python."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, words, gauss_next = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state(i) for i in range(torch.cuda.device_count())],
        "numpy": [kind, np.asarray(keys).tolist(), int(position), int(has_gauss), float(gauss)],
        "python": [version, list(words), gauss_next],
    }


def set_random_state(state: Mapping[str, Any]) -> None:
    """Put all generators back."""
    torch.set_rng_state(state["torch"])
    for number, own in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(own, number)
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, np.array(keys, np.uint32), position, has_gauss, gauss))
    version, words, gauss_next = state["python"]
    random.setstate((version, tuple(words), gauss_next))
