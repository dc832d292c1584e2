"""The notebooks under docs/ hold what they put out, and run again from the top, unmodified."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.compat.run_notebook import Outcome, run_notebook

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def printed(path: Path) -> str:
    """All plain text that a notebook put out."""
    outputs = [output for cell in code_cells(path) for output in cell["outputs"]]
    return "\n".join("".join(o.get("text") or o.get("data", {}).get("text/plain", "")) for o in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_kept_notebooks_ran_to_the_end(path: Path) -> None:
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert "error" not in {output["output_type"] for cell in cells for output in cell["outputs"]}
    assert cells[-1]["outputs"]
    assert not re.search(r"(?<![\w.])/(tmp|home|root|work|usr)/", path.read_text()), "a path of some machine"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the notebooks and, from the first of them, features to train on."""
    pytest.importorskip("nbclient")
    place = tmp_path_factory.mktemp("notebooks")
    for path in NOTEBOOKS:
        shutil.copy(path, place)
    with pytest.MonkeyPatch.context() as patch:
        small = {"BASE_DIR": "data", "NUM_ROWS": "6000", "BATCH_SIZE": "500", "OMP_NUM_THREADS": "1"}
        for name, value in small.items():
            patch.setenv(name, value)
        assert execute(place, "criteo_etl").failed is None
        yield place


def execute(folder: Path, name: str) -> Outcome:
    said: list[str] = []
    outcome = run_notebook(folder / f"{name}.ipynb", show=said.append, cpu=True)
    assert outcome.failed is None, "\n".join([*said, str(outcome)])
    return outcome


def test_etl(folder: Path) -> None:
    assert (folder / "data/test_dask/output/workflow").is_dir()
    assert "['train', 'valid', 'workflow']" in printed(folder / "criteo_etl.executed.ipynb")


def test_fastai(folder: Path) -> None:
    pytest.importorskip("fastai")
    text = printed(execute(folder, "criteo_fastai").output)
    assert "(torch.Size([500, 26]),\n torch.int64,\n torch.Size([500, 13]),\n torch.float32" in text
    assert "rows: 14400 - epochs: 2" in text
    aucs = [float(auc) for auc in re.findall(r"^\[\d, [\d.]+, [\d.]+, ([\d.]+), ", text, re.MULTILINE)]
    assert len(aucs) == 2 and aucs[-1] > 0.55, text


@pytest.mark.slow  # a kernel that loads TensorFlow; test_nvtabular_keras.py trains the same layers in this process
def test_keras(folder: Path) -> None:
    pytest.importorskip("tensorflow")
    text = printed(execute(folder, "criteo_keras").output)
    assert "You must install" in text  # pydot or Graphviz: Keras says so and goes on
    assert "rows: 14400 - epochs: 2" in text
    assert "val_auc" in text
    assert "(True," in text  # the loaded model answers as the saved one
    assert (folder / "data/test_dask/output/model.savedmodel/saved_model.pb").is_file()
