"""The models that can be named: by settings, on the command line, in a saved model.

>>> list(MODELS)
['DLRM', 'DCNv2', 'DeepFM', 'MLP']
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from penstock.core.extras import require

if TYPE_CHECKING:
    from penstock.nn.base import Model


class Models(Mapping[str, "type[Model]"]):
    """Model classes by name. A class is imported when it is asked for: names are known where torch is not installed."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self.modules = dict(modules)
        self._registered: dict[str, type[Model]] = {}

    def __getitem__(self, name: str) -> type[Model]:
        if name in self._registered:
            return self._registered[name]
        module = self.modules[name]
        require("torch", "torch")
        found: type[Model] = getattr(importlib.import_module(module), name)
        return found

    def __iter__(self) -> Iterator[str]:
        yield from self.modules
        yield from self._registered

    def __len__(self) -> int:
        return len(self.modules) + len(self._registered)

    def register(self, model: type[Model]) -> type[Model]:
        """Make a model of one's own known by its name.

        Args:
            model: a subclass of `penstock.nn.Model` that takes the schema first and can be built from its `config()`.

        Returns:
            The class, so that this can decorate it.
        """
        self._registered[model.__name__] = model
        return model


MODELS = Models(
    {
        "DLRM": "penstock.nn.dlrm",
        "DCNv2": "penstock.nn.dcn",
        "DeepFM": "penstock.nn.deepfm",
        "MLP": "penstock.nn.mlp",
    }
)
