"""PERSIA's contexts: a data loader's (`DataCtx`), those that look up (`EmbeddingCtx`, `InferCtx`), and the trainer's.

`TrainCtx` is of both ages: with `sparse_optimizer=` it is the one of 2021, with `embedding_optimizer=` and
`dense_optimizer=` that of the last release.
"""

from penstock.compat.missing import module_getattr
from penstock.compat.persia._contexts import BaseCtx, DataCtx, PreprocessMode, cnt_ctx
from penstock.compat.persia._embedding_ctx import EmbeddingCtx, InferCtx, eval_ctx
from penstock.compat.persia._train_ctx import TrainCtx
from penstock.compat.persia.backend import init_backend

__all__ = [
    "BaseCtx",
    "DataCtx",
    "EmbeddingCtx",
    "InferCtx",
    "PreprocessMode",
    "TrainCtx",
    "cnt_ctx",
    "eval_ctx",
    "init_backend",
]

__getattr__ = module_getattr(__name__)
