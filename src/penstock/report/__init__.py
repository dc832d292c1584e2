"""What a person is shown: collected as plain data first, then rendered.

>>> __all__
['RunRecorder', 'render', 'write']
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.report.html import render
    from penstock.report.run import RunRecorder, write

__all__ = ["RunRecorder", "render", "write"]


def __getattr__(name: str) -> Any:
    # When first asked for: the command line imports parts of this package and must start at once.
    if name == "render":
        from penstock.report.html import render

        return render
    if name in ("RunRecorder", "write"):
        from penstock.report import run

        return getattr(run, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
