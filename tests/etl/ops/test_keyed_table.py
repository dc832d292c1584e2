"""Rows of a table by their key: one key column is looked up, several are joined, with the same result."""

import pickle

import polars as pl
import pytest

from penstock.etl.ops.keyed_table import KeyedTable

KEYS = {
    "text": ["a", "much longer than a view", None, ""],
    "int64": [7, -1, None, 2**62],
    "int8": [7, -1, None, 0],
    "float": [0.5, -1.0, None, float("inf")],
    "bool": [True, False, None],
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("with_null", [True, False])
def test_a_look_up_gives_what_a_join_does(kind, with_null):
    dtype = {"int8": pl.Int8, "int64": pl.Int64}.get(kind)
    found = [key for key in KEYS[kind] if with_null or key is not None]
    known = pl.Series("k0", found[:-1], dtype=dtype, strict=False)
    frame = pl.DataFrame([known, pl.Series("x", range(len(known))), pl.Series("y", [None, *range(len(known) - 1)])])
    asked = pl.DataFrame([pl.Series("k0", [*KEYS[kind], None, *KEYS[kind]], dtype=dtype, strict=False)])
    table = KeyedTable(frame, ["k0"])
    joined = asked.join(frame, on="k0", how="left", nulls_equal=True, maintain_order="left").drop("k0")
    for made in (table, pickle.loads(pickle.dumps(table))):
        assert made.rows_of(asked).equals(joined)


def test_several_keys():
    frame = pl.DataFrame({"k0": [1, 1, None], "k1": ["a", None, "a"], "x": [1, 2, 3]})
    asked = pl.DataFrame({"k0": [None, 1, 1, 2], "k1": ["a", "a", None, "a"]})
    assert KeyedTable(frame, ["k0", "k1"]).rows_of(asked)["x"].to_list() == [3, 1, 2, None]


def test_without_rows():
    table = KeyedTable(pl.DataFrame(schema={"k0": pl.String, "x": pl.Int64}), ["k0"])
    assert table.rows_of(pl.DataFrame({"k0": ["a", None]}))["x"].to_list() == [None, None]
    assert table.rows_of(pl.DataFrame(schema={"k0": pl.String})).height == 0
