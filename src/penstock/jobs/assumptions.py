"""What was assumed of text files that do not describe themselves, in one line for a person."""

from __future__ import annotations

from penstock.data import Dataset


def assumed_line(data: Dataset) -> str | None:
    """How text was read where nobody said; None where all was said, or the files describe themselves.

    Args:
        data: as it was opened.

    Returns:
        A line for the terminal.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "clicks.csv"
    >>> _ = file.write_text("user;click\\nann;1\\n")
    >>> assumed_line(Dataset(str(file))).partition(": ")[2]
    "read with separator ';', a header"
    """
    layout = data.layout
    if layout is None or not layout.assumed:
        return None
    return f"{data.partitions[0].path}: read with {', '.join(layout.assumed)}"
