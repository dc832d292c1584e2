"""Packets of a feed: what they are called, and what each says of itself."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.core.params import BOOL, NONE, STR, Instance, Int

KIND, VERSION = "embedding-packet", 2
DENSE, TABLES = "dense.safetensors", "tables.safetensors"
OF_TABLES, NO_EMBEDDINGS = "tables", "none"  # in the place of a store's precision
_NAME = re.compile(r"packet-([0-9]{8,18})").fullmatch
FIELDS = {
    "number": Int(min=1),
    "whole": BOOL,
    "clock": Int(0, 2**63 - 1),
    "step": NONE | Int(0, 2**63 - 1),  # of the training that published it
    "config": Instance(dict, "a mapping"),
    "storage": STR,
    "shards": Int(0, 65535),  # folders that the rows are in; 0 where they are in one
    "dense": BOOL,  # whether the weights of the dense model are in it
}


def packet_path(directory: Path, number: int) -> Path:
    """Where packet `number` is, or will be."""
    return directory / f"packet-{number:08d}"


def packet_numbers(directory: Path) -> list[int]:
    """The packets that are there, in order, finished or not."""
    names = (_NAME(path.name) for path in directory.glob("packet-*"))
    return sorted(int(name[1]) for name in names if name is not None)


def rows_folder(shard: int) -> str:
    """The folder of a shard's rows among the rows of a packet."""
    return f"shard-{shard:05d}"
