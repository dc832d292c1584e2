"""Where a run's embeddings live, a store or tables on the model's device, and what each takes of the settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from penstock.core.errors import ParameterError, PenstockError, suggest
from penstock.core.schema import Role, Schema
from penstock.embedding import CachedEmbeddings, Eviction, FusedEmbeddings, HashedEmbeddings, Store
from penstock.embedding.dims import dims_of
from penstock.embedding.fused.settings import WEIGHT_DTYPES, row_owners, table_optimizer, table_sizes, update_rule
from penstock.embedding.optimizers import fused_optimizers
from penstock.embedding.protocol import Embeddings
from penstock.embedding.slots import Init, SlotConfig, shared_groups
from penstock.embedding.store import store_parameters
from penstock.jobs.settings import ON_DEVICE, TrainSettings

_STORAGES = tuple(str(dtype).removeprefix("torch.") for dtype in WEIGHT_DTYPES)
_BESIDE_TABLES = 2 << 30  # bytes that a step takes beyond weights and optimizer state
_INDEX_BYTES, _SLOT_BYTES = 4, 12  # that a cache takes for every row of every table, and for every row on the device
_INSTEAD = "; change that, or keep the embeddings in a store: tables: store (--tables store)"


def choose_tables(settings: TrainSettings, schema: Schema, device: torch.device) -> str:
    """What `tables` says; for "auto", "fused" on a GPU where all that is asked for fits into tables, else "store"."""
    if not schema.select(roles=Role.CATEGORICAL).names:
        return "store"  # of nothing
    if settings.tables != "auto":
        return settings.tables
    if device.type != "cuda":
        return "store"
    try:
        _check_memory(settings, schema, device)
    except PenstockError:  # an optimizer or a policy that only a store has, a column without a cardinality, no room
        return "store"
    return "fused"


def build_embeddings(settings: TrainSettings, schema: Schema, device: torch.device) -> Embeddings | None:
    """What is trained beside the model; None where there is no categorical column."""
    if not schema.select(roles=Role.CATEGORICAL).names:
        return None
    kind = choose_tables(settings, schema, device)
    if kind == "store":
        return build_store(settings, schema)
    torch.manual_seed(settings.seed + 1)
    return _BUILDERS[kind](settings, schema, device)


def _fused(settings: TrainSettings, schema: Schema, device: torch.device) -> FusedEmbeddings:
    if device.type == "cuda":
        _check_memory(settings, schema, device)
    return FusedEmbeddings(schema, _dims(settings, schema), device=device, **fused_arguments(settings))


def _cached(settings: TrainSettings, schema: Schema, device: torch.device) -> CachedEmbeddings:
    rows = cache_rows(settings, schema, device)
    return CachedEmbeddings(
        schema, _dims(settings, schema), cache_rows=rows, device=device, **fused_arguments(settings)
    )


def _hashed(settings: TrainSettings, schema: Schema, device: torch.device) -> HashedEmbeddings | CachedEmbeddings:
    """Their numbers are those of `tables: store` with the same ids."""
    own = {**hashed_arguments(settings, schema), "device": device, "seed": settings.seed}
    if (rows := settings.store.get("cache_rows")) is not None:
        return CachedEmbeddings(schema, cache_rows=rows, hashed=True, **own)
    return HashedEmbeddings(schema, **own)


_BUILDERS: dict[str, Callable[[TrainSettings, Schema, torch.device], Embeddings]] = {
    "fused": _fused,
    "cached": _cached,
    "hashed": _hashed,
}


def _dims(settings: TrainSettings, schema: Schema) -> int | dict[str, int]:
    return settings.dims(schema.select(roles=Role.CATEGORICAL).names)


def count_rows(store: Any) -> int:
    """Rows that a store or tables hold."""
    return 0 if store is None else store.stats()["rows"]


def check_embeddings(settings: TrainSettings, schema: Schema, is_fitted: bool) -> None:
    """Refuse what cannot be built, without building tables; cardinalities are there once the workflow is fitted."""
    slots = store_slots(settings, schema)
    if slots:
        given = {"storage": "float32", "admission": None, "eviction": None, **settings.store_arguments()}
        given.pop("num_threads", None)
        store_parameters(slots, settings.build_embedding_optimizer(), seed=settings.seed, **given)
    if settings.tables not in ("cached", "hashed") and settings.store.get("cache_rows") is not None:
        raise ParameterError("store.cache_rows goes with tables: cached or hashed (--tables cached)")
    if not slots:
        return
    if settings.tables == "hashed":
        hashed_arguments(settings, schema)
    elif settings.tables in ON_DEVICE:
        fused_arguments(settings)
        if is_fitted:
            table_sizes(schema)


def build_store(settings: TrainSettings, schema: Schema) -> Store | None:
    """A store with a slot for each categorical column; None where there is none."""
    slots = store_slots(settings, schema)
    if not slots:
        return None
    return Store(slots, settings.build_embedding_optimizer(), seed=settings.seed, **settings.store_arguments())


def store_slots(settings: TrainSettings, schema: Schema) -> list[SlotConfig]:
    """A slot for each categorical column, as the settings say."""
    columns = schema.select(roles=Role.CATEGORICAL)
    for name in settings.slots:
        if name not in columns:
            raise ParameterError(f"slots names {name!r}{suggest(name, columns.names, 'categorical columns')}")
    dims = dims_of(settings.dims(columns.names), columns.names, "embedding_dim", "columns")
    slots, groups = [], shared_groups(schema, dims)
    for column in columns:
        own = {"group": groups.get(column.name, ""), **settings.slot(column.name)}
        own.setdefault("pooling", settings.pooling if column.is_list else "sum")
        own["dim"] = dims[column.name]
        slots.append(SlotConfig(column.name, **own))
    return slots


def fused_arguments(settings: TrainSettings) -> dict[str, Any]:
    """What `FusedEmbeddings` take of the settings; what they cannot do is refused."""
    for slot, own in settings.slots.items():
        if beside := [key for key in own if key != "dim"]:
            raise ParameterError(
                f"slots.{slot} sets {', '.join(beside)}, which tables on the device do not have{_INSTEAD}"
            )
    for key in ("admission", "eviction", "num_threads"):
        if settings.store.get(key) is not None:
            raise ParameterError(f"store.{key} is set, which tables on the device do not have{_INSTEAD}")
    storage = settings.store.get("storage") or "float32"
    if storage not in _STORAGES:
        raise ParameterError(
            f"store.storage is {storage!r}, and tables on the device are {' or '.join(_STORAGES)}{_INSTEAD}"
        )
    optimizer = settings.build_embedding_optimizer()
    try:
        table_optimizer(optimizer, None)
    except ParameterError:
        raise ParameterError(
            f"embedding_optimizer is {dict(settings.embedding_optimizer)}, and tables on the device take "
            f"{', '.join(fused_optimizers())}, without momentum{_INSTEAD}"
        ) from None
    return {"optimizer": optimizer, "dtype": storage, "pooling": settings.pooling, "scale": _scale(settings)}


def hashed_arguments(settings: TrainSettings, schema: Schema) -> dict[str, Any]:
    """What `HashedEmbeddings` take of the settings; what they cannot do is refused."""
    dim = _dims(settings, schema)
    if not isinstance(dim, int):
        raise ParameterError(f"slots give the columns several dims, and hashed tables have one{_INSTEAD}")
    eviction = settings.store_arguments().get("eviction")
    plain = replace(settings, store={key: value for key, value in settings.store.items() if key != "eviction"})
    own = {"dim": dim, "max_rows": None, **fused_arguments(plain)}
    if eviction is None:
        return own
    if eviction != Eviction("lru", max_rows=eviction.max_rows):
        raise ParameterError(
            f"store.eviction is {settings.store['eviction']}, and hashed tables evict by policy: lru and max_rows "
            f"alone{_INSTEAD}"
        )
    return {**own, "max_rows": eviction.max_rows}


def _scale(settings: TrainSettings) -> float:
    """Weights start uniform in ±scale."""
    given = settings.store.get("init")
    init = Init() if given is None else Init(**given)
    if init.kind == "zeros":
        return 0.0
    if init.kind == "uniform" and init.generator == "hash" and init.a == -init.b:
        return init.b
    raise ParameterError(
        f"store.init is {given}, and tables on the device start at zeros or uniform between -b and b{_INSTEAD}"
    )


def needed_bytes(settings: TrainSettings, schema: Schema) -> int:
    """What weights and optimizer state of tables on the device take."""
    arguments = fused_arguments(settings)
    return sum(_row_bytes(arguments, dim) * rows for dim, rows in _tables(settings, schema))


def _tables(settings: TrainSettings, schema: Schema) -> list[tuple[int, int]]:
    """Dim and rows of each table; one that columns share comes once."""
    sizes = table_sizes(schema)
    dims = dims_of(settings.dims(list(sizes)), list(sizes), "embedding_dim")
    owners = set(row_owners(schema, dims).values())
    return [(dims[name], rows) for name, rows in sizes.items() if name in owners]


def _row_bytes(arguments: Mapping[str, Any], dim: int) -> int:
    states = [shape for shape in update_rule(arguments["optimizer"]).states(dim) if shape is not None]
    return dim * (2 if arguments["dtype"] == "bfloat16" else 4) + sum(4 * math.prod(shape) for shape in states)


def cache_rows(settings: TrainSettings, schema: Schema, device: torch.device) -> int:
    """Rows of `tables: cached` on the device: `store.cache_rows`, or as many as a GPU has room for."""
    tables, asked = _tables(settings, schema), settings.store.get("cache_rows")
    total = sum(rows for _, rows in tables)
    if device.type != "cuda":
        return min(asked or total, total)
    free, _ = torch.cuda.mem_get_info(device)
    widest = _row_bytes(fused_arguments(settings), max(dim for dim, _ in tables))
    room = (free - _BESIDE_TABLES - _INDEX_BYTES * total) // (widest + _SLOT_BYTES)
    if room < (asked or 1):
        raise ParameterError(
            f"{device} has {free / 2**30:.1f} GiB free, of which a step takes up to 2 and the index of {total:,} rows "
            f"{_INDEX_BYTES * total / 2**30:.1f}; that leaves room for {max(0, room):,} cached rows, and "
            f"store.cache_rows is {asked}; set it lower, or keep the embeddings in a store: tables: store"
        )
    return min(asked or room, total)


def _check_memory(settings: TrainSettings, schema: Schema, device: torch.device) -> None:
    """Refuse tables that the GPU has no room for, before torch says so in its own words."""
    needed = needed_bytes(settings, schema)
    free, _ = torch.cuda.mem_get_info(device)
    if needed + _BESIDE_TABLES > free:
        raise ParameterError(
            f"the tables and their optimizer state take {needed / 2**30:.1f} GiB and a step up to 2 more, and {device} "
            f"has {free / 2**30:.1f} GiB free; use tables: cached (--tables cached), which keeps only the rows in use "
            f"there, tables: store, a row-wise optimizer or store.storage: bfloat16"
        )
