"""Optional dependencies: imported when first needed, with the pip command in the error when they are missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from penstock.core.errors import MissingExtraError


def require(module: str, extra: str) -> ModuleType:
    """Import `module`, or say which extra brings it.

    >>> require("json", "none").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] == module.split(".")[0]:
            raise MissingExtraError(module.split(".")[0], extra) from error
        raise
