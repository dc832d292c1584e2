"""`nvtabular.framework_utils.tensorflow`: feature columns and layers."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.compat import settings
from penstock.compat.merlin.dag import OFFSETS, VALUES
from penstock.compat.merlin.dag.node import Node, as_node
from penstock.compat.nvtabular.workflow import Workflow
from penstock.core.errors import ParameterError
from penstock.core.extras import require
from penstock.core.params import Int, check
from penstock.loader.keras_import import import_keras
from penstock.nn.keras import layers as native

# TensorFlow's feature columns as a workflow that prepares the same features before training.

operators: Any = importlib.import_module("penstock.compat.nvtabular.ops")
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
            bucketized = (
                list(self.boundaries) >> operators.Bucketize(self.boundaries) >> operators.Rename(postfix=BUCKETIZED)
            )
        for names, size in self.crosses:
            found.append(_cross(bucketized, names) >> operators.HashedCross(size))
        if self.hashes:
            found.append(list(self.hashes) >> operators.HashBucket(self.hashes))
        if self.vocabularies:
            found.append(
                list(self.vocabularies) >> operators.Categorify(vocabs=self.vocabularies, out_path=self.category_dir)
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
        return bucketized[wanted] >> operators.Rename(names=own) if own else bucketized[wanted]


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


# Keras layers of NVTabular that Penstock has no use for itself.

keras = import_keras()
ops = keras.ops


def _lists(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs with `x__values` and `x__offsets` as one pair of values and row lengths."""
    found: dict[str, Any] = {}
    for name, value in inputs.items():
        if name.endswith(VALUES) and (offsets := inputs.get(name.removesuffix(VALUES) + OFFSETS)) is not None:
            offsets = ops.reshape(offsets, (-1,))
            found[name.removesuffix(VALUES)] = (ops.reshape(value, (-1,)), offsets[1:] - offsets[:-1])
        elif not name.endswith(OFFSETS):
            found[name] = value
    return found


class _OldInputs:
    """Mixin: lists may come as `x__values` and `x__offsets`; `embedding_tables` holds the tables by column."""

    tables: dict[str, Any]

    @property
    def embedding_tables(self) -> dict[str, Any]:
        return self.tables

    def __call__(self, inputs: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(value, (tuple, list)) for value in inputs.values()):
            settings.saw_list_pairs(type(self).__name__)  # before the first batch, while the model is built
        return super().__call__(inputs, *args, **kwargs)  # type: ignore[misc]

    def call(self, inputs: Mapping[str, Any]) -> Any:
        return super().call(_lists(inputs))  # type: ignore[misc]


@keras.saving.register_keras_serializable(package="penstock.compat")
class DenseFeatures(_OldInputs, native.DenseFeatures):
    """Columns as one dense tensor; `embedding_tables` holds the tables by column.

    >>> from penstock.nn.keras import FeatureColumn
    >>> layer = DenseFeatures([FeatureColumn("user", "embedding", 10, 4)])
    >>> layer({"user": ops.convert_to_tensor([[3], [7]])}).shape, list(layer.embedding_tables)
    (TensorShape([2, 4]), ['user'])
    """


@keras.saving.register_keras_serializable(package="penstock.compat")
class LinearFeatures(_OldInputs, native.LinearFeatures):
    """A linear model over columns; `embedding_tables` holds the weights of ids by column."""

    def __init__(self, feature_columns: Any, *args: Any, **kwargs: Any) -> None:
        for column in feature_columns:
            if type(column).__name__ in ("EmbeddingColumn", "IndicatorColumn"):
                raise ParameterError(
                    f"LinearFeatures takes numeric columns and categorical columns as they are, got {column.name!r}, "
                    f"which is dense already"
                )
        super().__init__(feature_columns, *args, **kwargs)

    @property
    def embedding_tables(self) -> dict[str, Any]:
        """The weights by column, and those of all numbers under each other as `numeric`."""
        numbers = [self.tables[c.name] for c in self.columns if not c.has_ids and c.name in self.tables]
        if not numbers:
            return self.tables
        return {**self.tables, "numeric": ops.concatenate([ops.convert_to_tensor(table) for table in numbers], axis=0)}


