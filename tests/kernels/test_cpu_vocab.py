"""Counter and Encoder against dictionaries."""

from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import ParameterError
from penstock.kernels import cpu_hash, cpu_table, reference
from penstock.kernels.cpu_intrinsics import address_of
from penstock.kernels.cpu_text_vocab import TextCounter, TextEncoder
from penstock.kernels.cpu_vocab import Counter, Encoder, Encoders32, count_side_by_side

KINDS = ["uint32", "uint64", "bytes"]


def new_counter(kind):
    return TextCounter() if kind == "bytes" else Counter(kind)


def new_encoder(kind, keys, codes):
    return TextEncoder(keys, codes) if kind == "bytes" else Encoder(kind, keys, codes)


def make_keys(kind, values):
    """Python values as the arrays a kind takes."""
    if kind != "bytes":
        return np.array(values, kind)
    return np.frombuffer(b"".join(values), np.uint8), np.cumsum([0, *map(len, values)]).astype(np.int64)


def as_dict(counter):
    keys, counts = counter.items()
    listed = reference.bytes_list(keys) if counter.kind == "bytes" else keys.tolist()
    assert len(set(listed)) == len(listed) == len(counter) == len(counts)
    return dict(zip(listed, counts.tolist(), strict=True))


def draw(kind, rng, num_rows, num_distinct):
    """A column of `num_rows` values with at most `num_distinct` different ones, the extremes among them."""
    if kind == "bytes":
        words = [b"", b"\x00", b"\x00\x00", *(b"w%x" % (i * 7919) * (i % 5 + 1) for i in range(num_distinct))]
        return [words[i] for i in rng.integers(0, max(num_distinct, 1), num_rows)]
    top = np.iinfo(kind).max
    extremes = np.array([0, 1, top, top - 1], kind)
    words = np.concatenate([extremes, rng.integers(0, top, num_distinct, dtype=kind)])
    return words[rng.integers(0, max(num_distinct, 1), num_rows)].tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("num_rows", "num_distinct"), [(0, 1), (1, 1), (63, 5), (64, 64), (65, 3), (20_000, 9_000)])
