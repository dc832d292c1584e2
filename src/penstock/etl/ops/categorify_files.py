"""What `Categorify` writes of its vocabularies: its learned state, and tables of categories for other tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from penstock.core.artefact import SavedFolder, replacing
from penstock.core.file_names import file_name
from penstock.etl.vocabulary import CODE, COUNT, VALUE, Codes, ValueCounts, Vocabulary

Later = dict[str, tuple[tuple[int, int], ...]]  # by vocabulary: where values that updates brought begin, their codes


def write_vocabularies(
    folder: Path,
    vocabularies: Mapping[str, Vocabulary],
    state: Mapping[str, ValueCounts],
    later: Later,
    codes: Callable[[str], Codes],
) -> None:
    """`vocabularies.json`, and for each vocabulary its values and the counts of those that have no code."""
    meta: dict[str, Any] = {}
    for number, (name, vocabulary) in enumerate(vocabularies.items()):
        counts = state.get(name)
        meta[name] = {"file": number}
        if name in later:
            meta[name]["later"] = later[name]
        if counts is not None:
            meta[name] |= {"num_rows": counts.num_rows, "num_null": counts.num_null}
            _write_rare(counts, vocabulary, folder / f"rare.{number}.parquet")
        _unique_frame(vocabulary, codes(name).first).write_parquet(folder / f"unique.{number}.parquet")
    (folder / "vocabularies.json").write_text(json.dumps(meta))


def read_vocabularies(folder: SavedFolder) -> tuple[dict[str, Vocabulary], dict[str, ValueCounts], Later]:
    """What `write_vocabularies` wrote; counts of values without a code are read when an update needs them."""
    vocabularies: dict[str, Vocabulary] = {}
    state: dict[str, ValueCounts] = {}
    later: Later = {}
    for name, entry in folder.json("vocabularies.json").items():
        if "later" in entry:
            later[name] = tuple((place, code) for place, code in entry["later"])
        frame = folder.frame(f"unique.{entry['file']}.parquet")
        vocabularies[name] = Vocabulary(frame[VALUE], frame[COUNT].to_numpy())
        if "num_rows" in entry:
            counts = ValueCounts(frame[VALUE].dtype)
            counts.num_rows, counts.num_null = entry["num_rows"], entry["num_null"]
            counts.hold(frame, folder.later(f"rare.{entry['file']}.parquet"))
            state[name] = counts
    return vocabularies, state, later


def write_category(
    folder: Path, name: str, vocabulary: Vocabulary, counts: ValueCounts | None, codes: Codes, has_padding: bool
) -> None:
    """`unique.<column>.parquet` and `meta.<column>.parquet` of one vocabulary.

    `has_padding`: codes for padding and null come first; in the older layout null is out of vocabulary.
    """
    with replacing(folder / f"unique.{file_name(name)}.parquet") as partial:
        _unique_frame(vocabulary, codes.first).write_parquet(partial)
    seen = 0 if counts is None else counts.num_rows - counts.num_null
    known = int(vocabulary.counts.sum())
    rows = [
        ("oov", codes.oov, codes.num_buckets, seen - known if counts is not None else 0),
        ("unique", codes.first, len(vocabulary), known),
    ]
    if has_padding:
        rows = [("pad", 0, 1, 0), ("null", codes.null, 1, 0 if counts is None else counts.num_null), *rows]
    names = ("kind", "offset", "num_indices", "num_observed")
    with replacing(folder / f"meta.{file_name(name)}.parquet") as partial:
        pl.DataFrame(rows, schema=list(names), orient="row").write_parquet(partial)


def _unique_frame(vocabulary: Vocabulary, first: int) -> pl.DataFrame:
    codes = np.arange(first, first + len(vocabulary), dtype=np.int64)
    return pl.DataFrame({CODE: codes, VALUE: vocabulary.values, COUNT: vocabulary.counts})


def _write_rare(counts: ValueCounts, vocabulary: Vocabulary, path: Path) -> None:
    """Counts of values that have no code: an update may lift them over the threshold."""
    known = vocabulary.values.implode()
    rare = [f.filter(~pl.col(VALUE).is_in(known)) if len(vocabulary) else f for f in counts.frames()]
    pl.concat(rare).sort(VALUE).write_parquet(path)  # in an order that does not depend on the partitions
