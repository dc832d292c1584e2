"""Finding files: paths, globs, folders and fsspec URLs to a sorted list, and the format of all of them."""

from __future__ import annotations

import os
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from penstock.core.errors import DataError, ParameterError
from penstock.data.files import filesystem, is_remote, local_path, reaching
from penstock.data.formats import FORMATS, choices, format_of_name, suffixes
from penstock.data.formats.names import refuse_packed, stream_codec
from penstock.data.formats.text_sniffing import BOM, is_json
from penstock.data.formats.unpacking import first_bytes

_HEAD = 1 << 12  # bytes that tell a format


def find(
    source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], storage_options: dict[str, Any] | None = None
) -> list[str]:
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
    if not Path(path).is_file():
        raise DataError(f"{path} is a pipe or a device, which can be read only once; write it to a file first")
    return [path]


def _find_remote(path: str, storage_options: dict[str, Any] | None) -> list[str]:
    files = filesystem(path, storage_options)
    bare = files._strip_protocol(path)
    with reaching(path):
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
        if not hidden and format_of_name(file) is not None:
            files.append(file)
    if not files:
        raise DataError(f"{folder} holds no data file ({', '.join(suffixes())})")
    kinds = {str(format_of_name(f)) for f in files}
    if len(kinds) > 1:
        raise DataError(f"{folder} mixes formats ({', '.join(sorted(kinds))}); name the files, or a glob of one format")
    return files


def infer_format(files: list[str], storage_options: dict[str, Any] | None = None) -> str:
    """The one format of the files: what their suffixes say, or else their first bytes.

    Raises:
        ParameterError: neither tells.
        DataError: they are of several formats.
    """
    kinds = {file: format_of_name(file) or format_of_content(file, storage_options) for file in files}
    for file, kind in kinds.items():
        if kind is None:
            raise ParameterError(f"cannot tell the format of {file} from its name or content; pass format={choices()}")
    found = sorted({str(kind) for kind in kinds.values()})
    if len(found) > 1:
        raise DataError(f"the files mix formats ({', '.join(found)}); open one format at a time")
    return found[0]


def format_of_content(path: str, storage_options: dict[str, Any] | None = None) -> str | None:
    """The format that a file's first bytes speak for: its mark, or text: objects, or else CSV; None for others.

    Raises:
        DataError: it is packed in a way that is not read.
    """
    if stream_codec(path) is not None:  # only text is compressed as a whole
        try:
            return "jsonl" if _is_lines_of_json(first_bytes(path, _HEAD, storage_options)) else "csv"
        except DataError:  # said where it is read
            return "csv"
    head = first_bytes(path, _HEAD, storage_options)
    for known in FORMATS.values():
        if known.mark and head.startswith(known.mark):
            return known.name
    refuse_packed(path, head)
    if _is_lines_of_json(head):
        return "jsonl"
    is_text = bool(head) and (head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or b"\0" not in head)
    return "csv" if is_text else None


def _is_lines_of_json(head: bytes) -> bool:
    return is_json(head) and not head.removeprefix(BOM).lstrip().startswith(b"[")
