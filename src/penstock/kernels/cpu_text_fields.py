"""Fields of delimited text to numbers: one column of a tile of up to 64 rows at a time.

A tile is given by the positions of its separators: `field c of row r` lies between `separators[first[r] + c - 1]` and
`separators[first[r] + c]`, relative to `base`. The fast loops take eight characters as one 64-bit word ("SWAR"), and
several words at once, without a branch on length or on nulls; what they cannot take on is flagged and parsed by the
slow functions. Eight bytes are read from wherever a field starts (hex64: 16), so the text must be padded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.cpu_intrinsics import KERNEL, load8, load64, zero_mask
from penstock.kernels.kernel_cache import njit

U64, U32, I64 = np.uint64, np.uint32, np.int64
TILE = 64  # rows: as many as a validity word has bits
ZEROS = U64(0x3030303030303030)  # eight characters '0'
HIGH_BITS = U64(0x8080808080808080)
CARRIAGE_RETURN, NEWLINE, MINUS, PLUS, DOT = U64(13), U64(10), U64(45), U64(43), U64(46)
SPACE, TAB = U64(32), U64(9)

# What became of a field; HARD ones are for Python to round. Codes from TOO_FEW_FIELDS on are errors, and have a text
# in `cpu_text_columns.ERROR_TEXTS`.
OK, HARD = 0, 1
TOO_FEW_FIELDS, TOO_MANY_FIELDS, BAD_INTEGER, OUT_OF_RANGE, BAD_HEX, HEX_TOO_LONG, BAD_FLOAT = range(2, 9)

POWERS_OF_TEN = np.array([float(10**exponent) for exponent in range(23)])  # exact in float64


@njit(forceinline=True, **KERNEL)
def field_bounds(base: Any, separators: np.ndarray, index: Any, is_last: bool) -> Any:
    """`(address, length)` of the field that ends at separator `index`; the last one's carriage return is cut.

    A field that a short line lacks ends before it starts; its length is 0, as that of an empty one.
    """
    start = base + U64(U32(separators[index - U64(1)] + U32(1)))
    end = base + U64(separators[index])
    if is_last and end > start and load8(end - U64(1)) == CARRIAGE_RETURN and load8(end) == NEWLINE:
        end -= U64(1)
    return start, (end - start if end > start else U64(0))


@njit(forceinline=True, **KERNEL)
def gather_fields(
    base: Any, separators: np.ndarray, first: np.ndarray, num_rows: int, column: int, is_last: bool, words: np.ndarray,
    lengths: np.ndarray,
) -> None:  # fmt: skip
    """The first eight bytes and the length of one field per row. Kept apart from decoding, which then vectorises."""
    if is_last:
        for row in range(U64(num_rows)):
            start, length = field_bounds(base, separators, U64(first[row] + column), True)
            words[row], lengths[row] = load64(start), length
    else:
        for row in range(U64(num_rows)):
            start, length = field_bounds(base, separators, U64(first[row] + column), False)
            words[row], lengths[row] = load64(start), length


@njit(forceinline=True, **KERNEL)
def _right_aligned(word: Any, length: Any) -> Any:
    """The first `length` (0 to 8) characters of a word as the last of eight, preceded by '0'; else anything."""
    bits = (length << U64(2)) & U64(63)  # shifted twice by half, because a shift by 64 is undefined
    spare = (U64(32) - bits) & U64(63)
    return (word << spare << spare) | (ZEROS >> bits >> bits)


@njit(forceinline=True, **KERNEL)
def _not_hex(text: Any) -> Any:
    """Non-zero where one of eight characters is not a hexadecimal digit: range checks by carries into the top bits."""
    letters = text | U64(0x2020202020202020)
    digit = (text + U64(0x5050505050505050)) & ~(text + U64(0x4646464646464646))
    alpha = (letters + U64(0x1F1F1F1F1F1F1F1F)) & ~(letters + U64(0x1919191919191919))
    return (~(digit | alpha) | text) & HIGH_BITS


@njit(forceinline=True, **KERNEL)
def _hex_value(text: Any) -> Any:
    """The number that eight hexadecimal characters spell."""
    value = (text & U64(0x0F0F0F0F0F0F0F0F)) + U64(9) * ((text >> U64(6)) & U64(0x0101010101010101))
    value = ((value << U64(4)) | (value >> U64(8))) & U64(0x00FF00FF00FF00FF)
    value = ((value << U64(8)) | (value >> U64(16))) & U64(0x0000FFFF0000FFFF)
    return ((value << U64(16)) | (value >> U64(32))) & U64(0xFFFFFFFF)


@njit(forceinline=True, **KERNEL)
def decode_hex(words: np.ndarray, lengths: np.ndarray, values: np.ndarray) -> Any:
    """Up to eight hexadecimal digits a field; bit masks `(null rows, rows for the slow path)` over the whole tile.

    Most tiles have no row for the slow path. To know that, one word is enough; which rows they are is looked for after.
    """
    wrong, flagged = U64(0), U64(0)
    for row in range(TILE):
        text = _right_aligned(words[row], lengths[row])
        values[row] = _hex_value(text)
        wrong |= _not_hex(text) | U64(lengths[row] > U64(8))
    if wrong != U64(0):
        for row in range(TILE):
            text = _right_aligned(words[row], lengths[row])
            flagged |= U64((_not_hex(text) != U64(0)) | (lengths[row] > U64(8))) << U64(row)
    null = zero_mask(U64(lengths.ctypes.data))
    return null, flagged & ~null


@njit(forceinline=True, **KERNEL)
def decode_integers(words: np.ndarray, lengths: np.ndarray, values: np.ndarray, is_signed: bool, most: Any) -> Any:
    """Up to eight characters of '-' and decimal digits, at most `most`; returns as `decode_hex`."""
    wrong, flagged, unsigned = U64(0), U64(0), U64(not is_signed)
    for row in range(TILE):
        values[row], doubtful = _integer(words[row], lengths[row], most, unsigned)
        wrong |= doubtful
    if wrong != U64(0):
        for row in range(TILE):
            flagged |= _integer(words[row], lengths[row], most, unsigned)[1] << U64(row)
    null = zero_mask(U64(lengths.ctypes.data))
    return null, flagged & ~null


@njit(forceinline=True, **KERNEL)
def _integer(word: Any, length: Any, most: Any, unsigned: Any) -> Any:
    """`(value, whether it is one for the slow path)` of a field; an empty one is 0, and not."""
    negative = U64((word & U64(255)) == MINUS) & U64(length != U64(0))
    num_digits = length - negative
    digits = _right_aligned(word >> (negative << U64(3)), num_digits) ^ ZEROS
    # A byte above 9 carries into its top bit; so does one that had it set.
    bad = ((digits + U64(0x7676767676767676)) | digits) & HIGH_BITS
    pairs = digits * U64(10) + (digits >> U64(8))
    left = (pairs & U64(0x000000FF000000FF)) * U64(0x000F424000000064)
    right = ((pairs >> U64(16)) & U64(0x000000FF000000FF)) * U64(0x0000271000000001)
    value = ((left + right) >> U64(32)) & U64(0xFFFFFFFF)
    alone = U64(num_digits == U64(0)) & negative
    doubtful = U64((bad != U64(0)) | (length > U64(8)) | (value > most)) | alone | (negative & unsigned)
    return (value ^ (U64(0) - negative)) + negative, doubtful


@njit(**KERNEL)
def without_blanks(start: Any, length: Any) -> Any:
    """`(start, length)` of a field without the spaces and tabs around it."""
    while length > U64(0) and (load8(start) == SPACE or load8(start) == TAB):
        start += U64(1)
        length -= U64(1)
    while length > U64(0) and (load8(start + length - U64(1)) == SPACE or load8(start + length - U64(1)) == TAB):
        length -= U64(1)
    return start, length


@njit(**KERNEL)
def slow_hex(start: Any, length: Any, most_digits: Any) -> Any:
    """A hexadecimal field of any length; `(value, status)`."""
    value = U64(0)
    for position in range(length):
        digit = load8(start + position) | (ZEROS & ~U64(255))
        if _not_hex(digit) != U64(0):
            return U64(0), BAD_HEX
        value = (value << U64(4)) | (_hex_value(digit) >> U64(28))
    return value, (OK if length <= most_digits else HEX_TOO_LONG)


@njit(**KERNEL)
def slow_integer(start: Any, end: Any, is_signed: bool, most: Any) -> Any:
    """Any decimal integer with a sign; `(value modulo 2**64, status)`. `most` is the type's greatest value."""
    first = load8(start)
    negative = first == MINUS
    if negative or first == PLUS:
        start += U64(1)
    if start == end:
        return U64(0), BAD_INTEGER
    limit = most + U64(negative and is_signed)
    if negative and not is_signed:
        limit = U64(0)
    value: Any = U64(0)
    fits = True
    while start < end:
        digit = load8(start) - U64(48)
        if digit > U64(9):
            return U64(0), BAD_INTEGER
        if digit > limit or value > (limit - digit) // U64(10):
            fits = False
        value = value * U64(10) + digit
        start += U64(1)
    return (U64(0) - value if negative else value), (OK if fits else OUT_OF_RANGE)


