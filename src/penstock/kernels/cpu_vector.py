"""Whole-row operations by address: a row is moved or added 16 floats to an instruction, then 4, then 1.

numba has no vector type, so each operation loads, computes and stores inside one intrinsic. LLVM splits the 16 lanes
on machines with narrower registers. Addresses are `uint64`; the caller keeps the memory alive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from penstock.kernels.cpu_intrinsics import LOG2_4, ROW_KERNEL
from penstock.kernels.kernel_cache import njit

# For the small functions inside hot loops: a call would cost as much as what they do.
INLINED: dict[str, Any] = {**ROW_KERNEL, "forceinline": True}

_FLOAT, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)


def _vector(lanes: Any) -> Any:
    return ir.VectorType(_FLOAT, lanes)


def _at(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _splat(builder: Any, scalar: Any, lanes: Any) -> Any:
    vector = ir.Constant(_vector(lanes), ir.Undefined)
    for lane in range(lanes):
        vector = builder.insert_element(vector, scalar, ir.Constant(_I32, lane))
    return vector


def _square_root(builder: Any, value: Any, lanes: Any) -> Any:
    kind = _vector(lanes)
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind]), f"llvm.sqrt.v{lanes}f32")
    return builder.call(function, [value])


def _copying(lanes: Any, streaming: bool = False) -> Callable[..., Any]:
    @intrinsic
    def copy(typingctx: Any, target: Any, source: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = _vector(lanes)
            value = builder.load(_at(builder, args[1], kind), align=4)
            # A streaming store needs its natural alignment and goes past the cache, which saves reading the line first.
            store = builder.store(value, _at(builder, args[0], kind), align=4 * lanes if streaming else 4)
            if streaming:
                store.set_metadata("nontemporal", builder.module.add_metadata([_I32(1)]))
            return context.get_dummy_value()

        return types.void(types.uint64, types.uint64), generate

    return copy


def _adding(lanes: Any) -> Callable[..., Any]:
    @intrinsic
    def add(typingctx: Any, target: Any, source: Any, factor: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = _vector(lanes)
            place = _at(builder, args[0], kind)
            scaled = builder.fmul(builder.load(_at(builder, args[1], kind), align=4), _splat(builder, args[2], lanes))
            builder.store(builder.fadd(builder.load(place, align=4), scaled), place, align=4)
            return context.get_dummy_value()

        return types.void(types.uint64, types.uint64, types.float32), generate

    return add


def _adagrad(lanes: Any) -> Callable[..., Any]:
    @intrinsic
    def adagrad(typingctx: Any, weights: Any, state: Any, gradient: Any, scale: Any, rate: Any, eps: Any) -> Any:
        """g = scale·gradient; state += g²; weights -= rate·g / (√state + eps)."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = _vector(lanes)
            weights, state = _at(builder, args[0], kind), _at(builder, args[1], kind)
            gradient = builder.load(_at(builder, args[2], kind), align=4)
            gradient = builder.fmul(gradient, _splat(builder, args[3], lanes))
            total = builder.fadd(builder.load(state, align=4), builder.fmul(gradient, gradient))
            builder.store(total, state, align=4)
            divisor = builder.fadd(_square_root(builder, total, lanes), _splat(builder, args[5], lanes))
            step = builder.fdiv(builder.fmul(_splat(builder, args[4], lanes), gradient), divisor)
            builder.store(builder.fsub(builder.load(weights, align=4), step), weights, align=4)
            return context.get_dummy_value()

        f32, u64 = types.float32, types.uint64
        return types.void(u64, u64, u64, f32, f32, f32), generate

    return adagrad


