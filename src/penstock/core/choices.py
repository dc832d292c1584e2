"""Words that several rooms let one choose from; here, so that the command line can list them at once."""

from __future__ import annotations

ON_ERROR = ("raise", "skip", "null")  # what a malformed text line does
SYNTHETIC_FORMATS = ("tsv", "parquet")  # of the files that `penstock.data.synthetic` writes
