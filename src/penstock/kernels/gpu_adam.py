"""A step of Adam over all weights of a dense model, on a GPU, if all gradients are finite.

    m ← m + (1 - β₁) (g - m);  v ← v + (1 - β₂) (g² - v);  w ← w - lr / (1 - β₁ᵗ) · m / (√v / √(1 - β₂ᵗ) + ε)

Tensors are known by their addresses, which a table on the device holds, and are cut into pieces of a program each: one
of PyTorch's programs takes 65,536 numbers, so that the weights of a click model keep eight of 132 processors busy.
"""

from __future__ import annotations

import math

from torch import Tensor

from penstock.kernels.gpu_triton import require_triton

require_triton()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from penstock.kernels.gpu_launch import Launch  # noqa: E402

PIECE = 1024  # numbers of a program
_WARPS = 4
PLAIN, WITH_DECAY, DECOUPLED = range(3)  # what is done with `weight_decay`


@triton.jit
def _piece(addresses, pieces, which, count):
    """Of a piece's tensor the address: of its weights (`which` 0), gradients (1), averages (2, 3), steps (4)."""
    tensor = tl.load(pieces + 2 * tl.program_id(0))
    return tl.load(addresses + which * count + tensor).to(tl.pointer_type(tl.float32))


@triton.jit
def _find_broken(addresses, pieces, sizes, fine, count, PIECE: tl.constexpr):
    gradients = _piece(addresses, pieces, 1, count)
    size = tl.load(sizes + tl.load(pieces + 2 * tl.program_id(0)))
    place = tl.load(pieces + 2 * tl.program_id(0) + 1) + tl.arange(0, PIECE)
    value = tl.load(gradients + place, mask=place < size, other=0)
    broken = tl.sum((tl.abs(value) < float("inf")).to(tl.int32), 0) < PIECE  # NaN is not less
    if broken:
        tl.store(fine, 0.0)


@triton.jit
def _count(addresses, fine, skipped, count, COUNTS: tl.constexpr, TENSORS: tl.constexpr):
    tensor, is_fine = tl.arange(0, TENSORS), tl.load(fine)
    inside = tensor < count
    steps = tl.load(addresses + 4 * count + tensor, mask=inside, other=0).to(tl.pointer_type(tl.float32))
    tl.store(steps, tl.load(steps, mask=inside, other=0) + is_fine, mask=inside)
    if COUNTS:
        tl.store(skipped, tl.load(skipped) + 1 - is_fine.to(tl.int64))


@triton.jit
def _step(
    addresses, pieces, sizes, fine, rate, count, rest1, rest2, log_beta1, log_beta2, epsilon, decay,
    DECAY: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    if tl.load(fine) != 0:
        tensor = tl.load(pieces + 2 * tl.program_id(0))
        size = tl.load(sizes + tensor)
        place = tl.load(pieces + 2 * tl.program_id(0) + 1) + tl.arange(0, PIECE)
        inside = place < size
        weights, gradients = _piece(addresses, pieces, 0, count), _piece(addresses, pieces, 1, count)
        means, squares = _piece(addresses, pieces, 2, count), _piece(addresses, pieces, 3, count)
        steps = tl.load(_piece(addresses, pieces, 4, count))  # this one counted already
        lr = tl.load(rate)
        w = tl.load(weights + place, mask=inside, other=0)
        g = tl.load(gradients + place, mask=inside, other=0)
        if DECAY == 1:
            g += decay * w
        if DECAY == 2:
            w -= lr * decay * w
        m = tl.load(means + place, mask=inside, other=0)
        v = tl.load(squares + place, mask=inside, other=0)
        m += rest1 * (g - m)
        v += rest2 * (g * g - v)
        # 1 - βᵗ of the first steps would lose digits as float32: exp(t log β) - 1 there is about t log β.
        first, second = -_exp_minus_1(steps * log_beta1), -_exp_minus_1(steps * log_beta2)
        w -= lr / first * m / (tl.sqrt(v) / tl.sqrt(second) + epsilon)
        tl.store(means + place, m, mask=inside)
        tl.store(squares + place, v, mask=inside)
        tl.store(weights + place, w, mask=inside)


@triton.jit
def _exp_minus_1(x):
    """exp(x) - 1 for x up to 0: by a series where the difference would be all rounding."""
    series = x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6)))))
    return tl.where(x > -0.25, series, tl.exp(x) - 1)


_FIND_BROKEN, _COUNT, _STEP = Launch(_find_broken), Launch(_count), Launch(_step)


def find_broken(addresses: Tensor, pieces: Tensor, sizes: Tensor, fine: Tensor) -> None:
    """Set `fine` to 0 if a gradient is not finite.

    Args:
        addresses: `(5, tensors)`, of weights, gradients, both averages, and the number of steps; all float32.
        pieces: `(programs, 2)`, each the number of a tensor and the place of its first number there.
        sizes: of the tensors.
        fine: a number, float32.
    """
    arguments = addresses, pieces, sizes, fine, addresses.shape[1]
    _FIND_BROKEN((len(pieces),), arguments, {"PIECE": PIECE}, _WARPS)


def count_step(addresses: Tensor, fine: Tensor, skipped: Tensor | None) -> None:
    """Count a step of these tensors if all is `fine`.

    Args:
        addresses, fine: as above.
        skipped: what counts the steps that are not taken, int64; or None.
    """
    count = addresses.shape[1]
    constants = {"COUNTS": skipped is not None, "TENSORS": triton.next_power_of_2(count)}
    _COUNT((1,), (addresses, fine, fine if skipped is None else skipped, count), constants, _WARPS)


def step(
    addresses: Tensor, pieces: Tensor, sizes: Tensor, fine: Tensor, rate: Tensor, betas: tuple[float, float],
    epsilon: float, decay: float, kind: int,
) -> None:  # fmt: skip
    """Take the step if all is `fine`.

    Args:
        addresses, pieces, sizes, fine: as above; the numbers of steps count this one already.
        rate: of learning, on the device.
        betas: of the averages.
        epsilon: beside the root.
        decay: of weights.
        kind: what it does: `PLAIN`, `WITH_DECAY` as Adam has it, `DECOUPLED` as AdamW.
    """
    numbers = *(1 - beta for beta in betas), *(math.log(beta) for beta in betas), epsilon, decay
    arguments = addresses, pieces, sizes, fine, rate, addresses.shape[1], *numbers
    _STEP((len(pieces),), arguments, {"DECAY": kind, "PIECE": PIECE}, _WARPS)
