"""What the kernels of fused embeddings and their oracle agree on: the words of a batch, and which gradients count.

Tables of one dim lie one above the other in one weight. A *feature* is one column of a batch; row `f` of `features`
says where it lives: `(first row of its table, rows of its table, number of the table, first column of the output)`. An
*occurrence* is one id of one sample: a batch's occurrences are its single ids, feature by feature, then the values of
its bags. An occurrence's *key* is its row of the weight.

The bags of a feature have one offset more than there are samples, and features follow one another: what lies between
the last offset of one and the first of the next belongs to no bag. It is neither looked up nor trained, so a batch can
have room for more values than it has.
"""

from __future__ import annotations

from typing import Any

POOLINGS = {"sum": 0, "mean": 1, "sqrt_n": 2}
FEATURE_FIELDS = 4
# Gradients from LIMIT on count as not finite. Kernels put HUGE in the place of what is not: its sums stay above the
# limit, and zero times it is zero, where zero times infinity is NaN.
LIMIT, HUGE = 2.0**119, 2.0**120
ID_BITS = 40  # of an id that fit into its code


def code(place: Any, identity: Any) -> Any:
    """A table's place and an id in one number, above 0: how kernels report an id outside its table.

    >>> table_and_id(code(2, -3))
    (2, -3)
    """
    return ((place + 1) << ID_BITS) | (identity & ((1 << ID_BITS) - 1))


def table_and_id(code: int) -> tuple[int, int]:
    """The place and the id that a code holds."""
    identity = code & ((1 << ID_BITS) - 1)
    return (code >> ID_BITS) - 1, identity - (1 << ID_BITS) if identity >> (ID_BITS - 1) else identity
