"""Old imports resolve to Penstock when asked to, and only then; what is not here says so."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock.compat
from penstock.compat import CompatError, activate, active, deactivate, names, settings
from penstock.compat.modules import AfterImport, complete
from penstock.core.errors import DataError, ParameterError


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    deactivate()


@pytest.fixture
def activated() -> None:
    activate()


@pytest.fixture
def old_table(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """NVTabular's table with entries that no edit of the real one changes."""
    content = {
        "nvtabular": {"Gone": {"absent": "it needs cuDF; use polars"}, "Kept": "same"},
        "nvtabular.serving": {"absent": "Triton is not here; use penstock.serve"},
    }
    table = names.parse(content, "nvtabular.yaml")
    monkeypatch.setattr(names, "table", lambda library: table)
    names._packages.cache_clear()
    yield
    monkeypatch.undo()
    names._packages.cache_clear()  # else later tests would find the modules of this table only


def test_never_by_default() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("nvtabular")


def test_the_modules_are_the_same_objects(activated: None) -> None:
    old, new = importlib.import_module("persia"), importlib.import_module("penstock.compat.persia")
    assert old is new
    assert new.__name__ == new.__spec__.name == "penstock.compat.persia"


def test_twice_is_once_and_deactivate_undoes_it() -> None:
    before = list(sys.meta_path)
    activate(packages=["persia"])
    once = list(sys.meta_path)
    activate(packages=["persia", "merlin"])
    assert active() == ["merlin", "persia"]
    assert sys.meta_path == once
    importlib.import_module("persia")
    deactivate()
    deactivate()
    assert (active(), sys.meta_path) == ([], before)
    assert "persia" not in sys.modules


def test_packages_must_be_known() -> None:
    with pytest.raises(ParameterError, match="one of 'nvtabular', 'merlin', 'persia', got \\['torch'\\]"):
        activate(packages=["torch"])


def test_it_refuses_the_real_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "persia"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    with pytest.raises(CompatError, match=r"the real persia is installed .*force=True"):
        activate()
    assert active() == []
    activate(packages=["nvtabular"])
    deactivate()
    activate(force=True)
    assert importlib.import_module("persia").__name__ == "penstock.compat.persia"
    deactivate()


def test_a_folder_of_data_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "merlin" / "castle").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    activate(packages=["merlin"])
    deactivate()


