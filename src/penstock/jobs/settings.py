"""What a training run is asked for beyond its data: plain settings, checked before any work is done.

The keys are those of the YAML file that `penstock train --config` reads; the file in a run's folder is the same with
every key filled in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.core.errors import ParameterError, PenstockError, suggest
from penstock.core.params import NONE, Constraint, Instance, Int, OneOf, Real, Satisfies, check_all
from penstock.core.yaml_files import read_yaml
from penstock.embedding.optimizers import OPTIMIZERS
from penstock.embedding.policies import Admission, Eviction
from penstock.embedding.schedules import SCHEDULES
from penstock.embedding.slots import POOLINGS, HashStack, Init
from penstock.nn.registry import MODELS

ON_DEVICE = ("fused", "cached")  # of what `tables` may be, those that train in tables on the device
TABLES = ("auto", "store", *ON_DEVICE)
DENSE_OPTIMIZERS = ("Adam", "AdamW", "SGD", "Adagrad", "RMSprop")

_SECTION = Instance(Mapping, "a mapping")
_EVERY = NONE | Int(min=1)
_CONSTRAINTS: dict[str, Constraint] = {
    "model": _SECTION,
    "embedding_dim": Int(1, 65536),
    "epochs": Int(min=1),
    "batch_size": Int(min=1),
    "staleness": Int(min=1),
    "valid_share": Real(min=0, max=0.9),
    "seed": Int(min=0),
    "eval_every": _EVERY,
    "checkpoint_every": _EVERY,
    "keep_checkpoints": Int(min=1),
    "log_every": _EVERY,
    "max_steps": _EVERY,
    "autocast": OneOf((None, "bfloat16", "float16")),
    "device": NONE | Instance(str, "the name of a torch device such as 'cpu' or 'cuda:0'"),
    "tables": OneOf(TABLES),
    "dense_optimizer": _SECTION,
    "embedding_optimizer": _SECTION,
    "store": _SECTION,
    "slots": _SECTION,
    "loader": _SECTION,
    "etl": _SECTION,
}
# The keys of the sections whose values are plain, and what they must be where they are given.
_ANY = Satisfies(lambda _: True, "anything")  # checked by what is built from it
_PLAIN: dict[str, dict[str, Constraint]] = {
    "loader": {"cache": OneOf((None, "memory", "disk")), "chunk_rows": _EVERY, "threads": _EVERY},
    "etl": {"engine": _ANY, "part_size": _ANY, "on_error": OneOf((None, "raise", "skip", "null"))},
    "store": {
        **dict.fromkeys(("storage", "num_threads", "init", "pooling", "admission", "eviction"), _ANY),
        "cache_rows": _EVERY,
    },
}
_SLOT_KEYS = ("pooling", "length", "hash_stack", "group", "init")
# Keys inside sections that have names of their own, the same as the options of the command line.
SHORTHANDS = {
    "learning_rate": ("dense_optimizer", "lr"),
    "embedding_learning_rate": ("embedding_optimizer", "lr"),
    "engine": ("etl", "engine"),
    "on_error": ("etl", "on_error"),
}
# What a file of settings may also say: where the rows are and how they become features.
DATA_KEYS = ("data", "valid", "recipe", "preset", "workflow")
MARK = "penstock_run"  # the key that marks the file in a run's folder
# What a run that is resumed may change: nothing that the state it goes on from depends on.
CHANGEABLE = (
    "epochs", "max_steps", "eval_every", "checkpoint_every", "keep_checkpoints", "log_every", "device", "staleness",
)  # fmt: skip


@dataclass(frozen=True)
class TrainSettings:
    """How a model is trained. Sections are mappings; what is left out of one has the default of its class.

    `model`, `dense_optimizer` and `embedding_optimizer` carry a `name` and the arguments of that class (`learning_rate`
    and `embedding_learning_rate` are short for `lr` in the two); a rate is a number or a schedule
    (`{schedule: Warmup, lr: 0.05, steps: 1000}`). By default `checkpoint_every` is once an epoch, `log_every` every
    fiftieth step or more often in a short run, `device` the GPU where there is one.

    `tables` says where the embeddings live: in a "store" beside the model, or "fused", in tables on its device
    (`penstock.embedding.FusedEmbeddings`), which need a cardinality of every category, as `Categorify` gives it. "auto"
    takes tables on a GPU where the categories have one, there is room, and nothing is asked for that only a store does.
    "cached" keeps `store.cache_rows` rows of such tables on the device and all of them on the host
    (`penstock.embedding.CachedEmbeddings`).

    >>> TrainSettings.resolve({"model": "MLP", "epochs": 2}, {"epochs": 1}).epochs
    1
    >>> TrainSettings.resolve({"epoch": 2})
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: unknown key 'epoch'; did you mean 'epochs'? keys: model, embedding_dim, ...
    """

    model: Mapping[str, Any] = field(default_factory=lambda: {"name": "DLRM"})
    embedding_dim: int = 16
    epochs: int = 3
    batch_size: int = 1024
    staleness: int = 4
    valid_share: float = 0.1
    seed: int = 0
    eval_every: int | None = None
    checkpoint_every: int | None = None
    keep_checkpoints: int = 2
    log_every: int | None = None
    max_steps: int | None = None
    autocast: str | None = None
    device: str | None = None
    tables: str = "auto"
    dense_optimizer: Mapping[str, Any] = field(default_factory=lambda: {"name": "Adam", "lr": 2e-3})
    embedding_optimizer: Mapping[str, Any] = field(
        default_factory=lambda: {"name": "Adagrad", "lr": 0.05, "initial_accumulator": 1e-5}
    )
    store: Mapping[str, Any] = field(default_factory=dict)
    slots: Mapping[str, Any] = field(default_factory=dict)
    loader: Mapping[str, Any] = field(default_factory=dict)
    etl: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_all(vars(self), _CONSTRAINTS)
        _one_of("model.name", self.model.get("name"), tuple(MODELS))
        _one_of("dense_optimizer.name", self.dense_optimizer.get("name"), DENSE_OPTIMIZERS)
        for section, known in _PLAIN.items():
            given = getattr(self, section)
            _keys(given, known, section)
            check_all(given, {key: known[key] for key in given}, section)
        self.sparse_optimizer()
        for slot in self.slots:
            self.slot(slot)
        self.store_arguments()

    @classmethod
    def resolve(cls, *layers: Mapping[str, Any]) -> TrainSettings:
        """Settings from mappings, of which later ones win; a section that names another class starts anew."""
        values = {f.name: getattr(cls(), f.name) for f in dataclasses.fields(cls)}
        for layer in layers:
            _keys(layer, [*values, *SHORTHANDS])
            for key, value in sorted(layer.items(), key=lambda item: item[0] in SHORTHANDS):  # sections first
                if key in SHORTHANDS:
                    key, inner = SHORTHANDS[key]
                    value = {inner: value}
                values[key] = _laid_over(key, values[key], value)
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, every key filled in."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    def changed(self, changes: Mapping[str, Any]) -> TrainSettings:
        """These settings with some changed, as a resumed run may."""
        new = TrainSettings.resolve(self.to_dict(), changes)
        for name, (was, now) in {k: (getattr(self, k), getattr(new, k)) for k in self.to_dict()}.items():
            if was != now and name not in CHANGEABLE:
                raise ParameterError(
                    f"{name} was {was!r} when this run began and cannot become {now!r} now; "
                    f"a resumed run may change {', '.join(CHANGEABLE)}"
                )
        return new

    # The parts that need no framework.

    def sparse_optimizer(self) -> Any:
        """The optimizer of the embeddings."""
        arguments = dict(self.embedding_optimizer)
        name = arguments.pop("name", None)
        _one_of("embedding_optimizer.name", name, tuple(OPTIMIZERS))
        if "lr" in arguments:
            arguments["lr"] = rate(arguments["lr"], "embedding_optimizer.lr")
        return _built(OPTIMIZERS[str(name)], arguments, "embedding_optimizer")

    def store_arguments(self) -> dict[str, Any]:
        """What the store takes beside its slots and its optimizer."""
        policies = {"admission": Admission, "eviction": Eviction}
        out = {key: self.store[key] for key in ("storage", "num_threads") if self.store.get(key) is not None}
        for key, policy in policies.items():
            if self.store.get(key) is not None:
                out[key] = _built(policy, self.store[key], f"store.{key}")
        return out

    def slot(self, name: str) -> dict[str, Any]:
        """The arguments of one column's slot, beside its name and width."""
        own = self.slots.get(name, {})
        _keys(own, _SLOT_KEYS, f"slots.{name}")
        common = {key: self.store[key] for key in ("init",) if self.store.get(key) is not None}
        out = {**common, **own}
        builders: dict[str, Callable[..., Any]] = {"init": Init, "hash_stack": HashStack}
        for key, build in builders.items():
            if out.get(key) is not None:
                out[key] = _built(build, out[key], f"slots.{name}.{key}" if key in own else f"store.{key}")
        return out

    @property
    def pooling(self) -> str:
        """How list columns are pooled where their slot says nothing."""
        pooling = self.store.get("pooling") or "mean"
        _one_of("store.pooling", pooling, tuple(p for p in POOLINGS if p != "raw"))
        return pooling


