"""Arrays whose address a kernel takes live as long as the address is used.

numba frees an array of a kernel's own behind the last line that speaks of it. An address is a number: what it points to
may be freed memory by then, and whatever is allocated next is overwritten. So a kernel must speak of the array itself
where its address is used or behind it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock.kernels

KERNELS = sorted(Path(penstock.kernels.__file__).parent.glob("cpu_*.py"))


def own_arrays(function: ast.FunctionDef) -> set[str]:
    """Names that a function gives to what a call or a slice has made, parameters left out."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            pairs = [(node.targets[0], node.value)]
            if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(node.targets[0].elts, node.value.elts, strict=True))
            found |= {to.id for to, value in pairs if isinstance(to, ast.Name) and isinstance(value, ast.Call)}
    return found


def addressed(node: ast.AST) -> Iterator[ast.Name]:
    """The names in `name.ctypes.data` and `name[…].ctypes.data`."""
    for found in ast.walk(node):
        if isinstance(found, ast.Attribute) and found.attr == "ctypes":
            value = found.value
            while isinstance(value, ast.Subscript):
                value = value.value
            if isinstance(value, ast.Name):
                yield value


def dangling(function: ast.FunctionDef) -> list[str]:
    """Arrays that are spoken of for the last time before their address is used for the last time."""
    arrays = own_arrays(function)
    addresses: dict[str, set[str]] = {}  # of which arrays a name is an address, or was reckoned from one
    takes = set()  # the very words in which addresses are taken
    for _ in range(3):
        for node in ast.walk(function):
            if not isinstance(node, ast.Assign | ast.AugAssign):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            pairs = [(target, node.value) for target in targets]
            if len(targets) == 1 and isinstance(targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(targets[0].elts, node.value.elts, strict=True))
            for target, value in pairs:
                if not isinstance(target, ast.Name) or (target.id in arrays and not any(addressed(value))):
                    continue
                taken = list(addressed(value))
                takes |= {id(name) for name in taken}
                of = {name.id for name in taken if name.id in arrays}
                for name in ast.walk(value):
                    if isinstance(name, ast.Name):
                        of |= addresses.get(name.id, set())
                if of:
                    addresses.setdefault(target.id, set()).update(of)
    loops = [node for node in ast.walk(function) if isinstance(node, ast.For | ast.While)]

    def lives_at(array: str, line: int) -> bool:
        uses = [
            n.lineno for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == array and id(n) not in takes
        ]
        around = [
            (loop.lineno, loop.end_lineno or 0) for loop in loops if loop.lineno <= line <= (loop.end_lineno or 0)
        ]
        return any(use >= line or any(low <= use <= high for low, high in around) for use in uses)

    found = []
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found += [
                f"{array} (line {node.lineno})"
                for array in addresses.get(node.id, ())
                if not lives_at(array, node.lineno)
            ]
    return sorted(set(found))


def functions(source: str) -> Iterator[ast.FunctionDef]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and any("njit" in ast.unparse(mark) for mark in node.decorator_list):
            yield node


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_arrays_outlive_their_addresses(path: Path) -> None:
    found = {function.name: dangling(function) for function in functions(path.read_text())}
    assert not {name: arrays for name, arrays in found.items() if arrays}


def test_what_is_freed_too_early_is_found() -> None:
    source = """
@njit()
def early(given):
    mine, kept = np.empty(4), np.empty(4)
    left, right = np.uint64(mine.ctypes.data), np.uint64(kept.ctypes.data)
    far = left + np.uint64(8)
    for row in range(given):
        store(far, row)
        store(right, row)
    kept[0] = 1
"""
    (function,) = functions(source)
    assert dangling(function) == ["mine (line 6)", "mine (line 8)"]
