"""`penstock migrate`: mechanical rewrites are right and keep the formatting, the rest is listed with its line."""

from __future__ import annotations

import ast
import importlib
import inspect
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.compat import names
from penstock.compat.migrate import migrate, migrate_source
from penstock.compat.migrate_rules import Rule, rules
from penstock.core.errors import DataError

SCRIPT = '''"""An ETL and a training loop as users of NVTabular write them."""
import sys

import numpy as np
import pandas as pd
import torch
import nvtabular as nvt
from nvtabular import ops
from nvtabular.loader.torch import DLDataLoader, TorchAsyncItr
from nvtabular.ops import get_embedding_sizes

folder = sys.argv[1]
rng = np.random.default_rng(1)
frame = pd.DataFrame({
    "shop": rng.integers(0, 20, 2000), "city": rng.integers(0, 5, 2000), "price": rng.gamma(2.0, 10.0, 2000),
})
frame["click"] = (rng.random(2000) < frame["shop"] / 20).astype("int8")
frame.to_parquet(folder + "/raw.parquet")

cats = ["shop", "city"] >> nvt.ops.Categorify(freq_threshold=2, on_host=True)  # ids
conts = ["price"] >> ops.FillMissing() >> ops.LogOp() >> ops.Normalize()
workflow = nvt.Workflow(cats + conts + ["click"])
raw = nvt.Dataset(
    folder + "/raw.parquet",
    engine="parquet",
    part_mem_fraction=0.1,
)
workflow.fit(raw)
workflow.transform(raw).to_parquet(folder + "/train", shuffle=nvt.io.Shuffle.PER_PARTITION)

batches = TorchAsyncItr(
    nvt.Dataset(folder + "/train/*.parquet"), batch_size=500, cats=["shop", "city"], conts=["price"], labels=["click"],
)
loader = DLDataLoader(batches, batch_size=None, collate_fn=lambda batch: batch, num_workers=0)
sizes = get_embedding_sizes(workflow)
tables = torch.nn.ModuleList(torch.nn.Embedding(*size) for size in sizes.values())
head = torch.nn.Linear(sum(width for _, width in sizes.values()) + 1, 1)
optimizer = torch.optim.Adam([*tables.parameters(), *head.parameters()], 0.05)
for epoch in range(5):
    for ids, numbers, labels in loader:
        features = torch.cat([table(ids[:, i]) for i, table in enumerate(tables)] + [numbers], 1)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(head(features).squeeze(1), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(list(sizes), round(loss.item(), 3))
'''


def after(source: str) -> str:
    found = migrate_source(source)
    ast.parse(found.after)
    return found.after


def test_a_migrated_script_runs_without_the_old_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    found = migrate(script)
    assert found.left == []
    assert "nvt" not in found.after.replace("NVTabular", "")
    found.write()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path)])
    for name in ("nvtabular", "merlin"):
        monkeypatch.setitem(sys.modules, name, None)  # whoever imports it fails
    runpy.run_path(str(script), run_name="__main__")
    listed, loss = capsys.readouterr().out.rsplit(" ", 1)
    assert listed == "['shop', 'city']"
    assert 0.3 < float(loss) < 0.65