def test_counts_and_order_agree_with_a_dictionary(kind, num_rows, num_distinct):
    rng = np.random.default_rng(num_rows)
    values = draw(kind, rng, num_rows, num_distinct)
    valid, weights = rng.random(num_rows) < 0.7, rng.integers(0, 9, num_rows)
    for mask, amounts in [(None, None), (valid, None), (None, weights), (valid, weights)]:
        counter = new_counter(kind)
        for part in (slice(0, num_rows // 3), slice(num_rows // 3, num_rows)):
            counter.add(
                make_keys(kind, values[part]),
                None if mask is None else mask[part],
                None if amounts is None else amounts[part],
            )
        expected = reference.count_values(values, mask, amounts)
        assert list(as_dict(counter).items()) == list(expected.items())
        ones = np.ones(num_rows, int) if amounts is None else amounts
        assert counter.num_rows == ones.sum()
        assert counter.num_null == (0 if mask is None else ones[~mask].sum())


@pytest.mark.parametrize("kind", KINDS)
def test_merge_equals_counting_everything(kind):
    rng = np.random.default_rng(5)
    left, right = draw(kind, rng, 3000, 800), draw(kind, rng, 2000, 1500)
    valid = rng.random(3000) < 0.5
    one, two, whole = new_counter(kind), new_counter(kind), new_counter(kind)
    one.add(make_keys(kind, left), valid)
    two.add(make_keys(kind, right))
    whole.add(make_keys(kind, left), valid)
    whole.add(make_keys(kind, right))
    one.merge(two)
    assert list(as_dict(one).items()) == list(as_dict(whole).items())
    assert (one.num_rows, one.num_null) == (whole.num_rows, whole.num_null) == (5000, int((~valid).sum()))
    one.merge(new_counter(kind))
    assert as_dict(one) == as_dict(whole)


@given(st.lists(st.binary(max_size=40), max_size=60))
@settings(max_examples=50, deadline=None)
def test_any_byte_strings(values):
    counter = TextCounter()
    counter.add(make_keys("bytes", values))
    assert as_dict(counter) == reference.count_values(values)


def test_equal_tags_of_different_keys_are_told_apart():
    # Among 200,000 keys some four pairs share their 32-bit tag.
    keys = np.arange(200_000, dtype=np.uint64) * np.uint64(2**40 + 1)
    counter = Counter("uint64")
    counter.add(keys)
    assert len(counter) == len(keys)
    assert (Encoder("uint64", keys, np.arange(len(keys))).encode(keys) == np.arange(len(keys))).all()


def test_tag_is_a_bijection_with_its_inverse():
    keys = np.concatenate([np.arange(1000), np.random.default_rng(0).integers(0, 2**32, 1000), [2**32 - 1]])
    for key in keys.tolist():
        for placing in (0, 23, 2**63 - 1, 0x0123456789ABCDEF):
            assert int(cpu_table.key32(cpu_table.tag32(np.uint32(key), placing), placing)) == key


def _of_one_home(kind, count):
    """Keys that share the upper bits of their tags, and so the home, in a table whose key is known (here: 0)."""
    if kind == "uint32":
        return np.array([cpu_table.key32(np.uint64(tag), 0) for tag in range(count)], np.uint32)
    hashes = cpu_hash.hash64(np.arange(count << 8, dtype=np.uint64))
    tags = _tags_of(hashes, 0)
    return np.sort(np.argsort(tags, kind="stable")[:count]).astype(np.uint64)


@numba.njit
def _tags_of(hashes, placing):
    tags = np.empty(len(hashes), np.uint64)
    for row in range(len(hashes)):
        tags[row] = cpu_table.tag_of_hash(hashes[row], placing)
    return tags


@pytest.mark.parametrize("kind", ["uint32", "uint64"])
def test_chosen_values_do_not_share_a_home(kind):
    """Values chosen to collide in one table lie as far apart as any others in a table with another key."""
    keys = _of_one_home(kind, 2000)
    placing = 20  # a table of 4096 slots, whose key is 0
    of_table = (
        (lambda p: np.array([cpu_table.tag32(key, p) for key in keys], np.uint64))
        if kind == "uint32"
        else (lambda p: _tags_of(cpu_hash.hash64(keys), p))
    )
    chosen = np.unique(of_table(placing) >> np.uint64(20))
    keyed = np.unique(of_table(cpu_table.new_key() << 6 | 20) >> np.uint64(20))
    assert len(chosen) < 20
    assert len(keyed) > 1200  # of 2,000 in 4,096 places: 1,581 for values by chance
    counter = new_counter(kind)
    counter.add(keys)
    assert len(counter) == 2000
    assert np.array_equal(counter.items()[0], keys)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_buckets", [1, 7])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_encode_and_get_agree_with_a_dictionary(kind, num_buckets, dtype):
    rng = np.random.default_rng(11)
    values = draw(kind, rng, 3000, 900)
    known = list(dict.fromkeys(values))[::2]
    codes = rng.permutation(len(known)) + 3
    lookup = new_encoder(kind, make_keys(kind, known), codes)
    table = dict(zip(known, codes.tolist(), strict=True))
    valid = rng.random(len(values)) < 0.8
    for mask in (None, valid):
        expected = reference.encode(values, table, mask, 1, 5000, num_buckets)
        got = lookup.encode(make_keys(kind, values), mask, 1, 5000, num_buckets, dtype=dtype)
        assert got.dtype == dtype
        assert got.tolist() == expected
    assert len(lookup) == len(known)
    unmasked = reference.encode(values, table, None, 1, 5000, num_buckets)
    assert [lookup.get(value, 5000, num_buckets) for value in values[:300]] == unmasked[:300]


@pytest.mark.parametrize("num_rows", [0, 1, 63, 65, 20_000])
@pytest.mark.parametrize("num_buckets", [1, 7])
def test_columns_side_by_side_are_as_one_by_one(num_rows, num_buckets):
    """Counted with tables that grow in the middle of a column, encoded with nulls that begin within a byte."""
    rng = np.random.default_rng(num_rows)
    keys = [rng.integers(0, high, num_rows + 3, dtype=np.uint32)[3:] for high in (2, 50, 30_000, 2**32)]
    valid = [None, *(rng.random(num_rows) < 0.8 for _ in keys[1:])]
    bits = [None if own is None else np.packbits(np.r_[[False] * 3, own], bitorder="little") for own in valid]
    begins = [(0, 0) if own is None else (address_of(own), 3) for own in bits]
    places = np.array([(address_of(own), *begin) for own, begin in zip(keys, begins, strict=True)], np.int64)
    nulls = [0 if own is None else int((~own).sum()) for own in valid]
    together, alone = [Counter("uint32") for _ in keys], [Counter("uint32") for _ in keys]
    for _ in range(2):
        count_side_by_side(together, places, num_rows, nulls)
        for counter, own, mask in zip(alone, keys, valid, strict=True):
            counter.add(own, mask)
    for one, other in zip(together, alone, strict=True):
        assert [part.tolist() for part in one.items()] == [part.tolist() for part in other.items()]
        assert (one.num_rows, one.num_null, len(one)) == (other.num_rows, other.num_null, len(other))
    lookups = []
    for counter in alone:
        known = counter.items()[0][::2].copy()
        lookups.append(Encoder("uint32", known, np.arange(len(known)) + 9))
    layout = (1, 2, num_buckets)
    codes = Encoders32(lookups, [layout] * len(keys)).encode_places(places, num_rows, np.int32)
    for lookup, own, mask, found in zip(lookups, keys, valid, codes, strict=True):
        assert found.tolist() == lookup.encode(own, mask, *layout).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_empty_lookup_knows_nothing(kind):
    lookup = new_encoder(kind, make_keys(kind, []), np.empty(0, np.int64))
    values = [b"", b"a"] if kind == "bytes" else [0, 1]
    assert lookup.encode(make_keys(kind, values), oov_code=2).tolist() == [2, 2]
    assert lookup.get(values[0]) == -1


def test_get_takes_signed_and_oversized_integers():
    low = Encoder("uint32", np.array([2**32 - 1, 0], np.uint32), np.array([10, 11]))
    assert [low.get(key) for key in (-1, 2**32 - 1, 0, 2**32, -(2**31) - 1)] == [10, 10, 11, -1, -1]
    wide = Encoder("uint64", np.array([2**64 - 1, 2**63], np.uint64), np.array([10, 11]))
    assert [wide.get(key) for key in (-1, 2**64 - 1, 2**63, np.uint64(2**63), 5)] == [10, 10, 11, 11, -1]


@pytest.mark.parametrize("kind", KINDS)
def test_duplicate_keys_are_refused(kind):
    values = [b"a", b"b", b"a"] if kind == "bytes" else [4, 5, 4]
    with pytest.raises(ParameterError, match="position 2"):
        new_encoder(kind, make_keys(kind, values), np.arange(3))


@pytest.mark.parametrize("kind", KINDS)
def test_threads_share_a_lookup_and_keep_their_own_counters(kind):
    rng = np.random.default_rng(3)
    values = draw(kind, rng, 4000, 500)
    known = list(dict.fromkeys(values))
    lookup = new_encoder(kind, make_keys(kind, known), np.arange(len(known)))

    def work(_):
        counter = new_counter(kind)
        counter.add(make_keys(kind, values))
        return as_dict(counter), lookup.encode(make_keys(kind, values)).tolist()

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(8)))
    assert all(result == results[0] for result in results)
    assert results[0][0] == reference.count_values(values)


