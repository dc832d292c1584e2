"""Compressed files of lines, as files that can be cut."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from penstock.core.errors import DataError
from penstock.core.plain_files import open_plain
from penstock.data.files import filesystem, is_remote
from penstock.data.formats.base import OpenOptions
from penstock.data.formats.names import stream_codec
from penstock.data.formats.text_bytes import file_size, read_bytes
from penstock.data.scratch import Scratch, ScratchCopy

# What damaged streams raise; ValueError: also names that are no text, and places before the file.
UNREADABLE = (pa.ArrowException, lzma.LZMAError, zipfile.BadZipFile, zlib.error, struct.error, ArithmeticError,
              LookupError, RuntimeError, ValueError, EOFError, OSError)  # fmt: skip
_MOST_GAIN, _FREE_BYTES = 200, 1 << 30  # rows of text are packed to a third or a tenth, seldom to a fiftieth
_MOST_MEMORY = 1 << 29  # bytes that a stream may want to be unpacked; xz -9 wants 65 MB
_BOUNDED = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}  # others are unpacked by Python as far as they go, in memory
_PIECE = 1 << 16


def unpacked(path: str, options: OpenOptions) -> tuple[Scratch | None, str]:
    """A file of lines, or its copy in scratch where it is compressed: a stream cannot be cut.

    Raises:
        DataError: the stream is damaged, unfolds without end, or there is no room for it; an archive holds several
            files.
    """
    codec = stream_codec(path)
    if codec is None:
        return None, path
    try:
        most = max(_FREE_BYTES, _MOST_GAIN * file_size(path, options.storage_options))
        with unpacking(path, options.storage_options) as packed, ScratchCopy(path, Path(path).stem) as copy:
            _unpack(packed, copy, most, path)
    except DataError:
        raise
    except UNREADABLE as error:
        raise _damaged(path, error) from error
    return copy.scratch, str(copy.target)


@contextmanager
def unpacking(path: str, storage_options: dict[str, Any] | None = None) -> Iterator[Any]:
    """The bytes inside a compressed file, to be read from.

    Raises:
        DataError: it is an archive of no file or of several, or of one that cannot be read a piece at a time.
    """
    codec = stream_codec(path)
    with ExitStack() as closing:
        if is_remote(path):
            source: Any = closing.enter_context(filesystem(path, storage_options).open(path, "rb"))
        elif codec in ("zip", "xz"):
            source = closing.enter_context(open_plain(path))
        else:
            source = path
        if codec == "zip":
            yield closing.enter_context(_only_member(path, closing.enter_context(zipfile.ZipFile(source))))
        elif codec == "xz":
            yield XzStreams(source, path)
        else:
            yield closing.enter_context(pa.input_stream(source, compression=codec))


def first_bytes(path: str, size: int, storage_options: dict[str, Any] | None = None) -> bytes:
    """The first bytes of a file of lines, or of what is packed in it.

    Raises:
        DataError: the file cannot be read, or its stream is damaged.
    """
    codec = stream_codec(path)
    if codec is None:
        return read_bytes(path, 0, min(file_size(path, storage_options), size), storage_options).tobytes()
    try:
        with unpacking(path, storage_options) as packed:
            return bytes(packed.read(size))
    except DataError:
        raise
    except UNREADABLE as error:
        raise _damaged(path, error) from error


def _damaged(path: str, error: Exception) -> DataError:
    return DataError(f"{path} cannot be unpacked ({error}); the {stream_codec(path)} stream is damaged or truncated")


def _only_member(path: str, archive: zipfile.ZipFile) -> Any:
    inside = [entry for entry in archive.infolist() if not entry.is_dir() and "__MACOSX" not in entry.filename]
    if len(inside) != 1:
        names = ", ".join(entry.filename[:60] for entry in inside[:5])
        named = f" ({names}{', …' * (len(inside) > 5)})" if inside else ""
        raise DataError(f"{path} holds {len(inside)} files{named}; unpack it, and name the one with the rows")
    [member] = inside
    try:
        packed = archive.open(member)
    except RuntimeError as error:  # it wants a password, or is packed in a way that Python does not know
        raise DataError(f"{path} cannot be unpacked ({error}); unpack it by hand") from None
    if member.compress_type not in _BOUNDED:
        packed.close()
        raise DataError(
            f"{path} is packed in a way that can only be unpacked in memory, and whole; unpack it by hand, or pack it "
            f"as zip does by habit (deflate)"
        )
    return packed


class XzStreams:
    """The bytes of xz streams that stand one behind the other.

    Python's own reader takes what is behind the first stream for nothing where it is damaged: rows were missing.

    Args:
        file: to read from.
        path: of it, for errors.
    """

    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file, self._path, self._left = file, path, b""
        self._stream: lzma.LZMADecompressor | None = None

    def read(self, size: int) -> bytes:
        """The next bytes, at most `size`; none at the end.

        Raises:
            DataError: a stream wants more memory than it is given.
            EOFError: it ends before its last stream does.
        """
        while self._stream is not None or self._begin():
            assert self._stream is not None
            piece = (self._left or self._file.read(_PIECE)) if self._stream.needs_input else b""
            if self._stream.needs_input and not piece:
                raise EOFError("it ends before its last stream does")
            self._left = b""
            found = self._unpacked(piece, size)
            if self._stream.eof:
                self._left, self._stream = self._stream.unused_data, None
            if found:
                return found
        return b""

    def _begin(self) -> bool:
        """Whether another stream follows; noughts may stand before it."""
        while not (left := self._left.lstrip(b"\0")):
            self._left = self._file.read(_PIECE)
            if not self._left:
                return False
        self._left = left
        self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_MEMORY)  # others lack checksums
        return True

    def _unpacked(self, piece: bytes, size: int) -> bytes:
        assert self._stream is not None
        try:
            return self._stream.decompress(piece, size)
        except lzma.LZMAError as error:
            if "limit" not in str(error):
                raise
            most = _MOST_MEMORY >> 20
            raise DataError(
                f"{self._path} takes more than {most} MiB to be unpacked; pack it by xz -9 or less"
            ) from None


def _unpack(packed: Any, unpacked: ScratchCopy, most: int, path: str) -> None:
    """Copy a stream, but not without end: a few bytes can be made to unfold until the disk is full."""
    written = 0
    while piece := packed.read(1 << 22):
        unpacked.write(piece)
        written += len(piece)
        if written > most:
            raise DataError(
                f"{path} unfolds to more than {_MOST_GAIN} times its size; if that is meant, unpack it and read the "
                f"text itself"
            )
