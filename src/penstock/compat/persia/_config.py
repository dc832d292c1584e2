"""PERSIA's two YAML files: which features have embeddings, and how much room there is.

A key that is not known is refused, with the nearest one that is. Keys of both ages are read; those that configured
PERSIA's servers and have nothing to act on here are checked and have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.errors import ParameterError, suggest
from penstock.core.params import BOOL, STR, Constraint, Int, ListOf, Satisfies, check
from penstock.core.yaml_files import parse_yaml, yaml_text
from penstock.embedding.slots import EmbeddingConfig, HashStack, Init, SlotConfig

_COUNT = Int(min=0)
_SLOT: dict[str, Any] = {
    "dim": Int(min=1),
    "sample_fixed_size": Int(min=1),
    "embedding_summation": BOOL,
    "sqrt_scaling": BOOL,
    "hash_stack_config": {"hash_stack_rounds": _COUNT, "embedding_size": _COUNT},
    "capacity": Int(min=1),
    "index_prefix": Int(0, 0),
    "is_pid": BOOL,  # this and the next: of August 2021, for a monitor
    "is_uid": BOOL,
}


def _is_intent(value: Any) -> bool:
    name = next(iter(value)) if isinstance(value, Mapping) and len(value) == 1 else value
    return isinstance(name, str) and name.lower() in ("train", "eval", "infer")


_INTENT = Satisfies(_is_intent, "one of Train, Eval, Infer")
_INFER = {"servers": ListOf(STR), "embedding_checkpoint": STR}
_SERVER = {
    "intent": _INTENT,
    "capacity": Int(min=1),
    "num_hashmap_internal_shards": Int(min=1),
    "full_amount_manager_buffer_size": _COUNT,
    "embedding_recycle_pool_capacity": _COUNT,
    "num_persistence_workers": _COUNT,
    "num_embedding_io_workers": _COUNT,
    "num_signs_per_file": _COUNT,
    "storage": STR,
    "local_buffer_dir": STR,
    "enable_incremental_update": BOOL,
    "incremental_buffer_size": Int(min=1),
    "incremental_dir": STR,
    "incremental_channel_capacity": _COUNT,
}
_METRICS = {
    "enable_metrics": BOOL,
    "job_name": STR,
    "push_interval": _COUNT,
    "push_interval_sec": _COUNT,
    "push_interval_seconds": _COUNT,
}
_COMMON: dict[str, Any] = {
    "metrics_config": _METRICS,
    "job_type": _INTENT,
    "intent": _INTENT,
    "infer_config": _INFER,
    "servers": ListOf(STR),
    "initial_sparse_checkpoint": STR,
    "checkpointing_config": {"num_workers": Int(min=1)},
    "num_embedding_io_workers": Int(min=1),
}
_WORKER = {"forward_buffer_size": Int(min=1), "buffered_data_expired_sec": _COUNT}
# What the same sections and keys were called before.
_RENAMED = {
    "slot_config": "slots_config",
    "slot_configs": "slots_config",
    "embedding_server_config": "embedding_parameter_server_config",
    "shard_server_config": "embedding_parameter_server_config",
    "middleware_config": "embedding_worker_config",
    "PersiaCommonConfig": "common_config",
    "PersiaShardedServerConfig": "embedding_parameter_server_config",
    "PersiaMiddlewareConfig": "embedding_worker_config",
}
_GLOBAL = {
    "common_config": _COMMON,
    "embedding_parameter_server_config": _SERVER,
    "embedding_worker_config": _WORKER,
    "PersiaMetricsConfig": _METRICS,
}
_EMBEDDING = {
    "feature_index_prefix_bit": Int(1, 32),
    "slots_config": None,
    "feature_groups": None,
    "forward_buffer_size": Int(min=1),  # this and the next: of August 2021
    "target_config": None,
}


@dataclass(frozen=True)
class GlobalConfig:
    """What `global_config.yml` says that matters here."""

    capacity: int | None = None
    forward_buffer_size: int = 1000
    incremental_dir: str | None = None
    incremental_buffer_size: int = 1_000_000
    embedding_checkpoint: str | None = None


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A YAML file that holds a mapping."""
    text = yaml_text(path)
    says_something = any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())
    return parse_yaml(text, str(path)) if says_something else {}


def global_config(content: Mapping[str, Any], where: str, forward_buffer_size: int = 1000) -> GlobalConfig:
    """The global configuration; `where` names the file in errors. `forward_buffer_size` is what holds without one.

    >>> global_config({"embedding_worker_config": {"forward_bufer_size": 10}}, "global_config.yml")
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: global_config.yml: embedding_worker_config has no key 'forward_bufer_size'; did
    you mean 'forward_buffer_size'? keys: forward_buffer_size, buffered_data_expired_sec
    """
    content = _checked(content, _GLOBAL, where, "")
    common, server = content.get("common_config", {}), content.get("embedding_parameter_server_config", {})
    infer = common.get("infer_config") or _of_intent(common.get("intent"), where)
    return GlobalConfig(
        capacity=server.get("capacity"),
        forward_buffer_size=content.get("embedding_worker_config", {}).get("forward_buffer_size", forward_buffer_size),
        incremental_dir=server.get("incremental_dir", "incremental_dir")
        if server.get("enable_incremental_update")
        else None,
        incremental_buffer_size=server.get("incremental_buffer_size", 1_000_000),
        embedding_checkpoint=infer.get("embedding_checkpoint") or common.get("initial_sparse_checkpoint"),
    )


