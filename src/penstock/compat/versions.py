"""`_version` modules: the releases that are stood in for, in versioneer's form."""

from __future__ import annotations

from typing import Any

from penstock.compat.nvtabular import __version__


def get_versions() -> dict[str, Any]:
    """The version that the library reports.

    >>> get_versions()["version"]
    '23.8.0'
    """
    return {"version": __version__, "full-revisionid": None, "dirty": False, "error": None, "date": None}
