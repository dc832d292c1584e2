"""One optimizer step on one row, in float32. Each function's docstring is its formula (g: gradient, w: weights).

Bias corrections and learning rates are worked out once a step by the caller and arrive in `hyper`; `g` has been
divided by the loss scale and has the weight decay added before any formula below.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.kernels.cpu_intrinsics import LOG2_4, LOG2_8, ROW_KERNEL
from penstock.kernels.cpu_vector import adagrad16, add_row, load_float, load_u32, store_float, store_u32, sum_squares
from penstock.kernels.kernel_cache import njit
from penstock.kernels.optimizer_formulas import FORMULAS

SGD, ADAGRAD, ADAGRAD_ROW = (FORMULAS[name].number for name in ("sgd", "adagrad", "adagrad_row"))
PERSIA, PERSIA_ROW, FTRL = (FORMULAS[name].number for name in ("persia", "persia_row", "ftrl"))
ADAM, LAZY_ADAM, ROW_ADAM = (FORMULAS[name].number for name in ("adam", "lazy_adam", "row_adam"))
# Columns of `hyper`; P0… are the optimizer's own.
RATE, DECAY, BOUND, SCALE, P0, P1, P2, P3, P4, P5, NUM_HYPER = range(11)


@njit(**ROW_KERNEL)
def _sgd(w: Any, s: Any, g: Any, dim: Any, hyper: np.ndarray) -> None:
    """m = μ m + g; w -= rate m (or g + μ m with Nesterov); plain w -= rate g without momentum."""
    rate, momentum = hyper[RATE], hyper[P0]
    for i in range(dim):
        at = np.uint64(i) << LOG2_4
        gradient = load_float(g + at)
        if momentum > 0:
            buffer = momentum * load_float(s + at) + gradient
            store_float(s + at, buffer)
            gradient = gradient + momentum * buffer if hyper[P1] > 0 else buffer
        store_float(w + at, load_float(w + at) - rate * gradient)


@njit(**ROW_KERNEL)
def _adagrad(w: Any, s: Any, g: Any, dim: Any, hyper: np.ndarray) -> None:
    """s += g²; w -= rate g / (√s + eps)."""
    rate, eps, at, end = hyper[RATE], hyper[P0], np.uint64(0), np.uint64(dim) << LOG2_4
    while at + np.uint64(64) <= end:
        adagrad16(w + at, s + at, g + at, np.float32(1), rate, eps)
        at += np.uint64(64)
    while at < end:
        gradient = load_float(g + at)
        total = load_float(s + at) + gradient * gradient
        store_float(s + at, total)
        store_float(w + at, load_float(w + at) - rate * gradient / (math.sqrt(total) + eps))
        at += np.uint64(4)


@njit(**ROW_KERNEL)
def _persia(w: Any, s: Any, g: Any, dim: Any, hyper: np.ndarray) -> None:
    """w -= rate g / √(s + eps) with s before this gradient; s = s · momentum + g²."""
    for i in range(dim):
        at = np.uint64(i) << LOG2_4
        gradient, total = load_float(g + at), load_float(s + at)
        store_float(w + at, load_float(w + at) - hyper[RATE] * gradient / math.sqrt(total + hyper[P0]))
        store_float(s + at, total * hyper[P1] + gradient * gradient)


@njit(**ROW_KERNEL)
def _row_wise(w: Any, scalar: Any, g: Any, dim: Any, hyper: np.ndarray, persia: bool) -> None:
    """`_adagrad` or `_persia` with one accumulator a row, fed with the mean of g²."""
    total, mean = load_float(scalar), sum_squares(g, dim) / np.float32(dim)
    if persia:
        step = hyper[RATE] / math.sqrt(total + hyper[P0])
        total = total * hyper[P1] + mean
    else:
        total += mean
        step = hyper[RATE] / (math.sqrt(total) + hyper[P0])
    store_float(scalar, total)
    add_row(w, g, dim, -step)


@njit(**ROW_KERNEL)
def _adam(w: Any, s: Any, g: Any, dim: Any, hyper: np.ndarray) -> None:
    """m += (1-β₁)(g-m); v = β₂v + (1-β₂)g²; w -= P3 m / (√v·P4 + eps), P3 and P4 carrying the bias corrections.

    P0 and P1 are 1-β₁ and 1-β₂: taken from a β in float32, 1-β would be off by up to 3e-8 / (1-β) of itself.
    """
    take1, take2 = hyper[P0], hyper[P1]
    second = s + (np.uint64(dim) << LOG2_4)
    for i in range(dim):
        at = np.uint64(i) << LOG2_4
        gradient, m = load_float(g + at), load_float(s + at)
        m += (gradient - m) * take1
        v = (np.float32(1) - take2) * load_float(second + at) + take2 * gradient * gradient
        store_float(s + at, m)
        store_float(second + at, v)
        store_float(w + at, load_float(w + at) - hyper[P3] * m / (math.sqrt(v) * hyper[P4] + hyper[P2]))


@njit(**ROW_KERNEL)
def _row_adam(w: Any, s: Any, scalar: Any, g: Any, dim: Any, hyper: np.ndarray) -> None:
    """Adam whose v is one number a row: v = β₂v + (1-β₂) mean(g²)."""
    take1, take2 = hyper[P0], hyper[P1]
    v = (np.float32(1) - take2) * load_float(scalar) + take2 * sum_squares(g, dim) / np.float32(dim)
    store_float(scalar, v)
    step = hyper[P3] / (math.sqrt(v) * hyper[P4] + hyper[P2])
    for i in range(dim):
        at = np.uint64(i) << LOG2_4
        m = load_float(s + at)
        m += (load_float(g + at) - m) * take1
        store_float(s + at, m)
        store_float(w + at, load_float(w + at) - step * m)


@njit(**ROW_KERNEL)
def _ftrl(w: Any, s: Any, g: Any, dim: Any, hyper: np.ndarray) -> None:
    """z += g - (√(n+g²)-√n)/α·w; n += g²; w = 0 where |z| ≤ λ₁, else -(z - sgn(z)λ₁) / ((β+√n)/α + λ₂)."""
    alpha, beta, l1, l2 = hyper[RATE], hyper[P0], hyper[P1], hyper[P2]
    second = s + (np.uint64(dim) << LOG2_4)
    for i in range(dim):
        at = np.uint64(i) << LOG2_4
        gradient, n = load_float(g + at), load_float(s + at)
        grown = n + gradient * gradient
        z = load_float(second + at) + gradient - (math.sqrt(grown) - math.sqrt(n)) / alpha * load_float(w + at)
        weight = np.float32(0)
        if abs(z) > l1:
            weight = -(z - math.copysign(l1, z)) / ((beta + math.sqrt(grown)) / alpha + l2)
        store_float(s + at, grown)
        store_float(second + at, z)
        store_float(w + at, weight)


@njit(**ROW_KERNEL)
def apply_row(kind: Any, w: Any, s: Any, scalar: Any, g: Any, dim: Any, hyper: np.ndarray) -> None:
    """One step of optimizer `kind` on the row at `w` with state at `s`; `g` is overwritten by the decayed gradient."""
    scale, decay, bound = hyper[SCALE], hyper[DECAY], hyper[BOUND]
    if scale != np.float32(1) or decay != np.float32(0):
        for i in range(dim):
            at = np.uint64(i) << LOG2_4
            store_float(g + at, scale * load_float(g + at) + decay * load_float(w + at))
    if kind == ADAGRAD:
        _adagrad(w, s, g, dim, hyper)
    elif kind in (ADAGRAD_ROW, PERSIA_ROW):
        _row_wise(w, scalar, g, dim, hyper, kind == PERSIA_ROW)
    elif kind == SGD:
        _sgd(w, s, g, dim, hyper)
    elif kind == PERSIA:
        _persia(w, s, g, dim, hyper)
    elif kind in (ADAM, LAZY_ADAM):
        _adam(w, s, g, dim, hyper)
    elif kind == ROW_ADAM:
        _row_adam(w, s, scalar, g, dim, hyper)
    elif kind == FTRL:
        _ftrl(w, s, g, dim, hyper)
    if bound > 0:
        for i in range(dim):
            at = np.uint64(i) << LOG2_4
            store_float(w + at, min(max(load_float(w + at), -bound), bound))


@njit(**ROW_KERNEL)
def catch_up(w: Any, s: Any, scalar: Any, dim: Any, step: Any, history: Any, hyper: np.ndarray) -> None:
    """Replay Adam's steps with a zero gradient that the row has missed, as a dense Adam would have taken them.

    `history` holds, for every step so far, the P3 and P4 of that step. Once β₁ to the number of replayed steps is
    below float32's resolution (after P5 steps) the weights stand still and only the moments decay on.
    """
    last = np.int64(load_u32(scalar))
    if last >= step:
        return
    beta1, beta2, eps = np.float32(1) - hyper[P0], np.float32(1) - hyper[P1], hyper[P2]
    second = s + (np.uint64(dim) << LOG2_4)
    replayed = min(step, last + np.int64(hyper[P5]))
    for t in range(last, replayed):
        factor = load_float(history + (np.uint64(t) << LOG2_8))
        correction = load_float(history + (np.uint64(t) << LOG2_8) + np.uint64(4))
        for i in range(dim):
            at = np.uint64(i) << LOG2_4
            m, v = beta1 * load_float(s + at), beta2 * load_float(second + at)
            store_float(s + at, m)
            store_float(second + at, v)
            if m != np.float32(0):
                store_float(w + at, load_float(w + at) - factor * m / (math.sqrt(v) * correction + eps))
    if replayed < step:
        fade1, fade2 = beta1 ** np.float32(step - replayed), beta2 ** np.float32(step - replayed)
        for i in range(dim):
            at = np.uint64(i) << LOG2_4
            store_float(s + at, load_float(s + at) * fade1)
            store_float(second + at, load_float(second + at) * fade2)
    store_u32(scalar, np.uint32(step))
