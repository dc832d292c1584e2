"""Where work runs: the Dask client that a program chose for all its workflows, or none."""

from __future__ import annotations

import warnings
from contextvars import ContextVar
from typing import Any

from penstock.core.extras import require
from penstock.core.params import NONE, OneOf, check

_AUTO = "auto"
_chosen: ContextVar[Any] = ContextVar("penstock_dask_client", default=_AUTO)


def set_dask_client(
    client: Any = _AUTO, new_cluster: str | None = None, force_new: bool = False, **options: Any
) -> Any:
    """Choose the Dask client that workflows and data sets use: one, None for none, `"auto"` for the one there is.

    With `new_cluster` ("cpu"; "cuda" is the same here) a local cluster is started where there is no client yet, or
    always with `force_new`; `options` are those of `dask.distributed.LocalCluster`.
    """
    check("new_cluster", new_cluster, OneOf(("cpu", "cuda")) | NONE)
    _chosen.set(client)
    if new_cluster and client is not None:
        if global_dask_client() is None or force_new:
            distributed = require("dask.distributed", "dask")
            options.setdefault("dashboard_address", ":0")
            _chosen.set(distributed.Client(distributed.LocalCluster(**options)))
        else:
            warnings.warn("there is a Dask client already, which is used (force_new=True starts another)", stacklevel=2)
    return global_dask_client()


def global_dask_client() -> Any:
    """The Dask client that was chosen, else the one of this process; None where there is none.

    >>> global_dask_client() is None
    True
    """
    if _choice() != _AUTO:
        return _choice()
    try:
        return require("dask.distributed", "dask").get_client()
    except (ImportError, ValueError):
        return None


def chosen_client() -> Any:
    """The client that a program chose for all that it runs; None where it chose none, or none at all."""
    return None if _choice() in (_AUTO, None) else _choice()


def _choice() -> Any:
    """What was chosen; a client that was closed since is as if none had been."""
    client = _chosen.get()
    return _AUTO if getattr(client, "status", None) in ("closed", "closing") else client


def num_workers(client: Any = None) -> int:
    """How many processes a client's cluster has, else the one that was chosen; 1 where there is none.

    >>> num_workers()
    1
    """
    cluster = getattr(client or global_dask_client(), "cluster", None)
    return len(getattr(cluster, "workers", ())) or 1


class Distributed:
    """Runs what stands in its block on a Dask cluster: a given client's, the one there is, or a local one it starts.

    >>> Distributed.__name__
    'Distributed'
    """

    def __init__(
        self, client: Any = None, cluster_type: str | None = None, force_new: bool = False, **cluster_options: Any
    ) -> None:
        self._before = _chosen.get()
        self._given, self.force_new = client, force_new
        self.cluster_type, self.cluster_options = cluster_type or "cpu", cluster_options
        self._client: Any = None
        self._own = False
        self._activate()

    def _activate(self) -> None:
        if self._client is not None:
            return
        there = self._given or global_dask_client()
        self._own = there is None or (self.force_new and self._given is None)
        if self._own:
            self._client = set_dask_client(_AUTO, self.cluster_type, True, **self.cluster_options)
        else:
            if self._given is None:
                warnings.warn(
                    "there is a Dask client already, which is used (force_new=True starts another)", stacklevel=3
                )
            self._client = set_dask_client(there)

    @property
    def client(self) -> Any:
        return self._client

    @property
    def cluster(self) -> Any:
        return self._client.cluster

    @property
    def dashboard_link(self) -> str:
        return str(self._client.dashboard_link)

    def deactivate(self) -> None:
        """Go back to what was chosen before; a cluster that was started here is stopped."""
        if self._client is not None and self._own:
            cluster = self._client.cluster
            self._client.close()
            if cluster is not None:
                cluster.close()
        self._client = None
        _chosen.set(self._before)

    def __enter__(self) -> Distributed:
        self._activate()
        return self

    def __exit__(self, *error: object) -> None:
        self.deactivate()


class Serial:
    """Runs what stands in its block in this process, whatever clients there are.

    >>> with Serial() as here:
    ...     here.client is None and global_dask_client() is None
    True
    """

    client = None

    def __init__(self) -> None:
        self._before = _chosen.get()
        _chosen.set(None)

    def deactivate(self) -> None:
        _chosen.set(self._before)

    def __enter__(self) -> Serial:
        _chosen.set(None)
        return self

    def __exit__(self, *error: object) -> None:
        self.deactivate()


def set_client_deprecated(client: Any, caller_str: str) -> None:
    """What an old `client=` argument did: choose the client for all."""
    set_dask_client(client)


def run_on_worker(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a function, on a worker of the chosen client where there is one."""
    client = global_dask_client()
    return func(*args, **kwargs) if client is None else client.submit(func, *args, **kwargs).result()


def later(function: Any, *arguments: Any) -> Any:
    """A call that Dask makes when its result is computed."""
    return require("dask", "dask").delayed(function)(*arguments)


def ensure_optimize_dataframe_graph(ddf: Any = None, dsk: Any = None, keys: Any = None) -> Any:
    """A Dask frame (or graph) with its graph optimized; Dask does so itself today."""
    if ddf is None and (dsk is None or keys is None):
        from penstock.core.errors import ParameterError

        raise ParameterError("give ddf, or both dsk and keys")
    return dsk if ddf is None else ddf.optimize() if hasattr(ddf, "optimize") else ddf
