"""What a script imports and names, and how native imports are written."""

from __future__ import annotations

import ast

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