def split_config(path: str | Path | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a file says about the data (`DATA_KEYS`), and its settings, checked."""
    found = {} if path is None else read_yaml(path)
    about = {key: found.get(key) for key in DATA_KEYS}
    settings = {key: value for key, value in found.items() if key not in (*DATA_KEYS, MARK)}
    try:
        TrainSettings.resolve(settings)
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}") from error
    return about, settings


def rate(value: Any, where: str) -> Any:
    """A learning rate: the number, or the schedule that a mapping names."""
    if not isinstance(value, Mapping):
        return value
    arguments = dict(value)
    name = arguments.pop("schedule", None)
    _one_of(f"{where}.schedule", name, tuple(SCHEDULES))
    return _built(SCHEDULES[str(name)], arguments, where)


def _laid_over(key: str, below: Any, value: Any) -> Any:
    if key == "model" and isinstance(value, str):
        value = {"name": value}
    if not isinstance(below, Mapping) or not isinstance(value, Mapping):
        return {} if isinstance(below, Mapping) and value is None else value
    if "name" in value and value["name"] != below.get("name") and key != "model":
        return dict(value)
    return {**below, **value}


def _keys(given: Any, known: Any, where: str = "") -> None:
    if not isinstance(given, Mapping):
        raise ParameterError(f"{where or 'the settings'} must be a mapping of {', '.join(known)}, got {given!r}")
    for key in given:
        if key not in known:
            place = f" in {where}" if where else ""
            raise ParameterError(f"unknown key {key!r}{place}{suggest(str(key), known, 'keys')}")


def _one_of(where: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ParameterError(f"{where} is {value!r}{suggest(str(value), known, 'known')}")


def _built(build: Callable[..., Any], arguments: Any, where: str) -> Any:
    """A class built from the mapping in a section; its names are checked, its own checks get the section's name."""
    fields = [f.name for f in dataclasses.fields(build) if f.init]  # type: ignore[arg-type]
    _keys(arguments, fields, where)
    try:
        return build(**arguments)
    except PenstockError as error:
        raise ParameterError(f"{where}: {error}") from error
    except TypeError as error:
        raise ParameterError(f"{where} is not complete: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
