"""Operators on numbers that run as one: the bits are those of each by itself."""

import numpy as np
import polars as pl
import pytest

from penstock import Dataset, Workflow, ops
from penstock.data.places import place_of
from penstock.etl import number_chain, plan
from penstock.kernels import cpu_numbers
from penstock.kernels.cpu_stats import exact_moments

rng = np.random.default_rng(3)
NUMBERS = np.r_[np.int32([-(2**31), -2, -1, 0, 1, 65_535, 65_536, 2**31 - 1]), rng.integers(-5, 200_000, 9_000)]
FRAME = pl.DataFrame(
    {
        "a": pl.Series(NUMBERS, dtype=pl.Int32),
        "b": pl.Series([None if i % 3 == 0 else int(v) for i, v in enumerate(NUMBERS)], dtype=pl.Int32),
        "c": pl.Series([None] * len(NUMBERS), dtype=pl.Int32),
    }
)
ODD = [0.0, -0.0, np.nan, np.inf, -np.inf, -1.0, -0.99, -0.5, -1e-300, 5e-324, 1e-38, 0.3, 1e30, 1e308, -1e308, 2.0**53]
REAL = np.r_[ODD, rng.normal(0, 3, 3_000), rng.random(3_000) * 1e-9, np.exp(rng.normal(0, 12, 3_000))]
with np.errstate(over="ignore"):
    REAL32 = REAL.astype(np.float32)
LARGE = np.r_[np.int64([-(2**63), 2**63 - 1, 2**53 + 1, -1, 0]), rng.integers(-9, 2**40, len(REAL) - 5)]


def _with_gaps(values: np.ndarray, every: int = 3) -> pl.Series:
    return pl.Series([None if i % every == 0 else v for i, v in enumerate(values.tolist())])


FRAMES = {
    "int32": FRAME,
    "float64": pl.DataFrame({"a": REAL, "b": _with_gaps(REAL), "c": _with_gaps(REAL, 1).cast(pl.Float64)}),
    "finite": pl.DataFrame({"a": REAL[5:], "b": _with_gaps(REAL[5:]), "c": np.full(len(REAL) - 5, 0.25)}),
    "float32": pl.DataFrame({"a": REAL32, "b": _with_gaps(REAL32).cast(pl.Float32), "c": REAL32[::-1]}),
    "int64": pl.DataFrame({"a": LARGE, "b": _with_gaps(LARGE), "c": LARGE[::-1]}),
    "mixed": pl.DataFrame({"a": FRAME["b"][:9_000], "b": _with_gaps(REAL[:9_000]), "c": LARGE[:9_000]}),
}
CHAINS = {
    "all": (ops.FillMissing(3), ops.Clip(min_value=0), ops.LogOp(), ops.Normalize()),
    "by column": (ops.FillMissing({"a": 1, "b": -7, "c": 2**24}), ops.Clip(-1.5, 99_999.5), ops.LogOp()),
    "whole": (ops.FillMissing(), ops.Clip(max_value=10)),
    "without a logarithm": (ops.FillMissing(), ops.Normalize()),
    "nothing fills": (ops.Clip(min_value=0), ops.LogOp()),
    "fills late": (ops.Clip(min_value=0), ops.FillMissing(-5), ops.LogOp()),
    "by extremes": (ops.FillMissing(), ops.Clip(-1), ops.LogOp(), ops.NormalizeMinMax()),
    "not a number": (ops.FillMissing(-9), ops.LogOp(), ops.Normalize()),
    "logarithms alone": (ops.LogOp(), ops.Normalize()),
    "clipped twice": (ops.FillMissing(-3), ops.Clip(max_value=70_000), ops.Clip(min_value=-0.0), ops.Normalize()),
    "scaled twice": (ops.FillMissing(), ops.Clip(-5, 5), ops.Normalize(), ops.Normalize()),
    "flags": (ops.FillMissing(add_binary_cols=True), ops.Clip(min_value=0)),
    "wide": (ops.FillMissing(), ops.LogOp(), ops.Normalize(out_dtype="float64")),
}


def fitted(operators, frame=FRAME):
    node = ["a", "b", "c"]
    for op in operators:
        node = node >> op
    with np.errstate(all="ignore"):
        return Workflow(node).fit(frame)


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_is_what_its_operators_are(name, kind, monkeypatch):
    frame = FRAMES[kind]
    together = fitted(CHAINS[name], frame)
    whole = together.transform(frame)
    monkeypatch.setattr(plan, "chains_of", lambda *_: {})
    monkeypatch.setattr(plan, "chain_before", lambda *_: None)
    apart = fitted(CHAINS[name], frame)
    alone = apart.transform(frame)
    assert whole.schema == alone.schema
    for left, right in zip(whole, alone, strict=True):
        assert left.to_arrow().is_valid().equals(right.to_arrow().is_valid())
        assert left.fill_null(0).to_numpy().tobytes() == right.fill_null(0).to_numpy().tobytes(), left.name
    for one, other in zip(_states(together), _states(apart), strict=True):
        assert one == other


