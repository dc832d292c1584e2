"""The tables of names tell the truth, in both directions, and the page is what they make."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.compat import CompatError, activate, deactivate, names
from penstock.compat.names import page

PAGE = Path(__file__).parents[2] / "docs" / "compat-names.md"
MODULES = [(library, module) for library in names.LIBRARIES for module in sorted(names.table(library).modules)]
ABSENT = [module for library in names.LIBRARIES for module in sorted(names.table(library).absent)]


@pytest.fixture(autouse=True)
def activated() -> Iterator[None]:
    activate()
    yield
    deactivate()


@pytest.mark.parametrize("library", names.LIBRARIES)
def test_each_library_has_a_table(library: str) -> None:
    known = names.table(library)
    assert len(known.modules) > 5
    assert all(names.library_of(module) == library for module in [*known.modules, *known.absent])


@pytest.mark.parametrize(("library", "module"), MODULES, ids=lambda value: str(value))
def test_names_resolve_or_say_why_not(library: str, module: str) -> None:
    entries = names.table(library).modules[module]
    found = importlib.import_module(module)
    for name, entry in entries.items():
        if entry.status == names.ABSENT:
            with pytest.raises(CompatError, match=rf"{module}\.{name} exists in .* and not here: ") as caught:
                getattr(found, name)
            assert entry.note.rstrip(".") in str(caught.value)
        else:
            assert getattr(found, name) is not None, f"{module}.{name}"


@pytest.mark.parametrize("module", ABSENT)
def test_absent_modules_say_why(module: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"exists in .* and not here") as caught:
        importlib.import_module(module)
    assert isinstance(caught.value, CompatError)


def compat_modules(library: str) -> Iterator[str]:
    package = importlib.import_module(f"penstock.compat.{library}")
    yield package.__name__
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not any(part.startswith("_") for part in found.name.split(".")):
            yield found.name


@pytest.mark.parametrize("library", names.LIBRARIES)
def test_every_public_name_here_is_in_the_table(library: str) -> None:
    missing = []
    for name in compat_modules(library):
        module = importlib.import_module(name)
        known = names.table(library).modules.get(name.removeprefix("penstock.compat."), {})
        missing += [f"{name}.{public}" for public in getattr(module, "__all__", []) if public not in known]
    assert not missing


def test_the_page_is_what_the_tables_make() -> None:
    made = page.render()
    assert PAGE.read_text() == made, "run: python -m penstock.compat.names.page > docs/compat-names.md"
    assert all(sign in made for sign in "✓≈✗")
    assert "| `Adagrad` | ≈ | weight_decay acts |" in made


@pytest.mark.parametrize(("guide", "libraries"), [("migrate-nvtabular.md", ("nvtabular", "merlin"))])
def test_the_guide_lists_the_rules(guide: str, libraries: tuple[str, ...]) -> None:
    _, after = (PAGE.parent / guide).read_text().split("<!-- rules -->\n")
    assert after.split("<!-- end of rules -->")[0] == page.native_table(*libraries)
