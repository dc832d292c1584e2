"""The operators."""

from penstock.etl.operator import FittedOperator, Operator
from penstock.etl.ops.categorify import Categorify
from penstock.etl.ops.continuous import (
    Bucketize,
    Clip,
    FillMedian,
    FillMissing,
    LogOp,
    Normalize,
    NormalizeMinMax,
)
from penstock.etl.ops.embedding_sizes import get_embedding_sizes

__all__ = [
    "Bucketize",
    "Categorify",
    "Clip",
    "FillMedian",
    "FillMissing",
    "FittedOperator",
    "LogOp",
    "Normalize",
    "NormalizeMinMax",
    "Operator",
    "get_embedding_sizes",
]
