"""`merlin.io`: data sets."""

from penstock.compat.merlin.io import dataframe_iter, dataset, shuffle
from penstock.compat.merlin.io.dataframe_iter import DataFrameIter
from penstock.compat.merlin.io.dataset import Dataset
from penstock.compat.merlin.io.shuffle import Shuffle, shuffle_df
from penstock.compat.missing import module_getattr

__all__ = ["DataFrameIter", "Dataset", "Shuffle", "dataframe_iter", "dataset", "shuffle", "shuffle_df"]

__getattr__ = module_getattr(__name__)
