"""Slot configuration: groups, prefix bits, hash stacks."""

from __future__ import annotations

import pytest

from penstock import ColumnSchema, Schema
from penstock.core.errors import ArtefactError, ColumnNotFoundError, ParameterError
from penstock.embedding.slots import EmbeddingConfig, HashStack, Init, SlotConfig, slots_from_schema


def test_signs_carry_the_group_in_their_top_bits():
    config = EmbeddingConfig([SlotConfig("a", 4), SlotConfig("b", 4), SlotConfig("c", 4, group="a")], prefix_bits=12)
    assert config.sign("a", 7) == (1 << 52) | 7
    assert config.sign("b", 7) == (2 << 52) | 7
    assert config.sign("c", 7) == config.sign("a", 7)
    assert config.sign("a", 2**52 - 1) == 1 << 52  # ids are taken modulo 2^52 - 1
    assert config.sign("a", 2**52 + 4) == (1 << 52) | 5


def test_groups_that_would_wrap_around_are_refused():
    slots = [SlotConfig(f"c{i}", 4) for i in range(256)]
    EmbeddingConfig(slots[:255], prefix_bits=8)
    EmbeddingConfig(slots)
    with pytest.raises(ParameterError, match=r"256 groups do not fit in prefix_bits=8 .*use prefix_bits=9"):
        EmbeddingConfig(slots, prefix_bits=8)
    EmbeddingConfig(slots, prefix_bits=9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SlotConfig("", 4), "non-empty"),
        (lambda: SlotConfig("a", 0), "slot 'a'.dim must be an int from 1"),
        (lambda: SlotConfig("a", 4, pooling="max"), "'sum', 'mean', 'sqrt_n', 'raw'"),
        (lambda: SlotConfig("a", 4, length=3), "length is for pooling='raw'"),
        (lambda: HashStack(0, 10), "HashStack.rounds"),
        (lambda: Init("normal", 0, -1), "standard deviation"),
        (lambda: Init("normal", 0, 1, generator="xoshiro256++"), "draws uniform numbers, not normal ones"),
        (lambda: Init(generator="mt19937"), "Init.generator"),
        (lambda: EmbeddingConfig([]), "at least one slot"),
        (lambda: EmbeddingConfig([SlotConfig("a", 4), SlotConfig("b", 8, group="a")]), "'a' and 'b' share group 'a'"),
        (lambda: EmbeddingConfig([SlotConfig("a", 4)], prefix_bits=33), "prefix_bits"),
    ],
)
def test_bad_configurations_are_refused_by_name(make, message):
    with pytest.raises(ParameterError, match=message):
        make()


def test_configuration_survives_as_plain_data():
    config = EmbeddingConfig(
        [SlotConfig("a", 4, hash_stack=HashStack(2, 10)), SlotConfig("b", 8, "raw", 5, init=Init("zeros"))], 10
    )
    assert EmbeddingConfig.from_dict(config.to_dict()) == config
    with pytest.raises(ArtefactError, match="cannot be read"):
        EmbeddingConfig.from_dict({"slots": [{"nam": 1}], "prefix_bits": 8})
    with pytest.raises(ColumnNotFoundError, match="did you mean 'a'"):
        config["aa"]


def test_columns_of_a_schema_with_dims_of_their_own() -> None:
    shared = {"role": "categorical", "cardinality": 9, "properties": {"vocabulary": "v"}}
    schema = Schema([ColumnSchema(name, "int64", **shared) for name in ("a", "b", "c", "d", "e")])
    slots = slots_from_schema(schema, {"a": 4, "b": 8, "c": 4, "d": 8, "e": 2})
    assert [(slot.name, slot.dim, slot.group) for slot in slots] == [
        ("a", 4, "v"), ("b", 8, "v_8"), ("c", 4, "v"), ("d", 8, "v_8"), ("e", 2, "e"),
    ]  # fmt: skip
    EmbeddingConfig(slots)
    with pytest.raises(ParameterError, match=r"slots_from_schema\.dim has nothing for 'b'"):
        slots_from_schema(schema, {"a": 4})
    with pytest.raises(ParameterError, match=r"slots_from_schema\.dim must be an int"):
        slots_from_schema(schema, 0)
