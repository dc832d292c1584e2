"""Ids that somebody chose because their hashes agree cost what other ids cost."""

import time

import numpy as np

from penstock.embedding import SGD, EmbeddingConfig, SlotConfig, Store
from penstock.embedding.table import Table
from penstock.kernels import cpu_embedding_index as index
from penstock.kernels.reference_embedding import mix

IDS = 40_000


def preimage(hashed: int) -> int:
    """The sign whose public hash is `hashed`: every step of it can be undone."""
    inverse = pow(0xD6E8FEB86659FD93, -1, 2**64)
    hashed ^= hashed >> 32
    for _ in range(2):
        hashed = hashed * inverse % 2**64
        hashed ^= hashed >> 32
    return hashed


def filled(signs: np.ndarray) -> tuple[Table, float]:
    """A table with these rows, and the seconds that it took."""
    header, settings = np.zeros(index.NUM_FIELDS, np.uint64), np.zeros(index.NUM_SETTINGS, np.float32)
    table = Table("user", header, settings, dim=4)
    columns = table.empty_columns(len(signs))
    columns.signs[:] = signs
    for part in (columns.weights, columns.states, columns.stamps):
        part[:] = 0
    began = time.process_time()
    table.write(columns)
    return table, time.process_time() - began


def test_chosen_ids_cost_no_more_than_random_ones():
    drawn = np.random.default_rng(0).integers(1, 2**63, IDS, dtype=np.uint64)
    filled(drawn[:100])  # compiles
    random, random_time = filled(drawn)
    for shared in (27, 30):  # bits that all hashes begin with, which chose the same segment
        chosen = np.array([preimage((0x2A5A5A5A << 64 - shared | n) % 2**64) for n in range(1, IDS + 1)], np.uint64)
        assert mix(int(chosen[0])) >> 64 - shared == mix(int(chosen[-1])) >> 64 - shared
        table, seconds = filled(chosen)
        assert table.rows == IDS
        assert table.bytes <= 1.5 * random.bytes
        assert seconds <= 10 * random_time + 0.5
        assert np.array_equal(np.sort(table.entries()[0]), np.sort(chosen))


def test_low_bits_cost_no_more_either():
    chosen = np.array([preimage(n << 16 | 0x1234) for n in range(IDS)], np.uint64)
    table, seconds = filled(chosen)
    assert table.rows == IDS
    assert seconds < 5


def test_the_key_is_another_for_every_table():
    keys = {int(filled(np.arange(1, 9, dtype=np.uint64))[0].header[index.KEY]) for _ in range(4)}
    assert len(keys) == 4


def test_the_numbering_of_a_batch_is_not_slowed_down_by_chosen_ids() -> None:
    """Multiples of the inverse of a known factor shared one place of the table that numbers the ids of a batch."""
    inverse = pow(0x9E3779B97F4A7C15, -1, 2**64)
    chosen = np.array([n * inverse % 2**64 for n in range(IDS)], np.uint64)
    chance = np.random.default_rng(0).integers(0, 2**63, IDS).astype(np.uint64)
    with Store(EmbeddingConfig([SlotConfig("user", dim=2)], prefix_bits=0), SGD(), num_threads=1) as store:
        for ids in (chosen, chance):
            store.lookup({"user": ids})
        seconds = {}
        for name, ids in (("chosen", chosen), ("chance", chance)):
            tries = []
            for _ in range(3):
                began = time.process_time()
                store.lookup({"user": ids}, train=False)
                tries.append(time.process_time() - began)
            seconds[name] = min(tries)
    assert seconds["chosen"] < 10 * seconds["chance"] + 0.01, seconds  # it was 300 times
