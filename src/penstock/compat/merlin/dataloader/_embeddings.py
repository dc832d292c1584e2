"""Vectors that are looked up for the ids of a batch: from an array, or a `.npy` or parquet file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from penstock.compat.merlin.dag.base_operator import BaseOperator
from penstock.compat.merlin.schema import Schema
from penstock.compat.merlin.schema.columns import ColumnSchema
from penstock.compat.merlin.schema.tags import Tags
from penstock.core.array_files import load_array
from penstock.core.bounded import read_frame
from penstock.core.errors import DataError, ParameterError
from penstock.core.params import STR, Real, check

# Tags of ids that their vectors have too: whose they are, and that there are several.
_KEPT_TAGS = (Tags.LIST, Tags.SEQUENCE, Tags.USER, Tags.ITEM, Tags.CONTEXT, Tags.SESSION)


class EmbeddingOperator(BaseOperator):
    """Adds the vectors of `lookup_key`'s ids to each batch as `embedding_name`.

    Args:
        embeddings: a 2-D array, or the path of a `.npy` file or of a parquet file (a column of lists, or a column for
            each dimension; with `id_lookup_table` naming a column, that column holds the ids).
        lookup_key: the column of ids; ids of lists give a vector for each item.
        embedding_name: the name of the vectors.
        id_lookup_table: the id of each row of `embeddings` (an array, a `.npy` path, or a parquet column's name);
            without it, ids are row numbers.
        mmap: leave the rows of a `.npy` file on disk until they are asked for.
        unknown_value: what all elements of the vector of an id are that the `id_lookup_table` does not hold.

    >>> op = EmbeddingOperator(np.array([[0.0, 1.0], [2.0, 3.0]]), "item", id_lookup_table=np.array([70, 50]))
    >>> op.lookup(np.array([50, 70, 10])).tolist()
    [[2.0, 3.0], [0.0, 1.0], [0.0, 0.0]]
    """

    def __init__(
        self,
        embeddings: Any,
        lookup_key: str = "id",
        embedding_name: str = "embeddings",
        id_lookup_table: Any = None,
        mmap: bool = False,
        unknown_value: float = 0,
    ) -> None:
        check("lookup_key", lookup_key, STR)
        check("unknown_value", unknown_value, Real())
        self.unknown_value = unknown_value
        check("embedding_name", embedding_name, STR)
        self.lookup_key, self.embedding_name = lookup_key, embedding_name
        self.embeddings, ids = _table(embeddings, id_lookup_table, mmap)
        if self.embeddings.ndim != 2:
            raise ParameterError(f"embeddings must have two axes, got shape {self.embeddings.shape}")
        self.id_lookup_table = ids
        self._sorted: tuple[np.ndarray, np.ndarray] | None = None
        if ids is not None:
            if len(ids) != len(self.embeddings):
                raise ParameterError(f"id_lookup_table has {len(ids)} ids for {len(self.embeddings)} embeddings")
            order = np.argsort(ids, kind="stable")
            self._sorted = ids[order], order

    def lookup(self, ids: np.ndarray) -> np.ndarray:
        """The vectors of ids, of any shape."""
        places = np.asarray(ids)
        if self._sorted is not None:
            known, order = self._sorted
            at = np.minimum(np.searchsorted(known, places), len(known) - 1)
            found = np.ascontiguousarray(self.embeddings[order[at]])
            found[known[at] != places] = self.unknown_value
            return found
        if places.size and (places.min() < 0 or places.max() >= len(self.embeddings)):
            raise DataError(
                f"column {self.lookup_key!r} holds id {places.max() if places.min() >= 0 else places.min()}, and there "
                f"are embeddings for 0 to {len(self.embeddings) - 1}"
            )
        return np.ascontiguousarray(self.embeddings[places])

    def on_batch(self, features: dict[str, Any], get: Callable[[Any], np.ndarray], put: Callable[[Any], Any]) -> None:
        """Add the vectors to a batch; `get` and `put` go from the framework's arrays to NumPy's and back."""
        values = f"{self.lookup_key}__values"
        if values in features:
            features[f"{self.embedding_name}__values"] = put(self.lookup(get(features[values])))
            features[f"{self.embedding_name}__offsets"] = features[f"{self.lookup_key}__offsets"]
            return
        if self.lookup_key not in features:
            raise ParameterError(f"lookup_key {self.lookup_key!r} is no column of the batch ({', '.join(features)})")
        features[self.embedding_name] = put(self.lookup(get(features[self.lookup_key])))

    def compute_output_schema(self, input_schema: Schema, col_selector: Any, prev_output_schema: Any = None) -> Schema:
        """The inputs, and the vectors beside them."""
        ids = input_schema[self.lookup_key]
        dims = (*(ids.shape.dims or (None,)), self.embeddings.shape[1])
        tags = [Tags.EMBEDDING, *(tag for tag in _KEPT_TAGS if tag in ids.tags)]
        made = ColumnSchema(self.embedding_name, tags, dtype=self.embeddings.dtype, dims=dims)
        return Schema([*input_schema, made])

    def transform(self, col_selector: Any, df: Any) -> Any:
        out = df.copy(deep=False)
        out[self.embedding_name] = list(self.lookup(df[self.lookup_key].to_numpy()))
        return out


class NumpyEmbeddingOperator(EmbeddingOperator):
    """The same under an earlier name.

    >>> NumpyEmbeddingOperator(np.eye(2), "item").lookup(np.array([1])).tolist()
    [[0.0, 1.0]]
    """


class MmapNumpyTorchEmbedding(EmbeddingOperator):
    """Vectors that stay in a `.npy` file.

    >>> MmapNumpyTorchEmbedding("missing.npy")
    Traceback (most recent call last):
    ...
    penstock.core.errors.DataError: missing.npy does not exist...
    """

    def __init__(
        self,
        embedding_npz: Any,
        ids_lookup_npz: Any = None,
        lookup_key: str = "id",
        embedding_name: str = "embeddings",
        transform_function: Any = None,
    ) -> None:
        super().__init__(embedding_npz, lookup_key, embedding_name, ids_lookup_npz, mmap=True)


def _table(embeddings: Any, ids: Any, mmap: bool) -> tuple[np.ndarray, np.ndarray | None]:
    if isinstance(embeddings, (str, Path)):
        path = Path(embeddings)
        if not path.exists():
            raise DataError(f"{path} does not exist; give an array, a .npy file or a parquet file")
        if path.suffix == ".parquet":
            return _from_parquet(path, ids)
        embeddings = load_array(path, mmap)
    if isinstance(ids, (str, Path)):
        ids = load_array(ids)
    table = embeddings.detach().cpu().numpy() if hasattr(embeddings, "detach") else np.asanyarray(embeddings)
    return table, None if ids is None else np.asarray(ids).reshape(-1)


def _from_parquet(path: Path, ids: Any) -> tuple[np.ndarray, np.ndarray | None]:
    frame = read_frame(path)
    keys = None if ids is None else np.asarray(ids)
    if isinstance(ids, str):
        if ids not in frame.columns:
            raise DataError(f"{path} has no column {ids!r} of ids; columns: {', '.join(frame.columns)}")
        keys = frame[ids].to_numpy()
        frame = frame.drop(ids)
    lists = [s for s in frame if isinstance(s.dtype, (pl.List, pl.Array))]
    if lists:
        rows = lists[0].to_list()
        if None in rows or len({len(row) for row in rows}) > 1:
            raise DataError(f"{path}: the lists of column {lists[0].name!r} must all be of one length")
        return np.vstack(rows), keys
    return np.ascontiguousarray(frame.to_numpy()), keys
