"""Slots: which columns have embeddings, how wide, how pooled, and which share rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.core.errors import ArtefactError, ColumnNotFoundError, ParameterError
from penstock.core.params import NONE, STR, Int, OneOf, Real, Satisfies, check_all
from penstock.embedding.dims import DIM, Dims, dims_of

if TYPE_CHECKING:
    from penstock.core.schema import Schema

POOLINGS = ("sum", "mean", "sqrt_n", "raw")


@dataclass(frozen=True)
class HashStack:
    """Ids hashed `rounds` times into `rounds · size` rows, whose embeddings are summed: a small table for any id.

    Args:
        rounds: hashes of each id.
        size: rows for each of them.
        hashing: `"mix"`, or `"farmhash"`: each hash is FarmHash64 of the one before, modulo `size`, as PERSIA has it.

    >>> HashStack(rounds=2, size=1000)
    HashStack(rounds=2, size=1000, hashing='mix')
    """

    rounds: int
    size: int
    hashing: str = "mix"

    def __post_init__(self) -> None:
        bounds = {"rounds": Int(1, 64), "size": Int(1, 2**48), "hashing": OneOf(("mix", "farmhash"))}
        check_all(vars(self), bounds, "HashStack")


@dataclass(frozen=True)
class Init:
    """How new rows start: a pure function of the row's sign, so neither arrival order nor sharding matters.

    `Init("uniform", -0.01, 0.01)`, `Init("normal", mean, deviation)` or `Init("zeros")`. Each number is a hash of sign
    and column. `generator="xoshiro256++"` draws uniform ones from that generator instead, seeded with the sign as by
    Rust's `SmallRng` of rand 0.8, which is how PERSIA's rows start. Both are the same distribution, so a checkpoint
    fits a store whatever the generator.

    Args:
        kind: `"uniform"`, `"normal"` or `"zeros"`.
        a: the lower end, or the mean.
        b: the upper end, or the standard deviation.

    >>> Init("uniform", 0.1, -0.1)
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: Init.b, the upper end, must be ≥ a = 0.1, got -0.1
    """

    kind: str = "uniform"
    a: float = -0.01
    b: float = 0.01
    generator: str = dataclasses.field(default="hash", compare=False)

    def __post_init__(self) -> None:
        kinds, generators = OneOf(("uniform", "normal", "zeros")), OneOf(("hash", "xoshiro256++"))
        check_all(vars(self), {"kind": kinds, "a": Real(), "b": Real(), "generator": generators}, "Init")
        if self.generator != "hash" and self.kind != "uniform":
            raise ParameterError(f"Init.generator={self.generator!r} draws uniform numbers, not {self.kind} ones")
        if self.kind == "uniform" and self.b < self.a:
            raise ParameterError(f"Init.b, the upper end, must be ≥ a = {self.a}, got {self.b}")
        if self.kind == "normal" and self.b < 0:
            raise ParameterError(f"Init.b, the standard deviation, must be ≥ 0, got {self.b}")


@dataclass(frozen=True)
class SlotConfig:
    """One column with embeddings.

    `pooling` says what happens to a sample's rows: `sum`, `mean`, `sqrt_n` (the sum divided by √n), or `raw`: the first
    `length` rows, padded with zeros, and a mask. n counts the ids of the sample. Slots with the same `group` share rows
    (an id means the same in each); by default a slot has its own.

    Args:
        name: of the column.
        dim: the width of its embeddings.
        pooling: what happens to the rows of a sample.
        length: positions to keep, for `"raw"`.
        hash_stack: a small table for any id.
        group: what it shares rows with; itself by default.
        init: how new rows start.

    Raises:
        ParameterError: the settings do not go together.

    >>> SlotConfig("user", dim=16)
    SlotConfig(name='user', dim=16, pooling='sum', length=None, hash_stack=None, group='user', init=Init(...))
    >>> SlotConfig("history", dim=16, pooling="raw")
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: slot 'history': pooling='raw' needs length, the number of positions to keep
    """

    name: str
    dim: int
    pooling: str = "sum"
    length: int | None = None
    hash_stack: HashStack | None = None
    group: str = ""
    init: Init = Init()

    def __post_init__(self) -> None:
        constraints = {
            "name": Satisfies(lambda v: isinstance(v, str) and bool(v), "a non-empty string"),
            "dim": DIM,
            "pooling": OneOf(POOLINGS),
            "length": NONE | Int(1),
            "hash_stack": NONE | Satisfies(lambda v: isinstance(v, HashStack), "a HashStack"),
            "group": STR,
            "init": Satisfies(lambda v: isinstance(v, Init), "an Init"),
        }
        check_all(vars(self), constraints, f"slot {self.name!r}")
        if self.pooling == "raw" and self.length is None:
            raise ParameterError(f"slot {self.name!r}: pooling='raw' needs length, the number of positions to keep")
        if self.pooling != "raw" and self.length is not None:
            raise ParameterError(f"slot {self.name!r}: length is for pooling='raw', not {self.pooling!r}")
        if not self.group:
            object.__setattr__(self, "group", self.name)

    @property
    def width(self) -> int:
        """Floats a sample takes in the output."""
        return self.dim * (self.length or 1)


class EmbeddingConfig:
    """All slots of a store.

    Ids are any integers from 0 to 2^64 - 2; every group has a table of its own, so the same id in two groups is two
    rows. A row is kept under its *sign*, the id plus one.

    With `prefix_bits`, as PERSIA has them, a sign names its group too: `(number of the group + 1)` in the top bits, and
    below it the id modulo `2^(64 - prefix_bits) - 1`, so ids that large fold. More groups than the bits can name are
    refused rather than wrapped around.

    Args:
        slots: the columns with embeddings.
        prefix_bits: bits of a sign that name its group; none by default.

    Raises:
        ParameterError: a name comes twice, slots of a group differ, or groups do not fit in the prefix.

    >>> config = EmbeddingConfig([SlotConfig("user", 16), SlotConfig("item", 8), SlotConfig("seen", 8, group="item")])
    >>> config.groups
    ['user', 'item']
    >>> config["seen"].dim
    8
    >>> EmbeddingConfig([SlotConfig("user", 16), SlotConfig("ad", 16, group="user"), SlotConfig("ad", 8)])
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: slot 'ad' is configured twice
    """

    def __init__(self, slots: Iterable[SlotConfig], prefix_bits: int = 0) -> None:
        self.slots = tuple(slots)
        self.prefix_bits = prefix_bits
        check_all({"prefix_bits": prefix_bits}, {"prefix_bits": Int(0, 32)}, "EmbeddingConfig")
        self._by_name: dict[str, SlotConfig] = {}
        self._groups: dict[str, list[SlotConfig]] = {}
        for slot in self.slots:
            if slot.name in self._by_name:
                raise ParameterError(f"slot {slot.name!r} is configured twice")
            self._by_name[slot.name] = slot
            self._groups.setdefault(slot.group, []).append(slot)
        if not self.slots:
            raise ParameterError("an EmbeddingConfig needs at least one slot")
        self._check_groups()

    def _check_groups(self) -> None:
        most = 2**self.prefix_bits - 1
        if self.prefix_bits and len(self._groups) > most:
            need = len(self._groups).bit_length()
            raise ParameterError(
                f"{len(self._groups)} groups do not fit in prefix_bits={self.prefix_bits} (at most {most}); "
                f"use prefix_bits={need} or more, or let slots share groups"
            )
        for name, slots in self._groups.items():
            for slot in slots[1:]:
                if (slot.dim, slot.init) != (slots[0].dim, slots[0].init):
                    raise ParameterError(
                        f"slots {slots[0].name!r} and {slot.name!r} share group {name!r} and so must have the same dim "
                        f"and init, got {slots[0].dim}, {slots[0].init} and {slot.dim}, {slot.init}"
                    )
        for slot in self.slots:
            stack = slot.hash_stack
            if stack and stack.rounds * stack.size >= 2 ** (64 - self.prefix_bits) - 1:
                raise ParameterError(f"slot {slot.name!r}: its hash stack has more rows than a sign can name")

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    @property
    def groups(self) -> list[str]:
        return list(self._groups)

    def members(self, group: str) -> list[SlotConfig]:
        """The slots that share a group's rows.

        Args:
            group: its name.

        Returns:
            The slots, in order.
        """
        return self._groups[group]

    @property
    def modulus(self) -> int:
        """What ids are folded by; 2^64 where all their bits count."""
        return 2 ** (64 - self.prefix_bits) - 1 if self.prefix_bits else 2**64

    def prefix(self, group: str) -> int:
        """What a group adds to its ids: its number plus one in the top bits, or just 1, as no sign is 0.

        Args:
            group: its name.

        Returns:
            A number to add to ids.
        """
        return (self.groups.index(group) + 1) << (64 - self.prefix_bits) if self.prefix_bits else 1

    def sign(self, slot: str, identity: int) -> int:
        """The sign of an id of a slot without a hash stack.

        Args:
            slot: its name.
            identity: the id.

        Returns:
            64 bits.

        >>> hex(EmbeddingConfig([SlotConfig("user", 4)]).sign("user", 255))
        '0x100'
        >>> hex(EmbeddingConfig([SlotConfig("user", 4)], prefix_bits=8).sign("user", 255))
        '0x1000000000000ff'
        """
        return self.prefix(self[slot].group) + identity % self.modulus

    def __getitem__(self, name: str) -> SlotConfig:
        if name not in self._by_name:
            raise ColumnNotFoundError(name, self._by_name, "the slots of the store")
        return self._by_name[name]

    def __iter__(self) -> Iterator[SlotConfig]:
        return iter(self.slots)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EmbeddingConfig):
            return NotImplemented
        return self.prefix_bits == other.prefix_bits and list(self.slots) == list(other.slots)

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the checkpoint.

        Returns:
            The prefix and the slots.
        """
        return {"prefix_bits": self.prefix_bits, "slots": [dataclasses.asdict(slot) for slot in self.slots]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EmbeddingConfig:
        """The configuration that `to_dict` described.

        Args:
            data: what `to_dict` gave.

        Returns:
            The configuration.

        Raises:
            ArtefactError: it cannot be read.
        """
        try:
            slots = [
                SlotConfig(
                    **{
                        **slot,
                        "init": Init(**slot["init"]),
                        "hash_stack": HashStack(**slot["hash_stack"]) if slot["hash_stack"] else None,
                    }
                )
                for slot in data["slots"]
            ]
            return cls(slots, data["prefix_bits"])
        except (TypeError, KeyError) as error:
            raise ArtefactError(f"the saved embedding configuration cannot be read: {error}") from error

    def __repr__(self) -> str:
        return f"EmbeddingConfig({len(self.slots)} slots in {len(self._groups)} groups, prefix_bits={self.prefix_bits})"


def slots_from_schema(schema: Schema, dim: Dims, pooling: str = "mean", init: Init | None = None) -> list[SlotConfig]:
    """One slot for each categorical column of a schema, in its order; those of one vocabulary share their rows.

    Args:
        schema: of a loader or a workflow's output.
        dim: width of an embedding: one for all columns, `{column: width}`, or a list.
        pooling: of list columns.
        init: how rows begin; see `Init`.

    Returns:
        The slots, as `Store` takes them.

    >>> from penstock import ColumnSchema, Schema
    >>> schema = Schema([ColumnSchema("user", "int64", role="categorical"), ColumnSchema("price", "float32")])
    >>> [(slot.name, slot.dim, slot.pooling) for slot in slots_from_schema(schema, 16)]
    [('user', 16, 'sum')]
    """
    columns = schema.select(roles="categorical")
    dims = dims_of(dim, columns.names, "slots_from_schema.dim", "columns")
    start, groups = Init() if init is None else init, shared_groups(schema, dims)
    return [
        SlotConfig(
            c.name, dims[c.name], pooling=pooling if c.is_list else "sum", init=start, group=groups.get(c.name, "")
        )
        for c in columns
    ]


def shared_groups(schema: Schema, dims: Mapping[str, int] | None = None) -> dict[str, str]:
    """The group of each categorical column that shares its vocabulary with another: equal codes mean equal values.

    Args:
        schema: of a loader or a workflow's output.
        dims: of the columns' embeddings; those of several dims cannot share rows. None: all have the same.

    Returns:
        Groups by column; columns with a vocabulary of their own are left out.

    >>> from penstock import ColumnSchema, Schema
    >>> shared = {"role": "categorical", "cardinality": 9, "properties": {"vocabulary": "item_last"}}
    >>> shared_groups(Schema([ColumnSchema(name, "int64", **shared) for name in ("item", "last")]))
    {'item': 'item_last', 'last': 'item_last'}
    """
    found: dict[tuple[str, int | None, int | None], list[str]] = {}
    for column in schema.select(roles="categorical"):
        vocabulary = column.properties.get("vocabulary")
        if isinstance(vocabulary, str):
            dim = None if dims is None else dims[column.name]
            found.setdefault((vocabulary, column.cardinality, dim), []).append(column.name)
    groups: dict[str, str] = {}
    for (vocabulary, _, dim), names in found.items():
        if len(names) > 1:
            groups |= dict.fromkeys(names, vocabulary if vocabulary not in groups.values() else f"{vocabulary}_{dim}")
    return groups
