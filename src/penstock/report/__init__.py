"""What a person is shown: plain data turned into a page, charts and words in the terminal.

>>> __all__
['render', 'write']
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.report.html import render
    from penstock.report.writing import write

__all__ = ["render", "write"]


def __getattr__(name: str) -> Any:
    # When first asked for: the command line imports parts of this package and must start at once.
    if name == "render":
        from penstock.report.html import render

        return render
    if name == "write":
        from penstock.report.writing import write

        return write
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
