"""The operators."""

from penstock.etl.fitted_operator import FittedOperator
from penstock.etl.operator import Operator
from penstock.etl.ops.binarize import Binarize
from penstock.etl.ops.categorify import Categorify
from penstock.etl.ops.continuous import Bucketize, Clip, LogOp
from penstock.etl.ops.custom import LambdaOp
from penstock.etl.ops.dates import DateParts
from penstock.etl.ops.dtype_size import DropLowCardinality, ReduceDtypeSize
from penstock.etl.ops.embedding_sizes import get_embedding_sizes
from penstock.etl.ops.expression import Expr
from penstock.etl.ops.fill import FillMedian, FillMissing
from penstock.etl.ops.filters import Dropna, Filter
from penstock.etl.ops.groupby import Groupby
from penstock.etl.ops.hashing import HashBucket, HashedCross, HashId
from penstock.etl.ops.join import JoinExternal
from penstock.etl.ops.join_groupby import JoinGroupby
from penstock.etl.ops.lag import DifferenceLag
from penstock.etl.ops.lists import ListSlice, ValueCount
from penstock.etl.ops.metadata import (
    AddMetadata,
    AddProperties,
    AddTags,
    TagAsItemFeatures,
    TagAsItemID,
    TagAsUserFeatures,
    TagAsUserID,
)
from penstock.etl.ops.naming import Rename
from penstock.etl.ops.scale import Normalize, NormalizeMinMax
from penstock.etl.ops.similarity import ColumnSimilarity
from penstock.etl.ops.splitting import Split
from penstock.etl.ops.stats import DataStats
from penstock.etl.ops.target import TargetEncoding

__all__ = [
    "AddMetadata",
    "AddProperties",
    "AddTags",
    "Binarize",
    "Bucketize",
    "Categorify",
    "Clip",
    "ColumnSimilarity",
    "DataStats",
    "DateParts",
    "DifferenceLag",
    "DropLowCardinality",
    "Dropna",
    "Expr",
    "FillMedian",
    "FillMissing",
    "Filter",
    "FittedOperator",
    "Groupby",
    "HashBucket",
    "HashId",
    "HashedCross",
    "JoinExternal",
    "JoinGroupby",
    "LambdaOp",
    "ListSlice",
    "LogOp",
    "Normalize",
    "NormalizeMinMax",
    "Operator",
    "ReduceDtypeSize",
    "Rename",
    "Split",
    "TagAsItemFeatures",
    "TagAsItemID",
    "TagAsUserFeatures",
    "TagAsUserID",
    "TargetEncoding",
    "ValueCount",
    "get_embedding_sizes",
]
