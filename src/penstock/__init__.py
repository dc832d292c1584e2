"""Click logs to a trained recommender at full pressure."""

from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.data import Dataset
from penstock.etl import ColumnSelector, Workflow, ops

__all__ = ["ColumnSchema", "ColumnSelector", "Dataset", "Role", "Schema", "Workflow", "ops"]
