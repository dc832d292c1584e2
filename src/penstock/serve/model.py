"""A trained model as an artefact: workflow, embeddings and weights in one directory."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from penstock.core import artefact
from penstock.core.artefact import SavedFolder
from penstock.core.bounded import check_fields, read_json
from penstock.core.durable import settle
from penstock.core.errors import ArtefactError, OutputExistsError, ParameterError, SchemaError
from penstock.core.keys import KeyLike, verifying, vouching
from penstock.core.params import BOOL, NONE, STR, Instance
from penstock.core.schema import Role
from penstock.embedding.dims import plain_dim
from penstock.embedding.locks import write_lock
from penstock.embedding.protocol import Embeddings, is_on_host, is_served_by_store
from penstock.embedding.store import Store
from penstock.embedding.tensor_files import read_tensors, write_tensors
from penstock.etl import Workflow, trusting
from penstock.nn import Model, from_config
from penstock.serve.card import ModelCard

KIND, VERSION = "model", 1
_MAPPING = Instance(dict, "a mapping")
_FIELDS = {"model": _MAPPING, "store": NONE | _MAPPING, "tables": NONE | _MAPPING, "workflow": BOOL}
Weights = dict[str, Tensor]
_CARD = "card.json"  # older models have none


@dataclass
class SavedModel:
    """What a model directory holds."""

    workflow: Workflow | None  # without the labels
    model: Model
    labels: list[str]
    store: Store | None = None  # opened for serving
    tables: nn.Module | None = None  # in its place: embeddings on the model's device
    fitted: Workflow | None = None  # the workflow with its labels: for evaluation
    card: ModelCard = field(default_factory=ModelCard)  # what is known of it besides


def save_model(
    directory: str | Path,
    workflow: Workflow | None,
    model: nn.Module,
    embeddings: Embeddings | None,
    *,
    overwrite: bool = False,
    card: ModelCard | None = None,
) -> None:
    """Write everything that predictions on raw rows need; `Predictor(directory)` reads it.

    The directory holds `model` (weights, description, workflow) and a `store-…` folder with the embeddings, which
    `model` names by its checksum and which is written first: an interrupted save leaves the model that was there.
    `workflow` may be None where rows come as features already. Of `FusedEmbeddings` and `CachedEmbeddings` the weights
    are saved, without optimizer state, to be read as `FrozenEmbeddings`; in host memory that takes all rows of a cached
    one. Give `tables.store` instead to save only the ids that were seen. Hashed tables are saved as a store.

    Args:
        directory: a folder.
        workflow: fitted, from raw rows to features.
        model: of `penstock.nn`.
        embeddings: what it was trained with; None where it has no categories.
        overwrite: replace what is there.
        card: what a service shows of it: its data, its metrics, an example row.

    Raises:
        OutputExistsError: the folder is there and overwrite was not asked for.
        ParameterError: the parts do not go together.
    """
    if is_served_by_store(embeddings):
        with embeddings.store_for_serving() as store:
            save_model(directory, workflow, model, store, overwrite=overwrite, card=card)
        return
    place = Path(directory)
    if not isinstance(model, Model):
        raise ParameterError(f"a saved model is one of penstock.nn (built from its description), got {type(model)}")
    if (place / "model").exists() and not overwrite:
        raise OutputExistsError(f"{place} holds a model already; pass overwrite=True to replace it")
    if workflow is not None:
        serving_workflow(workflow, model)  # what cannot be served is refused now, not by the service
    tables = _tables(model, embeddings)
    place.mkdir(parents=True, exist_ok=True)
    with write_lock(place / "model"):
        name = None
        if is_on_host(embeddings):
            name = f"store-{uuid.uuid4().hex[:8]}"
            embeddings.save(place / name)
        try:
            _write(place, workflow, model, tables, name, card)
        except BaseException:
            if name is not None and not _names(place / "model", name):
                shutil.rmtree(place / name, ignore_errors=True)
            raise
        for old in place.glob("store-*"):
            if old.name != name:
                shutil.rmtree(old, ignore_errors=True)


def _tables(model: Model, embeddings: Embeddings | None) -> tuple[dict[str, Any], Weights] | None:
    """The description and the weights of embeddings that are a module's."""
    if embeddings is None or is_on_host(embeddings):
        return None
    if not hasattr(embeddings, "for_serving"):
        raise ParameterError(
            "a saved model holds a store or tables of penstock.embedding (they have for_serving), "
            f"got {type(embeddings)}"
        )
    if list(embeddings.dims.values()) != list(model.dims.values()) and len(embeddings.dims) == len(model.dims):
        raise ParameterError(
            f"the tables have dim={plain_dim(embeddings.dims)}, the model embedding_dim={plain_dim(model.dims)}"
        )
    served: tuple[dict[str, Any], Weights] = embeddings.for_serving(model.schema.select(roles=Role.CATEGORICAL))
    return served


def _weights(module: nn.Module) -> Weights:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}


def _names(model: Path, store: str) -> bool:
    """Whether the model that is in place belongs to a store: it may have got there before it was stopped."""
    try:
        about = read_json(model / "model.json", _FIELDS)
    except ArtefactError:
        return False
    return about["store"] is not None and about["store"].get("path") == store