@njit(**KERNEL)
def _named_number(start: Any, end: Any) -> Any:
    """`inf`, `infinity` and `nan` in any case, after the sign; `(value, status)`."""
    letters = load64(start) | U64(0x2020202020202020)
    length = end - start
    if length == U64(3) and letters & U64(0xFFFFFF) == U64(0x6E616E):
        return np.nan, OK
    if length == U64(3) and letters & U64(0xFFFFFF) == U64(0x666E69):
        return np.inf, OK
    if length == U64(8) and letters == U64(0x7974696E69666E69):
        return np.inf, OK
    return 0.0, BAD_FLOAT


@njit(**KERNEL)
def parse_float(start: Any, end: Any) -> Any:
    """A decimal number, correctly rounded to float64 where one operation does it; `(value, status)`, else HARD.

    With at most 2**53 as digits and a power of ten up to 22, both are exact and one rounding is made.
    """
    first = load8(start)
    negative = first == MINUS
    if negative or first == PLUS:
        start += U64(1)
    digits, num_digits, exponent, seen_dot, hard = U64(0), 0, 0, False, False
    while start < end:
        character = load8(start)
        digit = character - U64(48)
        if digit <= U64(9):
            if digits > U64(10**17):  # one more digit might not fit, let alone be exact
                hard = True
            digits = digits * U64(10) + digit
            num_digits += 1
            exponent -= 1 if seen_dot else 0
        elif character == DOT and not seen_dot:
            seen_dot = True
        else:
            break
        start += U64(1)
    if num_digits == 0:
        value, status = _named_number(start, end) if not seen_dot else (0.0, BAD_FLOAT)
        return (-value if negative else value), status
    if start < end:
        written, good = _exponent(start, end)
        if not good:
            return 0.0, BAD_FLOAT
        exponent += written
    if hard or (digits != U64(0) and (digits > U64(2**53) or exponent < -22 or exponent > 22)):
        return 0.0, HARD
    value = float(digits)
    if digits != U64(0):
        value = value / POWERS_OF_TEN[-exponent] if exponent < 0 else value * POWERS_OF_TEN[exponent]
    return (-value if negative else value), OK


