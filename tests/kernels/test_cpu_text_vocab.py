"""Texts as polars holds them, counted and encoded: against dictionaries."""

import collections

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.places import text_places_of
from penstock.kernels import cpu_table, cpu_text_table, reference
from penstock.kernels.cpu_text_vocab import TextCounter, TextEncoder, TextEncoders, count_texts_side_by_side

# Around what a view holds (12 bytes) and its prefix (4), alike in the first bytes, with zeros where padding would be.
EDGES = ["", "a", "abc", "abcd", "abcde", "abcd\0", "abcdefghijkl", "abcdefghijkm", "abcdefghijklm", "abcdefghijkln",
         "abcdefghijkl\0", "x" * 40, "x" * 39 + "y", "é" * 6, "é" * 7, "\0" * 12, "\0" * 13]  # fmt: skip


def counted(columns):
    counters = [TextCounter() for _ in columns]
    places = text_places_of(columns)
    count_texts_side_by_side(counters, places.table, places.num_rows, places.null_counts)
    return counters


def as_dict(counter):
    (data, offsets), counts = counter.items()
    return dict(zip(reference.bytes_list((data, offsets)), counts.tolist(), strict=True))


def expected(values):
    return dict(collections.Counter(v if isinstance(v, bytes) else v.encode() for v in values if v is not None))


def column_of(rng, num_rows, words, nulls=0.2):
    drawn = [words[i] for i in rng.integers(0, len(words), num_rows)]
    return [None if rng.random() < nulls else word for word in drawn]