def test_the_rewrite_line_by_line() -> None:
    found = migrate_source(SCRIPT, "train.py")
    assert [line for line in found.diff().splitlines() if line.startswith("+")] == [
        "+++ train.py",
        "+import penstock as ps",
        "+from penstock import ops",
        "+from torch.utils.data import DataLoader",
        "+from penstock.loader.torch import Loader",
        "+from penstock.etl.ops import get_embedding_sizes",
        '+cats = ["shop", "city"] >> ps.ops.Categorify(freq_threshold=2)  # ids',
        '+workflow = ps.Workflow(cats + conts + ["click"])',
        "+raw = ps.Dataset(",
        '+    format="parquet",',
        '+workflow.transform(raw).to_parquet(folder + "/train", shuffle="partition")',
        "+batches = Loader(",
        '+    ps.Dataset(folder + "/train/*.parquet"), batch_size=500, categorical=["shop", "city"], '
        'continuous=["price"], labels=["click"],',
        '+    layout="packed",',
        "+loader = DataLoader(batches, batch_size=None, collate_fn=lambda batch: batch, num_workers=0)",
    ]
    assert [str(note).split(";")[0] for note in found.notes] == [
        "line 20: Categorify(on_host=…) is gone: it always is",
        "line 20: Categorify: codes are 0 padding, 1 null, 2 unknown, then values by frequency",
        "line 21: Normalize: float32 unless out_dtype says otherwise",
        "line 26: Dataset(part_mem_fraction=…) is gone: partitions aim at part_size, 64 MB by default, "
        "and never at a share of the machine",
        "line 31: TorchAsyncItr: columns come in the order named, and get_embedding_sizes follows the workflow",
    ]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("import nvtabular\nnvtabular.Workflow(x)\n", "import penstock as ps\nps.Workflow(x)\n"),
        ("import nvtabular\nps = 1\nnvtabular.Workflow(x)\n", "import penstock\nps = 1\npenstock.Workflow(x)\n"),
        ("import nvtabular.ops as o\no.Clip(0)\n", "from penstock import ops as o\no.Clip(0)\n"),
        ("import nvtabular.ops\nnvtabular.ops.Clip(0)\n", "import penstock as ps\nps.ops.Clip(0)\n"),
        (
            "import nvtabular as nvt\nnvt.loader.torch.TorchAsyncItr(d)\n",
            'from penstock.loader.torch import Loader\nLoader(d, batch_size=1, layout="packed")\n',
        ),
        (
            "class Loader: pass\nfrom nvtabular.loader.torch import TorchAsyncItr\nTorchAsyncItr(d)\n",
            "class Loader: pass\nfrom penstock.loader.torch import Loader as PenstockLoader\n"
            'PenstockLoader(d, batch_size=1, layout="packed")\n',
        ),
        (
            "from torch.utils.data import DataLoader as D\nfrom nvtabular.loader import torch\ntorch.DLDataLoader(x)\n",
            "from torch.utils.data import DataLoader as D\nD(x)\n",
        ),
        ("def f():\n    import nvtabular as nvt\n    return nvt.Dataset\n",
         "def f():\n    import penstock as ps\n    return ps.Dataset\n"),
        ("import os, nvtabular as nvt; nvt.Dataset(p)\n", "import os\nimport penstock as ps; ps.Dataset(p)\n"),
        ("x = 'é'; import nvtabular.ops as ops; ops.Clip(x)", "x = 'é'; from penstock import ops; ops.Clip(x)"),
        ("try:\n    import nvtabular\nexcept ImportError:\n    pass\n",
         "try:\n    pass\nexcept ImportError:\n    pass\n"),
        ("from nvtabular import Dataset as D\nD(p, cpu=True)\n", "from penstock import Dataset as D\nD(p)\n"),
        ("from nvtabular import Dataset\nDataset(cpu=True, path_or_source=p)\n",
         "from penstock import Dataset\nDataset(source=p)\n"),
        ("import nvtabular as nvt\nprint(f'é {nvt.Dataset} {nvt.Workflow!r:>3}')\n",
         "import penstock as ps\nprint(f'é {ps.Dataset} {ps.Workflow!r:>3}')\n"),
        ("from nvtabular import Dataset\r\nDataset(p)\r\n", "from penstock import Dataset\r\nDataset(p)\r\n"),
        ("from persia.embedding.optim import Adagrad\nAdagrad(0.1, initial_accumulator_value=1)\n",
         "from penstock.embedding import DecayedAdagrad\nDecayedAdagrad(0.1, initial_accumulator=1)\n"),
    ],
)  # fmt: skip
def test_forms_of_imports_and_calls(before: str, expected: str) -> None:
    assert after(before) == expected


@pytest.mark.parametrize(
    ("source", "line", "text"),
    [
        ("import nvtabular as nvt\nnvt.Dataset(p, 'csv')\n", 2, "name the arguments after the first 1"),
        ("import nvtabular as nvt\nnvt.Dataset(p, **more)\n", 2, "look at what **more passes on"),
        (
            "from nvtabular.loader.torch import TorchAsyncItr\nTorchAsyncItr(d, drop_last=True)\n",
            2,
            'last_batch="drop"',
        ),
        ("import nvtabular as nvt\ndef f(nvt):\n    return nvt.x\n", 2, "nvt is given another meaning here"),
        ("import nvtabular as nvt\nd = nvt.Dataset(p)\nd.to_ddf().compute()\n", 3, "to_ddf: Dataset.to_polars()"),
        ("from nvtabular import Dataset\nf'{Dataset(p, cpu=True)}'\n", 2, "inside an f-string they are not rewritten"),
        ("import nvtabular as nvt\nnvt.unheard.of()\n", 2, "nvtabular.unheard.of: no mechanical rewrite; see docs/"),
        (
            "from persia.ctx import TrainCtx\n",
            1,
            "persia.ctx.TrainCtx: no mechanical rewrite; see docs/migrate-persia.md",
        ),
    ],
)
def test_what_needs_a_person(source: str, line: int, text: str) -> None:
    found = migrate_source(source)
    ast.parse(found.after)
    assert any(note.line == line and text in note.text for note in found.notes), found.notes


