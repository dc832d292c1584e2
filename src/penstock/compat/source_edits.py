"""Changes to a text by position: collected first, applied from the end, so that positions stay what the parser said.

>>> text = Text("f(a=1, b=2)\\n")
>>> text.replace(2, 3, "x")
>>> text.result()
'f(x=1, b=2)\\n'
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from bisect import bisect_left


class Text:
    """A source text and the edits to it."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._lines = re.findall(r"[^\n]*\n|[^\n]+", source)  # str.splitlines knows more ends than Python's parser
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self._edits: list[tuple[int, int, str]] = []
        self._tokens: list[tuple[int, int, str]] | None = None

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node stands. The parser counts bytes of UTF-8 in a line, a string counts characters."""
        first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        return self._at(first, node.col_offset), self._at(last, node.end_col_offset)  # type: ignore[attr-defined]

    def _at(self, line: int, column: int) -> int:
        before = self._lines[line - 1].encode()[:column].decode()
        return self._starts[line - 1] + len(before)

    def text(self, node: ast.AST) -> str:
        """The source of a node."""
        start, end = self.span(node)
        return self.source[start:end]

    def line_start(self, position: int) -> int:
        """Where the line begins in which a position lies."""
        return self.source.rfind("\n", 0, position) + 1

    def indent(self, position: int) -> str:
        """The white space at the beginning of that line."""
        line = self.source[self.line_start(position) :]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def replace(self, start: int, end: int, new: str) -> None:
        """Put `new` where `start` to `end` is."""
        self._edits.append((start, end, new))

    def tokens(self) -> list[tuple[int, int, str]]:
        """`(start, end, text)` of every token that is not white space or a comment."""
        if self._tokens is None:
            skip = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT)
            self._tokens = [
                (self._starts[t.start[0] - 1] + t.start[1], self._starts[t.end[0] - 1] + t.end[1], t.string)
                for t in tokenize.generate_tokens(io.StringIO(self.source).readline)
                if t.type not in skip and t.string
            ]
        return self._tokens

    def after(self, position: int) -> tuple[int, int, str]:
        """The first token at or after a position."""
        tokens = self.tokens()
        return tokens[bisect_left(tokens, (position, -1, ""))]

    def before(self, position: int) -> tuple[int, int, str]:
        """The last token that ends at or before a position."""
        tokens = self.tokens()
        return tokens[bisect_left(tokens, (position, -1, "")) - 1]

    def remove_argument(self, start: int, end: int) -> None:
        """Take an argument out of a call with its comma, and its line where it stands alone there."""
        following, preceding = self.after(end), self.before(start)
        if following[2] == ",":
            stop = self.after(following[1])[0]
            same_line = "\n" not in self.source[following[1] : stop]
            if same_line:
                self.replace(start, stop, "")
            else:
                line = self.line_start(start)
                alone = not self.source[line:start].strip()
                newline = self.source.index("\n", following[1])
                self.replace(line if alone else start, newline + 1 if alone else newline, "")
        else:
            self.replace(preceding[1] if preceding[2] != "," else preceding[0], end, "")

    def result(self) -> str:
        """The text with all edits; those at one place in the order in which they came."""
        out, taken = self.source, len(self.source) + 1
        numbered = [(start, end, number, new) for number, (start, end, new) in enumerate(self._edits)]
        for start, end, _, new in sorted(numbered, reverse=True):
            if end <= taken:  # what lies inside a part that is gone goes with it
                out, taken = out[:start] + new + out[end:], start
        return out


# What a script imports and names, and how native imports are written.

_MODULE_OF = {"penstock.ops": "penstock.etl.ops"}  # where it is imported from


def imported(tree: ast.AST) -> dict[tuple[str, str], str]:
    """What `from module import name` binds: `{(module, name): what the script calls it}`."""
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {(node.module or "", alias.name): alias.asname or alias.name for node in statements for alias in node.names}


def names_in(tree: ast.AST) -> set[str]:
    """Every name that means something in the script."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.split(".")[0])
    return found


def chains(tree: ast.AST) -> list[ast.expr]:
    """Every longest chain `a`, `a.b`, `a.b.c` that is read."""
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.Name, ast.Attribute)) and id(node) not in inner and isinstance(node.ctx, ast.Load)
    ]


def import_line(new: str, local: str) -> str:
    """The statement that binds a native name.

    >>> import_line("penstock.ops.Clip", "Clip"), import_line("penstock", "ps")
    ('from penstock.etl.ops import Clip', 'import penstock as ps')
    """
    module, _, name = new.rpartition(".")
    if not module:
        return f"import {new}" if local == new else f"import {new} as {local}"
    source = _MODULE_OF.get(module, module)
    return f"from {source} import {name}" if local == name else f"from {source} import {name} as {local}"


def joined(lines: list[str]) -> list[str]:
    """`from a import b` and `from a import c` as one line."""
    by_module: dict[str, list[str]] = {}
    for line in lines:
        head, _, name = line.partition(" import ")
        by_module.setdefault(head if name else line, []).append(name)
    return [
        f"{head} import {', '.join(dict.fromkeys(found))}" if found[0] else head for head, found in by_module.items()
    ]
