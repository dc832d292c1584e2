"""The public functions and methods, read from the source: what `make test` counts types and docstrings of.

`python scripts/public_names.py` prints what is left to do: arguments typed bare `Any`, sections that docstrings lack.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
# Packages whose `__all__` is public, and adapters, whose one class is.
PACKAGES = (
    "penstock",
    "penstock.data",
    "penstock.data.synthetic",
    "penstock.embedding",
    "penstock.etl",
    "penstock.etl.ops",
    "penstock.jobs",
    "penstock.loader",
    "penstock.metrics",
    "penstock.nn",
    "penstock.nn.keras",
    "penstock.report",
    "penstock.serve",
    "penstock.train",
)
ADAPTERS = {
    "penstock.loader.fastai": "TabularDataLoaders",
    "penstock.loader.jax": "Loader",
    "penstock.loader.keras": "Loader",
    "penstock.loader.lightning": "DataModule",
    "penstock.loader.torch": "Loader",
}
# Protocols whose docstrings hold for the methods of all that implement them in a package.
CONTRACTS = {
    "penstock.embedding": ("penstock.embedding.protocol", "Embeddings"),
    "penstock.metrics": ("penstock.metrics.protocol", "Metric"),
}
_NOTHING = (None, "None", "NoReturn", "Self")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Public:
    """A public function, method or constructor.

    Args:
        name: `module.function` or `module.Class.method`, by the module that defines it.
        parameters: `(name, annotation)` of each, without self; the annotation is None where there is none.
        returns: the annotation of what it returns.
        raises: whether its body raises an error that it makes there.
        docstring: of the function, and of what it overrides or implements; of the class for a constructor.
        is_property: whether it is read like an attribute.
    """

    name: str
    parameters: tuple[tuple[str, str | None], ...]
    returns: str | None
    raises: bool
    docstring: str
    is_property: bool

    @property
    def bare(self) -> list[str]:
        """Parameters that say nothing of what they take.

        >>> Public("f", (("a", "Any"), ("b", "int"), ("c", "Any | None"), ("d", None)), None, False, "", False).bare
        ['a', 'c', 'd']
        """
        return [name for name, annotation in self.parameters if annotation in (None, "Any", "Any | None", "object")]

    @property
    def lacking(self) -> list[str]:
        """Sections that the docstring should have and has not.

        >>> Public("f", (("a", "int"),), "int", True, "Adds.", False).lacking
        ['Args', 'Returns', 'Raises']
        >>> Public("f", (), "int", False, "The sum.", True).lacking
        []
        """
        needed = {
            "Args": bool(self.parameters) and not self.is_property,
            "Returns": self.returns not in _NOTHING and not self.is_property,
            "Raises": self.raises and not self.is_property,
        }
        return [section for section, is_needed in needed.items() if is_needed and not self.has(section)]

    def has(self, section: str) -> bool:
        """Whether the docstring has a section; a generator's may be called Yields."""
        names = "Returns|Yields" if section == "Returns" else section
        return re.search(rf"^ *(?:{names}):$", self.docstring, re.MULTILINE) is not None


@cache
def public(source: Path = SOURCE) -> list[Public]:
    """Everything public, each once, in the order of the packages and their names; read once in a process.

    Args:
        source: the folder that the package lies in; in one of an older revision some packages are missing.
    """
    found: dict[str, Public] = {}
    with _reading(source):
        for package in PACKAGES:
            for name in exported(package):
                found.update((one.name, one) for one in _described(*_home(package, name)))
        for module, name in ADAPTERS.items():
            found.update((one.name, one) for one in _described(module, name))
    return list(found.values())


_sources = [SOURCE]


@contextmanager
def _reading(source: Path) -> Iterator[None]:
    _sources.append(source)
    _tree.cache_clear()
    _imports.cache_clear()
    try:
        yield
    finally:
        _sources.pop()
        _tree.cache_clear()
        _imports.cache_clear()


def exported(package: str) -> list[str]:
    """The names in a package's `__all__`.

    >>> exported("penstock.serve")[0]
    'ModelCard'
    """
    for node in _tree(package).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


@cache
def _tree(module: str) -> ast.Module:
    place = _sources[-1].joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return ast.parse(file.read_text() if file.exists() else "")


@cache
def _imports(module: str) -> dict[str, str]:
    """The module that each imported name comes from, imports for types included."""
    nodes = (node for node in ast.walk(_tree(module)) if isinstance(node, ast.ImportFrom))
    return {alias.asname or alias.name: node.module or "" for node in nodes for alias in node.names}