def test_what_stays_keeps_its_import() -> None:
    source = "import nvtabular as nvt\nnvt.Dataset(nvt.unheard.of())\n"
    found = migrate_source(source)
    assert found.after == "import nvtabular as nvt\nimport penstock as ps\nps.Dataset(nvt.unheard.of())\n"
    assert found.left == ["nvtabular.unheard.of"]
    assert "it still needs penstock run, for nvtabular.unheard.of" in found.summary()


def test_other_scripts_are_left_alone() -> None:
    source = "import torch\nx = torch.ones(1)  # to_ddf\nx.to_ddf()\n"
    found = migrate_source(source)
    assert (found.after, found.notes, found.diff()) == (source, [], "")
    assert "imports nothing of NVTabular" in found.summary()


def test_the_command(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text("from nvtabular import Workflow\nWorkflow(x)\n")
    script.chmod(0o755)
    shown = CliRunner().invoke(app, ["migrate", str(script)])
    assert shown.exit_code == 0
    assert "-from nvtabular import Workflow\n+from penstock import Workflow\n" in shown.stdout
    assert "nothing was written; --write changes the script" in shown.stderr
    assert CliRunner().invoke(app, ["migrate", "--write", str(script)]).exit_code == 0
    assert script.read_text() == "from penstock import Workflow\nWorkflow(x)\n"
    assert script.stat().st_mode & 0o777 == 0o755
    assert [p.name for p in tmp_path.iterdir()] == ["a.py"]


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.py", b"import nvtabular\nx = (\n", "a.py: line 2 is not Python"),
        ("a.py", b"\xff\xfe", "a.py is not a text in UTF-8"),
        ("a.ipynb", b"{}", "a.ipynb is a notebook; run it as it is"),
    ],
)
def test_bad_input(name: str, content: bytes, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    result = CliRunner().invoke(app, ["migrate", str(tmp_path / name)])
    assert result.exit_code == 1
    assert text in result.stderr
    absent = CliRunner().invoke(app, ["migrate", str(tmp_path / "absent.py")])
    assert "cannot open" in absent.stderr


# the rules themselves


def find(dotted: str) -> Any:
    """The object of a dotted name, the longest part of which is a module."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"{dotted} is not there")


OBJECTS = {old: rule for old, rule in rules().items() if not rule.is_literal}


@pytest.mark.parametrize("old", sorted(OBJECTS))
def test_every_rule_leads_somewhere_and_covers_every_argument(old: str) -> None:
    rule: Rule = OBJECTS[old]
    native, compat = find(rule.to), find(f"penstock.compat.{old}")
    if inspect.ismodule(native):
        assert inspect.ismodule(compat)
        return
    accepted = _arguments(native)
    if accepted is None:
        return
    for name in [*rule.add, *rule.rename.values()]:
        assert name in accepted, f"{rule.to} has no argument {name}"
    covered = {*rule.rename, *rule.drop, *rule.ask, *accepted}
    missing = [name for name in _arguments(compat) or [] if name not in covered]
    assert not missing, f"{old}: the rule says nothing about {missing}"


def _arguments(function: Any) -> list[str] | None:
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None  # passes on what it does not know
    return [p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


def test_a_rule_with_a_slip_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.compat import migrate_rules

    with pytest.raises(DataError, match=r"native\.yaml: old\.Name has a key 'renam'; did you mean 'rename'"):
        migrate_rules._rule("old.Name", {"to": "x", "renam": {}})


def test_libraries_of_the_rules() -> None:
    assert {names.library_of(old) for old in rules()} <= set(names.LIBRARIES)
