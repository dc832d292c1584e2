"""A program that writes the description of a data set: `python -m nvtabular.tools.inspector_script`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from penstock.compat.merlin.io.dataset import Dataset
from penstock.compat.nvtabular.tools.dataset_inspector import DatasetInspector
from penstock.core.bounded import read_json

__all__ = ["main", "parse_args"]


def parse_args(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The program's arguments.

    >>> parse_args(["-d", "data", "-c", "columns.json"]).format
    'parquet'
    """
    parser = argparse.ArgumentParser(description="Describe a data set's columns")
    parser.add_argument("-c", "--config_file", required=True, help="JSON with the lists cats, conts and labels")
    parser.add_argument("-d", "--data_path", required=True, help="the data")
    parser.add_argument("-f", "--format", default="parquet", help="parquet or csv")
    parser.add_argument("-o", "--output_file", default="dataset_info.json", help="where the description goes")
    parser.add_argument("-g", "--gpus", "--devices", default=None, help="taken, and means nothing here")
    return parser.parse_args(args)


def main(args: argparse.Namespace | None = None) -> None:
    """Describe the data that the arguments name."""
    given = args or parse_args()
    columns = read_json(Path(given.config_file))
    DatasetInspector().inspect(Dataset(given.data_path, engine=given.format), columns, given.output_file)


if __name__ == "__main__":
    main()
