"""`Categorify` on a few rows: columns of 32-bit integers are encoded side by side by one kernel, others one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from penstock.core.times import series_of
from penstock.data.keys import key_kind
from penstock.etl.cells import BulkFunction, Cells, ListCells, Numbers
from penstock.etl.vocabulary import Codes, Vocabulary

Step = tuple[str, Vocabulary, Codes]  # an output's input column, its vocabulary, and the layout of its codes


def bulk_encoder(steps: Mapping[str, Step], dtype: np.dtype) -> BulkFunction:
    """A function of a few rows' cells that gives the codes of every output in `steps`."""
    quick_dtypes = [(output, column, _quick_dtype(known)) for output, (column, known, _) in steps.items()]
    together: dict[tuple[str, ...], Any] = {}  # the same columns are numbers in every batch

    def run(cells: Cells) -> Cells:
        quick = tuple(output for output, column, wanted in quick_dtypes if _is_quick(cells[column], wanted))
        out: Cells = {}
        if quick:
            if quick not in together:
                together[quick] = side_by_side([steps[output] for output in quick])
            encoded = together[quick].encode(*_keys32([cells[steps[output][0]] for output in quick]), dtype)
            out = {output: Numbers(encoded[i], None) for i, output in enumerate(quick)}
        for output, (column, known, codes) in steps.items():
            if output not in out:
                out[output] = _encoded(cells[column], known, codes, dtype)
        return out

    return run


def _quick_dtype(vocabulary: Vocabulary) -> np.dtype | None:
    """The dtype in which values are 32-bit keys as they are; None for other kinds of key."""
    dtype = vocabulary.values.dtype
    return np.dtype(str(dtype).lower()) if dtype.is_integer() and key_kind(dtype) == "uint32" else None


def _is_quick(cell: Any, wanted: np.dtype | None) -> bool:
    return type(cell) is Numbers and cell.values.dtype is wanted


def side_by_side(steps: list[Step]) -> Any:
    """The look-ups of several outputs as one: all of 32-bit keys, or all of texts."""
    from penstock.kernels.cpu_text_vocab import TextEncoders
    from penstock.kernels.cpu_vocab import Encoders32

    layouts = [(codes.null, codes.oov, codes.num_buckets) for _, _, codes in steps]
    lookups = [vocabulary.lookup(codes) for _, vocabulary, codes in steps]
    return (TextEncoders if lookups[0].kind == "bytes" else Encoders32)(lookups, layouts)


def _keys32(cells: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Keys and mask, `(columns, rows)`; signs are extended as `data.keys` does it."""
    wide = {"i": np.int32, "u": np.uint32}
    keys = np.array([cell.values.astype(wide[cell.values.dtype.kind]).view(np.uint32) for cell in cells])
    everywhere = np.ones(keys.shape[1], np.bool_)
    return keys, np.array([everywhere if cell.valid is None else cell.valid for cell in cells])


def _encoded(cell: Any, vocabulary: Vocabulary, codes: Codes, dtype: np.dtype) -> Numbers | list[Any]:
    """A column that is no 32-bit key, or has lists."""
    if isinstance(cell, ListCells):
        return [[] if value is None else [vocabulary.code_of(v, codes) for v in value] for value in cell]
    series = pl.Series(cell.values) if isinstance(cell, Numbers) else series_of(cell)
    if isinstance(cell, Numbers) and cell.valid is not None:
        series = series.set(pl.Series(~cell.valid), None)
    return Numbers(vocabulary.encode(series, codes, dtype), None)