@keras.saving.register_keras_serializable(package="penstock.compat")
class DotProductInteraction(native.DotProductInteraction):
    """Dot products of every pair of a row's vectors, row by row of the upper triangle, as NVTabular gave them.

    The learned matrices are `(d, d)` for `"field_all"`, `(n, d, d)` for `"field_each"` and `(n, n, d, d)` for
    `"field_interaction"`.

    >>> DotProductInteraction()(ops.convert_to_tensor([[[1.0], [2.0], [3.0], [5.0]]])).numpy().tolist()
    [[2.0, 3.0, 5.0, 6.0, 10.0, 15.0]]
    """

    def build(self, input_shape: Any) -> None:
        _, count, width = input_shape
        leading = {"field_all": (), "field_each": (count,), "field_interaction": (count, count)}
        if self.interaction_type is not None:
            self.kernel = self.add_weight(
                name="bilinear_interaction_kernel",
                shape=(*leading[self.interaction_type], width, width),
                initializer="glorot_normal",
            )
        self.built = True

    def _pairs(self, count: int) -> tuple[list[int], list[int]]:
        pairs = [(i, j) for i in range(count) for j in range(i + (not self.self_interaction), count)]
        return [i for i, _ in pairs], [j for _, j in pairs]

    def call(self, inputs: Any) -> Any:
        count = inputs.shape[1]
        first, second = self._pairs(count)
        if self.interaction_type == "field_interaction":
            products = ops.einsum("bnk,fnjk,bfj->bfn", inputs, self.kernel, inputs)
        else:
            kinds = {"field_all": "bnk,kj->bnj", "field_each": "bnk,njk->bnj"}
            kind = kinds.get(self.interaction_type or "")
            left = inputs if kind is None else ops.einsum(kind, inputs, self.kernel)
            products = ops.matmul(left, ops.transpose(inputs, (0, 2, 1)))
        flat = ops.reshape(products, (-1, count * count))
        return ops.take(flat, [i * count + j for i, j in zip(first, second, strict=True)], axis=1)


@keras.saving.register_keras_serializable(package="penstock.compat")
class SparseEmbeddingLookup(keras.layers.Layer):  # type: ignore[name-defined]
    """The sum of the vectors of each row's ids, which come as a sparse or ragged tensor.

    >>> import tensorflow as tf
    >>> SparseEmbeddingLookup(10, 4)(tf.ragged.constant([[1, 2], [3]])).shape
    TensorShape([2, 4])
    """

    def __init__(self, vocab_size: int, dimension: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check("vocab_size", vocab_size, Int(min=1))
        check("dimension", dimension, Int(min=1))
        self.vocab_size, self.dimension = vocab_size, dimension

    def build(self, input_shape: Any = None) -> None:
        self.embedding_table = self.add_weight(
            name="embedding_weights", shape=(self.vocab_size, self.dimension), initializer="glorot_normal"
        )
        self.built = True

    def call(self, x: Any) -> Any:
        import tensorflow as tf

        ids = x.to_sparse() if isinstance(x, tf.RaggedTensor) else x
        return tf.nn.embedding_lookup_sparse(tf.convert_to_tensor(self.embedding_table), ids, None, combiner="sum")

    def compute_output_shape(self, input_shape: Any) -> tuple:
        return (input_shape[0], self.dimension)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "vocab_size": self.vocab_size, "dimension": self.dimension}


@keras.saving.register_keras_serializable(package="penstock.compat")
class XDeepFmOuterProduct(keras.layers.Layer):  # type: ignore[name-defined]
    """Products of every vector of one input with every one of another, dimension by dimension, mixed to `dim` vectors.

    Inputs are `[(rows, h, d), (rows, m, d)]`, the output is `(rows, dim, d)`.

    >>> XDeepFmOuterProduct(3)([ops.ones((2, 4, 5)), ops.ones((2, 6, 5))]).shape
    TensorShape([2, 3, 5])
    """

    def __init__(self, dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check("dim", dim, Int(min=1))
        self.dim = dim

    def build(self, input_shape: Any) -> None:
        (_, left, _), (_, right, _) = input_shape
        self.kernel = self.add_weight(name="kernel", shape=(self.dim, left, right), initializer="glorot_uniform")
        self.built = True

    def call(self, inputs: Any) -> Any:
        left, right = inputs
        return ops.einsum("bhd,bmd,khm->bkd", left, right, self.kernel)

    def compute_output_shape(self, input_shape: Any) -> tuple:
        return (input_shape[0][0], self.dim, input_shape[0][2])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "dim": self.dim}
