"""PERSIA's names over Penstock's own parts: the 2021 ones and those of its last release.

Data loader and trainer run in one process, in two (`penstock persia-launcher`), or with the embeddings on Ray; there
are no servers to start. See docs/migrate-persia.md.

>>> from penstock.compat.persia.embedding.optim import Adagrad
>>> Adagrad(lr=0.1).to_native().form
'persia'
"""

from penstock.compat.missing import module_getattr
from penstock.compat.persia.env import (
    get_local_rank,
    get_rank,
    get_replica_index,
    get_replica_size,
    get_world_size,
    reload_env,
    set_env,
)
from penstock.compat.persia.version import __version__

__all__ = [
    "__version__",
    "get_local_rank",
    "get_rank",
    "get_replica_index",
    "get_replica_size",
    "get_world_size",
    "reload_env",
    "set_env",
]

_missing = module_getattr(__name__)
_MODULES = ("backend", "ctx", "data", "distributed", "embedding", "env", "error", "helper", "launcher", "logger",
            "prelude", "sparse", "utils", "version")  # fmt: skip


def __getattr__(name: str) -> object:
    """PERSIA's `import persia` brought its modules along; here each comes when it is first used."""
    if name in _MODULES:
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    return _missing(name)
