"""`merlin.loader.tf_utils`, the name of `merlin.dataloader.tf_utils` in its first release."""

from penstock.compat.merlin.dataloader.tf_utils import configure_tensorflow, get_dataset_schema_from_feature_columns
from penstock.compat.missing import module_getattr

__all__ = ["configure_tensorflow", "get_dataset_schema_from_feature_columns"]

__getattr__ = module_getattr(__name__)
