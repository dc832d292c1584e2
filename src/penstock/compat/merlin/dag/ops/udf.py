"""A user's function: `LambdaOp` under its later name."""

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.lambdaop import LambdaOp

UDF = LambdaOp

__all__ = ["UDF"]

__getattr__ = module_getattr(__name__)
