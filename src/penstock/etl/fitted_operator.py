"""The contract of operators that learn from the data first.

They learn by a mergeable reduction: `partial(frame) → state`, `merge(state, state) → state`, `finish(state)`. One
partition or many, in any order, on any engine, give the same state; that is what lets one pass fit every operator
whose inputs are ready, and lets a fitted workflow be updated with more data.
"""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from penstock.core.artefact import SavedFolder
from penstock.core.errors import NotFittedError
from penstock.etl.operator import Columns, Operator


class FittedOperator(Operator):
    """An operator that learns from the data first. `state_` is what it learned, in mergeable form.

    >>> from penstock import Workflow
    >>> class ShareOfLargest(FittedOperator):
    ...     def partial(self, frame, columns):
    ...         return {name: frame[name].max() for name in columns.names}
    ...
    ...     def merge(self, one, other):
    ...         return {name: max(one[name], other[name]) for name in one}
    ...
    ...     def transform(self, frame, columns):
    ...         return frame.select(pl.col(name) / self.state_[name] for name in columns.names)
    >>> frame = pl.DataFrame({"price": [1.0, 4.0]})
    >>> Workflow(["price"] >> ShareOfLargest()).fit_transform(frame)["price"].to_list()
    [0.25, 1.0]
    """

    state_: Any = None
    learns_by_column: ClassVar[bool] = False  # whether `state_` is a mapping that has every column of its own

    def partial(self, frame: pl.DataFrame, columns: Columns) -> Any:
        """The state of these rows alone.

        Args:
            frame: rows of one partition.
            columns: those that the operator works on.

        Returns:
            A state that `merge` can join with others.

        Raises:
            TypeError: a subclass does not define it.
        """
        raise TypeError(f"{type(self).__name__} does not define partial")

    def accumulate(self, state: Any, frame: pl.DataFrame, columns: Columns) -> Any:
        """`state` with these rows added; override where adding in place is cheaper than merging.

        Args:
            state: what was learned of the rows before, or None.
            frame: more rows.
            columns: those that the operator works on.

        Returns:
            The state of all of them.
        """
        part = self.partial(frame, columns)
        return part if state is None else self.merge(state, part)

    def merge(self, left: Any, right: Any) -> Any:
        """Both states as one; must not depend on the order. May reuse `left`.

        Args:
            left: a state.
            right: another.

        Returns:
            The state of the rows of both.

        Raises:
            TypeError: a subclass does not define it.
        """
        raise TypeError(f"{type(self).__name__} does not define merge")

    def merge_all(self, states: list[Any]) -> Any:
        """All states as one: what the threads of a pass have learned. One after another, unless there is a better way.

        Args:
            states: one or more, which may be reused.

        Returns:
            The state of all rows.
        """
        return reduce(self.merge, states)

    def finish(self, state: Any, columns: Columns) -> None:
        """Store `state` as `state_` and derive what `transform` needs. Called again when more data has come.

        Args:
            state: of all rows.
            columns: those that the operator works on.
        """
        self.state_ = state

    def save_state(self, folder: Path) -> None:
        """Write `state_` as JSON and parquet files; the default suits plain data.

        Args:
            folder: an empty folder of its own.
        """
        (folder / "state.json").write_text(json.dumps(self.state_))

    def load_state(self, folder: SavedFolder, columns: Columns) -> None:
        """Put back what `save_state` wrote; `folder` holds what was saved and verified, and nothing else.

        Args:
            folder: what `save_state` wrote, verified.
            columns: those that the operator works on.

        Raises:
            ArtefactError: a file lacks what it should have.
        """
        self.finish(folder.json("state.json"), columns)

    def transform_training(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        """`transform` for the very rows that were fitted on, where that differs (out-of-fold statistics).

        Args:
            frame: the rows, with their numbers.
            columns: those that the operator works on.

        Returns:
            The output columns.
        """
        return self.transform(frame, columns)

    def clear(self) -> None:
        """Forget what was learned."""
        for name in [n for n in self.__dict__ if n.endswith("_") and not n.startswith("_")]:
            delattr(self, name)

    @property
    def is_fitted(self) -> bool:
        return self.state_ is not None

    def check_fitted(self) -> None:
        """Refuse to go on before the operator has learned.

        Raises:
            NotFittedError: it has not.
        """
        if not self.is_fitted:
            raise NotFittedError(f"{self!r} is not fitted; call workflow.fit(data) first")
