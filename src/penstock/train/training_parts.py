"""The parts of a training that a checkpoint holds, taken and put back: weights, optimizers, counters, position."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from penstock.core.errors import ArtefactError, ParameterError, PenstockError

if TYPE_CHECKING:
    from penstock.train.context import TrainContext
    from penstock.train.executors.captured import CapturedExecutor

    Training: TypeAlias = TrainContext | CapturedExecutor


class Resumable(Protocol):
    """A loader that knows its position, as those of `penstock.loader` do."""

    def state_dict(self) -> dict[str, Any]:
        """Where it stands, as plain data."""

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Go on from there."""


def modules(ctx: Training) -> dict[str, Any]:
    """The weights of the model, and of embedding tables that are beside it."""
    tables = {} if ctx.tables is None else {"tables": dict(ctx.tables.state_dict())}
    return {"model": dict(ctx.module.state_dict()), **tables}


def restore_modules(ctx: Training, state: Mapping[str, Any], place: Path) -> None:
    """Put weights back; those of another model are refused."""
    for name, module in {"model": ctx.module, "tables": ctx.tables}.items():
        if module is None:
            continue
        try:
            module.load_state_dict(state[name])
        except (RuntimeError, KeyError) as error:
            raise ArtefactError(f"{place} holds the weights of another {name}: {error}") from error


def stepping(ctx: Training) -> dict[str, Any]:
    """The states of what makes a step; None of what the training has not."""
    return {name: None if part is None else part.state_dict() for name, part in _steppers(ctx).items()}


def restore_stepping(ctx: Training, state: Mapping[str, Any], place: Path) -> None:
    """Put the states of what makes a step back; a training with other such parts is refused."""
    for name, part in _steppers(ctx).items():
        if (part is None) != (state[name] is None):
            had, has = ("with", "none") if part is None else ("without", "one")
            raise ArtefactError(f"{place} was saved {had} a {name}, and this training has {has}")
        if part is None:
            continue
        try:
            part.load_state_dict(state[name])
        except (ValueError, KeyError, RuntimeError) as error:
            raise ArtefactError(f"{place} holds the state of another {name}: {error}") from error


def _steppers(ctx: Training) -> dict[str, Any]:
    return {"optimizer": ctx.dense_optimizer, "scaler": ctx.grad_scaler, "scheduler": ctx.scheduler}


def counters(ctx: Training) -> dict[str, Any]:
    """What the training has counted so far."""
    return {"rows": ctx.rows, "skipped_steps": ctx.skipped_steps, "dropped_gradients": ctx.dropped_gradients,
            "steps": ctx.steps}  # fmt: skip


def restore_counters(ctx: Training, saved: Mapping[str, Any]) -> None:
    """Go on counting from there."""
    ctx.steps, ctx.rows, ctx.skipped_steps = saved["steps"], saved["rows"], saved["skipped_steps"]
    ctx.dropped_gradients = dict(saved["dropped_gradients"])


def position(ctx: Training, loader: Any) -> Any:
    """Where the training stands in its data: what it noted itself, or where the loader says it is."""
    if ctx.position is not None or loader is None:
        return ctx.position
    if not hasattr(loader, "state_dict"):
        raise ParameterError(
            f"checkpoints need a loader that knows its position (state_dict, load_state_dict), as those of "
            f"penstock.loader do; {type(loader).__name__} does not"
        )
    return loader.state_dict()


def restore_position(loader: Resumable | None, position: Mapping[str, Any] | None, place: Path) -> None:
    """Put the loader where it was. What its settings do not allow it says in its own words."""
    if loader is None or position is None:
        return
    try:
        state = dict(position)
        if "rank" in state:  # rank 0 saved for all: they stand at the same batch
            state["rank"] = getattr(loader, "rank", state["rank"])
        loader.load_state_dict(state)
    except PenstockError:
        raise
    except Exception as error:
        raise ArtefactError(f"{place} holds no position of a loader: {type(error).__name__}: {error}") from error
