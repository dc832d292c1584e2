"""Text whose first bytes are those of something else."""

from __future__ import annotations

import gzip
import re
import zlib

import pytest

from penstock.core.errors import DataError
from penstock.data import Dataset

FORMULAS = "formula,note\n" + "".join(f'x^{n},"a, {n}"\nx\x01{n},\n' for n in range(9))


@pytest.mark.parametrize("part_size", [1 << 20, 16])
def test_cells_that_begin_as_packed_files_do_are_text(part_size, tmp_path) -> None:
    """Of a whole file or of a part of it: `x^` is how a stream of zlib may begin."""
    place = tmp_path / "formulas.csv"
    place.write_text(FORMULAS)
    found = Dataset(place, part_size=part_size).to_polars()
    assert found.rows()[:3] == [("x^0", "a, 0"), ("x\x010", None), ("x^1", "a, 1")] and found.height == 18
    place.write_text("x^2,y\n" + '1,"2"\n' * 3)
    assert Dataset(place).to_polars().rows() == [(1, 2)] * 3


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_packed_text_by_a_plain_name_is_refused(pack, tmp_path) -> None:
    for name, text in (("a.csv", b"a,b\n1,2\n"), ("a.jsonl", b'{"a": 1}\n')):
        place = tmp_path / name
        place.write_bytes(pack(text * 9))
        with pytest.raises(DataError, match=re.escape(str(place))):
            Dataset(place).to_polars()


def test_lines_that_end_in_a_carriage_return_alone_are_refused(tmp_path) -> None:
    place = tmp_path / "old.csv"
    place.write_bytes(b"a,b\r1,2\r3,4\r")
    with pytest.raises(DataError, match=r"old\.csv: its lines end in a carriage return alone"):
        Dataset(place)
    place.write_bytes(b"a,b\r\n1,2\r\n")
    assert Dataset(place).to_polars().rows() == [(1, 2)]
