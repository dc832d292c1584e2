"""`merlin.loader.tensorflow`, the name of `merlin.dataloader.tensorflow` in its first release."""

from penstock.compat.merlin.dataloader.tensorflow import KerasSequenceValidater, Loader
from penstock.compat.missing import module_getattr

__all__ = ["KerasSequenceValidater", "Loader"]

__getattr__ = module_getattr(__name__)
