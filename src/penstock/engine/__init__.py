"""Where work runs: threads of this process, Dask or Ray."""

from penstock.engine.base import Engine, resolve

__all__ = ["Engine", "resolve"]
