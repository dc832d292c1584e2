"""How far a written data set is shuffled."""

from __future__ import annotations

import enum
from typing import Any

from penstock.compat.missing import module_getattr
from penstock.core.errors import ParameterError

__all__ = ["Shuffle", "shuffle_df"]


class Shuffle(enum.Enum):
    """`PER_PARTITION` permutes the rows inside each partition; `PER_WORKER` and `FULL` all rows.

    >>> Shuffle.PER_PARTITION.name
    'PER_PARTITION'
    """

    PER_PARTITION = 0
    PER_WORKER = 1
    FULL = 2


def native_shuffle(shuffle: Any) -> str | None:
    """Penstock's word for a shuffle.

    >>> native_shuffle(Shuffle.PER_WORKER), native_shuffle(None), native_shuffle(Shuffle.PER_PARTITION)
    ('full', None, 'partition')
    """
    if shuffle is None or shuffle is False:
        return None
    if shuffle is Shuffle.PER_PARTITION:
        return "partition"
    if shuffle in (True, Shuffle.PER_WORKER, Shuffle.FULL):
        return "full"
    raise ParameterError(f"shuffle must be a Shuffle, True, False or None, got {shuffle!r}")


def shuffle_df(df: Any, size: int | None = None, keep_index: bool = False) -> Any:
    """A pandas frame with its rows in random order.

    >>> import pandas as pd
    >>> sorted(shuffle_df(pd.DataFrame({"a": [1, 2, 3]}))["a"])
    [1, 2, 3]
    """
    shuffled = df.sample(n=size or len(df), replace=False)
    return shuffled if keep_index else shuffled.reset_index(drop=True)


__getattr__ = module_getattr(__name__)
