"""Oracle for `gpu_parquet`: the runs of parquet pages decoded value by value, with every read held to its buffer."""

from __future__ import annotations

import numpy as np

from penstock.kernels import parquet_runs_contract as contract


def decode_runs(
    raw: np.ndarray, runs: np.ndarray, pages: np.ndarray, columns: np.ndarray, num_words: int
) -> tuple[np.ndarray, np.ndarray]:
    """`(words, flags)` of what the runs hold; words that no run fills are -1.

    Args:
        raw: the bytes of the pages.
        runs: as in the contract, with pages and columns.
        pages: of the runs.
        columns: of the pages.
        num_words: of the output.
    """
    out, flags = np.full(num_words, -1, np.int64), np.zeros(len(columns), np.int64)
    for row, count, place, page in runs.tolist():
        column, dictionary, entries, width = pages[page].tolist()
        base, words, check, low, high = columns[column].tolist()
        for i in range(abs(count)):
            at = 8 * place + 32 * words * i
            if dictionary >= 0:
                code = place if count < 0 else _bits(raw, 8 * place + i * width, width)
                flags[column] |= code >= entries
                at = 8 * dictionary + 32 * words * min(code, entries - 1)
            parts = [_bits(raw, at + 32 * word, 32) for word in range(words)]
            target = base + (row + i) * words
            out[target : target + words] = parts
            bits = np.array(parts, np.uint32)
            if check == contract.IN_RANGE:
                flags[column] |= not low <= int(bits.view(np.int32 if words == 1 else np.int64)[0]) <= high
            if check == contract.NOT_NAN:
                flags[column] |= bool(np.isnan(bits.view(np.float32 if words == 1 else np.float64)[0]))
    return out.astype(np.uint32), flags


def _bits(raw: np.ndarray, bit: int, width: int) -> int:
    """`width` bits from `bit` on; the bytes that hold them must be there."""
    first, last = bit // 8, (bit + width + 7) // 8
    assert first >= 0 and last <= len(raw), "a run reads what is not there"
    return int.from_bytes(raw[first:last].tobytes(), "little") >> (bit % 8) & ((1 << width) - 1)
