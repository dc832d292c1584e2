"""Predictions on raw rows: workflow, embeddings and model behind one call."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl
import torch
from torch import Tensor

from penstock.core import artefact
from penstock.core.batch import Ragged
from penstock.core.errors import ArtefactError, DataError
from penstock.core.keys import KeyLike
from penstock.core.params import NONE, Int, Real, check_all
from penstock.data import Dataset
from penstock.data.places import places_of
from penstock.data.sources import Frame, Paths, are_paths
from penstock.embedding.feed_reader import FeedReader
from penstock.embedding.feed_targets import changing
from penstock.etl.input_section import open_input
from penstock.nn import Model
from penstock.serve.model import load_model, model_in
from penstock.serve.model_columns import ModelColumns
from penstock.serve.unknown import UnknownCategories

# Rows go through the layers a piece at a time: what a piece becomes on its way should stay in a core's cache, and in
# memory that the process keeps. Wide inputs are cut into fewer rows (four models, three widths: tens of per cent).
_NUMBERS, _FEWEST, _MOST = 1 << 19, 1 << 9, 1 << 12  # of a piece's input; rows of a piece


class ModelInput(NamedTuple):
    """One batch as a model takes it: ids by column, side by side where they are single ones for tables, and numbers.

    Where there is a matrix nobody looks at `ids`, and they may be left out.
    """

    ids: dict[str, Any]
    matrix: np.ndarray | None
    continuous: np.ndarray
    outside: np.ndarray  # ids that training has not seen, by column


class Predictor:
    """Probabilities for raw rows, from a directory that `penstock.serve.save_model` wrote.

    Look-ups never insert: an id that a store has not seen, or that lies outside its table (`FusedEmbeddings`), has an
    embedding of zeros; `unknown` counts such values by column. The same rows give the same bits; a row among others may
    differ in the last ones (by less than 1e-6): matrix products add in an order that depends on their shape.
    `fingerprint` names the saved model.

    Args:
        directory: what `save_model` wrote, or the folder of a training run.
        feed: a directory that a `FeedWriter` or `fit(…, feed=)` publishes to; its packets are applied by `refresh()`.
        poll_seconds: also look for packets before a prediction, when this long has passed since the last time.
        batch_size: rows that go through the model at once.
        device: where the model runs, and its embeddings where they are tables and no store.
        num_threads: of a store's look-ups.
        trust: modules that the workflow and the model may name (see `Workflow.load`).
        verify: the file of a key; a model or a packet of the feed that it has not signed is refused.

    >>> import tempfile
    >>> import penstock as ps
    >>> from penstock import ops
    >>> from penstock.embedding import SGD, Store
    >>> from penstock.nn import MLP
    >>> from penstock.serve import save_model
    >>> from penstock.embedding import slots_from_schema
    >>> rows = ps.Dataset({"user": ["ann", "bob"], "click": [0, 1]}).with_roles(label=["click"])
    >>> workflow = ps.Workflow((["user"] >> ops.Categorify()) + ["click"]).fit(rows)
    >>> model = MLP(workflow.output_schema, 4, hidden=())
    >>> place = tempfile.mkdtemp()
    >>> save_model(place, workflow, model, Store(slots_from_schema(workflow.output_schema, 4), SGD()))
    >>> Predictor(place).predict([{"user": "ann"}, {"user": "nobody"}]).shape
    (2,)
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        feed: str | Path | None = None,
        poll_seconds: float | None = None,
        batch_size: int = 8192,
        device: torch.device | str | int | None = None,
        num_threads: int | None = None,
        trust: Sequence[str] = (),
        verify: KeyLike | None = None,
    ) -> None:
        given = {"poll_seconds": poll_seconds, "batch_size": batch_size, "num_threads": num_threads}
        numbers = {"poll_seconds": NONE | Real(min=0), "batch_size": Int(1), "num_threads": NONE | Int(1)}
        check_all(given, numbers, "Predictor")
        self.directory = model_in(directory)
        saved = load_model(self.directory, num_threads, trust, verify)
        self.workflow = saved.workflow
        self.saved = saved
        self.device = torch.device(device if device is not None else "cpu")
        self.model: Model = saved.model.to(self.device)
        self.store, self.tables = saved.store, None if saved.tables is None else saved.tables.to(self.device)
        self._feed: FeedReader | None = None
        if feed is not None:
            own = self.tables if self.store is None else self.store
            self._feed = FeedReader(feed, own, verify=verify, take_dense=self._take_dense)
        self.fingerprint = artefact.checksum(self.directory / "model" / artefact.MANIFEST)[:16]
        sizes = getattr(self.tables, "known_ids", None)  # of tables whose other ids are zeros
        self.takes_matrix = sizes is not None  # they read all columns side by side
        self.columns = ModelColumns(self.model, self.workflow, batch_size)
        self.unknown = UnknownCategories(self.workflow, self.model, sizes)
        self._poll_seconds, self._polled = poll_seconds, -float("inf")

    # Predicting.

    def predict(self, rows: Dataset | Frame | Sequence[Mapping[str, Any]] | Paths) -> np.ndarray:
        """The probability of a click for each row, `(rows,)`: dicts, a frame (polars, pandas, Arrow), or a Dataset.

        Args:
            rows: raw rows, or paths of files of them, which are read as the rows trained on were.

        Returns:
            Probabilities of float32.

        Raises:
            DataError: it is a single row, or a list of something else.
        """
        if self._feed and self._poll_seconds is not None and time.monotonic() - self._polled >= self._poll_seconds:
            self.refresh()
        if isinstance(rows, Mapping):
            raise DataError("predict takes a list of rows, a frame or a Dataset; put a single row in a list: [row]")
        if are_paths(rows) and rows not in ([], ()):  # no rows are no paths either
            fitted = self.saved.fitted
            rows = open_input(rows, None if fitted is None else fitted.input, may_lack=True)
        if isinstance(rows, Sequence):
            odd = next((row for row in rows if not isinstance(row, Mapping)), None)
            if odd is not None:
                raise DataError(
                    f"predict takes rows as mappings of columns to values, and one of the list is {odd!r:.60}"
                )
        return self.score(self._model_input(columns) for columns in self.columns.of_rows(rows))

    def predict_row(self, row: Mapping[str, Any]) -> float:
        """The probability for one row.

        Args:
            row: values by raw column.

        Returns:
            The probability.
        """
        return float(self.predict([row])[0])

    def predict_features(self, features: pl.DataFrame) -> np.ndarray:
        """The probability for each row of a frame that the workflow has transformed already.

        Args:
            features: as the workflow gives them.

        Returns:
            Probabilities of float32.
        """
        return self.score(self.model_inputs(features))

    def model_inputs(self, features: pl.DataFrame) -> list[ModelInput]:
        """Features as the model takes them, batch by batch: what can be done in other threads than `score`.

        Args:
            features: as the workflow gives them.

        Returns:
            The batches.
        """
        quick = self._from_places(features)
        return quick or [self._model_input(columns) for columns in self.columns.of_features(features)]

    def score(self, batches: Iterable[ModelInput], run: Callable[..., Iterable[Tensor]] = map) -> np.ndarray:
        """The probabilities of what `model_inputs` gave.

        Args:
            batches: in their order.
            run: what calls a function for each of them and gives the results in their order, as `map` does.

        Returns:
            Probabilities of float32.
        """
        # A GPU works on a batch while the next one is handed to it: what it found is asked for at the end.
        parts = list(run(self._scores, batches))
        return torch.cat(parts).cpu().numpy() if parts else np.empty(0, np.float32)

    def score_packed(self, ids: Tensor, continuous: Tensor) -> Tensor:
        """The probabilities of rows that are on the device already, for embeddings in tables.

        Args:
            ids: of all columns side by side, `(B, columns)`.
            continuous: `(B, numbers)`.

        Returns:
            `(B,)`, on the device.
        """
        assert self.tables is not None
        with torch.inference_mode():
            with changing(self.tables):
                embeddings = self.tables(ids)
            return self._probabilities(continuous, embeddings)

    @property
    def follows_feed(self) -> bool:
        """Whether it was opened with a feed."""
        return self._feed is not None

    @property
    def packet(self) -> int:
        """The last packet of the feed that was applied; 0 before the first."""
        return 0 if self._feed is None else self._feed.applied

    @property
    def step(self) -> int | None:
        """The training step at which that packet was published, where it says so."""
        return None if self._feed is None else self._feed.step

    @property
    def feed_problem(self) -> str | None:
        """What was left out of the feed because it is damaged; None where all of it was applied."""
        return None if self._feed is None else self._feed.problem

    def refresh(self) -> int:
        """Apply the packets of the feed that have arrived; how many. Predictions go on meanwhile, in other threads.

        Returns:
            How many packets.

        Raises:
            DataError: the predictor follows no feed.
        """
        if self._feed is None:
            raise DataError("this predictor follows no feed; open it with Predictor(directory, feed=…)")
        self._polled = time.monotonic()
        return self._feed.poll()

    def _take_dense(self, weights: Mapping[str, Tensor], check: bool = False) -> None:
        """Predict with other weights from now on; batches under way end with those that they began with."""
        held = self.model.state_dict()
        shapes = {name: tensor.shape for name, tensor in weights.items()}
        if shapes != {name: tensor.shape for name, tensor in held.items()}:
            raise ArtefactError(f"these are not the weights of this {type(self.model).__name__}")
        if not check:
            fresh = copy.deepcopy(self.model)
            fresh.load_state_dict(weights)
            self.model = fresh.eval()

    # Columns to scores.

    def _model_input(self, columns: Mapping[str, Any]) -> ModelInput:
        ids = {name: columns[name] for name in self.model.categorical}
        continuous = np.empty((len(_first(columns)), len(self.model.continuous)), np.float32)
        for number, name in enumerate(self.model.continuous):
            continuous[:, number] = columns[name]
        matrix: np.ndarray | None = None
        if self.takes_matrix and ids and not any(isinstance(value, Ragged) for value in ids.values()):
            matrix = np.stack([np.asarray(value, self._id_dtype(value)) for value in ids.values()])
        return ModelInput(ids, matrix, continuous, self.unknown.outside(ids))

    def _from_places(self, features: pl.DataFrame) -> list[ModelInput] | None:
        """The same, a call a batch, where all columns for tables are plain int32 and all others plain float32."""
        ids, numbers = self.model.categorical, self.model.continuous
        found = features.schema
        plain = all(found.get(n) == pl.Int32 for n in ids) and all(found.get(n) == pl.Float32 for n in numbers)
        if not (self.takes_matrix and ids and plain and features.height):
            return None
        from penstock.kernels.cpu_model_input import fill_input

        places = places_of(features, (*ids, *numbers))
        if any(places.null_counts):
            return None
        addresses, bounds, batches = places.table[:, 0].copy(), self.unknown.bounds(), []
        for first in range(0, features.height, self.columns.batch_size):
            rows = min(self.columns.batch_size, features.height - first)
            matrix = np.empty((len(ids), rows), np.int32 if self.device.type == "cuda" else np.int64)
            continuous, outside = np.empty((rows, len(numbers)), np.float32), np.empty(len(ids), np.int64)
            lists = addresses[: len(ids)], addresses[len(ids) :]
            fill_input(*lists, first, bounds, matrix, continuous.view(np.int32), outside)
            batches.append(ModelInput({}, matrix, continuous, outside))
        return batches

    def _id_dtype(self, ids: np.ndarray) -> type:
        """Half as wide where ids travel to a GPU and allow it."""
        fits = np.can_cast(np.asarray(ids).dtype, np.int32)
        return np.int32 if fits and self.device.type == "cuda" else np.int64

    def _scores(self, batch: ModelInput) -> Tensor:
        with torch.inference_mode():
            embeddings = self._embeddings(batch)
            return self._probabilities(torch.from_numpy(batch.continuous).to(self.device), embeddings)

    def _probabilities(self, continuous: Tensor, embeddings: Any) -> Tensor:
        model = self.model
        rows = _rows_of_a_piece(continuous, embeddings) if self.device.type == "cpu" else None
        if rows is not None and len(continuous) > rows:
            pieces = zip(continuous.split(rows), embeddings.split(rows), strict=True)
            logits = torch.cat([model(*piece) for piece in pieces])
        else:
            logits = model(continuous, embeddings)
        return torch.sigmoid(logits).float()

    def _embeddings(self, batch: ModelInput) -> Any:
        if self.store is None:
            self.unknown.add(batch.outside, batch.ids, None)
            if self.tables is None:
                return {}
            with changing(self.tables):
                if batch.matrix is not None:
                    return self.tables(torch.from_numpy(batch.matrix).to(self.device).t())
                return self.tables({name: _tensors(value) for name, value in batch.ids.items()})
        found = self.store.lookup(batch.ids, train=False)
        self.unknown.add(batch.outside, batch.ids, found)
        if list(found) == self.model.categorical and not found.masks:  # as the model reads them: one tensor
            packed = torch.from_numpy(found.packed)
            return (packed.view(len(packed), len(found), -1) if self.model.is_one_dim else packed).to(self.device)
        return {name: tensor.to(self.device) for name, tensor in found.tensors().items()}

    def close(self) -> None:
        """Release the store's threads."""
        if self.store is not None:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _rows_of_a_piece(continuous: Tensor, embeddings: Any) -> int | None:
    """How many rows go through the layers together; None where they cannot be cut. A power of two."""
    if not isinstance(embeddings, Tensor) or not len(embeddings):
        return None
    fitting = _NUMBERS // (continuous.shape[1] + embeddings[0].numel())
    return min(_MOST, max(_FEWEST, 1 << fitting.bit_length() >> 1))


def _first(columns: Mapping[str, Any]) -> Any:
    value = next(iter(columns.values()))
    return value.offsets[1:] if isinstance(value, Ragged) else value


def _tensors(value: Any) -> Any:
    if isinstance(value, Ragged):
        return Ragged(*(torch.from_numpy(part.astype(np.int64)) for part in value))
    return torch.from_numpy(value.astype(np.int64))
