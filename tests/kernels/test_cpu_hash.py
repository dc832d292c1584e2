"""Hashes against the oracle and against published vectors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels import reference, reference_embedding
from penstock.kernels.cpu_hash import combine_hashes, farmhash64, hash64, hash64_one


def column(texts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    return np.frombuffer(b"".join(texts), np.uint8), offsets


def test_published_xxh64_vectors():
    vectors = {b"": 0xEF46DB3751D8E999, b"a": 0xD24EC4F1A98C6E5B, b"abc": 0x44BC2CF5AD770999}
    assert hash64(column(list(vectors))).tolist() == list(vectors.values())
    assert [hash64_one(text) for text in vectors] == list(vectors.values())


def test_farmhash_of_integers_is_what_tensorflow_gives():
    # tf.fingerprint(the eight bytes, "farmhash64")
    vectors = {0: 0x14397A23417AF284, 7: 0xBB1323C9C6D2080B, 2**32: 0x5E715472C20710C2, 2**64 - 1: 0x2FFFE7A41FB59155}
    assert [int(farmhash64(np.uint64(key))) for key in vectors] == list(vectors.values())
    assert [reference_embedding.farmhash64(key) for key in vectors] == list(vectors.values())


@given(st.lists(st.binary(max_size=100), max_size=20))
@settings(max_examples=50, deadline=None)
def test_bytes_agree_with_reference(texts):
    expected = [reference.hash64(text) for text in texts]
    assert hash64(column(texts)).tolist() == expected
    assert [hash64_one(text) for text in texts] == expected


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "bool"])
def test_integers_agree_with_reference_in_every_width(dtype):
    info = np.iinfo(dtype) if dtype != "bool" else None
    values = np.array([0, 1] if info is None else [info.min, 0, 1, 17, info.max], dtype)
    expected = [reference.hash64(int(value) % 2**64) for value in values]
    assert hash64(values).tolist() == expected
    assert [hash64_one(int(value)) for value in values] == expected


def test_read_only_and_strided_input():
    values = np.arange(20, dtype=np.uint64)[::2]
    values.flags.writeable = False
    assert hash64(values).tolist() == [reference.hash64(int(value)) for value in values]


def test_floats_are_refused():
    with pytest.raises(TypeError, match="float64"):
        hash64(np.ones(3))


def test_combination_agrees_with_reference_and_keeps_its_inputs():
    columns = [hash64(np.arange(5, dtype=np.uint64) + shift) for shift in (0, 10, 20)]
    first = columns[0].copy()
    expected = [reference.combine_hashes(*map(int, row)) for row in zip(*columns, strict=True)]
    assert combine_hashes(*columns).tolist() == expected
    assert (columns[0] == first).all()
