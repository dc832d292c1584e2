"""What a training run is asked for beyond its data: plain settings, checked before any work is done.

The keys are those of the YAML file that `penstock train --config` reads; the file in a run's folder is the same with
every key filled in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.errors import ParameterError
from penstock.core.params import BOOL, NONE, STR, Instance, Int, ListOf, OneOf, Real, Satisfies, check_all
from penstock.core.yaml_files import read_yaml
from penstock.embedding.dims import DIM, plain_dim
from penstock.embedding.optimizers import OPTIMIZERS
from penstock.embedding.policies import Admission, Eviction
from penstock.embedding.slots import POOLINGS, HashStack, Init
from penstock.jobs.dense_optimizers import DENSE_OPTIMIZERS
from penstock.jobs.holding_out import is_way_to_hold_out
from penstock.jobs.setting import Setting, setting
from penstock.jobs.setting_sections import (
    EVERY,
    SECTIONS,
    SHORTHAND_OPTIONS,
    SHORTHANDS,
    SLOT_KEYS,
    built,
    check_keys,
    check_one_of,
    laid_over,
    plain,
    rate,
)
from penstock.metrics.registry import METRICS, WITHIN_GROUPS
from penstock.nn.registry import MODELS

ON_DEVICE = ("fused", "cached", "hashed")  # of what `tables` may be, those that train in tables on the device
TABLES = ("auto", "store", *ON_DEVICE)
MEASURED = tuple(name for name in METRICS if name not in WITHIN_GROUPS)  # what training can measure
SELECT_BY = (*MEASURED, "last")
ARITHMETIC = ("float32", "tf32", "bfloat16", "float16")  # of what `autocast` may be; tf32 is of products on a GPU
DENSE_OPTIMIZER, EMBEDDING_OPTIMIZER = "Adam", "Adagrad"  # where none is named


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
    once an epoch, `log_every` so that there are a hundred records, and one at every 500th step at least, `device` the
    GPU where there is one.

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

    model: Mapping[str, Any] = setting(
        {"name": "DLRM"}, help="What is trained.", kind=str, default="DLRM", choices=tuple(MODELS), is_open=True
    )
    embedding_dim: int = setting(16, Int(1, 65536), help="Width of an embedding.")
    epochs: int | None = setting(
        None, EVERY, help="Passes over the rows.", default="by the rows, until none is better", is_changeable=True
    )
    batch_size: int | None = setting(None, EVERY, help="Rows of a step.", default="by the rows")
    staleness: int = setting(4, Int(min=1), help="Most batches in flight; 1 is exact.", is_changeable=True)
    valid_share: float = setting(0.1, Real(min=0, max=0.9), help="Of DATA, held out; 0 is none.", kind=float)
    valid_by: str | None = setting(
        None, NONE | Satisfies(is_way_to_hold_out, "time:COLUMN, group:COLUMN or a file"), kind=str,
        default="at random",
        help="How rows are held out: time:COLUMN takes the latest, group:COLUMN whole groups; or a FILE of them.",
    )  # fmt: skip
    seed: int = setting(0, Int(min=0), help="Of the split, the weights and the order.")
    eval_every: int | None = setting(
        None, EVERY, help="Steps between evaluations.", default="once an epoch", is_changeable=True
    )
    checkpoint_every: int | None = setting(
        None, EVERY, help="Steps between checkpoints.", default="once an epoch", is_changeable=True
    )
    keep_checkpoints: int = setting(2, Int(min=1), help="Checkpoints that stay.", is_changeable=True)
    copy_checkpoints_to: str | None = setting(
        None, NONE | STR, help="A URL that checkpoints are copied to beside training, as s3://bucket/run.", kind=str,
        default="none", is_changeable=True,
    )  # fmt: skip
    log_every: int | None = setting(
        None, EVERY, help="Steps between records.", default="for 100 records, at most 500", is_changeable=True
    )
    max_steps: int | None = setting(None, EVERY, help="Stop after so many steps.", default="none", is_changeable=True)
    select_by: str | None = setting(
        None, NONE | STR, kind=str, choices=SELECT_BY, is_open=True, is_changeable=True,
        default="log_loss; auc beyond 200,000 rows",
        help="Whose weights are the model: the best by this metric, or the last.",
    )  # fmt: skip
    patience: int | None = setting(
        None, EVERY, help="Stop after so many evaluations without a better one.", is_changeable=True,
        default="3 to 24 by the rows, none with --epochs or --eval-every",
    )  # fmt: skip
    metrics: Sequence[str] | None = setting(
        None, NONE | ListOf(STR), kind=list[str], default="auc, log_loss", choices=MEASURED, is_open=True,
        help="What is measured; may be repeated.", flags=("--metric",), is_changeable=True,
    )  # fmt: skip
    autocast: str | None = setting(
        None, OneOf((None, *ARITHMETIC)), help="Of the model's arithmetic.", kind=str, choices=ARITHMETIC,
        default="tf32 for tables on a GPU, else float32",
    )  # fmt: skip
    device: str | None = setting(
        None, NONE | Instance(str, "the name of a torch device such as 'cpu' or 'cuda:0'"), kind=str,
        help="cpu, cuda, cuda:1.", default="the GPU where there is one", is_changeable=True,
    )  # fmt: skip
    tables: str = setting(
        "auto", OneOf(TABLES), kind=str, default="auto: fused on a GPU", choices=TABLES,
        help="Embeddings in a store; fused: in tables on the device; cached: behind a cache; hashed: of any ids.",
    )  # fmt: skip
    linear_start: bool | None = setting(
        None, NONE | BOOL, kind=bool, default="up to 200,000 rows",
        help="Whether a logistic regression of the rows is fitted first, beside which the network learns the rest.",
    )  # fmt: skip
    keep_example: bool = setting(
        True, BOOL, kind=bool, default="keep-example", is_changeable=True,
        help="Whether the model keeps a held-out row, as the example that its service shows.",
    )  # fmt: skip
    feed: str | None = setting(
        None, NONE | STR, kind=str, default="none", is_changeable=True,
        help="Publish the model here as it learns, for penstock serve DIR --follow.",
    )  # fmt: skip
    feed_seconds: float = setting(
        30.0, Real(min=0), kind=float, is_changeable=True, help="Between two packets of the feed, at least."
    )
    dense_optimizer: Mapping[str, Any] = setting({"name": DENSE_OPTIMIZER})
    embedding_optimizer: Mapping[str, Any] = setting({"name": EMBEDDING_OPTIMIZER})
    store: Mapping[str, Any] = setting({})
    slots: Mapping[str, Any] = setting({})
    loader: Mapping[str, Any] = setting({})
    etl: Mapping[str, Any] = setting({})
    cluster: Mapping[str, Any] = setting(
        {}, help="Where all of it runs: local (a Ray of this machine), auto, ray://… or none.", kind=str,
        default="this process", is_changeable=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_all(vars(self), {name: setting.constraint for name, setting in described().items()})
        _check_named("model.name", self.model.get("name"), tuple(MODELS))
        check_one_of("dense_optimizer.name", self.dense_optimizer.get("name"), tuple(DENSE_OPTIMIZERS))
        for name in self.metrics or ():
            if name in WITHIN_GROUPS:
                raise ParameterError(
                    f"metrics names {name!r}, which is measured within groups, and training knows of none; measure it "
                    f"on the trained model: evaluate_model(metrics=[{name!r}], group=…), or penstock evaluate --metric "
                    f"{name} --group COLUMN"
                )
            _check_named("metrics", name, MEASURED)
        if self.select_by is not None:
            _check_named("select_by", self.select_by, SELECT_BY)
        for section, known in SECTIONS.items():
            given = getattr(self, section)
            check_keys(given, known, section)
            check_all(given, {key: known[key] for key in given}, section)
        self.build_embedding_optimizer()
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
            check_keys(layer, [*values, *SHORTHANDS])
            for key, value in sorted(layer.items(), key=lambda item: item[0] in SHORTHANDS):  # sections first
                if key in SHORTHANDS:
                    key, inner, *last = SHORTHANDS[key]
                    if last:
                        held = values[key].get(inner)
                        value = {**(held if isinstance(held, Mapping) else {}), last[0]: value}
                    value = {inner: value}
                values[key] = laid_over(key, values[key], value)
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, every key filled in.

        Returns:
            Values by key.
        """
        return {f.name: plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

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

    def build_embedding_optimizer(self) -> Any:
        """The optimizer of the embeddings.

        Returns:
            Of `penstock.embedding`.
        """
        arguments = dict(self.embedding_optimizer)
        name = arguments.pop("name", None)
        check_one_of("embedding_optimizer.name", name, tuple(OPTIMIZERS))
        if "lr" in arguments:
            arguments["lr"] = rate(arguments["lr"], "embedding_optimizer.lr")
        return built(OPTIMIZERS[str(name)], arguments, "embedding_optimizer")

    def store_arguments(self) -> dict[str, Any]:
        """What the store takes beside its slots and its optimizer.

        Returns:
            Arguments by name.
        """
        policies = {"admission": Admission, "eviction": Eviction}
        out = {key: self.store[key] for key in ("storage", "num_threads") if self.store.get(key) is not None}
        for key, policy in policies.items():
            if self.store.get(key) is not None:
                out[key] = built(policy, self.store[key], f"store.{key}")
        return out

    def slot(self, name: str) -> dict[str, Any]:
        """The arguments of one column's slot, beside its name; `dim` where it has a width of its own.

        Args:
            name: of the column.

        Returns:
            Arguments by name.
        """
        own = self.slots.get(name, {})
        check_keys(own, SLOT_KEYS, f"slots.{name}")
        check_all({"dim": own.get("dim")}, {"dim": NONE | DIM}, f"slots.{name}")
        common = {key: self.store[key] for key in ("init",) if self.store.get(key) is not None}
        out = {**common, **{key: value for key, value in own.items() if key != "dim" or value is not None}}
        builders: dict[str, Callable[..., Any]] = {"init": Init, "hash_stack": HashStack}
        for key, build in builders.items():
            if out.get(key) is not None:
                out[key] = built(build, out[key], f"slots.{name}.{key}" if key in own else f"store.{key}")
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
    def is_on_cluster(self) -> bool:
        """Whether the run is spread over a cluster."""
        return any(value is not None for value in self.cluster.values())

    @property
    def pooling(self) -> str:
        """How list columns are pooled where their slot says nothing."""
        pooling = self.store.get("pooling") or "mean"
        check_one_of("store.pooling", pooling, tuple(p for p in POOLINGS if p != "raw"))
        return pooling


def _check_named(where: str, name: Any, known: tuple[str, ...]) -> None:
    """Refuse a name that is not known; a class of one's own (`package.module:Class`) is found when it is built."""
    if ":" not in str(name):
        check_one_of(where, name, known)


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
        for name, setting in {**described(), **SHORTHAND_OPTIONS}.items()
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
