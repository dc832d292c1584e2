"""The benchmark runner: real scripts run, failures are named, the page keeps what people wrote."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.core.errors import DataError, ParameterError

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))  # as for a script that runs there

import run as bench  # noqa: E402
from ratio_chart import ratio_chart  # noqa: E402

GOOD = 'import sys\nprint("noise")\nprint(\'{"claim": "a/%s", "unit": "rows/s", "penstock": 2e6, "peers": ' \
       '{"slow": 1e6, "gone": null}, "ratios": {"slow": 2.0, "gone": null}}\' % len(sys.argv))\n'  # fmt: skip


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    scripts, docs = tmp_path / "benchmarks", tmp_path / "docs"
    scripts.mkdir()
    docs.mkdir()
    (scripts / "good.py").write_text(GOOD)
    (scripts / "bad.py").write_text("raise SystemExit('the peer is on fire')")
    (scripts / "suite.yaml").write_text('good.py: ["--rows", "10"]\nbad.py: []\n')
    (docs / "benchmarks.md").write_text(f"# Ours\n\n{bench._BEGIN}\nold\n{bench._END}\n\nby hand\n")
    return tmp_path


def test_claims_are_collected_and_failures_named(clone: Path) -> None:
    found = bench.run_suite(clone / "benchmarks")
    assert [claim["claim"] for claim in found["claims"]] == ["a/3"]  # with the arguments of the small run
    assert found["failed"] == {"bad.py": "the peer is on fire"}
    assert bench.run_suite(clone / "benchmarks", ["good"], full=True)["claims"][0]["claim"] == "a/1"


def test_the_page_keeps_what_people_wrote(clone: Path) -> None:
    found = bench.run_suite(clone / "benchmarks", ["good.py"])
    bench.write(found, clone / "docs", "2 cores")
    bench.write(found, clone / "docs", "2 cores")
    text = (clone / "docs" / "benchmarks.md").read_text()
    assert text.startswith("# Ours") and text.endswith("by hand\n") and "old" not in text
    assert "| `a/3` | 2 M rows/s | `slow` | 1 M | 2.00 |" in text and text.count("`a/3`") == 1
    drawn = ElementTree.fromstring((clone / "docs" / "images" / "benchmarks.svg").read_text())
    assert drawn.tag.endswith("svg")


def test_the_command(clone: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(clone)
    result = CliRunner().invoke(app, ["bench", "good", "--json"])
    assert result.exit_code == 1
    assert "run.py is not there: the benchmark scripts come with the source code; run this in a clone" in result.stderr
    for script in ("run.py", "ratio_chart.py"):
        shutil.copy(ROOT / "benchmarks" / script, clone / "benchmarks")
    assert CliRunner().invoke(app, ["bench", "good", "--json"]).exit_code == 0
    assert json.loads(capfd.readouterr().out)["penstock"] == 2e6
    assert "old" in (clone / "docs" / "benchmarks.md").read_text()  # a part is not written unless asked
    assert CliRunner().invoke(app, ["bench"]).exit_code == 1
    assert "bad.py failed: the peer is on fire" in capfd.readouterr().out
    assert "on fire" in (clone / "docs" / "benchmarks.md").read_text()
    assert CliRunner().invoke(app, ["bench", "loader", "--no-write"]).exit_code == 1
    assert "error: there is no benchmark 'loader'" in capfd.readouterr().err


def test_what_is_missing_is_named(clone: Path) -> None:
    with pytest.raises(DataError, match=r"suite\.yaml is not there.*clone"):
        bench.run_suite(clone)
    with pytest.raises(ParameterError, match="no benchmark 'loader'; there are good, bad"):
        bench.run_suite(clone / "benchmarks", ["loader"])
    (clone / "docs" / "benchmarks.md").write_text("nothing to replace")
    with pytest.raises(DataError, match="must hold the lines"):
        bench.write({"claims": [], "failed": {}, "seconds": 1.0}, clone / "docs", "")


def test_every_script_is_in_the_suite() -> None:
    scripts = {p.name for p in (ROOT / "benchmarks").glob("*.py") if '__name__ == "__main__"' in p.read_text()}
    assert set(bench.read_suite(ROOT / "benchmarks")) == scripts - {
        "run.py",
        "criteo_chart.py",
        "threads_chart.py",
    }  # these measure nothing


def test_bars_point_the_right_way() -> None:
    drawn = ElementTree.fromstring(ratio_chart([("a < b", 4.0), ("c", 0.5)]))
    bars = [e for e in drawn if e.tag.endswith("rect")]
    assert [bar.get("class") for bar in bars] == ["better", "worse"]
    assert float(bars[0].get("x", 0)) == pytest.approx(float(bars[1].get("x", 0)) + float(bars[1].get("width", 0)))