def _home(module: str, name: str) -> tuple[str, str]:
    """The module that defines a name."""
    own = {getattr(node, "name", None) for node in _tree(module).body}
    if name in own or name not in _imports(module):
        return module, name
    origin = _imports(module)[name]
    return _home(origin, name) if origin.split(".")[0] == "penstock" else (origin, name)


def _described(module: str, name: str) -> Iterator[Public]:
    for node in _tree(module).body:
        if isinstance(node, Function) and node.name == name:
            yield _public(f"{module}.{name}", node)
        elif isinstance(node, ast.ClassDef) and node.name == name:
            yield from _class(module, node)


def _class(module: str, node: ast.ClassDef) -> Iterator[Public]:
    about = ast.get_docstring(node) or ""
    methods = [item for item in node.body if isinstance(item, Function)]
    constructor = next((method for method in methods if method.name == "__init__"), None)
    if constructor is not None:
        about = f"{about}\n{ast.get_docstring(constructor) or ''}"
        yield _public(f"{module}.{node.name}", constructor, about)
    elif any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        fields = tuple(_fields(node))
        yield Public(f"{module}.{node.name}", fields, None, False, about, False)
    for method in methods:
        if not method.name.startswith("_") and "overload" not in _decorators(method):
            yield _public(
                f"{module}.{node.name}.{method.name}", method, inherited=_inherited(module, node, method.name)
            )
    for base in node.bases:  # what is inherited is public too; each is counted once, where it is defined
        parent_module, parent = _home(module, ast.unparse(base).split("[")[0])
        if parent_module.startswith("penstock") and parent != node.name:
            yield from _described(parent_module, parent)


def _inherited(module: str, node: ast.ClassDef, method: str) -> str:
    """What parents and contracts say of a method: an override says what differs, and the rest holds for it too."""
    parents = [_home(module, ast.unparse(base).split("[")[0]) for base in node.bases]
    contracts = [contract for package, contract in CONTRACTS.items() if module.startswith(f"{package}.")]
    texts = []
    for parent_module, parent in [*parents, *contracts]:
        if not parent_module.startswith("penstock") or (parent_module, parent) == (module, node.name):
            continue
        for other in _tree(parent_module).body:
            if isinstance(other, ast.ClassDef) and other.name == parent:
                own = [item for item in other.body if isinstance(item, Function) and item.name == method]
                texts += [ast.get_docstring(item) or "" for item in own]
                if (parent_module, parent) not in contracts:
                    texts.append(_inherited(parent_module, other, method))
    return "\n".join(texts)


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str | None]]:
    for item in node.body:
        if not isinstance(item, ast.AnnAssign) or ast.unparse(item.annotation).startswith("ClassVar"):
            continue
        if not ast.unparse(item.target).startswith("_") and "init=False" not in (
            ast.unparse(item.value) if item.value else ""
        ):
            yield ast.unparse(item.target), ast.unparse(item.annotation)


def _decorators(node: Function) -> set[str]:
    return {ast.unparse(decorator).split(".")[-1] for decorator in node.decorator_list}


def _public(name: str, node: Function, docstring: str | None = None, inherited: str = "") -> Public:
    given = node.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    parameters = tuple(
        (one.arg, None if one.annotation is None else ast.unparse(one.annotation))
        for one in every
        if one.arg not in ("self", "cls") and not one.arg.startswith("_")
    )
    returns = None if node.returns is None or node.name == "__init__" else ast.unparse(node.returns)
    raises = any(isinstance(part, ast.Raise) and isinstance(part.exc, ast.Call) for part in ast.walk(node))
    text = docstring if docstring is not None else f"{ast.get_docstring(node) or ''}\n{inherited}"
    is_property = bool(_decorators(node) & {"property", "cached_property", "setter"})
    return Public(name, parameters, returns, raises and node.name != "__init__", text, is_property)


def main() -> None:
    """Print each shortcoming, then the counts."""
    every = public()
    for one in every:
        if one.bare or one.lacking:
            print(f"{one.name}: any {', '.join(one.bare) or '-'}; lacks {', '.join(one.lacking) or '-'}")
    parameters = sum(len(one.parameters) for one in every)
    print(f"{sum(len(one.bare) for one in every)} of {parameters} public arguments are typed bare Any")
    lacking = sum(bool(one.lacking) for one in every)
    print(f"{lacking} of {len(every)} public functions lack a section of their docstring")


if __name__ == "__main__":
    main()
