"""`nvtabular.graph`, the graph's place in 0.9 and 0.10."""

from penstock.compat.merlin.dag.base_operator import BaseOperator
from penstock.compat.merlin.dag.graph import Graph
from penstock.compat.merlin.dag.node import Node
from penstock.compat.merlin.dag.selector import ColumnSelector
from penstock.compat.merlin.schema.schema import ColumnSchema, Schema
from penstock.compat.merlin.schema.tags import Tags
from penstock.compat.missing import module_getattr

__all__ = ["BaseOperator", "ColumnSchema", "ColumnSelector", "Graph", "Node", "Schema", "Tags"]

__getattr__ = module_getattr(__name__)
