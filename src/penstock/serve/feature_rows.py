"""Rows of features on their way to a model on a GPU: batches come from the loader, as they do in training.

Pages travel as they are and are decoded there; nothing but scores and labels comes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from penstock.core.schema import Role, Schema
from penstock.data import Dataset
from penstock.loader.torch import Loader
from penstock.serve.predictor import Predictor
from penstock.serve.recorded_scores import RecordedScores

_BATCHES_A_CHUNK = 2  # pinned memory is slow to be had, and what is read once needs little of it
_IDS = ("int8", "int16", "int32", "int64", "uint8", "uint16")


class LabelledScores(NamedTuple):
    """Probabilities of some rows and their labels, where they were wanted."""

    scores: Tensor
    labels: Tensor | None


def go_to_device(predictor: Predictor, data: Dataset) -> bool:
    """Whether the model is on a GPU and reads all its columns side by side, as a loader delivers them."""
    return predictor.device.type == "cuda" and are_packed(predictor, data)


def are_packed(predictor: Predictor, data: Dataset) -> bool:
    """Whether ids are for tables, and all columns as a loader packs them without another look at their values."""
    ids, numbers = predictor.model.categorical, predictor.model.continuous
    dtypes = {column.name: column.dtype for column in data.schema if not column.is_list}
    of_ids, of_numbers = ([dtypes.get(name) for name in names] for names in (ids, numbers))
    are_plain = all(dtype in _IDS for dtype in of_ids) and all(dtype == "float32" for dtype in of_numbers)
    return bool(ids) and predictor.takes_matrix and are_plain


def scored_rows(predictor: Predictor, data: Dataset, label: str | None = None) -> Iterator[LabelledScores]:
    """Score all rows in their order; `predictor.unknown` knows of them at the end.

    Args:
        predictor: with the model.
        data: features.
        label: a column that is wanted beside the scores.
    """
    loader = _loader(predictor, data, label)
    outside = torch.zeros(len(predictor.model.categorical), dtype=torch.int64, device=predictor.device)
    bounds = torch.from_numpy(predictor.unknown.bounds()).to(predictor.device)

    def score(ids: Tensor, continuous: Tensor) -> Tensor:
        outside.add_(_outside(ids, bounds))
        return predictor.score_packed(ids, continuous)

    quick = RecordedScores(score, predictor.columns.batch_size, predictor.device) if _is_known(predictor) else score
    for ids, continuous, labels in loader:
        yield LabelledScores(quick(ids, continuous), labels)
    predictor.unknown.counts += outside.cpu().numpy()


def _is_known(predictor: Predictor) -> bool:
    """Whether the model is Penstock's, which asks nothing of the host; layers of somebody's own may."""
    return type(predictor.model).__module__.startswith("penstock.")


def _loader(predictor: Predictor, data: Dataset, label: str | None) -> Loader:
    model = predictor.model
    # What the columns promise is not asked of them: an id outside its table is one that training has not seen.
    plain = Schema(data.schema[name].with_(cardinality=None) for name in data.schema.names)
    narrow = all(data.schema[name].dtype != "int64" for name in model.categorical)
    dtypes: dict[str, Any] = {Role.CATEGORICAL: "int32" if narrow else "int64"}
    if label is not None:
        dtypes[label] = data.schema[label].dtype
    return Loader(
        Dataset.from_partitions(data.partitions, plain), predictor.columns.batch_size, categorical=model.categorical,
        continuous=model.continuous, labels=None if label is None else [label], layout="packed", dtypes=dtypes,
        rank=0, world=1, device=predictor.device, chunk_rows=_BATCHES_A_CHUNK * predictor.columns.batch_size,
    )  # fmt: skip


def _outside(ids: Tensor, bounds: Tensor) -> Tensor:
    """How many ids of each column training has not seen (see `UnknownCategories.bounds`)."""
    low, high, size = bounds.unbind(1)
    unknown = ((ids >= low) & (ids < high)) | (ids < 0) | (ids >= size)
    return unknown.sum(0)
