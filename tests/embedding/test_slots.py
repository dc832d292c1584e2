"""Slot configuration: groups, prefix bits, hash stacks."""

from __future__ import annotations

import pytest

from penstock.core.errors import ArtefactError, ColumnNotFoundError, ParameterError
from penstock.embedding.slots import EmbeddingConfig, HashStack, Init, SlotConfig


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