def _squares(lanes: Any) -> Callable[..., Any]:
    @intrinsic
    def squares(typingctx: Any, source: Any) -> Any:
        """The sum of the squares of the lanes."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = builder.load(_at(builder, args[0], _vector(lanes)), align=4)
            value = builder.fmul(value, value)
            parts = [builder.extract_element(value, ir.Constant(_I32, lane)) for lane in range(lanes)]
            while len(parts) > 1:
                half = len(parts) // 2
                parts = [builder.fadd(parts[i], parts[i + half]) for i in range(half)]
            return parts[0]

        return types.float32(types.uint64), generate

    return squares


copy16, copy4, stream16 = _copying(16), _copying(4), _copying(16, streaming=True)
add16, add4 = _adding(16), _adding(4)
adagrad16, squares16 = _adagrad(16), _squares(16)


def _scalar_load(kind: Any, numba_type: Any) -> Callable[..., Any]:
    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load(_at(builder, args[0], kind), align=1)

        return numba_type(types.uint64), generate

    return load


def _scalar_store(kind: Any, numba_type: Any) -> Callable[..., Any]:
    @intrinsic
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store(args[1], _at(builder, args[0], kind), align=1)
            return context.get_dummy_value()

        return types.void(types.uint64, numba_type), generate

    return store


load_float, store_float = _scalar_load(_FLOAT, types.float32), _scalar_store(_FLOAT, types.float32)
load_u32, store_u32 = _scalar_load(_I32, types.uint32), _scalar_store(_I32, types.uint32)
load_u16, store_u16 = _scalar_load(ir.IntType(16), types.uint16), _scalar_store(ir.IntType(16), types.uint16)
store_u64 = _scalar_store(_I64, types.uint64)
store_u8 = _scalar_store(ir.IntType(8), types.uint8)


@intrinsic
def _fetch_add(typingctx: Any, address: Any, amount: Any) -> Any:
    """Atomically add to the int64 at `address`; what was there before. Threads draw their tasks with it."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _at(builder, args[0], _I64), args[1], "seq_cst")

    return types.int64(types.uint64, types.int64), generate


@intrinsic
def _fence(typingctx: Any) -> Any:
    """Make streaming stores visible before anything that follows."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _float_bits(typingctx: Any, value: Any) -> Any:
    """The 32 bits of a float32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _I32)

    return types.uint32(types.float32), generate


@intrinsic
def _bits_float(typingctx: Any, value: Any) -> Any:
    """The float32 with these 32 bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _FLOAT)

    return types.float32(types.uint32), generate


# Called with one argument less than they are written with, which type checkers cannot know.
fetch_add: Any = _fetch_add
fence: Any = _fence
float_bits: Any = _float_bits
bits_float: Any = _bits_float


@njit(**INLINED)
def copy_row(target: Any, source: Any, dim: Any) -> None:
    """target[:dim] = source[:dim], float32."""
    i, bytes_, wide = np.uint64(0), np.uint64(dim) << LOG2_4, np.uint64(64)
    while i + wide <= bytes_:
        copy16(target + i, source + i)
        i += wide
    while i + np.uint64(16) <= bytes_:
        copy4(target + i, source + i)
        i += np.uint64(16)
    while i < bytes_:
        store_float(target + i, load_float(source + i))
        i += np.uint64(4)


@njit(**INLINED)
def stream_row(target: Any, source: Any, dim: Any) -> None:
    """`copy_row` past the cache: `target` is 64-byte aligned and `dim` a multiple of 16."""
    i, bytes_, wide = np.uint64(0), np.uint64(dim) << LOG2_4, np.uint64(64)
    while i < bytes_:
        stream16(target + i, source + i)
        i += wide


@njit(**INLINED)
def add_row(target: Any, source: Any, dim: Any, factor: Any) -> None:
    """target[:dim] += factor · source[:dim], float32."""
    i, bytes_, wide = np.uint64(0), np.uint64(dim) << LOG2_4, np.uint64(64)
    while i + wide <= bytes_:
        add16(target + i, source + i, factor)
        i += wide
    while i + np.uint64(16) <= bytes_:
        add4(target + i, source + i, factor)
        i += np.uint64(16)
    while i < bytes_:
        store_float(target + i, load_float(target + i) + factor * load_float(source + i))
        i += np.uint64(4)


@njit(**INLINED)
def zero_row(target: Any, dim: Any) -> None:
    """target[:dim] = 0, float32."""
    i, bytes_ = np.uint64(0), np.uint64(dim) << LOG2_4
    while i + np.uint64(8) <= bytes_:
        store_u64(target + i, np.uint64(0))
        i += np.uint64(8)
    if i < bytes_:
        store_u32(target + i, np.uint32(0))


@njit(**INLINED)
def sum_squares(source: Any, dim: Any) -> Any:
    """Σ source[i]², float32."""
    i, bytes_, total = np.uint64(0), np.uint64(dim) << LOG2_4, np.float32(0)
    while i + np.uint64(64) <= bytes_:
        total += squares16(source + i)
        i += np.uint64(64)
    while i < bytes_:
        value = load_float(source + i)
        total += value * value
        i += np.uint64(4)
    return total


@njit(**ROW_KERNEL)
def row_is_finite(source: Any, dim: Any) -> Any:
    """Whether no value of the row is an infinity or not a number."""
    bad = np.uint32(0)
    exponent = np.uint32(0x7F800000)
    for i in range(dim):
        bad |= np.uint32((load_u32(source + (np.uint64(i) << LOG2_4)) & exponent) == exponent)
    return bad == np.uint32(0)
