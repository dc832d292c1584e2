"""Batches as data loaders make them, and the bytes that carry them."""

from __future__ import annotations

import json
import struct
import zlib

import numpy as np
import pytest

from penstock.compat.persia._message import MARK, Message, Named, from_bytes, to_bytes
from penstock.compat.persia.embedding.data import IDTypeFeature, IDTypeFeatureWithSingleID, Label, PersiaBatch
from penstock.compat.persia.embedding.data import NonIDTypeFeature as Numbers
from penstock.compat.persia.prelude import PyPersiaBatchData
from penstock.core.batch import Ragged
from penstock.core.errors import DataError


def ids(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


def full() -> PyPersiaBatchData:
    """A batch of three samples with everything in it."""
    batch = PyPersiaBatchData()
    batch.add_dense([np.arange(6, dtype=np.float32).reshape(3, 2)])
    batch.add_dense_f64(np.ones((3, 1)))
    batch.add_dense_i32(np.ones((3, 1), np.int32))
    batch.add_dense_i64(np.full((3, 1), 2**40))
    batch.add_sparse([("user", [ids(7), ids(8), ids(2**64 - 1)]), ("seen", [ids(), ids(1, 2), ids(3)])])
    batch.add_target(np.array([[0], [1], [0]], np.float32))
    batch.add_target(np.array([1, 0, 1]))
    batch.add_map_dense("weights", np.ones((3, 1), np.float32))
    batch.add_map_sparse("prices", [1.5, 2.5], [0, 0, 2, 2])
    batch.add_meta(b"day 7")
    return batch


def equal(left: object, right: object) -> bool:
    if isinstance(left, Ragged) or isinstance(right, Ragged):
        return all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))  # type: ignore[call-overload]
    return np.array_equal(left, right) and left.dtype == right.dtype  # type: ignore[attr-defined,arg-type]


