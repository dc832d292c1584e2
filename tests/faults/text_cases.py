"""One changed text file after the other through `Dataset`, held against the oracle of the text kernel.

By hand: python text_cases.py sweep FIRST COUNT
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
import warnings
from pathlib import Path

import guarded
import numpy as np

from penstock.core.errors import PenstockError
from penstock.data import Dataset
from penstock.kernels.reference import nearest_float32, parse_field

KINDS = ["int8", "int64", "uint64", "hex32", "hex64", "float32", "float64", "string"]
FIELDS = [
    "0", "-1", "127", "128", "9223372036854775807", "-9223372036854775808", "18446744073709551615", "68fd1e64", "FF",
    "ffffffffffffffff", " 0x1_a ", "0x1a", "+5", "-0", "1_0", "1.5", "-0.0", "1e-10000000", "1e400", "nan", "inf", "",
    "16777217", "1.00000017881393432617187499", "7.006492321624085e-46", "3.4028235677973366e38", "a", "text", "é",
    "a string longer than twelve bytes", "\r", "x\ry", " ", "0" * 70, "1" * 5000, "0." + "1" * 5000, "1" * 17,
]  # fmt: skip


def mutate(seed: int) -> tuple[bytes, list[str], str, str, str]:
    """`(text, kinds, format, separator, on_error)`; the same for the same seed."""
    rng = random.Random(seed)
    kinds = [rng.choice(KINDS) for _ in range(rng.choice([1, 2, 3, 5, 9]))]
    name, separator = rng.choice([("tsv", "\t"), ("tsv", "\t"), ("csv", ",")])
    end = rng.choice(["\n", "\n", "\r\n"])
    lines = []
    for _ in range(rng.choice([1, 2, 5, 70, 200])):
        fields = [_field(rng, kind) for kind in kinds]
        if rng.random() < 0.05:
            fields = fields[: rng.randrange(len(fields) + 1)] if rng.random() < 0.6 else fields + ["1"]
        lines.append(separator.join(fields))
    text = bytearray((end.join(lines) + (end if rng.random() < 0.7 else "")).encode())
    for _ in range(rng.choice([0, 0, 1, 2, 10])):
        if text:
            at = rng.randrange(len(text))
            text[at : at + rng.choice([0, 1, 4])] = rng.choice(
                [b"\xff", b"\0", b"\r", b"\n", b"\xc3", b"\t", b"\x80", rng.randbytes(1)]
            )
    return bytes(text), kinds, name, separator, rng.choice(["raise", "skip", "null"])


def _field(rng: random.Random, kind: str) -> str:
    if rng.random() < 0.03:
        return rng.choice(FIELDS)
    if kind == "string":
        return rng.choice(["a", "bc", "", "a string longer than twelve bytes", "text"])
    if kind.startswith("hex"):
        return f"{rng.randrange(2**32):x}"
    if kind.startswith("float"):
        return rng.choice([f"{rng.random():.6f}", f"{rng.gauss(0, 1e20):e}", "1.5", ""])
    return str(rng.randrange(100))


def parsed(text: bytes, kinds: list[str], separator: bytes, on_error: str) -> list[list] | None:
    """The rows by the oracle; None where a line is malformed and that is to be an error."""
    lines = (text[:-1] if text.endswith(b"\n") else text).split(b"\n") if text else []
    while len(kinds) > 1 and lines and not lines[-1].strip(b"\r"):
        lines.pop()  # empty lines at the end are no rows
    rows = []
    for line in lines:
        fields = line.removesuffix(b"\r").split(separator)
        bad, row = len(fields) != len(kinds), []
        for column, kind in enumerate(kinds):
            try:
                row.append(_value(fields[column] if column < len(fields) else b"", kind))
            except ValueError:
                bad = True
                row.append(None)
        if bad and on_error == "raise":
            return None
        if not bad or on_error == "null":
            rows.append(row)
    return rows


def _value(field: bytes, kind: str) -> object:
    if kind == "string":
        return field.decode() or None
    if kind == "float32" and field.strip(b" \t"):
        double = parse_field(field, "float64")
        far = not math.isfinite(double) or double == 0 or abs(double) < 1e-60
        return (
            math.copysign(0.0, double)
            if far and abs(double) < 1
            else double
            if far
            else nearest_float32(field.decode())
        )
    return parse_field(field, kind)


def same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return np.float64(left).tobytes() == np.float64(right).tobytes() or (math.isnan(left) and math.isnan(right))
    return left == right


def check(seed: int) -> str:
    """ "read" or "refused" where all is well, else what is wrong."""
    text, kinds, name, separator, on_error = mutate(seed)
    names = [f"c{i}" for i in range(len(kinds))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a.{name}"
        path.write_bytes(text)
        options = {"names": names, "dtypes": dict(zip(names, kinds, strict=True)), "on_error": on_error}
        # Told, as the oracle is: nothing is guessed here.
        options |= {"encoding": "utf-8", "separator": separator, "header": False}
        try:
            frame = Dataset(str(path), **options).to_polars() if text else None
        except PenstockError:
            frame = None
        except Exception as error:
            return f"{on_error} {kinds}: raised {type(error).__name__}: {error}"
    if not text:
        return "refused"
    expected = None if b'"' in text and name == "csv" else parsed(text, kinds, separator.encode(), on_error)
    if frame is None:  # comments before a table are always refused
        return (
            "refused"
            if expected is None or on_error == "raise" or text.startswith(b"#")
            else f"{on_error} {kinds}: refused"
        )
    if expected is None:
        return "read" if b'"' in text and name == "csv" else f"{on_error} {kinds}: malformed lines were read"
    rows = frame.rows()
    if len(rows) != len(expected):
        return f"{on_error} {kinds}: {len(rows)} rows, {len(expected)} expected"
    for number, (row, right) in enumerate(zip(rows, expected, strict=True)):
        if not all(map(same, row, right)):
            return f"{on_error} {kinds}: row {number} is {row}, {right} expected"[:380]
    return "read"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.set_int_max_str_digits(0)
    if sys.argv[1] == "sweep":
        guarded.main(__file__)
    else:
        guarded.serve(check)
