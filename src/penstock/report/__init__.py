"""What a person is shown: plain data turned into a page, charts and words in the terminal.

>>> __all__
['render', 'write']
"""

from typing import TYPE_CHECKING

from penstock.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.report.html import render
    from penstock.report.writing import write

__all__ = ["render", "write"]

__getattr__, __dir__ = lazy_names(__name__, __all__, {"render": "html", "write": "writing"})
