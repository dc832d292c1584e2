"""Recipes as people write them: YAML's surprises, misspelt names, short forms."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from penstock import Dataset, Workflow
from penstock.core.errors import ColumnNotFoundError, ParameterError, PenstockError

FRAME = pl.DataFrame({"user": [1, 2], "rating": [5, 3], "price": [1.0, 2.0], "click": [0, 1]})


def recipe(tmp_path: Path, text: str) -> Workflow:
    (tmp_path / "recipe.yaml").write_text("recipe: 1\n" + text)
    return Workflow.from_recipe(tmp_path / "recipe.yaml")


@pytest.mark.parametrize("key", ["on", '"on"'])
def test_on_is_a_key(tmp_path, key):
    pl.DataFrame({"user": [1, 2], "age": [30, 40]}).write_csv(tmp_path / "users.csv")
    text = f"""
nodes:
  joined:
    columns: [user]
    ops:
    - JoinExternal: {{df_ext: {tmp_path}/users.csv, {key}: user}}
"""
    assert recipe(tmp_path, text).transform(FRAME)["age"].to_list() == [30, 40]


def test_values_of_yaml_stay_what_they_are(tmp_path):
    text = "input: {header: no}\nnodes: {a: {columns: [user], ops: [{FillMissing: {add_binary_cols: yes}}]}}"
    made = recipe(tmp_path, text)
    assert made.input == {"header": False}
    assert made.transform(FRAME).width == 2


@pytest.mark.parametrize("name", ["no", "on", "1", "2.5"])
def test_names_that_yaml_reads_otherwise_are_explained(tmp_path, name):
    with pytest.raises(ParameterError, match="put such a name in quotes"):
        recipe(tmp_path, f"nodes: {{a: {{columns: [{name}]}}}}")
    assert recipe(tmp_path, f"nodes: {{a: {{columns: ['{name}']}}}}").fit(pl.DataFrame({name: [1]})).is_fitted


def test_expressions_stand_right_below_their_operator(tmp_path):
    text = 'nodes: {a: {columns: [rating], ops: [{Expr: {liked: "rating >= 4", one: 1}}, {Filter: {f: liked}}]}}'
    made = recipe(tmp_path, text)
    assert made.transform(FRAME).rows() == [(True, 1)]
    assert Workflow.from_recipe(made.to_recipe()).transform(FRAME).rows() == [(True, 1)]


def test_a_value_alone_is_the_first_argument(tmp_path):
    text = "nodes: {a: {columns: [rating], ops: [{Filter: rating > 3}, {Binarize: 4}]}}"
    assert recipe(tmp_path, text).transform(FRAME).rows() == [(1,)]
    with pytest.raises(ParameterError, match="Dropna in node 'a' takes no arguments"):
        recipe(tmp_path, "nodes: {a: {columns: [rating], ops: [{Dropna: 4}]}}")


MISSPELT = {
    "columns": "{columns: [usr]}",
    "group": "{columns: [[usr, rating]], ops: [Categorify]}",
    "pick": "{columns: [user, rating], pick: [usr]}",
    "drop": "{columns: [user, rating], drop: [usr]}",
    "expression": "{columns: [rating], ops: [{Expr: {x: 'usr + 1'}}]}",
    "target": "{columns: [rating], ops: [{TargetEncoding: {target: usr}}]}",
    "join_groupby": "{columns: [rating], ops: [{JoinGroupby: {cont_cols: [usr], stats: [mean]}}]}",
    "groupby": "{columns: [user, rating], ops: [{Groupby: {groupby_cols: [usr], aggs: [count]}}]}",
    "lag": "{columns: [rating], ops: [{DifferenceLag: {partition_cols: usr}}]}",
    "per column": "{columns: [user], ops: [{HashBucket: {num_buckets: {usr: 5}}}]}",
    "filter": "{columns: [user], ops: [{Filter: {f: 'usr > 1'}}]}",
    "rename": "{columns: [rating], ops: [{LambdaOp: {f: 'polars:Series.abs', dependency: usr}}]}",
}


@pytest.mark.parametrize("where", MISSPELT)
def test_a_misspelt_column_is_an_error_with_the_nearest_name(tmp_path, where):
    with pytest.raises(PenstockError, match="user") as caught:
        recipe(tmp_path, f"nodes: {{a: {MISSPELT[where]}}}").fit(FRAME).transform(Dataset(FRAME)).to_polars()
    assert isinstance(caught.value, ColumnNotFoundError)
    assert "'usr'" in str(caught.value) and "did you mean" in str(caught.value)
