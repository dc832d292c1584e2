"""`merlin.loader.tf_utils`, the name of `merlin.dataloader.tf_utils` in its first release."""

from penstock.compat.merlin.dataloader.tf_utils import configure_tensorflow
from penstock.compat.missing import module_getattr

__all__ = ["configure_tensorflow"]

__getattr__ = module_getattr(__name__)
