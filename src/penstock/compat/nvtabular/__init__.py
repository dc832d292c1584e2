"""NVTabular's names over Penstock: `import nvtabular as nvt` after `penstock.compat.activate()`."""

from penstock.compat.merlin.dag.selector import ColumnSelector
from penstock.compat.merlin.io.dataset import Dataset
from penstock.compat.merlin.schema.schema import ColumnSchema, Schema
from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular import io, ops, workflow
from penstock.compat.nvtabular.column_group import ColumnGroup
from penstock.compat.nvtabular.ops.categorify import get_embedding_sizes
from penstock.compat.nvtabular.workflow.node import WorkflowNode
from penstock.compat.nvtabular.workflow.workflow import Workflow

__version__ = "23.8.0"  # the last release whose names are here; code that looks at it takes the newest branch

__all__ = [
    "ColumnGroup",
    "ColumnSchema",
    "ColumnSelector",
    "Dataset",
    "Schema",
    "Workflow",
    "WorkflowNode",
    "get_embedding_sizes",
    "io",
    "ops",
    "workflow",
]

__getattr__ = module_getattr(__name__)
