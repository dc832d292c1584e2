"""What a training run is asked for beyond its data: plain settings, checked before any work is done.

The keys are those of the YAML file that `penstock train --config` reads; the file in a run's folder is the same with
every key filled in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import GenericAlias
from typing import Any

from penstock.core.choices import ON_ERROR
from penstock.core.errors import ParameterError, PenstockError, suggest
from penstock.core.params import BOOL, NONE, STR, Constraint, Instance, Int, ListOf, OneOf, Real, Satisfies, check_all
from penstock.core.yaml_files import read_yaml
from penstock.embedding.dims import DIM, plain_dim
from penstock.embedding.optimizers import OPTIMIZERS
from penstock.embedding.policies import Admission, Eviction
from penstock.embedding.schedules import SCHEDULES
from penstock.embedding.slots import POOLINGS, HashStack, Init
from penstock.jobs.dense_optimizers import DENSE_OPTIMIZERS
from penstock.jobs.holding_out import is_way_to_hold_out
from penstock.metrics.registry import METRICS
from penstock.nn.registry import MODELS

ON_DEVICE = ("fused", "cached", "hashed")  # of what `tables` may be, those that train in tables on the device
TABLES = ("auto", "store", *ON_DEVICE)
SELECT_BY = ("auc", "log_loss", "last")
DENSE_OPTIMIZER, EMBEDDING_OPTIMIZER = "Adam", "Adagrad"  # where none is named

_SECTION = Instance(Mapping, "a mapping")
_EVERY = NONE | Int(min=1)


@dataclass(frozen=True)
class Setting:
    """What there is to know of one setting: its check, and its option on the command line.

    Args:
        constraint: what the value must be.
        help: of the option; a setting without has none.
        kind: of the value that is given on the command line.
        default: what the default is called, where the value does not say it.
        choices: the values there are; with `is_open`, a reference `package.module:Class` besides.
        flags: other names of the option.
        is_changeable: whether a resumed run may change it; not where the state it goes on from depends on it.
    """

    constraint: Constraint = _SECTION
    help: str = ""
    kind: type | GenericAlias = int
    default: str = ""
    choices: tuple[str, ...] = ()
    is_open: bool = False
    flags: tuple[str, ...] = ()
    is_changeable: bool = False


def _setting(value: Any, constraint: Constraint = _SECTION, /, **about: Any) -> Any:
    """A field of `TrainSettings` with its default and all that is known of it; a section is copied for each."""
    metadata = {"setting": Setting(constraint, **about)}
    if isinstance(value, dict):
        return field(default_factory=lambda: dict(value), metadata=metadata)
    return field(default=value, metadata=metadata)


# The keys of the sections whose values are plain, and what they must be where they are given.
_ANY = Satisfies(lambda _: True, "anything")  # checked by what is built from it
_PLAIN: dict[str, dict[str, Constraint]] = {
    "loader": {"cache": OneOf((None, "memory", "disk")), "chunk_rows": _EVERY, "num_threads": _EVERY},
    "etl": {"engine": _ANY, "part_size": _ANY, "on_error": OneOf((None, *ON_ERROR))},
    "store": {
        **dict.fromkeys(("storage", "num_threads", "init", "pooling", "admission", "eviction"), _ANY),
        "cache_rows": _EVERY,
    },
    "cluster": dict.fromkeys(("address", "trainers", "shards", "replicas"), _ANY),
}
_FORMER = {"loader": {"threads": "num_threads"}}  # keys of sections in files that were written before
_SLOT_KEYS = ("dim", "pooling", "length", "hash_stack", "group", "init")
# Keys inside sections that have names of their own, the same as the options of the command line.
SHORTHANDS: dict[str, tuple[str, ...]] = {
    "learning_rate": ("dense_optimizer", "lr"),
    "embedding_learning_rate": ("embedding_optimizer", "lr"),
    "engine": ("etl", "engine"),
    "on_error": ("etl", "on_error"),
    "trainers": ("cluster", "trainers"),
    "shards": ("cluster", "shards"),
    "replicas": ("cluster", "replicas"),
    "cache_rows": ("store", "cache_rows"),
    "max_rows": ("store", "eviction", "max_rows"),
}
_BY_BATCH = "by the batch size"
_SHORTHAND_OPTIONS = {
    "learning_rate": Setting(help="Of the dense model.", kind=float, default=_BY_BATCH, flags=("--lr",)),
    "embedding_learning_rate": Setting(
        help="Of the embeddings.", kind=float, default="0.05", flags=("--embedding-lr",)
    ),
    "engine": Setting(help="Where the ETL runs: local, tcp://… (Dask), ray.", kind=str, default="local"),
    "on_error": Setting(help="What a malformed text line does.", kind=str, default="raise", choices=ON_ERROR),
    "trainers": Setting(help="Of a cluster: processes that train the model.", default="1"),
    "shards": Setting(help="Of a cluster: processes that hold the embeddings.", default="2"),
    "replicas": Setting(help="Of a cluster: 2 gives every shard a standby.", default="1"),
    "cache_rows": Setting(help="Of cached and hashed tables: rows on the device.", default="as there is room"),
    "max_rows": Setting(help="Of stores and hashed tables: rows that stay; the least used go.", default="all"),
}
# What a file of settings may also say: where the rows are and how they become features.
DATA_KEYS = ("data", "valid", "test", "recipe", "preset", "workflow")
MARK = "penstock_run"  # the key that marks the file in a run's folder


@dataclass(frozen=True)
class TrainSettings:
    """How a model is trained. Sections are mappings; what is left out of one has the default of its class.

    `model`, `dense_optimizer` and `embedding_optimizer` carry a `name` and the arguments of that class (`learning_rate`
    and `embedding_learning_rate` are short for `lr` in the two); a rate is a number or a schedule
    (`{schedule: Warmup, lr: 0.05, steps: 1000}`). What is left open (`epochs`, `batch_size`, rates) is settled when the
    rows are known (`penstock.jobs.defaults`), and stands in the run's `config.yaml`. By default `checkpoint_every` is
    once an epoch, `log_every` every fiftieth step or more often in a short run, `device` the GPU where there is one.

    `tables` says where the embeddings live: in a "store" beside the model, or "fused", in tables on its device
    (`penstock.embedding.FusedEmbeddings`), which need a cardinality of every category, as `Categorify` gives it. "auto"
    takes tables on a GPU where the categories have one, there is room, and nothing is asked for that only a store does.
    "cached" keeps `store.cache_rows` rows of such tables on the device and all of them on the host
    (`penstock.embedding.CachedEmbeddings`). "hashed" takes ids as they are, without a vocabulary
    (`penstock.embedding.HashedEmbeddings`): rows come as ids do, and the least recently used go where `max_rows`
    (`store.eviction.max_rows`) says how many stay; with `cache_rows` (`store.cache_rows`) they are behind a cache.

    >>> TrainSettings.resolve({"model": "MLP", "epochs": 2}, {"epochs": 1}).epochs
    1
    >>> TrainSettings.resolve({"epoch": 2})
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: unknown key 'epoch'; did you mean 'epochs'? keys: model, embedding_dim, ...
    """

    model: Mapping[str, Any] = _setting(
        {"name": "DLRM"}, help="What is trained.", kind=str, default="DLRM", choices=tuple(MODELS), is_open=True
    )
    embedding_dim: int = _setting(16, Int(1, 65536), help="Width of an embedding.")
    epochs: int | None = _setting(
        None, _EVERY, help="Passes over the rows.", default="by the rows, until none is better", is_changeable=True
    )
    batch_size: int | None = _setting(None, _EVERY, help="Rows of a step.", default="by the rows")
    staleness: int = _setting(4, Int(min=1), help="Most batches in flight; 1 is exact.", is_changeable=True)
    valid_share: float = _setting(0.1, Real(min=0, max=0.9), help="Of DATA, held out; 0 is none.", kind=float)
    valid_by: str | None = _setting(
        None, NONE | Satisfies(is_way_to_hold_out, "time:COLUMN, group:COLUMN or a file"), kind=str,
        default="at random",
        help="How rows are held out: time:COLUMN takes the latest, group:COLUMN whole groups; or a FILE of them.",
    )  # fmt: skip
    seed: int = _setting(0, Int(min=0), help="Of the split, the weights and the order.")
    eval_every: int | None = _setting(
        None, _EVERY, help="Steps between evaluations.", default="once an epoch", is_changeable=True
    )
    checkpoint_every: int | None = _setting(
        None, _EVERY, help="Steps between checkpoints.", default="once an epoch", is_changeable=True
    )
    keep_checkpoints: int = _setting(2, Int(min=1), help="Checkpoints that stay.", is_changeable=True)
    copy_checkpoints_to: str | None = _setting(
        None, NONE | STR, help="A URL that checkpoints are copied to beside training, as s3://bucket/run.", kind=str,
        default="none", is_changeable=True,
    )  # fmt: skip
    log_every: int | None = _setting(
        None, _EVERY, help="Steps between records.", default="50, fewer in a short run", is_changeable=True
    )
    max_steps: int | None = _setting(None, _EVERY, help="Stop after so many steps.", default="none", is_changeable=True)
    select_by: str | None = _setting(
        None, OneOf((None, *SELECT_BY)), kind=str, choices=SELECT_BY, is_changeable=True,
        default="log_loss; auc beyond 200,000 rows",
        help="Whose weights are the model: the best by log loss or AUC, or the last.",
    )  # fmt: skip
    patience: int | None = _setting(
        None, _EVERY, help="Stop after so many evaluations without a better one.", is_changeable=True,
        default="3, of few rows 5, none with --epochs or --eval-every",
    )  # fmt: skip
    metrics: Sequence[str] | None = _setting(
        None, NONE | ListOf(STR), kind=list[str], default="auc, log_loss", choices=tuple(METRICS), is_open=True,
        help="What is measured; may be repeated.", flags=("--metric",), is_changeable=True,
    )  # fmt: skip
    autocast: str | None = _setting(
        None, OneOf((None, "bfloat16", "float16")), help="Of the model's arithmetic.", kind=str, default="float32",
        choices=("bfloat16", "float16"),
    )  # fmt: skip
    device: str | None = _setting(
        None, NONE | Instance(str, "the name of a torch device such as 'cpu' or 'cuda:0'"), kind=str,
        help="cpu, cuda, cuda:1.", default="the GPU where there is one", is_changeable=True,
    )  # fmt: skip
    tables: str = _setting(
        "auto", OneOf(TABLES), kind=str, default="auto: fused on a GPU", choices=TABLES,
        help="Embeddings in a store; fused: in tables on the device; cached: behind a cache; hashed: of any ids.",
    )  # fmt: skip
    linear_start: bool | None = _setting(
        None, NONE | BOOL, kind=bool, default="up to 200,000 rows",
        help="Whether a logistic regression of the rows is fitted first, beside which the network learns the rest.",
    )  # fmt: skip
    keep_example: bool = _setting(
        True, BOOL, kind=bool, default="keep-example", is_changeable=True,
        help="Whether the model keeps a held-out row, as the example that its service shows.",
    )  # fmt: skip
    feed: str | None = _setting(
        None, NONE | STR, kind=str, default="none", is_changeable=True,
        help="Publish the model here as it learns, for penstock serve DIR --follow.",
    )  # fmt: skip
    feed_seconds: float = _setting(
        30.0, Real(min=0), kind=float, is_changeable=True, help="Between two packets of the feed, at least."
    )
    dense_optimizer: Mapping[str, Any] = _setting({"name": DENSE_OPTIMIZER})
    embedding_optimizer: Mapping[str, Any] = _setting({"name": EMBEDDING_OPTIMIZER})
    store: Mapping[str, Any] = _setting({})
    slots: Mapping[str, Any] = _setting({})
    loader: Mapping[str, Any] = _setting({})
    etl: Mapping[str, Any] = _setting({})
    cluster: Mapping[str, Any] = _setting(
        {}, help="Where all of it runs: local (a Ray of this machine), auto or ray://….", kind=str,
        default="this process", is_changeable=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_all(vars(self), {name: setting.constraint for name, setting in described().items()})
        if ":" not in str(self.model.get("name")):  # a class of one's own is found when it is built
            _one_of("model.name", self.model.get("name"), tuple(MODELS))
        _one_of("dense_optimizer.name", self.dense_optimizer.get("name"), tuple(DENSE_OPTIMIZERS))
        for name in self.metrics or ():
            if ":" not in name:
                _one_of("metrics", name, tuple(METRICS))
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
        """Settings from mappings, of which later ones win; a section that names another class starts anew.

        Args:
            layers: mappings, the strongest last.

        Returns:
            The settings.

        Raises:
            ParameterError: a key or value makes no sense.
        """
        values = {f.name: getattr(cls(), f.name) for f in dataclasses.fields(cls)}
        for layer in layers:
            _keys(layer, [*values, *SHORTHANDS])
            for key, value in sorted(layer.items(), key=lambda item: item[0] in SHORTHANDS):  # sections first
                if key in SHORTHANDS:
                    key, inner, *last = SHORTHANDS[key]
                    if last:
                        held = values[key].get(inner)
                        value = {**(held if isinstance(held, Mapping) else {}), last[0]: value}
                    value = {inner: value}
                values[key] = _laid_over(key, values[key], value)
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, every key filled in.

        Returns:
            Values by key.
        """
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    def changed(self, changes: Mapping[str, Any]) -> TrainSettings:
        """These settings with some changed, as a resumed run may.

        Args:
            changes: values by key.

        Returns:
            Other settings.

        Raises:
            ParameterError: a key is one that a run cannot change.
        """
        new = TrainSettings.resolve(self.to_dict(), changes)
        changeable = [name for name, setting in described().items() if setting.is_changeable]
        for name, (was, now) in {k: (getattr(self, k), getattr(new, k)) for k in self.to_dict()}.items():
            if was != now and name not in changeable:
                raise ParameterError(
                    f"{name} was {was!r} when this run began and cannot become {now!r} now; "
                    f"a resumed run may change {', '.join(changeable)}"
                )
        return new

    # The parts that need no framework.

    def sparse_optimizer(self) -> Any:
        """The optimizer of the embeddings.

        Returns:
            Of `penstock.embedding`.
        """
        arguments = dict(self.embedding_optimizer)
        name = arguments.pop("name", None)
        _one_of("embedding_optimizer.name", name, tuple(OPTIMIZERS))
        if "lr" in arguments:
            arguments["lr"] = rate(arguments["lr"], "embedding_optimizer.lr")
        return _built(OPTIMIZERS[str(name)], arguments, "embedding_optimizer")

    def store_arguments(self) -> dict[str, Any]:
        """What the store takes beside its slots and its optimizer.

        Returns:
            Arguments by name.
        """
        policies = {"admission": Admission, "eviction": Eviction}
        out = {key: self.store[key] for key in ("storage", "num_threads") if self.store.get(key) is not None}
        for key, policy in policies.items():
            if self.store.get(key) is not None:
                out[key] = _built(policy, self.store[key], f"store.{key}")
        return out

    def slot(self, name: str) -> dict[str, Any]:
        """The arguments of one column's slot, beside its name; `dim` where it has a width of its own.

        Args:
            name: of the column.

        Returns:
            Arguments by name.
        """
        own = self.slots.get(name, {})
        _keys(own, _SLOT_KEYS, f"slots.{name}")
        check_all({"dim": own.get("dim")}, {"dim": NONE | DIM}, f"slots.{name}")
        common = {key: self.store[key] for key in ("init",) if self.store.get(key) is not None}
        out = {**common, **{key: value for key, value in own.items() if key != "dim" or value is not None}}
        builders: dict[str, Callable[..., Any]] = {"init": Init, "hash_stack": HashStack}
        for key, build in builders.items():
            if out.get(key) is not None:
                out[key] = _built(build, out[key], f"slots.{name}.{key}" if key in own else f"store.{key}")
        return out

    def dims(self, names: Sequence[str]) -> int | dict[str, int]:
        """The width of embeddings of these columns: one number where it is the same for all of them.

        Args:
            names: of the categorical columns.

        Returns:
            The width, or widths by column.
        """
        own = {name: self.slots.get(name, {}).get("dim") for name in names}
        if not any(own.values()):
            return self.embedding_dim
        return plain_dim({name: dim or self.embedding_dim for name, dim in own.items()})

    @property
    def pooling(self) -> str:
        """How list columns are pooled where their slot says nothing."""
        pooling = self.store.get("pooling") or "mean"
        _one_of("store.pooling", pooling, tuple(p for p in POOLINGS if p != "raw"))
        return pooling


def described() -> dict[str, Setting]:
    """What there is to know of every setting, by its name."""
    return {f.name: f.metadata["setting"] for f in dataclasses.fields(TrainSettings)}


def command_line_options() -> dict[str, Setting]:
    """The settings that are options of `penstock train`, shorthands included, each with its default in words.

    >>> command_line_options()["epochs"].default, command_line_options()["learning_rate"].flags
    ('by the rows, until none is better', ('--lr',))
    """
    plain = TrainSettings()
    defaults = {name: getattr(plain, name) for name in described()}
    defaults |= {name: defaults[section].get(key) for name, (section, key, *_) in SHORTHANDS.items()}
    return {
        name: dataclasses.replace(setting, default=setting.default or str(defaults[name]))
        for name, setting in {**described(), **_SHORTHAND_OPTIONS}.items()
        if setting.help
    }


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
    if key == "cluster" and isinstance(value, str):
        value = {"address": value}
    if key == "metrics" and isinstance(value, str):
        value = [value]
    if not isinstance(below, Mapping) or not isinstance(value, Mapping):
        return {} if isinstance(below, Mapping) and value is None else value
    value = {_FORMER.get(key, {}).get(name, name): item for name, item in value.items()}
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
