"""Docstrings of what is public: what it takes, what it returns, and what it raises on purpose."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
# Public functions whose docstring lacks a section that it should have. Lower it when there are fewer.
CEILING = 1


def test_public_functions_say_what_they_take_return_and_raise(public_names: ModuleType) -> None:
    lacking = {one.name: one.lacking for one in public_names.public() if one.lacking}
    assert len(lacking) <= CEILING, f"{len(lacking)} docstrings lack a section: {lacking}"


@pytest.mark.parametrize(
    "name",
    [
        "core.schema", "data.dataset", "data.lazy_rows", "data.partitioned_rows", "etl.operator",
        "etl.fitted_operator", "etl.fitting", "etl.transforming", "etl.workflow", "metrics", "embedding.protocol",
    ],
)  # fmt: skip
def test_what_is_used_most_is_described_in_full(public_names: ModuleType, name: str) -> None:
    of_module = [one for one in public_names.public() if f"{one.name}.".startswith(f"penstock.{name}.")]
    assert of_module
    assert {one.name: one.lacking for one in of_module if one.lacking} == {}


def test_sections_are_written_as_the_site_reads_them(public_names: ModuleType) -> None:
    for one in public_names.public():
        for line in one.docstring.splitlines():
            assert line.strip() not in ("Arguments:", "Parameters:", "Params:", "Return:", "Raise:"), one.name
