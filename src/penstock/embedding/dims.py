"""The width of embeddings as it can be given: one for all, or one for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.core.errors import ParameterError, suggest
from penstock.core.params import Int, check_all

DIM = Int(min=1, max=65536)  # of an embedding
Dims = int | Mapping[str, int] | Sequence[int]


def dims_of(given: Dims, names: Sequence[str], setting: str, what: str = "tables") -> dict[str, int]:
    """The dim of each table or column.

    Args:
        given: one for all, one by name, or one after the other in the order of the names.
        names: of the tables or columns.
        setting: what it was given as, for messages.
        what: the names are.

    Returns:
        Dims by name, in the order of the names.

    Raises:
        ParameterError: one has no dim, there is one for none of them, or it is no dim.

    >>> dims_of({"item": 8, "user": 32}, ["user", "item"], "FusedEmbeddings.dim")
    {'user': 32, 'item': 8}
    """
    if isinstance(given, Mapping):
        if strange := [name for name in given if name not in names]:
            raise ParameterError(f"{setting} names {strange[0]!r}{suggest(str(strange[0]), names, what)}")
        if missing := [name for name in names if name not in given]:
            raise ParameterError(f"{setting} has nothing for {missing[0]!r}; give a dim for each of the {what}")
        dims = [given[name] for name in names]
    elif isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) != len(names):
            raise ParameterError(f"{setting} lists {len(given)} dims, and the {what} are {list(names)}")
        dims = list(given)
    else:
        owner, _, name = setting.rpartition(".")
        check_all({name: given}, {name: DIM}, owner)
        dims = [given] * len(names)
    check_all(dict(zip(names, dims, strict=True)), dict.fromkeys(names, DIM), setting)
    return {name: int(dim) for name, dim in zip(names, dims, strict=True)}


def plain_dim(dims: Mapping[str, int]) -> int | dict[str, int]:
    """One number where all dims are the same.

    >>> plain_dim({"user": 8, "item": 8}), plain_dim({"user": 8, "item": 4})
    (8, {'user': 8, 'item': 4})
    """
    distinct = set(dims.values())
    return distinct.pop() if len(distinct) == 1 else dict(dims)