def test_wrong_arguments_name_the_setting():
    counter = Counter("uint32")
    with pytest.raises(ParameterError, match="kind must be one of"):
        Counter("float32")
    with pytest.raises(ParameterError, match="1-D array of uint32, got int64 array"):
        counter.add(np.arange(3))
    with pytest.raises(ParameterError, match="valid must have one entry per row"):
        counter.add(np.arange(3, dtype=np.uint32), valid=np.ones(2, bool))
    with pytest.raises(ParameterError, match=r"\(data, offsets\)"):
        TextCounter().add(np.arange(3))
    with pytest.raises(ParameterError, match="cannot merge"):
        counter.merge(Counter("uint64"))
    with pytest.raises(ParameterError, match="codes must lie in"):
        Encoder("uint32", np.arange(1, dtype=np.uint32), np.array([-1]))


@pytest.mark.parametrize("kind", KINDS)
def test_load_stays_at_most_a_half_and_memory_is_reported(kind):
    counter = new_counter(kind)
    values = [b"%d" % i for i in range(5000)] if kind == "bytes" else list(range(5000))
    counter.add(make_keys(kind, values))
    assert len(counter) <= len(counter._slots) / 2
    held = [counter._slots, counter._entries, *([counter._arena] if kind == "bytes" else [])]
    assert counter.nbytes == sum(array.nbytes for array in held) < 120 * len(counter)
