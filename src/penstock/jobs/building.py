"""The parts of a training run, built from its settings: model, optimizer, device."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from penstock.core.errors import ParameterError, suggest
from penstock.core.schema import Role, Schema
from penstock.etl import Workflow
from penstock.etl.references import resolve_reference
from penstock.jobs.dense_optimizers import DENSE_OPTIMIZERS
from penstock.jobs.embeddings import check_embeddings
from penstock.jobs.setting_sections import check_one_of, rate
from penstock.jobs.settings import TrainSettings
from penstock.metrics import Meter, Metric
from penstock.metrics.registry import METRICS
from penstock.nn import Model
from penstock.nn.base import constructor_names
from penstock.nn.registry import MODELS
from penstock.nn.torch_optimizers import may_fuse, without_compiler
from penstock.serve.devices import default_device, named_device
from penstock.serve.model import serving_workflow
from penstock.train.evaluation import EVALUATED
from penstock.train.selection import DEFAULT, LAST


def build_model(settings: TrainSettings, schema: Schema) -> Model:
    """The model over a schema, with weights drawn from the seed."""
    arguments = dict(settings.model)
    name = arguments.pop("name")
    model = model_class(name)
    known = [n for n in constructor_names(model) if n != "embedding_dim"]
    for key in arguments:
        if key == "embedding_dim":
            raise ParameterError("embedding_dim is a key of its own, not one of model")
        if key not in known:
            raise ParameterError(f"{name} has no argument {key!r}{suggest(str(key), known, 'arguments')}")
    torch.manual_seed(settings.seed)
    return model(schema, settings.dims(schema.select(roles=Role.CATEGORICAL).names), **arguments)


def model_class(name: str) -> type[Model]:
    """The model of that name: one of `penstock.nn.MODELS`, or a class of one's own as `package.module:Class`.

    Args:
        name: as settings and the command line give it. An artefact never names a class to import: what it was made by
            must be registered before it is loaded.

    Returns:
        The class; one of one's own is registered from now on, so that what is saved of it can be read.

    Raises:
        ParameterError: there is no such class, or it is no model.
    """
    if ":" not in name:
        return MODELS[name]
    with torch.device("cpu"):  # tensors that its module makes are real, though the model is laid out without weights
        found = resolve_reference(name, named_by="model.name")
    if not (isinstance(found, type) and issubclass(found, Model)):
        raise ParameterError(f"model.name is {name!r}, which is not a subclass of penstock.nn.Model")
    if MODELS.get(found.__name__, found) is not found:
        raise ParameterError(f"model.name is {name!r}, and there is another model called {found.__name__}; rename it")
    return MODELS.register(found)


def metric_classes(settings: TrainSettings) -> list[type[Metric]] | None:
    """The metrics of a run: of `penstock.metrics.METRICS`, or classes of one's own as `package.module:Class`.

    One by which evaluations are to be selected is always among them.

    Returns:
        The classes; None for those that `fit` has by itself.

    Raises:
        ParameterError: there is no such class, it is no metric, or it needs more than scores and labels.
    """
    by = settings.select_by or DEFAULT
    if settings.metrics is None and by in (*EVALUATED, LAST):
        return None
    names = [*(EVALUATED if settings.metrics is None else settings.metrics), *([] if by == LAST else [by])]
    found = list(dict.fromkeys(metric_class(name) for name in names))
    try:
        Meter("cpu", found)
    except ParameterError as error:
        raise ParameterError(f"metrics: {error}") from error
    return found


def selected_by(settings: TrainSettings) -> str:
    """What records call the metric by which evaluations are selected; "last" where none is."""
    by = settings.select_by or DEFAULT
    return metric_class(by, "select_by")().name if ":" in by else by


def metric_class(name: str, named_by: str = "metrics") -> type[Metric]:
    """The metric of that name: one of `penstock.metrics.METRICS`, or a class of one's own as `package.module:Class`.

    Args:
        name: as settings and the command line give it.
        named_by: the setting that names it.

    Returns:
        The class.

    Raises:
        ParameterError: there is no such class, or it is no metric.
    """
    if ":" not in name:
        check_one_of(named_by, name, tuple(METRICS))
        return METRICS[name]
    found: Any = resolve_reference(name, named_by=named_by)
    try:
        is_metric = isinstance(found, type) and isinstance(found(), Metric)
    except TypeError as error:
        raise ParameterError(f"{named_by}: {name} cannot be made without arguments: {error}") from error
    if not is_metric:
        raise ParameterError(f"{named_by} names {name!r}, which has not all that penstock.metrics.Metric asks for")
    made: type[Metric] = found
    return made


def build_dense_optimizer(
    settings: TrainSettings, model: nn.Module, for_graph: bool = False
) -> tuple[torch.optim.Optimizer | None, Any]:
    """The model's optimizer, and the scheduler of its rate where the settings name one.

    `for_graph` makes it one that steps on a GPU without the host, where torch has such.
    """
    arguments = dict(settings.dense_optimizer)
    name = arguments.pop("name")
    assert name in DENSE_OPTIMIZERS
    build: Any = getattr(torch.optim, name)
    known = [n for n in inspect.signature(build).parameters if n != "params"]
    for key in arguments:
        if key not in known:
            raise ParameterError(
                f"unknown key {key!r} in dense_optimizer, a {name}{suggest(str(key), known, 'arguments')}"
            )
    schedule = rate(arguments.get("lr"), "dense_optimizer.lr")
    if callable(schedule):
        arguments["lr"] = 1.0  # LambdaLR multiplies
    if for_graph:
        arguments = {**_on_gpu(str(name), arguments), **arguments}
    elif DENSE_OPTIMIZERS[name].get("fused") and not _steps_otherwise(arguments):
        arguments = {"fused": may_fuse(build, model.parameters()) or None, **arguments}
    if not arguments.get("differentiable"):
        build = without_compiler(build)
    try:
        optimizer = build(model.parameters(), **arguments)
    except (ValueError, TypeError) as error:
        raise ParameterError(f"dense_optimizer: {error}") from error
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, schedule) if callable(schedule) else None


def _on_gpu(name: str, given: Mapping[str, Any]) -> dict[str, bool]:
    """What makes an optimizer part of a CUDA graph, and lets it skip a step by itself."""
    own = dict(DENSE_OPTIMIZERS[name])
    if _steps_otherwise(given):
        own.pop("fused", None)
    return own


def _steps_otherwise(given: Mapping[str, Any]) -> bool:
    """Whether a way to step was asked for that goes without one kernel for all."""
    return bool(given.get("foreach") or given.get("differentiable"))


def training_device(settings: TrainSettings) -> torch.device:
    """Where the model runs: the GPU where there is one, unless the settings say."""
    return default_device() if settings.device is None else named_device(settings.device)


def check(settings: TrainSettings, schema: Schema, workflow: Workflow | None, is_fitted: bool = True) -> None:
    """Refuse what cannot be trained or served, before the work: everything is laid out, without a weight."""
    with torch.device("meta"):
        model = build_model(settings, schema)
        build_dense_optimizer(settings, model)
    metric_classes(settings)
    check_embeddings(settings, schema, is_fitted)
    if workflow is not None:
        serving_workflow(workflow, model)
