"""Criteo-shaped click logs: a label, thirteen heavy-tailed integers, twenty-six hashed categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.core import params
from penstock.core.errors import ColumnNotFoundError, ParameterError
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.data.sources import Frame
from penstock.data.synthetic import draws
from penstock.data.synthetic.output import ROWS_PER_CHUNK, Job, Summary
from penstock.data.synthetic.teacher import CATEGORIES, INTEGERS, NUMBERS, Teacher, id_mask, raw_logit

CRITEO_NAMES = ["label", *INTEGERS, *CATEGORIES]
CRITEO_DTYPES = {"label": "int32", **dict.fromkeys(INTEGERS, "int32"), **dict.fromkeys(CATEGORIES, "hex32")}

# How many values each category column takes in the two public data sets.
CARDINALITIES = {
    "kaggle": (
        1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652,
        2173, 4, 7046547, 18, 15, 286181, 105, 142572,
    ),
    "terabyte": (
        10000000, 29612, 15050, 7190, 19547, 4, 6492, 1317, 63, 10000000, 707291, 218510, 11, 2209, 9798, 72, 4, 954,
        15, 10000000, 4553157, 10000000, 291641, 10904, 91, 35,
    ),
}  # fmt: skip
# Mean and deviation of the logarithm, and the lowest value, of I1 to I13.
_LOG_NORMAL = (
    (0.8, 1.4, 0), (2.4, 1.6, -3), (2.0, 1.5, 0), (1.6, 1.1, 0), (7.9, 1.9, 0), (3.4, 1.6, 0), (1.3, 1.6, 0),
    (2.0, 1.1, 0), (3.6, 1.4, 0), (-0.6, 0.8, 0), (0.6, 1.0, 0), (-0.8, 1.1, 0), (1.5, 1.2, 0),
)  # fmt: skip
_MISSING = {
    "I1": 0.45, "I3": 0.21, "I4": 0.22, "I5": 0.026, "I6": 0.22, "I7": 0.043, "I8": 0.0005, "I9": 0.043, "I10": 0.45,
    "I11": 0.043, "I12": 0.765, "I13": 0.22, "C3": 0.034, "C4": 0.034, "C6": 0.12, "C12": 0.034, "C16": 0.034,
    "C19": 0.44, "C20": 0.44, "C21": 0.034, "C22": 0.76, "C24": 0.034, "C25": 0.44, "C26": 0.44,
}  # fmt: skip
# Deviation of the teacher's logit: sets how much of a click can be known at all.
_SIGNAL = 1.6
# The teacher is calibrated, and its AUC taken, on this many rows of a stream that no seed of a data set shares.
_SAMPLE_ROWS = 131_072
_SAMPLE_SEED = -(2**63)

Cardinalities = None | str | int | Sequence[int] | Mapping[str, int]


@dataclass(frozen=True)
class _Rows:
    """The distribution of the columns; makes any slice of rows."""

    cardinalities: dict[str, int]
    missing: dict[str, float]
    exponent: float

    def columns(self, seed: int, start: int, stop: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        from penstock.kernels import cpu_synthetic as kernels

        def keys(name: str) -> tuple[np.uint64, np.uint64]:
            return draws.stream_key(seed, name), draws.stream_key(seed, f"{name}/null")

        integers = np.empty((len(INTEGERS), stop - start), np.int32)
        ranks = np.empty((len(CATEGORIES), stop - start), np.int32)
        for out, name, (mean, deviation, low) in zip(integers, INTEGERS, _LOG_NORMAL, strict=True):
            kernels.draw_integers(*keys(name), start, self.missing[name], mean, deviation, low, out)
        for out, name in zip(ranks, CATEGORIES, strict=True):
            size = self.cardinalities[name]
            kernels.draw_ranks(*keys(name), start, self.missing[name], size, self.exponent, out)
        return integers, ranks

    def teacher(self, seed: int, base_rate: float) -> tuple[Teacher, float]:
        """The calibrated teacher and the AUC of its own probabilities."""
        integers, ranks = self.columns(_SAMPLE_SEED, 0, _SAMPLE_ROWS)
        logs = {name: _log_moments(integers[INTEGERS.index(name)]) for name in NUMBERS}
        raw = raw_logit(seed, logs, integers, ranks)
        bias, scale = draws.calibrate(raw, base_rate, _SIGNAL)
        teacher = Teacher(seed, bias, scale, logs, self.cardinalities)
        return teacher, draws.expected_auc(draws.sigmoid(bias + scale * raw))


def criteo(
    path: str | Path,
    num_rows: int,
    *,
    seed: int = 0,
    format: str = "tsv",
    cardinalities: Cardinalities = None,
    missing: float | Mapping[str, float] | None = None,
    exponent: float = 1.1,
    base_rate: float = 0.25,
    teacher_seed: int = 0,
    raw_hex: bool = True,
    num_files: int = 1,
    rows_per_chunk: int = ROWS_PER_CHUNK,
    overwrite: bool = False,
    progress: bool | None = None,
    num_threads: int | None = None,
) -> Summary:
    """Write `num_rows` Criteo-shaped rows, streamed, and return a `Summary` with the best reachable AUC.

    TSV has no header and empty fields for nulls, as Criteo's own; parquet has names, and ids as hex text, or as uint32
    where `raw_hex` is false. Row i depends on `seed` and i alone. Another `seed` gives other rows with the same ids and
    the same teacher (rows to hold out); `teacher_seed` plants another teacher.

    `cardinalities`: "kaggle" (default), "terabyte", an int that caps the default, 26 ints, or {column: int}.
    `missing`: one rate for all columns, or {column: rate} over Criteo-like defaults.

    Args:
        path: a file, or a folder for several.
        num_rows: how many.
        seed: of the rows.
        format: `"tsv"` or `"parquet"`.
        cardinalities: values of the category columns.
        missing: rates of missing values.
        exponent: of the Zipf-like frequencies.
        base_rate: the share of clicks.
        teacher_seed: of the teacher.
        raw_hex: ids as hexadecimal text.
        num_files: how many files.
        rows_per_chunk: rows that are made at a time.
        overwrite: replace what is there.
        progress: draw a bar; None draws it on a terminal.
        num_threads: threads that make rows.

    Returns:
        What was written, with the teacher.

    Raises:
        ParameterError: ids shall be integers in TSV.
        OutputExistsError: the path is there and overwrite was not asked for.

    >>> import tempfile
    >>> summary = criteo(Path(tempfile.mkdtemp()) / "day.tsv", 1000, cardinalities=100)
    >>> summary.rows, summary.cardinalities["C3"], 0.78 < summary.best_auc < 0.88
    (1000, 100, True)
    >>> summary.path.read_text().splitlines()[0].count("\\t")
    39
    """
    if format == "tsv" and not raw_hex:
        raise ParameterError("raw_hex=False needs format='parquet': a Criteo TSV holds ids as hex text")
    job = Job(Path(path), num_rows, seed, format, num_files, rows_per_chunk, overwrite, progress, num_threads)
    rows = _rows(cardinalities, missing, exponent)
    params.check("teacher_seed", teacher_seed, params.Int())
    params.check("base_rate", base_rate, params.Real(0.001, 0.999))
    teacher, best_auc = rows.teacher(teacher_seed, base_rate)
    schema = criteo_schema(raw_hex=raw_hex, cardinalities=rows.cardinalities)
    arrow = _arrow_schema(raw_hex) if format == "parquet" else None
    label_key = draws.stream_key(seed, "label")

    def produce(start: int, stop: int) -> tuple[Any, int]:
        from penstock.kernels.cpu_synthetic import draw_labels

        integers, ranks = rows.columns(seed, start, stop)
        labels = np.empty(stop - start, np.int32)
        draw_labels(label_key, start, teacher.score(integers, ranks), labels)
        payload = _tsv(labels, integers, ranks) if arrow is None else _table(labels, integers, ranks, arrow)
        return payload, int(labels.sum())

    written = job.run(produce, schema, arrow)
    return Summary(**written, best_auc=best_auc, cardinalities=rows.cardinalities, schema=schema, teacher=teacher)


def teacher_probability(
    frame: Frame,
    *,
    cardinalities: Cardinalities = None,
    missing: float | Mapping[str, float] | None = None,
    exponent: float = 1.1,
    base_rate: float = 0.25,
    teacher_seed: int = 0,
) -> NDArray[np.float64]:
    """The probabilities that labels were drawn with, from raw rows; arguments as they were given to `criteo`.

    Args:
        frame: raw rows.
        cardinalities: as given to `criteo`.
        missing: as given to `criteo`.
        exponent: as given to `criteo`.
        base_rate: as given to `criteo`.
        teacher_seed: as given to `criteo`.

    Returns:
        One probability a row.
    """
    return _rows(cardinalities, missing, exponent).teacher(teacher_seed, base_rate)[0].probability(frame)


def criteo_schema(*, raw_hex: bool = True, cardinalities: Cardinalities = None) -> Schema:
    """Roles and dtypes of the raw columns; `num_values` says how many values a category column can take.

    Args:
        raw_hex: ids as hexadecimal text.
        cardinalities: as `criteo` takes them.

    Returns:
        The schema.

    >>> criteo_schema().select(roles="label").names
    ['label']
    """
    sizes = _cardinalities(cardinalities)
    columns = [ColumnSchema("label", "int32", Role.LABEL, nullable=False, tags=frozenset(["binary"]))]
    columns += [ColumnSchema(name, "int32", Role.CONTINUOUS, tags=frozenset(["criteo"])) for name in INTEGERS]
    dtype = "string" if raw_hex else "uint32"
    for name in CATEGORIES:
        about = {"num_values": sizes[name]}
        columns.append(ColumnSchema(name, dtype, Role.CATEGORICAL, tags=frozenset(["criteo"]), properties=about))
    return Schema(columns)


def _rows(cardinalities: Cardinalities, missing: float | Mapping[str, float] | None, exponent: float) -> _Rows:
    params.check("exponent", exponent, params.Real(0.0, 10.0))
    if exponent == 1.0:  # the closed form of the inverse has a hole there; its neighbour is indistinguishable
        exponent = 1.0 + 1e-6
    return _Rows(_cardinalities(cardinalities), _missing(missing), float(exponent))


def _cardinalities(given: Cardinalities) -> dict[str, int]:
    size = params.Int(min=1, max=2**31 - 1)
    values = dict(zip(CATEGORIES, CARDINALITIES["kaggle"], strict=True))
    if isinstance(given, str):
        params.check("cardinalities", given, params.OneOf(tuple(CARDINALITIES)))
        values = dict(zip(CATEGORIES, CARDINALITIES[given], strict=True))
    elif isinstance(given, Mapping):
        _known(given, CATEGORIES, "cardinalities")
        values.update(given)
    elif isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) != len(CATEGORIES):
            raise ParameterError(f"cardinalities must have one entry for each of C1 to C26, got {len(given)}")
        values = dict(zip(CATEGORIES, given, strict=True))
    elif given is not None:
        params.check("cardinalities", given, size)
        cap = int(given)
        values = {name: min(value, cap) for name, value in values.items()}
    for name, value in values.items():
        params.check(f"cardinalities[{name!r}]", value, size)
    return values


def _missing(given: float | Mapping[str, float] | None) -> dict[str, float]:
    rate = params.Real(0.0, 1.0)
    if given is not None and not isinstance(given, Mapping):
        params.check("missing", given, rate)
        return dict.fromkeys([*INTEGERS, *CATEGORIES], float(given))
    values = {**dict.fromkeys([*INTEGERS, *CATEGORIES], 0.0), **_MISSING}
    for name, value in (given or {}).items():
        _known([name], list(values), "missing")
        params.check(f"missing[{name!r}]", value, rate)
        values[name] = float(value)
    return values


def _known(names: Any, known: list[str], setting: str) -> None:
    for name in names:
        if name not in known:
            raise ColumnNotFoundError(name, known, f"what {setting} can name")


def _log_moments(integers: NDArray[np.int32]) -> tuple[float, float]:
    from penstock.kernels.cpu_synthetic import NULL_INTEGER

    logs = np.log1p(np.maximum(integers[integers != NULL_INTEGER], 0).astype(np.float64))
    if logs.size == 0:
        return 0.0, 1.0
    return float(logs.mean()), float(logs.std()) or 1.0


def _tsv(labels: NDArray[np.int32], integers: NDArray[np.int32], ranks: NDArray[np.int32]) -> NDArray[np.uint8]:
    from penstock.kernels import cpu_synthetic as kernels

    longest = kernels.BYTES_PER_LABEL + len(integers) * kernels.BYTES_PER_INTEGER + len(ranks) * kernels.BYTES_PER_ID
    out = np.empty(labels.size * longest, np.uint8)
    masks = np.array([id_mask(name) for name in CATEGORIES], np.uint32)
    return out[: kernels.format_lines(labels, integers, ranks, masks, out)]


def _table(labels: NDArray[Any], integers: NDArray[Any], ranks: NDArray[Any], arrow: pa.Schema) -> pa.Table:
    from penstock.kernels import cpu_synthetic as kernels

    columns = [pa.array(labels)]
    columns += [pa.array(column, mask=column == kernels.NULL_INTEGER) for column in integers]
    for column, name in zip(ranks, CATEGORIES, strict=True):
        missing = column < 0
        if arrow.field(name).type == pa.uint32():
            ids = np.empty(column.size, np.uint32)
            kernels.mix_ids(column, np.uint32(id_mask(name)), ids)
            columns.append(pa.array(ids, mask=missing))
        else:
            columns.append(_hex_array(column, missing, np.uint32(id_mask(name))))
    return pa.Table.from_arrays(columns, schema=arrow)


def _hex_array(ranks: NDArray[np.int32], missing: NDArray[np.bool_], mask: np.uint32) -> pa.Array:
    from penstock.kernels import cpu_synthetic as kernels

    text, offsets = np.empty(ranks.size * 8, np.uint8), np.empty(ranks.size + 1, np.int32)
    used = kernels.format_hex(ranks, mask, text, offsets)
    valid = np.packbits(~missing, bitorder="little")
    buffers = [pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(text[:used])]
    return pa.Array.from_buffers(pa.string(), ranks.size, buffers, null_count=int(missing.sum()))


def _arrow_schema(raw_hex: bool) -> pa.Schema:
    kinds = {"label": pa.int32(), **dict.fromkeys(INTEGERS, pa.int32())}
    kinds.update(dict.fromkeys(CATEGORIES, pa.string() if raw_hex else pa.uint32()))
    return pa.schema(list(kinds.items()))
