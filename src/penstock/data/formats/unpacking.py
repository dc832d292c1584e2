"""Compressed files of lines, as files that can be cut."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from penstock.core.errors import DataError
from penstock.data.files import filesystem, is_remote
from penstock.data.formats.base import OpenOptions
from penstock.data.formats.names import stream_codec
from penstock.data.formats.text_bytes import file_size
from penstock.data.scratch import Scratch

_MOST_GAIN, _FREE_BYTES = 200, 1 << 30  # rows of text are packed to a third or a tenth, seldom to a fiftieth


def unpacked(path: str, options: OpenOptions) -> tuple[Scratch | None, str]:
    """A file of lines, or its copy in scratch where it is compressed: a stream cannot be cut.

    Raises:
        DataError: the stream is damaged, unfolds without end, or there is no room for it.
    """
    codec = stream_codec(path)
    if codec is None:
        return None, path
    scratch = Scratch()
    target = scratch.path / Path(path).stem
    try:
        source = filesystem(path, options.storage_options).open(path, "rb") if is_remote(path) else path
        most = max(_FREE_BYTES, _MOST_GAIN * file_size(path, options.storage_options))
        with pa.input_stream(source, compression=codec) as packed, target.open("wb") as unpacked:
            _unpack(packed, unpacked, most, path)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            message = f"{path} cannot be unpacked: {target.parent} is full; set PENSTOCK_SCRATCH to a folder with room"
            raise DataError(message) from error
        raise DataError(f"{path} cannot be unpacked ({error}); the {codec} stream is damaged or truncated") from error
    except pa.ArrowException as error:
        raise DataError(f"{path} cannot be unpacked ({error}); the {codec} stream is damaged or truncated") from error
    return scratch, str(target)


def _unpack(packed: Any, unpacked: BinaryIO, most: int, path: str) -> None:
    """Copy a stream, but not without end: a few bytes can be made to unfold until the disk is full."""
    written = 0
    while piece := packed.read(1 << 22):
        written += unpacked.write(piece)
        if written > most:
            raise DataError(
                f"{path} unfolds to more than {_MOST_GAIN} times its size; if that is meant, unpack it and read the "
                f"text itself"
            )