@pytest.mark.parametrize("num_rows", [0, 1, 63, 65, 20_000])
def test_columns_side_by_side_are_counted_and_encoded(num_rows):
    """Tables and arenas grow in the middle of a column; nulls begin within a byte; columns are pieces of others."""
    rng = np.random.default_rng(num_rows)
    many = [f"word-{i}" * (i % 4) for i in range(9000)]
    values = [column_of(rng, num_rows, words) for words in (EDGES, many, [w + "!" * 50 for w in many], ["one"])]
    columns = [pl.Series([None, "cut", "off", *own, "too"], dtype=pl.String)[3 : 3 + num_rows] for own in values]
    columns[1] = pl.concat([columns[1][: num_rows // 2], columns[1][num_rows // 2 :]], rechunk=False)
    counters = counted(columns)
    for counter, own in zip(counters, values, strict=True):
        assert list(as_dict(counter).items()) == list(expected(own).items())  # in the order of first sight
        assert (counter.num_rows, counter.num_null) == (num_rows, own.count(None))
    lookups, layouts, tables = [], [], []
    for place, counter in enumerate(counters):
        known = list(as_dict(counter))[::2]
        codes = rng.permutation(len(known)) + 9
        flat = np.frombuffer(b"".join(known), np.uint8), np.cumsum([0, *map(len, known)]).astype(np.int64)
        lookups.append(TextEncoder(flat, codes))
        layouts.append((1, 2, 7 if place % 2 else 1))
        tables.append(dict(zip(known, codes.tolist(), strict=True)))
    places = text_places_of(columns)
    codes = TextEncoders(lookups, layouts).encode_places(places.table, places.num_rows, np.int64)
    for own, table, (null, oov, buckets), found in zip(values, tables, layouts, codes, strict=True):
        texts = [b"" if v is None else v.encode() for v in own]
        there = np.array([v is not None for v in own], bool)
        assert found.tolist() == reference.encode(texts, table, there, null, oov + 0, buckets)


@given(st.lists(st.one_of(st.none(), st.sampled_from(EDGES), st.text(max_size=20))))
def test_any_texts(values):
    assert as_dict(counted([pl.Series(values, dtype=pl.String)])[0]) == expected(values)


@given(st.lists(st.one_of(st.none(), st.binary(max_size=30))))
def test_any_bytes(values):
    [counter] = counted([pl.Series(values, dtype=pl.Binary)])
    assert as_dict(counter) == expected(values)
    (data, offsets), _ = counter.items()
    lookup = TextEncoder((data, offsets), np.arange(len(counter)))
    assert [lookup.get(own) for own in reference.bytes_list((data, offsets))] == list(range(len(counter)))


def test_what_stands_in_null_rows_is_not_looked_at():
    """Views of null rows may say anything: that they are long, in a buffer that is not there."""
    views = np.zeros((3, 2), np.uint64)
    views[0] = 1 | ord("a") << 32, 0
    views[1] = 2**32 - 1, 2**64 - 1  # of four gigabytes in buffer 2**32 - 1
    views[2] = views[0]
    bits, buffers = np.array([0b101], np.uint8), np.zeros(1, np.int64)
    places = np.array([[views.ctypes.data, bits.ctypes.data, 0, buffers.ctypes.data, 0]], np.int64)
    counter = TextCounter()
    count_texts_side_by_side([counter], places, 3, [1])
    assert as_dict(counter) == {b"a": 2}
    lookup = TextEncoder((np.frombuffer(b"a", np.uint8), np.array([0, 1])), np.array([5]))
    assert TextEncoders([lookup], [(1, 2, 9)]).encode_places(places, 3, np.int32).tolist() == [[5, 1, 5]]


def test_equal_tags_of_different_texts_are_told_apart():
    # Among 200,000 texts some four pairs share their 32-bit tag, short ones and long ones.
    for width in (9, 20):
        column = pl.Series([f"{i:0{width}d}" for i in range(200_000)])
        [counter] = counted([column])
        assert len(counter) == len(column)
        lookup = TextEncoder(counter.items()[0], np.arange(len(counter)))
        places = text_places_of([column])
        codes = TextEncoders([lookup], [(0, 0, 1)]).encode_places(places.table, places.num_rows, np.int32)
        assert (codes[0] == np.arange(len(column))).all()


@numba.njit
def _tags(lows, highs, placing):
    tags = np.empty(len(lows), np.uint64)
    for row in range(len(lows)):
        tags[row] = cpu_text_table._tag_of_words(lows[row], highs[row], placing)
    return tags


def test_chosen_texts_do_not_share_a_home():
    """Texts chosen to collide in one table lie as far apart as any others in a table with another key."""
    rng = np.random.default_rng(1)
    low = np.full(1 << 19, 12 | 0x64636261 << 32, np.uint64)
    high = rng.integers(0, 2**63, len(low)).astype(np.uint64)
    chosen = high[np.argsort(_tags(low, high, 20), kind="stable")[:2000]]
    first = low[:2000]
    assert len(np.unique(_tags(first, chosen, 20) >> np.uint64(20))) < 20
    # Of 2,000 in 4,096 places: 1,581 for values by chance.
    assert len(np.unique(_tags(first, chosen, cpu_table.new_key() << 6 | 20) >> np.uint64(20))) > 1200


def test_data_beyond_what_a_view_can_point_to():
    """Larger data are taken for pieces of a gigabyte: here, a text that begins where the fourth does."""
    words = [b"%d-" % i * 9 for i in range(50)]
    flat = np.frombuffer(b"".join(words), np.uint8), np.cumsum([0, *map(len, words)]).astype(np.int64)
    whole = TextCounter()
    whole.add(flat)
    views = np.empty((50, 2), np.uint64)
    cpu_text_table.write_views(flat[0].ctypes.data, flat[1], views)
    assert as_dict(whole) == dict.fromkeys(words, 1)
    assert ((views[:, 1] & np.uint64(2**32 - 1)) == 0).all()  # all within the first gigabyte
    far = np.array([3 << 30, (3 << 30) + 20], np.int64)
    own = np.zeros(64, np.uint8)
    start = own.ctypes.data - (3 << 30)
    cpu_text_table.write_views(start, far, views[:1])
    assert views[0, 1] == 3 and views[0, 0] & np.uint64(2**32 - 1) == 20
