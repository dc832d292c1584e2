"""YAML that people write: numbers as everybody means them, and nothing lost on the way back."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.yaml_files import read_yaml, write_yaml


@pytest.mark.parametrize("text, value", [("1e-3", 1e-3), ("-2E5", -2e5), (".5e1", 5.0), ("'1e-3'", "1e-3")])
def test_numbers_with_an_exponent(tmp_path: Path, text: str, value: object) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"a: {text}\n")
    assert read_yaml(file) == {"a": value}


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    data = {"text": "1e-3", "number": 1e-5, "none": None, "list": [1, "2", 3.5], "yes": "yes", "flag": True}
    file = tmp_path / "a.yaml"
    file.write_text(write_yaml(data))
    assert read_yaml(file) == data