def _write(
    place: Path,
    workflow: Workflow | None,
    model: Model,
    tables: tuple[dict[str, Any], Weights] | None,
    name: str | None,
    card: ModelCard | None,
) -> None:
    with artefact.writing(place / "model", KIND, VERSION, overwrite=True) as folder:
        write_tensors(_weights(model), folder / "model.safetensors")
        about: dict[str, Any] = {
            "model": model.config(),
            "store": None,
            "tables": None,
            "workflow": workflow is not None,
        }
        if name is not None:
            about["store"] = {"path": name, "manifest": artefact.checksum(place / name / artefact.MANIFEST)}
        elif tables is not None:
            about["tables"], weights = tables
            write_tensors(weights, folder / "tables.safetensors")
        if workflow is not None:
            workflow.save(folder / "workflow")
        if card is not None:
            (folder / _CARD).write_text(json.dumps(card.to_dict(), indent=1, ensure_ascii=False), encoding="utf-8")
        (folder / "model.json").write_text(json.dumps(about, indent=1))


def model_in(directory: str | Path) -> Path:
    """The model's directory, where the folder of the whole training run may be named instead.

    Args:
        directory: what `save_model` wrote, or a folder with such a directory called `model`.

    Returns:
        The directory that `load_model` reads.

    Raises:
        ArtefactError: there is no such folder, or no model in it.
    """
    place = Path(directory)
    if not (place / "model").is_dir():  # it may be on its way: a writer was stopped, or is at it
        settle(place)
        settle(place / "model")
    if not (place / "model").is_dir():
        what = "holds no model" if place.is_dir() else "is a file" if place.exists() else "does not exist"
        raise ArtefactError(f"{place} {what}; name the folder of a training run, or of a saved model")
    is_run = not (place / "model" / artefact.MANIFEST).exists() and (place / "model" / "model").is_dir()
    return place / "model" if is_run else place


def load_model(
    directory: str | Path,
    num_threads: int | None = None,
    trust: Sequence[str] = (),
    verify: KeyLike | None = None,
) -> SavedModel:
    """Read what `save_model` wrote; embeddings are opened for serving, without optimizer state.

    Args:
        directory: what `save_model` wrote.
        num_threads: of the store.
        trust: modules that the workflow and the model may name (see `Workflow.load`).
        verify: the file of a key; a model that it has not signed (`penstock sign`) is refused.

    Returns:
        Workflow, model and embeddings.

    Raises:
        ArtefactError: a part is altered, truncated, missing, foreign or not signed, or names code that is not trusted.
    """
    place = Path(directory)
    with verifying(verify), trusting(*trust):
        return artefact.read(place / "model", KIND, VERSION, lambda folder: _loaded(place, folder, num_threads))


def _loaded(place: Path, folder: SavedFolder, num_threads: int | None) -> SavedModel:
    about = folder.json("model.json", _FIELDS)
    model = _filled(about["model"], folder, "model.safetensors", Model)
    store = tables = None
    if about["store"] is not None:
        store = _store(place, folder, about["store"], num_threads)
    elif about["tables"] is not None:
        tables = _filled(about["tables"], folder, "tables.safetensors", nn.Module)
    fitted = Workflow.load(folder.path / "workflow") if about["workflow"] else None
    workflow, labels = (None, []) if fitted is None else serving_workflow(fitted, model)
    card = ModelCard.from_dict(folder.json(_CARD), folder.file(_CARD)) if _CARD in folder else ModelCard()
    return SavedModel(workflow, model, labels, store, tables, fitted, card)


def _store(place: Path, folder: SavedFolder, named: Mapping[str, Any], num_threads: int | None) -> Store:
    check_fields(named, {"path": STR, "manifest": STR}, folder.file("model.json"))
    path = place / artefact.check_name(named["path"], folder.file("model.json"))
    if not (path / artefact.MANIFEST).is_file():
        raise ArtefactError(f"{folder} belongs to {path}, which is not there; copy it along")
    if artefact.checksum(path / artefact.MANIFEST) != named["manifest"]:
        raise ArtefactError(f"{path} does not hold the embeddings that {folder} was saved with")
    settings: dict[str, Any] = {} if num_threads is None else {"num_threads": num_threads}
    with vouching([named["manifest"]]):
        return Store.open(path, serving=True, **settings)


def _filled(described: Mapping[str, Any], folder: SavedFolder, name: str, kind: type[nn.Module]) -> Any:
    """The module that a description means, with its weights.

    It is built without memory first: a description whose weights are not those in the file is refused before it can
    take any.
    """
    with torch.device("meta"):
        shapes = {key: tensor.shape for key, tensor in from_config(described).state_dict().items()}
    weights, path = read_tensors(folder, name), folder.file(name)
    if shapes != {key: tensor.shape for key, tensor in weights.items()}:
        raise ArtefactError(f"{path} does not hold the weights of the {described.get('model')} that is described")
    module = from_config(described)
    if not isinstance(module, kind):
        raise ArtefactError(f"{folder.file('model.json')} describes a {type(module).__name__}, not a {kind.__name__}")
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise ArtefactError(f"{path} does not hold the weights of this {type(module).__name__}: {error}") from error
    return module.eval()


def serving_workflow(workflow: Workflow, model: Model) -> tuple[Workflow, list[str]]:
    """The workflow without the labels, which rows to predict do not have; and the labels' names."""
    outputs = set(workflow.output_schema.select(roles="label").names)
    labels = [c.name for c in workflow.input_schema if c.role == "label" or c.name in outputs]
    serving = workflow.remove_inputs(labels) if labels else workflow
    for name in (*model.categorical, *model.continuous):
        if name not in serving.output_schema:
            if name in workflow.output_schema:
                raise SchemaError(f"the model reads {name!r}, which the workflow makes from a label {labels}")
            raise SchemaError(
                f"the model reads {name!r}, which the workflow does not make: {serving.output_schema.names}"
            )
    return serving, labels
