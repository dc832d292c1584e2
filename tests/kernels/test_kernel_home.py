"""Compiled kernels lie where clones and versions find them, and nobody else can put any."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.kernels import kernel_home
from penstock.kernels.kernel_home import home_of, is_compiled, stamp_of


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def sources(folder: Path, content: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu_a.py").write_text(content)
    stamp_of.cache_clear()
    return folder


def test_the_same_sources_elsewhere_have_the_same_home(tmp_path: Path, cache: Path) -> None:
    one, other = sources(tmp_path / "one", "x = 1"), sources(tmp_path / "other", "x = 1")
    assert home_of(one) == home_of(other)
    assert home_of(one).parent == cache
    assert oct(home_of(one).stat().st_mode & 0o777) == "0o700"
    assert home_of(sources(other, "x = 2")) != home_of(one)


def test_what_numba_never_compiles_does_not_count(tmp_path: Path) -> None:
    folder = sources(tmp_path / "one", "x = 1")
    before = stamp_of(folder)
    for name in ("gpu_a.py", "reference_a.py"):
        (folder / name).write_text("y = 1")
    stamp_of.cache_clear()
    assert stamp_of(folder) == before


def test_settings_of_numba_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sources(tmp_path / "one", "x = 1")
    before = stamp_of(folder)
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", "1")
    stamp_of.cache_clear()
    assert stamp_of(folder) != before


def test_a_place_that_others_can_write_to_is_not_taken(tmp_path: Path, cache: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    assert home_of(sources(tmp_path / "one", "x = 1")) is None


def test_a_place_that_cannot_be_had_is_not_taken(tmp_path: Path, cache: Path) -> None:
    cache.parent.write_text("a file in the way")
    assert home_of(sources(tmp_path / "one", "x = 1")) is None


def test_what_the_user_told_numba_counts_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert home_of(sources(tmp_path / "one", "x = 1")) is None


def test_old_versions_are_swept(tmp_path: Path, cache: Path) -> None:
    homes = []
    for number in range(kernel_home._KEPT + 2):
        homes.append(home_of(sources(tmp_path / "one", f"x = {number}")))
        os.utime(homes[-1], (number, number))
    assert [home.exists() for home in homes] == [False] * 2 + [True] * kernel_home._KEPT


def test_compiled_or_not(tmp_path: Path) -> None:
    stamp_of.cache_clear()
    assert not is_compiled()
    (home_of() / "cpu_hash.mix-1.py311.nbi").touch()
    assert is_compiled()
