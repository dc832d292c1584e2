"""`nvtabular.workflow`."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.workflow.node import WorkflowNode
from penstock.compat.nvtabular.workflow.workflow import Workflow

__all__ = ["Workflow", "WorkflowNode"]

__getattr__ = module_getattr(__name__)
