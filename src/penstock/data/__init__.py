"""Data sets: files and frames in, partitions and parquet out."""

from penstock.data.dataset import Dataset

__all__ = ["Dataset"]
