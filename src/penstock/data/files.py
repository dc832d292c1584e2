"""Finding files: paths, globs, folders and fsspec URLs to a sorted list, and the format of each."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec
from fsspec.core import url_to_fs

from penstock.core.errors import DataError, ParameterError

FORMATS = {
    ".parquet": "parquet", ".pq": "parquet", ".parq": "parquet",
    ".csv": "csv", ".tsv": "tsv", ".txt": "tsv",
    ".arrow": "ipc", ".ipc": "ipc", ".feather": "ipc", ".avro": "avro",
}  # fmt: skip
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}


def is_remote(path: str) -> bool:
    """Whether `path` is an fsspec URL of another file system than the local one."""
    return "://" in path and not path.startswith("file://")


def local_path(path: str | os.PathLike) -> str:
    return os.fspath(path).removeprefix("file://")


def filesystem(path: str, storage_options: dict[str, Any] | None = None) -> fsspec.AbstractFileSystem:
    """The fsspec file system that `path` lives on."""
    return url_to_fs(path, **(storage_options or {}))[0]


def find(source: str | os.PathLike | Iterable, storage_options: dict[str, Any] | None = None) -> list[str]:
    """Every file that `source` (a path, glob, folder, URL, or a list of such) names, in a stable order."""
    if isinstance(source, (str, os.PathLike)):
        return _find_one(os.fspath(source), storage_options)
    files = [file for one in source for file in _find_one(os.fspath(one), storage_options)]
    if not files:
        raise DataError("the list of files is empty; name at least one file")
    return files


def _find_one(path: str, storage_options: dict[str, Any] | None) -> list[str]:
    if is_remote(path):
        return _find_remote(path, storage_options)
    path = local_path(path)
    if any(c in path for c in "*?[") and not Path(path).exists():
        anchor = Path(path).anchor or "."
        pattern = str(Path(path).relative_to(anchor)) if Path(path).anchor else path
        found = sorted(str(p) for p in Path(anchor).glob(pattern) if p.is_file())
        if not found:
            raise DataError(f"no file matches {path}")
        return found
    if Path(path).is_dir():
        return _in_folder(path, sorted(str(p) for p in Path(path).rglob("*") if p.is_file()))
    if not Path(path).exists():
        raise DataError(f"{path} does not exist")
    return [path]


def _find_remote(path: str, storage_options: dict[str, Any] | None) -> list[str]:
    files = filesystem(path, storage_options)
    bare = files._strip_protocol(path)
    if any(c in bare for c in "*?["):
        found = sorted(files.glob(bare))
    elif files.isdir(bare):
        found = _in_folder(path, sorted(files.find(bare)))
    else:
        found = [bare] if files.exists(bare) else []
    if not found:
        raise DataError(f"nothing is at {path}")
    return [files.unstrip_protocol(f) for f in found]


def _in_folder(folder: str, found: list[str]) -> list[str]:
    """Data files of a folder: hidden and underscore names (`_schema.json`, staging) are not data."""
    base = PurePosixPath(local_path(folder)).as_posix()
    files = []
    for file in found:
        inside = PurePosixPath(file).as_posix().removeprefix(base).split("/")
        hidden = any(part.startswith((".", "_")) for part in inside if part)
        if not hidden and suffixes(file)[0] in FORMATS:
            files.append(file)
    if not files:
        raise DataError(f"{folder} holds no data file ({', '.join(FORMATS)})")
    kinds = {FORMATS[suffixes(f)[0]] for f in files}
    if len(kinds) > 1:
        raise DataError(f"{folder} mixes formats ({', '.join(sorted(kinds))}); name the files, or a glob of one format")
    return files


def suffixes(path: str) -> tuple[str, str]:
    """`(format suffix, compression suffix)`.

    >>> suffixes("day_0.tsv.gz"), suffixes("a.parquet")
    (('.tsv', '.gz'), ('.parquet', ''))
    """
    name = PurePosixPath(path.rsplit("/", 1)[-1])
    last = name.suffix.lower()
    if last in COMPRESSIONS:
        return name.with_suffix("").suffix.lower(), last
    return last, ""


def infer_format(files: list[str]) -> str:
    """The one format that the files' suffixes say, or an error that asks for `format=`."""
    kinds = {FORMATS.get(suffixes(f)[0]) for f in files}
    if kinds == {None} or None in kinds:
        odd = next(f for f in files if suffixes(f)[0] not in FORMATS)
        raise ParameterError(
            f"cannot tell the format of {odd} from its name; pass format='parquet', 'csv', 'tsv', 'ipc' or 'avro'"
        )
    if len(kinds) > 1:
        raise DataError(f"the files mix formats ({', '.join(sorted(map(str, kinds)))}); open one format at a time")
    return kinds.pop()  # type: ignore[return-value]


def parse_bytes(size: int | str) -> int:
    """A byte count, or text such as `"64MB"`.

    >>> parse_bytes("64MB"), parse_bytes("1.5 GiB"), parse_bytes(10)
    (64000000, 1610612736, 10)
    """
    if isinstance(size, (int, float)) and not isinstance(size, bool) and size >= 1:
        return int(size)
    if isinstance(size, str):
        text = size.strip().upper().replace(" ", "")
        for suffix, factor in _UNITS:
            if text.endswith(suffix):
                try:
                    return max(1, int(float(text.removesuffix(suffix)) * factor))
                except ValueError:
                    break
    raise ParameterError(f"a size must be a number of bytes ≥ 1 or text such as '64MB' or '1GiB', got {size!r}")


_UNITS = (
    ("KIB", 2**10), ("MIB", 2**20), ("GIB", 2**30), ("TIB", 2**40),
    ("KB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12), ("B", 1), ("", 1),
)  # fmt: skip
