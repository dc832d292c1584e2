"""Files that Merlin's `Dataset` reads together, names that it keeps, and what it writes beside its data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from penstock.compat import settings
from penstock.compat.missing import CompatRuntimeError
from penstock.core.errors import DataError, ParameterError

pytestmark = pytest.mark.usefixtures("old_names")


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for number, ids in enumerate((["0000000f", "ffffffff"], ["62770d79"])):
        lines = "".join(f"{text}\t{place}\n" for place, text in enumerate(ids))
        (folder / f"{number}.part").write_text(lines)
    return folder


def opened(texts):
    from merlin.io import Dataset

    return Dataset(str(texts), engine="csv", names=["c", "n"], sep="\t", dtypes={"c": "hex", "n": np.int64})


def test_hexadecimal_ids_have_a_sign(texts):
    assert opened(texts).compute()["c"].tolist() == [15, -1, 0x62770D79]
    assert opened(texts).schema["c"].dtype.name == "int32"


def test_names_of_files_are_those_of_the_base_data_set(texts, tmp_path):
    from merlin.io import Dataset

    base = opened(texts)
    Dataset(base.to_ddf(), base_dataset=base).to_parquet(tmp_path / "out", preserve_files=True, suffix=".pq")
    assert sorted(file.name for file in (tmp_path / "out").glob("*.pq")) == ["0.part.pq", "1.part.pq"]
    assert Dataset(tmp_path / "out").compute()["n"].tolist() == [0, 1, 0]
    with pytest.raises(ParameterError, match="base_dataset"):
        Dataset(base.compute()).to_parquet(tmp_path / "other", preserve_files=True)


def test_small_files_become_one_partition(tmp_path):
    from merlin.io import Dataset

    for day in (1, 2):
        for part in (0, 1):
            folder = tmp_path / f"day={day}"
            folder.mkdir(exist_ok=True)
            pd.DataFrame({"x": [day, part]}).to_parquet(folder / f"{part}.parquet")
    counts = {how: Dataset(tmp_path, aggregate_files=how, part_size="1GB").npartitions for how in (None, True, "day")}
    assert counts == {None: 4, True: 1, "day": 2}
    data = Dataset(tmp_path, aggregate_files="day", part_size="1GB")
    assert data.compute()["x"].tolist() == [1, 0, 1, 1, 2, 0, 2, 1] and data.partition_lens == [4, 4]
    assert Dataset(tmp_path, aggregate_files=True, part_size=1).npartitions == 4


def test_key_sets(tmp_path):
    import nvtabular as nvt

    frame = pd.DataFrame({"city": ["a", "b", "a"], "x": [1.0, 2.0, 3.0]})
    coded = nvt.Workflow((["city"] >> nvt.ops.Categorify()) + "x").fit_transform(nvt.Dataset(frame))
    for _ in range(2):  # a second time over the first
        coded.to_parquet(tmp_path / "out", write_hugectr_keyset=True)
    rows = coded.schema["city"].properties["embedding_sizes"]["cardinality"]
    keys = np.frombuffer((tmp_path / "out" / "_hugectr.keyset").read_bytes(), dtype=">u4")
    assert keys.tolist() == list(range(int(rows) + 1))
    with pytest.raises(ParameterError, match="Categorify"):
        nvt.Dataset(frame).to_parquet(tmp_path / "raw", write_hugectr_keyset=True)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    import torch
    from merlin.io import Dataset

    from penstock.compat import cpu

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with settings.using(nvtabular="latest"), pytest.raises(CompatRuntimeError, match="penstock run --cpu"):
        Dataset(pd.DataFrame({"a": [1]}), cpu=False)
    with settings.using(nvtabular="1.0"):  # then it was a wish
        assert Dataset(pd.DataFrame({"a": [1]}), cpu=False).num_rows == 1
    monkeypatch.setattr(cpu, "mapped", lambda: True)
    assert Dataset(pd.DataFrame({"a": [1]}), cpu=False).num_rows == 1


def test_an_array_has_no_missing_values(tmp_path):
    from merlin.io import Dataset

    with pytest.raises(DataError, match="'b' has 1"):
        Dataset(pd.DataFrame({"a": [1, 2], "b": ["x", None]})).to_npy(tmp_path / "a.npy")


def test_dask_leaves_lists_as_they_are():
    import dask.dataframe
    from merlin.io import Dataset

    frame = dask.dataframe.from_pandas(pd.DataFrame({"a": [[1, 2], [3]]}), npartitions=1)
    assert [list(row) for row in frame.compute()["a"]] == [[1, 2], [3]]
    data = Dataset(frame, use_cpu=True)  # how files would be read means nothing for frames
    assert data.schema["a"].is_list
    dask.dataframe.assert_eq(data.to_ddf()[["a"]].map_partitions(len), pd.Series([2]), check_index=False)
