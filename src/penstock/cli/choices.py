"""Choices of the command line, made from the lists that the rest of Penstock goes by."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.core.choices import ON_ERROR, SYNTHETIC_FORMATS

if TYPE_CHECKING:  # members that are made at run time are spelled out for type checkers

    class OnError(StrEnum):
        RAISE = "raise"

    class FileFormat(StrEnum):
        TSV = "tsv"

else:
    OnError = StrEnum("OnError", {word.upper(): word for word in ON_ERROR})
    FileFormat = StrEnum("FileFormat", {word.upper(): word for word in SYNTHETIC_FORMATS})
