"""The embedding store in plain NumPy: one row at a time, in float64 unless told otherwise. Slow; the kernels' oracle.

Rows live in a dictionary from sign to weights; state beside them. Nothing here is shared with the fast kernels except
the definition of signs and initial values, which is the thing to be checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def mix(key: int) -> int:
    """The 64-bit hash of the index."""
    for _ in range(2):
        key ^= key >> 32
        key = key * 0xD6E8FEB86659FD93 & _MASK
    return key ^ key >> 32


def initial_row(
    sign: int, dim: int, kind: str, a: float, b: float, seed: int = 0, generator: str = "hash"
) -> np.ndarray:
    """A new row's weights: from its sign alone."""
    first_seed = sign ^ (seed * _GOLDEN & _MASK)
    if generator == "xoshiro256++":
        return a + (b - a) * np.array(xoshiro_draws(first_seed, dim))
    base = mix(first_seed)
    out = np.zeros(dim)
    for i in range(dim):
        draw = mix(base + (i + 1) * _GOLDEN & _MASK)
        first, second = (draw >> 40) * 2.0**-24, (draw >> 8 & 0xFFFFFF) * 2.0**-24
        if kind == "uniform":
            out[i] = a + (b - a) * first
        elif kind == "normal":
            out[i] = a + b * math.sqrt(-2 * math.log(first + 2.0**-25)) * math.cos(2 * math.pi * second)
    return out


def xoshiro_draws(seed: int, count: int) -> list[float]:
    """Numbers in [0, 1) of xoshiro256++, whose state is filled by PCG32: 23 bits each."""
    words, state = [], seed
    for _ in range(8):
        state = (state * 6364136223846793005 + 11634580027462260723) & _MASK
        shifted, turn = ((state >> 18 ^ state) >> 27) & 0xFFFFFFFF, state >> 59
        words.append((shifted << 32 | shifted) >> turn & 0xFFFFFFFF)
    s = [words[2 * i] | words[2 * i + 1] << 32 for i in range(4)]
    return [(xoshiro_next(s) >> 41) * 2.0**-23 for _ in range(count)]


def xoshiro_next(s: list[int]) -> int:
    """The next 64 bits of xoshiro256++, whose four words are stepped."""

    def rotated(value: int, bits: int) -> int:
        return (value << bits | value >> (64 - bits)) & _MASK

    result, shifted = (rotated((s[0] + s[3]) & _MASK, 23) + s[0]) & _MASK, s[1] << 17 & _MASK
    s[2] ^= s[0]
    s[3] ^= s[1]
    s[1] ^= s[2]
    s[0] ^= s[3]
    s[2] ^= shifted
    s[3] = rotated(s[3], 45)
    return result


def farmhash64(key: int) -> int:
    """FarmHash64 of eight bytes, as its authors wrote it for 8 to 16: the word is both their first and their last."""

    def rotated(value: int, bits: int) -> int:
        return (value >> bits | value << (64 - bits)) & _MASK

    constant = 0x9AE16A3B2F90404F
    factor, a, b = (constant + 2 * 8) & _MASK, (key + constant) & _MASK, key
    c, d = (rotated(b, 37) * factor + a) & _MASK, (rotated(a, 25) + b) * factor & _MASK
    first = (c ^ d) * factor & _MASK
    first ^= first >> 47
    second = (d ^ first) * factor & _MASK
    return (second ^ second >> 47) * factor & _MASK


def signs_of(
    identity: int, prefix: int, modulus: int, rounds: int = 0, size: int = 0, hashing: str = "mix"
) -> list[int]:
    """The signs of an id: one, or one for each round of a hash stack."""
    if not rounds:
        return [prefix + identity % modulus]
    if hashing == "farmhash":
        signs = []
        for turn in range(rounds):
            identity = farmhash64(identity)
            signs.append(prefix + identity % size + turn * size)
        return signs
    hashes = (mix(identity + (turn + 1) * _GOLDEN & _MASK) for turn in range(rounds))
    return [prefix + ((hashed * size >> 64) + turn * size) for turn, hashed in enumerate(hashes)]


