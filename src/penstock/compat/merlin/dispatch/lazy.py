"""Functions chosen by the type of their first argument, for types of libraries that may not be there yet."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch, update_wrapper
from typing import Any

__all__ = ["LazyDispatcher", "lazy_singledispatch", "lazysingledispatch"]


class LazyDispatcher:
    """`functools.singledispatch` whose implementations for a library's types are registered when one first comes.

    The first argument may be a type itself. The plain function must raise `NotImplementedError`.

    >>> @lazy_singledispatch
    ... def kind(value):
    ...     raise NotImplementedError
    >>> @kind.register
    ... def _(value: int):
    ...     return "a number"
    >>> @kind.register_lazy("numpy")
    ... def _():
    ...     import numpy as np
    ...     kind.register(np.ndarray, lambda value: "an array")
    >>> import numpy as np
    >>> kind(1), kind(np.zeros(2))
    ('a number', 'an array')
    """

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func, self.dispatcher = func, singledispatch(func)
        self._waiting: dict[str, Callable[[], Any]] = {}
        update_wrapper(self, func)

    def register(self, cls: Any, func: Callable[..., Any] | None = None) -> Any:
        """Name the function for a type, as `functools.singledispatch` takes it."""
        return self.dispatcher.register(cls, func)

    def register_lazy(self, module_name: str, func: Callable[[], Any] | None = None) -> Any:
        """Name the function that registers what a library's types need; it is called when the first of them comes."""
        if func is None:
            return lambda later: self.register_lazy(module_name, later)
        self._waiting[module_name] = func
        return func

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kind = args[0] if isinstance(args[0], type) else type(args[0])
        if self.dispatcher.dispatch(kind) is self.func:
            waiting = self._waiting.pop(kind.__module__.split(".")[0], None)
            if waiting is not None:
                waiting()
        try:
            return self.dispatcher.dispatch(kind)(*args, **kwargs)
        except NotImplementedError as error:
            if str(error):
                raise
            name = getattr(self.func, "__name__", "the function")
            raise NotImplementedError(
                f"{name} doesn't have a registered implementation for {args[0]!r} ({kind.__name__})"
            ) from error


def lazy_singledispatch(func: Callable[..., Any]) -> LazyDispatcher:
    """The function, chosen by the type of its first argument."""
    return LazyDispatcher(func)


lazysingledispatch = lazy_singledispatch
