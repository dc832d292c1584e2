"""Numbers packed bit by bit, against Python's integers."""

import numpy as np
import pytest

from penstock.kernels.cpu_bit_packing import GROUP, NARROW, WIDE, greatest, unpack_narrow, unpack_wide

SLACK = 64


def packed(numbers: list[int], width: int, skip: int) -> np.ndarray:
    """The numbers behind `skip` bytes, and slack of ones, which nobody may take for numbers."""
    bits = sum(number << (width * place) for place, number in enumerate(numbers))
    body = bits.to_bytes((width * len(numbers) + 7) // 8, "little")
    return np.frombuffer(bytes(skip) + body + b"\xff" * SLACK, np.uint8)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 100])
@pytest.mark.parametrize("width", range(WIDE + 1))
def test_numbers_come_out_as_they_went_in(width, count):
    rng = np.random.default_rng(width)
    numbers = rng.integers(0, 1 << width, count, dtype=np.uint64).tolist()
    for skip in (0, 3):
        data = packed(numbers, width, skip)
        for unpack, bits in ((unpack_narrow, NARROW), (unpack_wide, WIDE)):
            if width > bits:
                continue
            out = np.full(count + 2 * GROUP, 77, f"uint{bits}")
            unpack(data, skip, width, out, count)
            assert out[:count].tolist() == numbers
            assert (out[count + GROUP - 1 :] == 77).all()  # no more than the room that was asked for
            assert greatest(out[:count]) == max(numbers, default=0)