class TestBytes:
    def test_what_is_written_is_read(self) -> None:
        before, after = full().data, from_bytes(full().to_bytes())
        assert list(after.ids) == ["user", "seen"]
        assert all(equal(before.ids[name], after.ids[name]) for name in before.ids)
        for old, new in zip(before.dense + before.labels, after.dense + after.labels, strict=True):
            assert old.name == new.name and equal(old.data, new.data)
        assert all(equal(before.extras[name], after.extras[name]) for name in before.extras)
        assert after.meta == b"day 7" and after.requires_grad

    @pytest.mark.parametrize("rows", [0, 1, 70_000])  # PERSIA stopped at 65,535
    def test_any_number_of_rows(self, rows: int) -> None:
        message = Message({"user": np.arange(rows, dtype=np.uint64)}, labels=[Named("click", np.zeros(rows, np.bool_))])
        assert from_bytes(to_bytes(message)).rows == rows

    def test_a_truncated_message_is_refused_wherever_it_is_cut(self) -> None:
        data = full().to_bytes()
        for length in (0, 7, 23, 30, len(data) // 2, len(data) - 1):
            with pytest.raises(DataError, match="truncated"):
                from_bytes(data[:length])

    def test_a_message_with_more_behind_it_is_refused(self) -> None:
        with pytest.raises(DataError, match="followed by other bytes"):
            from_bytes(full().to_bytes() + b"x")

    def test_every_altered_byte_is_noticed(self) -> None:
        data = full().to_bytes()
        for place in range(0, len(data), 13):
            altered = bytearray(data)
            altered[place] ^= 0x55
            with pytest.raises(DataError):
                from_bytes(altered)

    def test_a_foreign_message_is_refused(self) -> None:
        with pytest.raises(DataError, match="not a batch written by Penstock"):
            from_bytes(b"\x80\x04\x95" + bytes(64))  # a pickle, say

    def test_another_version_is_refused(self) -> None:
        data = bytearray(full().to_bytes())
        struct.pack_into("<I", data, 8, 9)
        with pytest.raises(DataError, match="version 9"):
            from_bytes(data)

    @pytest.mark.parametrize(
        "change",
        [
            {"ids": [["user", {"dtype": "<u8", "shape": [10**12]}]]},
            {"ids": [["user", {"dtype": "<u8", "shape": [-1]}]]},
            {"ids": [["user", {"dtype": "|O", "shape": [1]}]]},
            {"ids": [["user", {"dtype": "<i4", "shape": [1]}]]},
            {"ids": [["user", {"list": "<u8", "values": 2, "offsets": 3}]]},
            {"dense": [["a", {"dtype": "<f4", "shape": []}]]},
            {"dense": 3},
            {"meta": {"dtype": "|u1", "shape": [10**9]}},
        ],
    )
    def test_a_description_that_lies_is_refused(self, change: dict) -> None:
        plain = {"requires_grad": True, "ids": [], "dense": [], "labels": [], "extras": [], "meta": None}
        text = json.dumps(plain | change).encode()
        body = struct.pack("<I", len(text)) + text + bytes(40)
        data = struct.pack("<8sIIQ", MARK, 1, zlib.crc32(body), 24 + len(body)) + body
        with pytest.raises(DataError, match="not a batch"):
            from_bytes(data)


class TestBatchesOf2021:
    def test_one_id_for_each_sample_is_a_plain_array(self) -> None:
        assert isinstance(full().data.ids["user"], np.ndarray) and isinstance(full().data.ids["seen"], Ragged)

    @pytest.mark.parametrize(
        ("add", "argument", "reason"),
        [
            ("add_dense_f32", np.zeros(3, np.float32), "2-D array of float32, got float32 \\(3,\\)"),
            ("add_dense_f32", np.zeros((3, 1)), "got float64"),
            ("add_dense_i64", [[1]], "got list"),
            ("add_dense", np.zeros((3, 1), np.float32), "a list of arrays"),
            ("add_sparse", [("user", [np.array([1])])], "sample 0: ids must be a 1-D array of uint64, got int64"),
            ("add_sparse", [("user", np.array([1], np.uint64))], "one array for each sample"),
            ("add_sparse", [("user", []), ("user", [])], "twice"),
            ("add_target", np.zeros((3, 1, 1), np.float32), "\\(rows, targets\\)"),
            ("add_target", np.array(["a"]), "array of numbers"),
            ("add_meta", "text", "must be bytes, got str"),
        ],
    )
    def test_what_is_wrong_is_named(self, add: str, argument: object, reason: str) -> None:
        with pytest.raises(DataError, match=reason):
            getattr(PyPersiaBatchData(), add)(argument)

    def test_offsets_of_a_map_must_rise(self) -> None:
        with pytest.raises(DataError, match="offsets must rise"):
            PyPersiaBatchData().add_map_sparse("prices", [1.0], [0, 2, 1])

    def test_rows_must_agree(self) -> None:
        batch = full()
        batch.add_target(np.zeros((4, 1), np.float32))
        with pytest.raises(DataError, match="label 'target_2' has 4 rows, feature 'user' has 3"):
            batch.to_bytes()


class TestBatchesOfTheLastRelease:
    def test_labels_and_numbers_keep_their_dtypes(self) -> None:
        user = IDTypeFeatureWithSingleID("user", ids(1, 2))
        labels = [Label(np.array([True, False]), "click"), Label(np.zeros((2, 3), np.int8))]
        image = Numbers(np.zeros((2, 3, 4, 4), np.uint8), "image")
        batch = PersiaBatch([user], [image], labels, requires_grad=False, meta=b"m")
        again = from_bytes(batch.to_bytes())
        assert [named.data.dtype for named in again.labels] == [np.bool_, np.int8]
        assert again.dense[0].data.shape == (2, 3, 4, 4) and not again.requires_grad
        assert [named.name for named in again.labels] == ["click", "label_anonymous"]

    @pytest.mark.parametrize(
        ("make", "reason"),
        [
            (lambda: PersiaBatch([]), "at least one feature"),
            (lambda: PersiaBatch([Label(np.zeros(2))]), "got Label"),  # type: ignore[list-item]
            (lambda: PersiaBatch([IDTypeFeatureWithSingleID("u", ids(1))] * 2), "'u' is in the batch twice"),
            (lambda: IDTypeFeatureWithSingleID("u", np.array([1])), "got int64 \\(1,\\)"),
            (lambda: IDTypeFeature("u", [ids(1), np.ones((1, 1), np.uint64)]), "sample 1"),
            (lambda: Label(np.float32(1)), "got float32"),  # type: ignore[arg-type]
            (lambda: Numbers(np.array(1.0)), "at least one dimension"),
            (lambda: Numbers(np.array(["a"])), "must be an array of bool"),
        ],
    )
    def test_what_is_wrong_is_named(self, make, reason: str) -> None:
        with pytest.raises(DataError, match=reason):
            make()
