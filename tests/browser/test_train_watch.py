"""`penstock train --watch` as a user sees it: a command in one window, its page in another."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from penstock.data.synthetic import criteo


@pytest.mark.slow  # the page is opened by test_live_page.py, the option tried by tests/cli/test_model.py
def test_the_page_of_a_command(watch, tmp_path) -> None:
    from playwright.sync_api import expect

    criteo(tmp_path / "day.tsv", 3_000, cardinalities=100)
    command = [sys.executable, "-m", "penstock", "train", str(tmp_path / "day.tsv"), "--preset", "criteo"]
    options = ["--output", str(tmp_path / "run"), "--epochs", "2", "--batch-size", "64", "--watch", "--no-progress"]
    seen = watch()
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None and process.stdout is not None
        try:
            said = process.stderr.readline()
            address = re.search(r"http://127\.0\.0\.1:\d+/", said)
            assert address, said
            seen.page.goto(address[0])
            assert seen.page.locator("#state").inner_text() == "running"
            expect(seen.page.locator("#state")).to_have_text("finished")
            assert seen.page.locator("h1").inner_text() == "DLRM on day.tsv"
            expect(seen.page.locator("#live-note")).to_contain_text("run/report.html")
            printed, errors = process.communicate(timeout=600)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert printed.rstrip().endswith("run/report.html")
    assert seen.complaints == []
