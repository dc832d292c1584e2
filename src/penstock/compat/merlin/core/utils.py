"""`merlin.core.utils`: memory, downloads, and where work runs."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

from penstock.core import progress
from penstock.core.artefact import replacing
from penstock.core.errors import ParameterError
from penstock.core.params import OneOf, check

__all__ = ["device_mem_size", "download_file", "get_rmm_size"]


def device_mem_size(kind: str = "total", cpu: bool = False) -> int:
    """Bytes of memory, `"total"` or `"free"`: of the GPU where torch sees one, else of the host.

    >>> device_mem_size() >= device_mem_size("free", cpu=True) > 0
    True
    """
    check("kind", kind, OneOf(("total", "free")))
    if not cpu:
        from penstock.core.extras import require

        try:
            cuda = require("torch", "torch").cuda
            if cuda.is_available():
                return int(cuda.mem_get_info()[0 if kind == "free" else 1])
        except ImportError:
            pass
    pages = os.sysconf("SC_AVPHYS_PAGES" if kind == "free" else "SC_PHYS_PAGES")
    return pages * os.sysconf("SC_PAGE_SIZE")


def get_rmm_size(size: float) -> int:
    """A size rounded down to whole blocks of 256 bytes.

    >>> get_rmm_size(1000)
    768
    """
    return int(size) // 256 * 256


def download_file(url: str, local_filename: Any, unzip_files: bool = True, redownload: bool = True) -> None:
    """Fetch a file over HTTP, with a progress bar, and unpack `.zip`, `.tgz` and `.gz` beside it.

    >>> download_file("ftp://example.org/a.zip", "a.zip")
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: download_file takes http and https addresses, got 'ftp://example.org/a.zip'
    """
    if not url.startswith(("http://", "https://")):
        raise ParameterError(f"download_file takes http and https addresses, got {url!r}")
    file = Path(local_filename).absolute()
    file.parent.mkdir(parents=True, exist_ok=True)
    if redownload or not file.exists():
        _fetch(url, file)
    if unzip_files:
        _unpack(file)


def _fetch(url: str, file: Path) -> None:
    with urllib.request.urlopen(url) as answer:
        total = int(answer.headers.get("Content-Length") or 0)
        with (
            progress.bar(f"download {file.name}", total) as bar,
            replacing(file) as partial,
            partial.open("wb") as target,
        ):
            while chunk := answer.read(1 << 20):
                target.write(chunk)
                bar.advance(len(chunk))


def _unpack(file: Path) -> None:
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as packed:
            packed.extractall(file.parent)
    elif file.suffix == ".tgz" or file.name.endswith(".tar.gz"):
        with tarfile.open(file) as packed:
            packed.extractall(file.parent, filter="data")
    elif file.suffix == ".gz":
        with gzip.open(file, "rb") as source, replacing(file.with_suffix("")) as partial, partial.open("wb") as target:
            shutil.copyfileobj(source, target)
