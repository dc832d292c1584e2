"""Settings that must be in place before numba, TensorFlow or Ray are imported: the same as the Makefile's."""

import contextlib
import os

for _name, _value in {
    "OMP_WAIT_POLICY": "PASSIVE",  # spinning OpenMP threads starve the others on a small machine
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "KERAS_BACKEND": "tensorflow",
}.items():
    os.environ.setdefault(_name, _value)

# Both carry an LLVM of their own; TensorFlow tolerates the other's options, Triton aborts the process. So Triton first.
with contextlib.suppress(ModuleNotFoundError):
    import triton  # noqa: F401
