"""From raw rows to features: selectors, graph, operators, workflow."""

from penstock.etl.graph import ColumnSelector
from penstock.etl.trust import trusting
from penstock.etl.workflow import Workflow

__all__ = ["ColumnSelector", "Workflow", "trusting"]