def pool(rows: list[np.ndarray], pooling: str, dim: int, length: int = 0) -> np.ndarray:
    """One sample's output from the rows of its ids (each already summed over its rounds)."""
    if pooling == "raw":
        out = np.zeros((length, dim))
        for i, row in enumerate(rows[:length]):
            out[i] = row
        return out
    total = np.sum(rows, axis=0) if rows else np.zeros(dim)
    return total / {"sum": 1, "mean": max(len(rows), 1), "sqrt_n": math.sqrt(max(len(rows), 1))}[pooling]


def spread(gradient: np.ndarray, count: int, pooling: str) -> list[np.ndarray]:
    """One sample's gradient as each of its ids receives it."""
    if pooling == "raw":
        return [gradient[i] if i < len(gradient) else np.zeros(gradient.shape[1]) for i in range(count)]
    factor = {"sum": 1, "mean": max(count, 1), "sqrt_n": math.sqrt(max(count, 1))}[pooling]
    return [gradient / factor] * count


def step(
    name: str, w: np.ndarray, g: np.ndarray, state: dict[str, Any], number: int, o: Mapping[str, Any]
) -> np.ndarray:
    """One step of optimizer `name` (a kernel's name); `number` counts the table's steps from 1. New weights."""
    g = g + o["weight_decay"] * w
    new = _STEPS[name](w, g, state, number, o)
    bound = o.get("weight_bound")
    return np.clip(new, -bound, bound) if bound else new


def _sgd(w: np.ndarray, g: np.ndarray, state: dict[str, Any], number: int, o: Mapping[str, Any]) -> np.ndarray:
    if not o["momentum"]:
        return w - o["lr"] * g
    state["m"] = o["momentum"] * state.get("m", 0) + g
    return w - o["lr"] * (g + o["momentum"] * state["m"] if o["nesterov"] else state["m"])


def _adagrad(mean: bool, persia: bool) -> Any:
    def apply(w: np.ndarray, g: np.ndarray, state: dict[str, Any], number: int, o: Mapping[str, Any]) -> np.ndarray:
        square = np.mean(g * g) if mean else g * g
        before = state.get("s", o["initial_accumulator"])
        if persia:
            state["s"] = before * o["decay"] + square
            return w - o["lr"] * g / np.sqrt(before + o["eps"])
        state["s"] = before + square
        return w - o["lr"] * g / (np.sqrt(state["s"]) + o["eps"])

    return apply


def _adam(mean: bool, folded: bool) -> Any:
    def apply(w: np.ndarray, g: np.ndarray, state: dict[str, Any], number: int, o: Mapping[str, Any]) -> np.ndarray:
        square = np.mean(g * g) if mean else g * g
        state["m"] = o["beta1"] * state.get("m", 0) + (1 - o["beta1"]) * g
        state["v"] = o["beta2"] * state.get("v", 0) + (1 - o["beta2"]) * square
        first, second = 1 - o["beta1"] ** number, 1 - o["beta2"] ** number
        if folded:
            return w - o["lr"] * math.sqrt(second) / first * state["m"] / (np.sqrt(state["v"]) + o["eps"])
        return w - o["lr"] / first * state["m"] / (np.sqrt(state["v"] / second) + o["eps"])

    return apply


def _ftrl(w: np.ndarray, g: np.ndarray, state: dict[str, Any], number: int, o: Mapping[str, Any]) -> np.ndarray:
    alpha, beta, l1, l2 = o["lr"], o["beta"], o["l1"], o["l2"]
    if "z" not in state:
        state["n"] = np.full_like(w, o["initial_accumulator"])
        state["z"] = -(w * ((beta + np.sqrt(state["n"])) / alpha + l2) + np.sign(w) * l1)
    grown = state["n"] + g * g
    state["z"] = state["z"] + g - (np.sqrt(grown) - np.sqrt(state["n"])) / alpha * w
    state["n"] = grown
    z = state["z"]
    return np.where(np.abs(z) <= l1, 0.0, -(z - np.sign(z) * l1) / ((beta + np.sqrt(grown)) / alpha + l2))


_STEPS = {
    "sgd": _sgd,
    "adagrad": _adagrad(False, False),
    "adagrad_row": _adagrad(True, False),
    "persia": _adagrad(False, True),
    "persia_row": _adagrad(True, True),
    "lazy_adam": _adam(False, True),
    "row_adam": _adam(True, False),
    "ftrl": _ftrl,
}
