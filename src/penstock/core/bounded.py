"""Reading what others wrote, within bounds: JSON of limited size and depth, Parquet that cannot unfold without end."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from penstock.core.errors import ArtefactError
from penstock.core.params import Constraint
from penstock.core.plain_files import open_plain
from penstock.core.runtime.forks import require_polars

MOST_JSON_BYTES = 256 << 20
MOST_JSON_DEPTH = 256
MOST_COLUMNS = 10_000
# What a row and a byte of a file may become. Vocabularies and embedding rows hold distinct values, which do not shrink
# a thousandfold; a file that does is there to fill the memory of whoever opens it.
ROWS_PER_BYTE, FREE_ROWS = 16, 1 << 20
UNFOLDED_PER_BYTE, FREE_BYTES = 1024, 256 << 20


def read_json(path: Path, fields: Mapping[str, Constraint] | None = None) -> Any:
    """The content of a JSON file.

    Args:
        path: of the file.
        fields: what it must hold: the keys of its mapping, and what each must be. None lets any content pass.

    Returns:
        Plain data.

    Raises:
        ArtefactError: it cannot be read, is too large or too deep, or lacks a key; file and reason are named.

    >>> import tempfile
    >>> from penstock.core.params import STR
    >>> path = Path(tempfile.mkdtemp()) / "a.json"
    >>> _ = path.write_text('{"kind": 3}')
    >>> read_json(path, {"kind": STR})
    Traceback (most recent call last):
    ...
    penstock.core.errors.ArtefactError: ...a.json: 'kind' must be a string, got 3
    """
    return parse_json(read_json_bytes(path), path, fields)


def read_json_bytes(path: Path) -> bytes:
    """The bytes of a JSON file, for those who compare them before they are parsed; raises as `read_json` does."""
    try:
        with open_plain(path) as file:
            content = file.read(MOST_JSON_BYTES + 1)
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > MOST_JSON_BYTES:
        raise ArtefactError(f"{path} is longer than the {MOST_JSON_BYTES} bytes that a JSON file here may have")
    return content


def parse_json(content: bytes, path: Path, fields: Mapping[str, Constraint] | None = None) -> Any:
    """Like `read_json`, of bytes that were read from `path`."""
    try:
        found = json.loads(content, object_pairs_hook=_mapping)
    except (ValueError, RecursionError) as error:  # ValueError: also numbers of thousands of digits, and no UTF-8
        raise ArtefactError(f"{path} is not valid JSON: {error}") from error
    if _depth_exceeds(found, MOST_JSON_DEPTH):
        raise ArtefactError(f"{path} is nested deeper than {MOST_JSON_DEPTH} levels")
    if fields is not None:
        check_fields(found, fields, path)
    return found


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping in which nothing is said twice: two readers could go by different ones."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it says {next(name for name in found if names.count(name) > 1)[:80]!r} twice")
    return found


def check_fields(found: Any, fields: Mapping[str, Constraint], where: object) -> None:
    """Refuse anything but a mapping with these keys, each as its constraint says."""
    if not isinstance(found, Mapping):
        raise ArtefactError(f"{where} must hold a mapping, got {type(found).__name__}")
    for name, constraint in fields.items():
        if name not in found:
            raise ArtefactError(f"{where} lacks {name!r}")
        if not constraint.accepts(found[name]):
            raise ArtefactError(f"{where}: {name!r} must be {constraint.describe()}, got {_short(found[name])}")


def _depth_exceeds(content: Any, most: int) -> bool:
    level = [content]
    for _ in range(most):
        level = [
            inner
            for item in level
            if isinstance(item, (dict, list))
            for inner in (item.values() if isinstance(item, dict) else item)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "…"


def read_frame(path: Path, num_rows: int | None = None, content: bytes | None = None) -> pl.DataFrame:
    """A Parquet file as a frame, once its footer shows that it fits into bounds.

    Args:
        path: of the file.
        num_rows: how many rows it must hold, where that was written down.
        content: what was read from it, where that has been done.

    Returns:
        The frame.

    Raises:
        ArtefactError: it is no Parquet file, holds another number of rows, or would unfold without measure.
        ForkError: in a forked child, which has none of polars' threads.
    """
    require_polars(f"reading {path}")
    expected = check_parquet(path, num_rows, content)
    try:
        frame = pl.read_parquet(path if content is None else io.BytesIO(content), hive_partitioning=False, glob=False)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise ArtefactError(f"{path} cannot be read as Parquet: {error}") from error
    if frame.height != expected:
        raise ArtefactError(f"{path} holds {frame.height} rows, and its footer says {expected}")
    return frame


def check_parquet(path: Path, num_rows: int | None = None, content: bytes | None = None) -> int:
    """The number of rows in a Parquet file, once its footer has been checked as `read_frame` says."""
    try:
        size = path.stat().st_size if content is None else len(content)
        rows, columns, unfolded = _footer(path, content)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise ArtefactError(f"{path} is not a whole Parquet file: {error}") from error
    if num_rows is not None and rows != num_rows:
        raise ArtefactError(f"{path} holds {rows} rows, and the manifest says {num_rows}")
    if rows < 0 or rows > ROWS_PER_BYTE * size + FREE_ROWS or columns > MOST_COLUMNS:
        raise ArtefactError(f"{path} claims {rows} rows of {columns} columns in {size} bytes; no such file is read")
    if unfolded < 0 or unfolded > UNFOLDED_PER_BYTE * size + FREE_BYTES:
        raise ArtefactError(f"{path} would unfold from {size} to {unfolded} bytes; no such file is read")
    return rows


def _footer(path: Path, content: bytes | None) -> tuple[int, int, int]:
    """Rows, columns and unfolded bytes, as the footer says."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        footer = pq.read_metadata(path if content is None else io.BytesIO(content))
        unfolded = sum(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups))
        return footer.num_rows, footer.num_columns, unfolded
    except pa.ArrowNotImplementedError:  # integers of 128 bits, which exact sums are
        require_polars(f"reading {path}")
        scan = pl.scan_parquet(path if content is None else io.BytesIO(content), hive_partitioning=False, glob=False)
        return int(scan.select(pl.len()).collect().item()), len(scan.collect_schema()), 0
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error
