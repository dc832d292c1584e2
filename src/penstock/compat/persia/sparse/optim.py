"""The optimizers under their 2021 place.

>>> from penstock.compat.persia.embedding import optim
>>> Adagrad is optim.Adagrad
True
"""

from penstock.compat.missing import module_getattr
from penstock.compat.persia.embedding.optim import SGD, Adagrad, Adam, Optimizer

__all__ = ["SGD", "Adagrad", "Adam", "Optimizer"]

__getattr__ = module_getattr(__name__)
