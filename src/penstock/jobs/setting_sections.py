"""Settings that are mappings: which keys they have, how layers are laid over one another, what is built from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

from penstock.core.choices import ON_ERROR
from penstock.core.errors import ParameterError, PenstockError, suggest
from penstock.core.params import NONE, Constraint, Int, OneOf, Satisfies
from penstock.embedding.schedules import SCHEDULES
from penstock.jobs.setting import Setting

EVERY = NONE | Int(min=1)
# The keys of the sections whose values are plain, and what they must be where they are given.
_ANY = Satisfies(lambda _: True, "anything")  # checked by what is built from it
SECTIONS: dict[str, dict[str, Constraint]] = {
    "loader": {"cache": OneOf((None, "memory", "disk")), "chunk_rows": EVERY, "num_threads": EVERY},
    "etl": {"engine": _ANY, "part_size": _ANY, "on_error": OneOf((None, *ON_ERROR))},
    "store": {
        **dict.fromkeys(("storage", "init", "pooling", "admission", "eviction"), _ANY),
        **dict.fromkeys(("num_threads", "cache_rows"), EVERY),
    },
    "cluster": dict.fromkeys(("address", "trainers", "shards", "replicas"), _ANY),
}
NO_CLUSTER = "none"  # as the address of a cluster: a resumed run goes on in this process
_FORMER = {"loader": {"threads": "num_threads"}}  # keys of sections in files that were written before
SLOT_KEYS = ("dim", "pooling", "length", "hash_stack", "group", "init")
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
SHORTHAND_OPTIONS = {
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


def rate(value: Any, where: str) -> Any:
    """A learning rate: the number, or the schedule that a mapping names."""
    if not isinstance(value, Mapping):
        return value
    arguments = dict(value)
    name = arguments.pop("schedule", None)
    check_one_of(f"{where}.schedule", name, tuple(SCHEDULES))
    return built(SCHEDULES[str(name)], arguments, where)


def laid_over(key: str, below: Any, value: Any) -> Any:
    """A value over the one below it: sections are merged, and one that names another class starts anew."""
    if key == "model" and isinstance(value, str):
        value = {"name": value}
    if key == "cluster" and isinstance(value, str):
        value = None if value == NO_CLUSTER else {"address": value}
    if key == "metrics" and isinstance(value, str):
        value = [value]
    if not isinstance(below, Mapping) or not isinstance(value, Mapping):
        return {} if isinstance(below, Mapping) and value is None else value
    value = {_FORMER.get(key, {}).get(name, name): item for name, item in value.items()}
    if "name" in value and value["name"] != below.get("name") and key != "model":
        return dict(value)
    return {**below, **value}


def check_keys(given: Any, known: Collection[str], where: str = "") -> None:
    """Refuse what is no mapping, and keys that a section (or, without `where`, the whole) does not have."""
    if not isinstance(given, Mapping):
        raise ParameterError(f"{where or 'the settings'} must be a mapping of {', '.join(known)}, got {given!r}")
    for key in given:
        if key not in known:
            place = f" in {where}" if where else ""
            raise ParameterError(f"unknown key {key!r}{place}{suggest(str(key), known, 'keys')}")


def check_one_of(where: str, value: Any, known: tuple[str, ...]) -> None:
    """Refuse a value that is none of those there are."""
    if value not in known:
        raise ParameterError(f"{where} is {value!r}{suggest(str(value), known, 'known')}")


def built(build: Callable[..., Any], arguments: Any, where: str) -> Any:
    """A class built from the mapping in a section; its names are checked, its own checks get the section's name."""
    fields = [f.name for f in dataclasses.fields(build) if f.init]  # type: ignore[arg-type]
    check_keys(arguments, fields, where)
    try:
        return build(**arguments)
    except PenstockError as error:
        raise ParameterError(f"{where}: {error}") from error
    except TypeError as error:
        raise ParameterError(f"{where} is not complete: {error}") from error


def plain(value: Any) -> Any:
    """A copy whose mappings are dicts and whose sequences are lists."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value
