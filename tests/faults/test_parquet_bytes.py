"""Changed parquet files: the loader reads what pyarrow reads or refuses, and lives. By hand: parquet_cases.py."""

from pathlib import Path

import page_run_cases
import pytest
from guarded import sweep

SCRIPT = Path(__file__).with_name("parquet_cases.py")
RUNS_SCRIPT = Path(__file__).with_name("page_run_cases.py")
TEXT_SCRIPT = Path(__file__).with_name("parquet_text_cases.py")
# Each of these crashed, hung or lied once.
FOUND = {
    "a run of more groups than the page has bytes": 4259,
    "a level block that ends early": 1074,
    "levels bit-packed as of old": 3984,
    "a required column with levels": 3901,
    "lists that begin nowhere, in a page of version 2": 4385,
    "a bit width of 128 before no values": 5584,
    "a name that is no UTF-8": 2120,
    "codes of more bits than the dictionary needs": 215057,
    "a number of values in the footer that is not the pages'": 209698,
    "a schema of Arrow that speaks of seconds": 725359,
}


FOUND_IN_TEXT = {
    "lists that do not add up": 300949,
    "a page of Snappy that unfolds to fewer bytes than it says": 302749,
    "levels that end before the values do": 100071,
    "a level above the highest": 100233,
    "codes that end before the values do": 100940,
}


def test_changed_files_of_text_are_read_right_or_refused():
    found = sweep(TEXT_SCRIPT, [*range(120), *FOUND_IN_TEXT.values()])
    assert found.findings == []
    assert found.tries == 120 + len(FOUND_IN_TEXT)
    assert min(found.read, found.refused) > 15


def test_changed_files_are_read_right_or_refused():
    found = sweep(SCRIPT, [*range(150), *FOUND.values()])
    assert found.findings == []
    assert found.tries == 150 + len(FOUND)
    assert min(found.read, found.refused) > 20  # else nothing was tried


def test_runs_for_a_device_of_changed_files_are_right_or_refused():
    found = [page_run_cases.check(seed) for seed in range(60)]
    assert set(found) == {"read", "refused"}


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{}, {"NUMBA_BOUNDSCHECK": "1"}], ids=["plain", "bounds checked"])
def test_runs_for_a_device_of_many_changed_files(environment):
    found = sweep(RUNS_SCRIPT, range(10_000, 14_000), environment)
    print(f"{found.tries} tries: {found.read} read, {found.refused} refused, {found.peer_deaths} deaths of peers")
    assert found.findings == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100_000, 130_000, 5_000))
def test_many_changed_files(first):
    print(f"seeds {first} to {first + 5_000}")
    found = sweep(SCRIPT, range(first, first + 5_000))
    print(f"{found.tries} tries: {found.read} read, {found.refused} refused, {found.peer_deaths} deaths of peers")
    assert found.findings == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100_000, 110_000, 5_000))
def test_many_changed_files_of_text(first):
    print(f"seeds {first} to {first + 5_000}")
    found = sweep(TEXT_SCRIPT, range(first, first + 5_000))
    print(f"{found.tries} tries: {found.read} read, {found.refused} refused")
    assert found.findings == []