@njit(**KERNEL)
def _exponent(start: Any, end: Any) -> Any:
    """`e`, an optional sign and digits; `(exponent, well-formed)`."""
    if load8(start) | U64(32) != U64(101):
        return 0, False
    start += U64(1)
    negative = load8(start) == MINUS
    if (negative or load8(start) == PLUS) and start < end:
        start += U64(1)
    value: Any = 0
    well_formed = start < end
    while start < end:
        digit = load8(start) - U64(48)
        well_formed = well_formed and digit <= U64(9)
        value = min(value * 10 + I64(digit), 100_000)
        start += U64(1)
    return (-value if negative else value), well_formed


@njit(**KERNEL)
def decode_floats(
    base: Any, separators: np.ndarray, first: np.ndarray, num_rows: int, column: int, is_last: bool, values: np.ndarray,
    is_single: bool,
) -> Any:  # fmt: skip
    """Decimal numbers as the bits of a float64 (float32 if `is_single`); returns as `decode_hex`."""
    null, flagged = U64(0), U64(0)
    one, single = np.empty(1, np.float64), np.empty(1, np.float32)
    bits, single_bits = one.view(np.uint64), single.view(np.uint32)
    for row in range(num_rows):
        start, length = field_bounds(base, separators, U64(first[row] + column), is_last)
        if length == U64(0):
            null |= U64(1) << U64(row)
            values[row] = U64(0)
            continue
        one[0], status = parse_float(start, start + length)
        values[row] = bits[0]
        flagged |= U64(status != OK) << U64(row)
        if is_single:
            single[0] = one[0]
            values[row] = U64(single_bits[0])
            flagged |= U64(_rounds_twice(bits[0])) << U64(row)
    return null, flagged


@njit(**KERNEL)
def decode_hex64(
    base: Any, separators: np.ndarray, first: np.ndarray, num_rows: int, column: int, is_last: bool, values: np.ndarray
) -> Any:
    """Up to sixteen hexadecimal digits a field; returns as `decode_hex`."""
    null, flagged = U64(0), U64(0)
    for row in range(num_rows):
        start, length = field_bounds(base, separators, U64(first[row] + column), is_last)
        front = min(length, U64(8))
        back = length - front
        high = _right_aligned(load64(start), front)
        low = _right_aligned(load64(start + front), back)
        values[row] = (_hex_value(high) << ((back << U64(2)) & U64(63))) | _hex_value(low)
        null |= U64(length == U64(0)) << U64(row)
        flagged |= U64(((_not_hex(high) | _not_hex(low)) != U64(0)) | (length > U64(16))) << U64(row)
    return null, flagged & ~null


@njit(forceinline=True, **KERNEL)
def _rounds_twice(bits: Any) -> Any:
    """Whether a float64 may round differently to float32 than the text it came from: midpoints and tiny numbers."""
    exponent = (bits >> U64(52)) & U64(2047)
    midpoint = bits & U64(0x1FFFFFFF) == U64(0x10000000)
    tiny = exponent < U64(1023 - 126) and bits << U64(1) != U64(0)
    return (midpoint or tiny) and exponent != U64(2047)
