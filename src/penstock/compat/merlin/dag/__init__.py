"""`merlin.dag`: selectors, nodes and operators of a workflow's graph."""

from penstock.compat.merlin.dag.base_operator import BaseOperator, Supports
from penstock.compat.merlin.dag.graph import Graph
from penstock.compat.merlin.dag.node import Node, iter_nodes, postorder_iter_nodes, preorder_iter_nodes
from penstock.compat.merlin.dag.operator import Operator
from penstock.compat.merlin.dag.selector import ColumnSelector
from penstock.compat.merlin.dag.utils import group_values_offsets, ungroup_values_offsets
from penstock.compat.missing import module_getattr

__all__ = [
    "BaseOperator",
    "ColumnSelector",
    "Graph",
    "Node",
    "Operator",
    "Supports",
    "group_values_offsets",
    "iter_nodes",
    "postorder_iter_nodes",
    "preorder_iter_nodes",
    "ungroup_values_offsets",
]

__getattr__ = module_getattr(__name__)
