"""Footers of remote files that lie about places and sizes, and files that change while they are fetched."""

import copy
import struct

import fsspec
import numpy as np
import parquet_mutations
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from parquet_cases import loaded, originals, same
from thrift_tree import get, put, write_struct

from penstock import Dataset
from penstock.core.errors import DataError
from penstock.data.codecs import codec_in_footer
from penstock.loader import Loader
from penstock.loader.parquet_chunks import ColumnChunk
from penstock.loader.remote_file import RemoteFile, RemoteStamp

PLACE, URL = "/lies/a.parquet", "lying://lies/a.parquet"
NUMBERS = [-1, -(2**31), -(2**63), 0, 3, 10**7, 2**31, 2**40, 2**62, 2**63 - 1]
FIELDS = {"size": 7, "data page": 9, "dictionary page": 11}


class Lying(MemoryFileSystem):
    """A file system in memory that notes what was fetched and can replace a file behind a request."""

    protocol = "lying"
    store, pseudo_dirs = {}, [""]
    requests: list[tuple[int, int]] = []
    replacement: bytes | None = None

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("lying://", "memory://"))

    def cat_ranges(self, paths, starts, ends, max_gap=None, on_error="return", **options):
        Lying.requests += zip(starts, ends, strict=True)
        if Lying.replacement is not None:
            self.pipe_file(PLACE, Lying.replacement)
        return super().cat_ranges(paths, starts, ends, max_gap=max_gap, on_error=on_error, **options)


fsspec.register_implementation("lying", Lying, clobber=True)


@pytest.fixture(autouse=True)
def quiet():
    Lying.store.clear()
    Lying.requests.clear()
    Lying.replacement = None


def forged(field: int, value: int, column: int) -> bytes:
    file = copy.deepcopy(parquet_mutations.take_apart(parquet_mutations.original(2)))
    front = file.data()
    put(file.chunks[column][0], field, value)
    return front + parquet_mutations.ending(write_struct(file.footer))


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_places_and_sizes_that_lie_are_refused_before_a_byte_is_fetched(field):
    refused = 0
    for number, value in enumerate(NUMBERS):
        data = forged(field, value, column=number % 5)
        Lying().pipe_file(PLACE, data)
        Lying.requests.clear()
        try:
            columns = loaded(URL)
        except DataError as error:
            assert "a.parquet" in str(error)
            refused += 1
        else:  # the data's place, say, of a column that begins with its dictionary: nobody needs it
            assert all(same(column, originals()[name]) for name, column in columns.items()), value
        assert all(0 <= low <= high <= len(data) for low, high in Lying.requests), value
    assert refused >= 5


@pytest.mark.parametrize(("offset", "size"), [(-1, 5), (2**62, 8), (4, 2**62), (10**6, 1), (2**63 - 8, 2**63 - 8)])
def test_chunks_outside_the_file_are_never_asked_for(offset, size):
    Lying().pipe_file(PLACE, bytes(1000))
    codec = codec_in_footer("UNCOMPRESSED")
    assert codec is not None
    kind = np.dtype(np.int32)
    file = RemoteFile(RemoteStamp(URL, None))
    with pytest.raises(DataError, match=r"a\.parquet is damaged: its footer speaks of bytes"):
        file.require([ColumnChunk("x", 0, offset, size, 1, codec, kind, kind, False)])
    file.require([ColumnChunk("x", 0, offset, 0, 0, codec, kind, kind, False)])  # an empty one needs nothing
    assert Lying.requests == []


def test_a_file_replaced_while_it_is_fetched_is_refused():
    """Of the same size, so that nothing else would tell; a shorter one is not called truncated."""
    data = parquet_mutations.original(2)
    for replacement in (data[:-1] + b"1", data[:100], b""):
        Lying().pipe_file(PLACE, data)
        loader = Loader(Dataset(URL), 100, fill=0, num_threads=1)
        loader.peek()
        Lying.replacement = replacement
        with pytest.raises(DataError, match=r"a\.parquet was changed after the loader had opened it"):
            list(loader)
        Lying.replacement = None


def test_an_empty_row_group_that_lies_nowhere():
    """Some writers put them nowhere; there is nothing to fetch then."""
    file = copy.deepcopy(parquet_mutations.take_apart(parquet_mutations.original(2)))
    front = file.data()
    groups = get(file.footer, 4)[1]
    empty = copy.deepcopy(groups[0])
    put(empty, 3, 0)
    for chunk in get(empty, 1)[1]:
        for field, value in ((5, 0), (7, 0), (9, 2**62)):
            put(get(chunk, 3), field, value)
    groups.append(empty)
    footer = write_struct(file.footer)
    Lying().pipe_file(PLACE, front + footer + struct.pack("<I", len(footer)) + b"PAR1")
    rows = sum(len(next(iter(features.values()))) for features, _ in Loader(Dataset(URL), 100, fill=0, num_threads=1))
    assert rows == parquet_mutations.ROWS