@pytest.mark.parametrize("kind", ["int32", "finite", "mixed"])
@pytest.mark.parametrize("rows", [0, 1, 1023, 1025, 4095, 4097])
def test_any_number_of_rows_in_pieces(rows, kind, monkeypatch):
    operators, given = CHAINS["all"], FRAMES[kind]
    workflow = fitted(operators, given)
    frame = pl.concat([given[: rows // 2], given[rows // 2 : rows]], rechunk=False)
    found = workflow.transform(frame)
    monkeypatch.setattr(plan, "chains_of", lambda *_: {})
    assert fitted(operators, given).transform(frame).equals(found)


def test_moments_of_more_rows_than_bins_take(monkeypatch):
    """Bins are handed over before they overflow: numbers whose squares fill them."""
    from penstock.kernels import cpu_float_chain

    largest = np.nextafter(2.0, 1.0)
    frame = pl.DataFrame({"x": np.full(3 * cpu_float_chain.CHUNK + 7, largest)})
    learned = Workflow(["x"] >> ops.FillMissing() >> ops.Normalize()).fit(frame)._plan.nodes[-1].fitted_op.state_["x"]
    assert learned == exact_moments(frame["x"].to_numpy())
    assert learned.count == len(frame) and learned.maximum == largest


@pytest.mark.parametrize("kind", ["int32", "finite", "float32", "int64", "mixed"])
def test_the_usual_chain_is_one_call(kind, monkeypatch):
    calls = []
    run = number_chain.NumberChain.run
    monkeypatch.setattr(
        number_chain.NumberChain, "run", lambda self, frame: calls.append(self.nodes) or run(self, frame)
    )
    learn = number_chain.NumberChain.moments
    monkeypatch.setattr(
        number_chain.NumberChain, "moments", lambda self, frame: calls.append(self.nodes) or learn(self, frame)
    )
    workflow = fitted(CHAINS["all"], FRAMES[kind])
    workflow.transform(Dataset(FRAMES[kind])).to_polars()
    assert [len(nodes) for nodes in calls] == [3, 4], "up to the logarithm while it is fitted, all of it then"


def test_tables_of_scaled_logarithms_give_the_same_bits(monkeypatch):
    workflow = fitted(CHAINS["all"])
    found = workflow.transform(FRAME)
    monkeypatch.setattr(cpu_numbers, "WORTH_TABLES", 1)
    tabled = workflow.transform(FRAME)
    assert all(a.to_numpy().tobytes() == b.to_numpy().tobytes() for a, b in zip(found, tabled, strict=True))


@pytest.mark.parametrize("skipped", [0, 1, 7, 8, 13])
@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 129, 4097])
def test_moments_of_logarithms_of_any_rows(skipped, rows):
    """Validity bits that begin anywhere, tiles that are not whole, and values that the table has not."""
    steps = np.array([[(cpu_numbers.FILL, 3.0, 0.0), (cpu_numbers.CLIP, -2.0, 90_000.0), (cpu_numbers.LOG, 0.0, 0.0)]])
    column = FRAME["b"].to_arrow().slice(skipped, rows)
    values = FRAME["b"][skipped : skipped + rows].fill_null(3).clip(-2, 90_000).to_numpy()
    with np.errstate(all="ignore"):
        expected = exact_moments(np.log1p(values.astype(np.float64)).astype(np.float32))
    assert cpu_numbers.moments_of_logarithms(np.array([place_of(column)]), rows, steps) == [expected]


def test_what_a_subclass_does_stays_its_own():
    class Doubled(ops.Clip):
        def expression(self, series, name):
            return pl.col(series.name) * 2

    frame = pl.DataFrame({"x": pl.Series([1, None], dtype=pl.Int32)})
    assert Workflow(["x"] >> ops.FillMissing(4) >> Doubled(0)).fit_transform(frame)["x"].to_list() == [2, 8]


def test_a_node_that_others_read_is_there():
    filled = ["x"] >> ops.FillMissing(4)
    logarithm = filled >> ops.Clip(0) >> ops.LogOp() >> ops.Rename(postfix="_log")
    frame = pl.DataFrame({"x": pl.Series([0, None], dtype=pl.Int32)})
    found = Workflow(filled + logarithm).fit_transform(frame)
    assert found.columns == ["x", "x_log"] and found["x"].to_list() == [0, 4]


def _states(workflow):
    return [node.fitted_op.state_ for node in workflow._plan.nodes if node.fitted_op is not None]
