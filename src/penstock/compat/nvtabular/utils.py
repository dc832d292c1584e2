"""`nvtabular.utils`."""

from penstock.compat.merlin.core.utils import device_mem_size, download_file, get_rmm_size, global_dask_client
from penstock.compat.missing import module_getattr

__all__ = ["device_mem_size", "download_file", "get_rmm_size", "global_dask_client"]

__getattr__ = module_getattr(__name__)
