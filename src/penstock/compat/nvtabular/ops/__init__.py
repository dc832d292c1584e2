"""`nvtabular.ops`: Penstock's operators under NVTabular's names and arguments."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.add_metadata import (
    AddMetadata,
    AddProperties,
    AddTags,
    TagAsItemFeatures,
    TagAsItemID,
    TagAsUserFeatures,
    TagAsUserID,
)
from penstock.compat.nvtabular.ops.bucketize import Bucketize
from penstock.compat.nvtabular.ops.categorify import Categorify, get_embedding_sizes
from penstock.compat.nvtabular.ops.clip import Clip
from penstock.compat.nvtabular.ops.column_similarity import ColumnSimilarity
from penstock.compat.nvtabular.ops.data_stats import DataStats
from penstock.compat.nvtabular.ops.difference_lag import DifferenceLag
from penstock.compat.nvtabular.ops.drop_low_cardinality import DropLowCardinality
from penstock.compat.nvtabular.ops.dropna import Dropna
from penstock.compat.nvtabular.ops.fill import FillMedian, FillMissing
from penstock.compat.nvtabular.ops.filter import Filter
from penstock.compat.nvtabular.ops.groupby import Groupby
from penstock.compat.nvtabular.ops.hash_bucket import HashBucket
from penstock.compat.nvtabular.ops.hashed_cross import HashedCross
from penstock.compat.nvtabular.ops.join_external import JoinExternal
from penstock.compat.nvtabular.ops.join_groupby import JoinGroupby
from penstock.compat.nvtabular.ops.lambdaop import LambdaOp
from penstock.compat.nvtabular.ops.list_slice import ListSlice
from penstock.compat.nvtabular.ops.logop import LogOp
from penstock.compat.nvtabular.ops.normalize import Normalize, NormalizeMinMax
from penstock.compat.nvtabular.ops.operator import ColumnSelector, Operator
from penstock.compat.nvtabular.ops.reduce_dtype_size import ReduceDtypeSize
from penstock.compat.nvtabular.ops.rename import Rename
from penstock.compat.nvtabular.ops.stat_operator import StatOperator
from penstock.compat.nvtabular.ops.target_encoding import TargetEncoding
from penstock.compat.nvtabular.ops.value_counts import ValueCount

__all__ = [
    "AddMetadata",
    "AddProperties",
    "AddTags",
    "Bucketize",
    "Categorify",
    "Clip",
    "ColumnSelector",
    "ColumnSimilarity",
    "DataStats",
    "DifferenceLag",
    "DropLowCardinality",
    "Dropna",
    "FillMedian",
    "FillMissing",
    "Filter",
    "Groupby",
    "HashBucket",
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
    "StatOperator",
    "TagAsItemFeatures",
    "TagAsItemID",
    "TagAsUserFeatures",
    "TagAsUserID",
    "TargetEncoding",
    "ValueCount",
    "get_embedding_sizes",
]

__getattr__ = module_getattr(__name__)