def _of_intent(intent: Any, where: str) -> dict[str, Any]:
    """What `intent: {Infer: {…}}` says, the `infer_config` of 2021."""
    if not isinstance(intent, Mapping):
        return {}
    [(name, settings)] = intent.items()
    return _checked(settings or {}, _INFER, where, f"common_config.intent.{name}")


def embedding_config(content: Mapping[str, Any], where: str, init: Init | None = None) -> EmbeddingConfig:
    """The slots of a store from `embedding_config.yml`; `init` says how new rows start.

    >>> embedding_config({"slots_config": {"age": {"dim": 8}}}, "embedding_config.yml").names
    ['age']
    >>> embedding_config({"slots_config": {"age": {"dimm": 8}}}, "embedding_config.yml")
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: embedding_config.yml: slots_config.age has no key 'dimm'; did you mean ...
    """
    content = _checked(content, _EMBEDDING, where, "")
    slots = content.get("slots_config")
    if not isinstance(slots, Mapping) or not slots:
        raise ParameterError(f"{where}: slots_config must name at least one feature and its dim")
    checked = {str(name): _checked(slot, _SLOT, where, f"slots_config.{name}") for name, slot in slots.items()}
    groups = _groups(content.get("feature_groups") or {}, checked, where)
    made = [
        _slot(name, checked[name], group, where, init or Init()) for group, names in groups.items() for name in names
    ]
    return EmbeddingConfig(made, prefix_bits=content.get("feature_index_prefix_bit", 8))


def capacity_of(content: Mapping[str, Any]) -> int | None:
    """Rows for all slots together, where every slot says how many it may have."""
    slots = content.get("slots_config") or content.get("slot_config") or content.get("slot_configs") or {}
    sizes = [slot.get("capacity") for slot in slots.values()]
    return sum(sizes) if sizes and None not in sizes else None


def _slot(name: str, slot: Mapping[str, Any], group: str, where: str, init: Init) -> SlotConfig:
    if "dim" not in slot:
        raise ParameterError(f"{where}: slots_config.{name} needs dim, the width of its embeddings")
    stack = slot.get("hash_stack_config") or {}
    rounds = stack.get("hash_stack_rounds", 0)
    raw = not slot.get("embedding_summation", True)
    return SlotConfig(
        name,
        slot["dim"],
        pooling="raw" if raw else "sqrt_n" if slot.get("sqrt_scaling") else "sum",
        length=slot.get("sample_fixed_size", 10) if raw else None,
        hash_stack=HashStack(rounds, stack.get("embedding_size", 0), "farmhash") if rounds else None,
        group=group,
        init=init,
    )


def _groups(groups: Any, slots: Mapping[str, Any], where: str) -> dict[str, list[str]]:
    """The slots by group, in the order that numbers the groups: those named first, then each remaining slot's own."""
    if not isinstance(groups, Mapping):
        raise ParameterError(f"{where}: feature_groups must map a group to a list of features, got {groups!r}")
    found: dict[str, list[str]] = {}
    owner: dict[str, str] = {}
    for group, members in groups.items():
        check(f"{where}: feature_groups.{group}", members, ListOf(STR | Int()))
        members = [str(name) for name in members]  # YAML reads digits as numbers
        for name in members:
            if name not in slots:
                near = suggest(name, slots, "features")
                raise ParameterError(f"{where}: feature_groups.{group} names {name!r}, which has no slot{near}")
            if owner.setdefault(name, str(group)) != str(group):
                raise ParameterError(f"{where}: feature {name!r} is in the groups {owner[name]!r} and {group!r}")
        found[str(group)] = list(dict.fromkeys(members))
    for name in slots:
        if name not in owner:
            if name in found:
                raise ParameterError(
                    f"{where}: a group is called {name!r}, like a feature that is not in it; rename it"
                )
            found[name] = [name]
    return found


def _checked(content: Any, keys: Mapping[str, Any], where: str, section: str) -> dict[str, Any]:
    """Sections under their present names, every key known and every value within its bounds."""
    place = f"{where}: {section}" if section else where
    if not isinstance(content, Mapping):
        raise ParameterError(f"{place} must map keys to values, got {content!r}")
    found: dict[str, Any] = {}
    for given, value in content.items():
        key = str(given) if given in keys else _RENAMED.get(str(given), str(given))
        if key not in keys:
            raise ParameterError(f"{place} has no key {given!r}{suggest(str(given), keys, 'keys')}")
        if key in found:
            raise ParameterError(f"{place} has {key} twice, once under its old name")
        wanted = keys[key]
        if isinstance(wanted, Constraint):
            check(f"{place}.{key}" if section else f"{place}: {key}", value, wanted)
        elif wanted is not None:
            value = _checked(value or {}, wanted, where, f"{section}.{key}" if section else key)
        found[key] = value
    return found
