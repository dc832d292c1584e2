"""Where work runs. An engine has two verbs: map items, and reduce items to one state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from penstock.core.errors import ParameterError
from penstock.core.runtime.threads import available_cores

Item = TypeVar("Item")
Result = TypeVar("Result")
State = TypeVar("State")


class Engine(Protocol):
    """The contract: results come in the order of the items, and a reduction whose merge is associative and
    commutative gives the same bytes on every engine. `on_done(i)` is called here, once item `i` is finished."""

    @property
    def num_workers(self) -> int: ...

    def map(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        on_done: Callable[[int], Any] | None = None,
    ) -> Iterator[Result]: ...

    def reduce(
        self,
        fold: Callable[[State | None, Item], State],
        merge: Callable[[State, State], State],
        items: Sequence[Item],
        on_done: Callable[[int], Any] | None = None,
    ) -> State | None: ...


class DaskClient(Protocol):
    """A client of `dask.distributed`, as far as it is needed here: its package is an extra."""

    def submit(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Run a function on a worker."""
        ...

    def gather(self, futures: Any) -> Any:
        """The results of what was submitted."""
        ...

    def nthreads(self) -> Any:
        """Threads by worker."""
        ...


EngineLike: TypeAlias = Engine | DaskClient | str | None


def resolve(engine: EngineLike = None) -> Engine:
    """The engine that a setting means.

    `None` or `"local"`: threads of this process; `"local:4"`: four of them. `"dask"`, a Dask client or a scheduler
    address (`tcp://…`): Dask. `"ray"` or a Ray address (`ray://…`, `ray:host:port`): Ray.

    >>> resolve("local:4").num_workers
    4
    """
    if engine is None or engine == "local":
        from penstock.engine.local import LocalEngine

        return LocalEngine(available_cores())
    if isinstance(engine, str):
        return _from_name(engine)
    if hasattr(engine, "map") and hasattr(engine, "reduce") and hasattr(engine, "num_workers"):
        return cast("Engine", engine)
    if type(engine).__module__.split(".")[0] == "distributed":
        from penstock.engine.dask import DaskEngine

        return DaskEngine(engine)
    raise ParameterError(
        f"engine must be 'local', 'dask', 'ray', an address, a Dask client or an Engine, got {engine!r}"
    )


def _from_name(name: str) -> Engine:
    if name.startswith("local:"):
        from penstock.engine.local import LocalEngine

        try:
            workers = int(name.removeprefix("local:"))
        except ValueError:
            workers = 0
        if workers < 1:
            raise ParameterError(f"engine {name!r}: the number of threads must be an int ≥ 1")
        return LocalEngine(workers)
    if name == "dask" or name.startswith(("tcp://", "tls://", "ucx://", "inproc://")):
        from penstock.engine.dask import DaskEngine

        return DaskEngine(None if name == "dask" else name)
    if name == "ray" or name.startswith(("ray://", "ray:")):
        from penstock.engine.ray import RayEngine

        if name == "ray":
            return RayEngine(None)
        return RayEngine(name if name.startswith("ray://") else name.removeprefix("ray:"))
    raise ParameterError(
        f"unknown engine {name!r}; known: local, local:N, dask, tcp://… (Dask), ray, ray://…, ray:HOST:PORT"
    )


def in_order(
    submit: Callable[[Item], Any],
    collect: Callable[[Any], Result],
    cancel: Callable[[list[Any]], Any],
    items: Sequence[Item],
    limit: int,
    on_done: Callable[[int], Any] | None,
) -> Iterator[Result]:
    """Results in the order of the items, at most `limit` of them under way; what is left at the end is cancelled."""
    pending: deque[tuple[int, Any]] = deque()

    def next_result() -> Result:
        index, handle = pending.popleft()
        result = collect(handle)
        if on_done:
            on_done(index)
        return result

    try:
        for index, item in enumerate(items):
            pending.append((index, submit(item)))
            if len(pending) >= limit:
                yield next_result()
        while pending:
            yield next_result()
    finally:
        cancel([handle for _, handle in pending])


def fold_group(fold: Callable[..., Any], items: Sequence[Any]) -> Any:
    """Fold a group of items into one state: what a remote task does."""
    state = None
    for item in items:
        state = fold(state, item)
    return state


def groups(num_items: int, num_groups: int) -> list[range]:
    """`num_items` positions in at most `num_groups` runs of nearly equal length.

    >>> groups(5, 2)
    [range(0, 3), range(3, 5)]
    """
    num_groups = max(1, min(num_items, num_groups))
    size, rest = divmod(num_items, num_groups)
    bounds = [0]
    for group in range(num_groups):
        bounds.append(bounds[-1] + size + (group < rest))
    return [range(a, b) for a, b in pairwise(bounds) if b > a]
