"""TensorFlow's feature columns as a workflow that prepares the same features before training."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.compat import settings
from penstock.compat.merlin.dag.node import Node, as_node
from penstock.compat.nvtabular.workflow.workflow import Workflow
from penstock.core.errors import ParameterError
from penstock.core.extras import require

ops: Any = importlib.import_module("penstock.compat.nvtabular.ops")
BUCKETIZED = "_bucketized"


def make_feature_column_workflow(
    feature_columns: Sequence[Any], label_name: str, category_dir: Any = None
) -> tuple[Workflow, list[Any]]:
    """A workflow that does what feature columns do to raw values, and the columns of what it gives.

    Vocabularies become `Categorify`, hashes `HashBucket`, crosses `HashedCross` and boundaries `Bucketize`; a number
    that is used by itself as well has its buckets under `<name>_bucketized`.

    Args:
        feature_columns: numeric, bucketized, embedding and indicator columns of `tf.feature_column`.
        label_name: the column to predict, which is handed on.
        category_dir: where the workflow's vocabularies are written when it is fitted.

    Returns:
        The workflow, not fitted, and feature columns that hold numbers and ids only.

    Raises:
        ParameterError: a column of another kind.
    """
    plan = _Plan(category_dir)
    for column in feature_columns:
        plan.add(column)
    features = as_node([label_name])
    for node in plan.nodes():
        features = node + features
    return Workflow(features), [*plan.numbers, *plan.ids]


class _Plan:
    """What feature columns ask for, by kind."""

    def __init__(self, category_dir: Any) -> None:
        self.category_dir = category_dir
        self.numbers: list[Any] = []  # feature columns of numbers
        self.ids: list[Any] = []  # feature columns of ids
        self.plain: list[str] = []  # ids that are ids already
        self.vocabularies: dict[str, list[Any]] = {}
        self.hashes: dict[str, int] = {}
        self.crosses: list[tuple[tuple[str, ...], int]] = []
        self.boundaries: dict[str, list[float]] = {}
        self._numeric: set[str] = set()

    def add(self, column: Any) -> None:
        kind = type(column).__name__
        if kind == "NumericColumn":
            self.numbers.append(column)
            self._numeric.add(column.key)
        elif kind in ("EmbeddingColumn", "IndicatorColumn"):
            self._add_ids(column.categorical_column, getattr(column, "dimension", None))
        elif kind == "BucketizedColumn":
            self._add_ids(column, None)
        else:
            raise ParameterError(
                f"feature column {getattr(column, 'name', column)!r} is a {kind}; give numeric, bucketized, embedding "
                f"and indicator columns"
            )

    def _add_ids(self, column: Any, dimension: int | None) -> None:
        kind = type(column).__name__
        if kind == "BucketizedColumn":
            name, size = self._buckets(column), len(column.boundaries) + 1
        elif kind in ("VocabularyListCategoricalColumn", "VocabularyFileCategoricalColumn"):
            name, values = column.key, _vocabulary(column)
            self.vocabularies[name] = values
            size = len(values) + (3 if settings.nvtabular() == "latest" else 1)  # the codes before the first value
        elif kind == "HashedCategoricalColumn":
            name, size = column.key, column.hash_bucket_size
            self.hashes[name] = size
        elif kind == "CrossedColumn":
            names, size = tuple(self._crossed(key) for key in column.keys), column.hash_bucket_size
            self.crosses.append((names, size))
            name = "_X_".join(names)
        elif kind == "IdentityCategoricalColumn":
            name, size = column.key, column.number_buckets
            self.plain.append(name)
        else:
            raise ParameterError(f"feature column {column.name!r} is a {kind}, which no operator stands for")
        self.ids.append((name, size, dimension))

    def _buckets(self, column: Any) -> str:
        name = column.source_column.key
        self.boundaries[name] = list(column.boundaries)
        return f"{name}{BUCKETIZED}"

    def _crossed(self, key: Any) -> str:
        if isinstance(key, str):
            return key
        return self._buckets(key) if type(key).__name__ == "BucketizedColumn" else str(key.key)

    def nodes(self) -> list[Node]:
        """The branches of the workflow; the feature columns are settled meanwhile."""
        found: list[Node] = []
        bucketized: Node | None = None
        if self.boundaries:
            bucketized = list(self.boundaries) >> ops.Bucketize(self.boundaries) >> ops.Rename(postfix=BUCKETIZED)
        for names, size in self.crosses:
            found.append(_cross(bucketized, names) >> ops.HashedCross(size))
        if self.hashes:
            found.append(list(self.hashes) >> ops.HashBucket(self.hashes))
        if self.vocabularies:
            found.append(
                list(self.vocabularies) >> ops.Categorify(vocabs=self.vocabularies, out_path=self.category_dir)
            )
        if bucketized is not None and (wanted := [n for n, _, _ in self.ids if n.endswith(BUCKETIZED)]):
            found.append(self._named(bucketized, wanted))
        if alone := [*(column.key for column in self.numbers), *self.plain]:
            found.append(as_node(list(dict.fromkeys(alone))))
        self.ids = [_identity(*described) for described in self.ids]
        return found

    def _named(self, bucketized: Node, wanted: list[str]) -> Node:
        """Buckets under the number's own name, where the number itself is not a feature."""
        own = {n: n.removesuffix(BUCKETIZED) for n in wanted if n.removesuffix(BUCKETIZED) not in self._numeric}
        self.ids = [(own.get(name, name), size, dimension) for name, size, dimension in self.ids]
        return bucketized[wanted] >> ops.Rename(names=own) if own else bucketized[wanted]


def _cross(bucketized: Node | None, names: tuple[str, ...]) -> Node:
    """The columns of a cross as one group."""
    made = [name for name in names if name.endswith(BUCKETIZED)]
    if bucketized is None or not made:
        return as_node([list(names)])
    raw = [name for name in names if name not in made]
    both = bucketized[made] + raw if raw else bucketized[made]
    return both[[names]]


def _vocabulary(column: Any) -> list[Any]:
    if hasattr(column, "vocabulary_list"):
        return list(column.vocabulary_list)
    return Path(column.vocabulary_file).read_text().split("\n")[: column.vocabulary_size]


def _identity(name: str, size: int, dimension: int | None) -> Any:
    columns = require("tensorflow", "keras").feature_column
    ids = columns.categorical_column_with_identity(name, size)
    return columns.indicator_column(ids) if dimension is None else columns.embedding_column(ids, dimension)
