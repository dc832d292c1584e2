"""Old programs on a real Dask cluster of this machine: `Distributed`, `Serial`, and the clients that they choose."""

from __future__ import annotations

import os

import pandas as pd
import pytest

pytestmark = [pytest.mark.usefixtures("old_names"), pytest.mark.slow]

# Port 0 is one that is free; without a dashboard there is no second one.
OPTIONS = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "scheduler_port": 0}


def test_work_runs_on_the_cluster_of_the_block(tmp_path):
    import nvtabular as nvt
    from merlin.core.utils import Distributed, Serial, global_dask_client, run_on_worker, set_dask_client

    frame = pd.DataFrame({"c": ["a", "b", "a", "c"] * 50, "x": [1.0, 2.0, None, 4.0] * 50})
    graph = (["c"] >> nvt.ops.Categorify(out_path=str(tmp_path))) + (
        ["x"] >> nvt.ops.FillMissing() >> nvt.ops.Normalize()
    )
    wanted = nvt.Workflow(graph).fit_transform(nvt.Dataset(frame, npartitions=4)).compute()
    with Distributed(**OPTIONS) as cluster:
        assert global_dask_client() is cluster.client and len(cluster.client.scheduler_info()["workers"]) == 2
        assert run_on_worker(os.getpid) != os.getpid()
        workflow = nvt.Workflow(graph)
        assert workflow.client is cluster.client
        data = nvt.Dataset(frame, npartitions=4)
        pd.testing.assert_frame_equal(workflow.fit_transform(data).compute(), wanted)
        workflow.transform(data).to_parquet(tmp_path / "out", output_files=2)
        assert nvt.Dataset(str(tmp_path / "out"), engine="parquet").num_rows == 200
        workflow.transform(data).to_parquet(tmp_path / "each", out_files_per_proc=2)
        assert len(list((tmp_path / "each").glob("*.parquet"))) == 4  # of each of the two workers
        with Serial():
            assert global_dask_client() is None and nvt.Workflow(graph).client is None
        with pytest.warns(UserWarning, match="there is a Dask client already"), Distributed() as same:
            assert same.client is cluster.client
        assert set_dask_client(cluster.client) is cluster.client
        frames = nvt.Workflow(graph).fit_transform(data.to_ddf())
        pd.testing.assert_frame_equal(frames.compute().reset_index(drop=True), wanted)
        set_dask_client(cluster.client)
        cluster.client.close()
        assert nvt.Workflow(graph).client is None  # whoever closes a client need not say so as well
        pd.testing.assert_frame_equal(nvt.Workflow(graph).fit_transform(data).compute(), wanted)
    assert cluster.client is None and nvt.Workflow(graph).client is None