def test_the_real_merlin_has_no_init_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = tmp_path / "merlin" / "schema"
    part.mkdir(parents=True)
    (part / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(CompatError, match="the real merlin is installed"):
        activate(packages=["merlin"])


def test_it_refuses_after_the_first_import(tmp_path: Path) -> None:
    (tmp_path / "persia.py").write_text("")
    script = "import persia, penstock.compat as c\nc.activate(force=True)"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert "persia is imported already, from " in done.stderr
    assert "before the first import" in done.stderr


# what is not here


def test_an_absent_name_says_why(old_table: None) -> None:
    module = type(sys)("penstock.compat.nvtabular")
    complete(module)
    text = "nvtabular.Gone exists in NVTabular and not here: it needs cuDF; use polars; see docs/migrate-nvtabular.md"
    with pytest.raises(CompatError) as caught:
        getattr(module, "Gone")  # noqa: B009
    assert (str(caught.value), isinstance(caught.value, AttributeError)) == (text, True)
    assert not hasattr(module, "Gone")
    with pytest.raises(AttributeError, match="'nvtabular' has no attribute 'Unheard'"):
        getattr(module, "Unheard")  # noqa: B009


def test_an_absent_name_says_why_when_it_is_imported(old_table: None, monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("penstock.compat.nvtabular")
    complete(module)
    monkeypatch.setitem(sys.modules, "stand_in", module)
    for name in ("Gone", "serving"):
        with pytest.raises(ImportError, match=f"nvtabular.{name} exists in NVTabular and not here") as caught:
            exec(f"from stand_in import {name}")
        assert isinstance(caught.value, CompatError)
    with pytest.raises(ImportError, match="cannot import name 'Unheard'"):
        exec("from stand_in import Unheard")


def test_an_absent_module_says_why(activated: None, old_table: None) -> None:
    for module in ("nvtabular.serving", "nvtabular.serving.triton"):
        with pytest.raises(ModuleNotFoundError, match=r"Triton is not here; use penstock\.serve; see docs") as caught:
            importlib.import_module(module)
        assert isinstance(caught.value, CompatError)
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'nvtabular\.unheard'"):
        importlib.import_module("nvtabular.unheard")


@pytest.mark.parametrize(
    "entry",
    ["yes", {"absent": ""}, {"differs": 3}, {"absent": "a", "differs": "b"}, {"is": "a.b", "absent": "c"}, None],
)
def test_a_wrong_table_names_the_entry(entry: object) -> None:
    with pytest.raises(DataError, match=r"old.yaml: old.ops.Clip must be same, \{differs"):
        names.parse({"old.ops": {"Clip": entry, "Log": "same"}}, "old.yaml")
    with pytest.raises(DataError, match=r"old\.ops must map names to entries"):
        names.parse({"old.ops": "same"}, "old.yaml")


# what waits for another package


def test_a_package_is_changed_right_after_its_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "waited_for.py").write_text("value = 1\nseen = __spec__.loader is __loader__\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "waited_for", raising=False)
    before, given = list(sys.meta_path), []
    waiting = AfterImport("waited_for", given.append)
    waiting.start()
    assert given == []
    module = importlib.import_module("waited_for")
    assert given == [module]
    assert module.seen
    assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
    assert sys.meta_path == before
    AfterImport("waited_for", given.append).start()
    assert given == [module, module]


# settings


@pytest.mark.parametrize(
    ("imported", "age"),
    [
        ([], "latest"),
        (["merlin.dataloader"], "latest"),
        (["nvtabular.column_group"], "0.5"),
        (["fastai", "nvtabular.loader.torch"], "0.5"),
        (["fastai"], "latest"),
        (["nvtabular.graph"], "1.0"),
        (["nvtabular.graph", "merlin.dtypes"], "latest"),
    ],
)
def test_what_a_program_imports_shows_its_age(
    imported: list[str], age: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(settings.NVTABULAR, raising=False)
    for _, modules in settings._SIGNS:
        for name in modules:
            monkeypatch.delitem(sys.modules, name, raising=False)
    settings.reset()
    for name in imported:
        monkeypatch.setitem(sys.modules, name, sys)
    assert settings.nvtabular() == settings.nvtabular() == age
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 1
    assert "conventions of" in said[0]
    settings.reset()


def test_a_program_of_another_age_before_it_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(settings.NVTABULAR, raising=False)
    settings.reset()
    with monkeypatch.context() as earlier:
        earlier.setitem(sys.modules, "nvtabular.column_group", sys)
        assert settings.nvtabular() == "0.5"
    activate(packages=["nvtabular"])
    assert settings.nvtabular() == "latest"
    deactivate()


def test_settings_follow_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(settings.NVTABULAR, raising=False)
    settings.reset()
    assert settings.nvtabular() == "latest"
    activate(nvtabular="1.0")
    assert settings.nvtabular() == "1.0"
    with settings.using(nvtabular="latest"):
        assert settings.nvtabular() == "latest"
    assert settings.nvtabular() == "1.0"
    deactivate()
    assert settings.nvtabular() == "latest"
    monkeypatch.setenv(settings.NVTABULAR, "0.3")
    with pytest.raises(ParameterError, match="PENSTOCK_COMPAT_NVTABULAR must be one of '0"):
        settings.nvtabular()
    with pytest.raises(ParameterError, match="nvtabular must be one of"):
        penstock.compat.activate(nvtabular="2")


def test_numpy_has_its_old_names() -> None:
    import numpy as np

    before = set(vars(np))
    activate()
    assert np.zeros(2, dtype=np.float).dtype == np.zeros(2, dtype=np.float_).dtype == "float64"  # type: ignore[attr-defined]
    assert np.isnan(np.NaN) and np.Inf == np.inf and np.object is object  # type: ignore[attr-defined]
    assert np.product([2, 3]) == 6 and np.array([1], dtype=np.int).dtype == "int64"  # type: ignore[attr-defined]
    deactivate()
    assert set(vars(np)) == before


class TestText:
    """Text in frames is objects with None for what is missing, as pandas had it when old code was written."""

    def test_in_every_frame(self, activated: None, tmp_path: Path) -> None:
        import nvtabular as nvt
        import pandas as pd

        path = str(tmp_path / "cities.parquet")
        frame = pd.DataFrame({"city": ["Rome", None], "x": [1.0, 2.0]})
        frame.to_parquet(path)
        data = nvt.Dataset(path)
        seen = []
        looked = ["city"] >> nvt.ops.LambdaOp(lambda column: seen.append(column) or column, dtype="str")
        made = nvt.Workflow(looked + ["x"]).fit_transform(data).compute()
        frames = [
            frame, pd.read_parquet(path), data.compute(), data.to_ddf().compute(), data.head(), data.tail(),
            next(iter(data.to_iter())), made, nvt.Workflow(["city"] >> nvt.ops.Rename(postfix="")).transform(frame),
        ]  # fmt: skip
        columns = [f["city"] for f in frames] + seen[-1:]
        assert [(column.dtype, column.tolist()) for column in columns] == [(object, ["Rome", None])] * 10

    def test_under_the_index_that_a_frame_has(self, activated: None) -> None:
        import nvtabular as nvt
        import pandas as pd

        frame = pd.DataFrame({"city": ["Rome", "Oslo"]}, index=[7, 3])
        made = nvt.Workflow(["city"] >> nvt.ops.Rename(postfix="_raw")).transform(frame)
        assert made["city_raw"].to_dict() == {7: "Rome", 3: "Oslo"}

    def test_a_file_of_categories_has_none(self, activated: None, tmp_path: Path, monkeypatch) -> None:
        import nvtabular as nvt
        import pandas as pd

        monkeypatch.chdir(tmp_path)
        with settings.using(nvtabular="1.0"):
            categorify = nvt.ops.Categorify()
            nvt.Workflow(["city"] >> categorify).fit(nvt.Dataset(pd.DataFrame({"city": ["Rome", "Oslo", "Rome"]})))
        assert pd.read_parquet(categorify.categories["city"])["city"].tolist() == [None, "Rome", "Oslo"]

    def test_only_while_active_and_unless_told_otherwise(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import pandas as pd

        before = pd.Series(["a"]).dtype
        activate()
        assert pd.Series(["a"]).dtype == object
        deactivate()
        assert pd.Series(["a"]).dtype == before
        monkeypatch.setenv("PANDAS_FUTURE_INFER_STRING", "1")
        activate()
        assert pd.Series(["a"]).dtype == before

    @pytest.mark.parametrize("first", ["import pyarrow; pyarrow.array([1])", "import dask.dataframe", "import pandas"])
    def test_whoever_imports_pandas_first(self, first: str) -> None:
        """pyarrow holds a lock while it does: who makes a frame in that moment waits for ever."""
        program = f"""
            import sys, penstock.compat
            penstock.compat.activate()
            assert "pandas" not in sys.modules
            {first}
            assert "pandas" in sys.modules
            import pandas as pd
            assert pd.Series(["a"]).dtype == object
        """
        subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=120)
