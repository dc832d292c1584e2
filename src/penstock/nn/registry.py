"""The models that can be named: by settings, on the command line, in a saved model.

>>> list(MODELS)
['DLRM', 'DCNv2', 'DeepFM', 'MLP']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.registry import Registry

if TYPE_CHECKING:
    from penstock.nn.base import Model

# One of one's own is a subclass of `penstock.nn.Model` that takes the schema first and can be built from its
# `config()`. Names are known where torch is not installed.
MODELS: Registry[Model] = Registry(
    {
        "DLRM": "penstock.nn.dlrm:DLRM",
        "DCNv2": "penstock.nn.dcn:DCNv2",
        "DeepFM": "penstock.nn.deepfm:DeepFM",
        "MLP": "penstock.nn.mlp:MLP",
    },
    name_of=lambda model: model.__name__,
    extra="torch",
)
