"""Threads that sleep in native code: waking them, and their falling asleep again, never takes the interpreter's lock.

Their state is one array of words: a mutex and two condition variables of the C library (opaque, `_ROOM` words
each), then what they guard. A job is a C function of one address (`compiled_job`) that draws tasks from a counter until
none is left: a helper that wakes up late has nothing to do, and is not waited for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types

from penstock.kernels.cpu_intrinsics import KERNEL, aligned_empty, intrinsic
from penstock.kernels.kernel_cache import njit

AVAILABLE = os.name == "posix"  # elsewhere the C library has no such functions

_ROOM = 16  # words; on Linux and macOS a mutex takes up to 8, a condition variable 6
_MUTEX, _WORK, _DONE = 0, 1, 2
_WANTED, _RUNNING, _JOB, _ARGUMENT, _STOPPED, _END = range(3 * _ROOM, 3 * _ROOM + 6)


def _from_c(name: str, num_addresses: int) -> Any:
    return types.ExternalFunction(name, types.int32(*[types.uint64] * num_addresses))


_init_mutex, _init_condition = _from_c("pthread_mutex_init", 2), _from_c("pthread_cond_init", 2)
_lock, _unlock = _from_c("pthread_mutex_lock", 1), _from_c("pthread_mutex_unlock", 1)
_wait = _from_c("pthread_cond_wait", 2)
_wake_one, _wake_all = _from_c("pthread_cond_signal", 1), _from_c("pthread_cond_broadcast", 1)


@intrinsic
def _call(typingctx: Any, function: Any, argument: Any) -> Any:
    """Call the C function at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1]])
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64), generate


@intrinsic
def pointer_to(typingctx: Any, address: Any) -> Any:
    """An address as `numba.carray` takes it; a job makes its arrays from what it was given so."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.uint64), generate


def compiled_job(function: Callable[[Any], None]) -> Any:
    """`function`, of one address, as a job: it has an `address` and, for Python, `ctypes`. It must not raise."""
    return numba.cfunc(types.void(types.uint64), cache=True)(function)


def new_state() -> np.ndarray:
    """The state of threads that nobody has started yet."""
    for function in (serve, stop):  # here, since helpers that wait for the compiler could not be stopped
        function.compile((types.Array(types.int64, 1, "C"),))
    state = aligned_empty(_END, np.int64)
    _initialise(state)
    return state


@njit(**KERNEL)
def _part(state: np.ndarray, which: Any) -> Any:
    return np.uint64(state.ctypes.data) + np.uint64(which * _ROOM * 8)


@njit(**KERNEL)
def _initialise(state: np.ndarray) -> None:
    state[:] = 0
    _init_mutex(_part(state, _MUTEX), np.uint64(0))
    _init_condition(_part(state, _WORK), np.uint64(0))
    _init_condition(_part(state, _DONE), np.uint64(0))


@njit(**KERNEL)
def serve(state: np.ndarray) -> None:
    """What a helper does until the threads are stopped."""
    mutex = _part(state, _MUTEX)
    _lock(mutex)
    while True:
        while state[_WANTED] == 0 and state[_STOPPED] == 0:
            _wait(_part(state, _WORK), mutex)
        if state[_STOPPED] != 0:
            break
        state[_WANTED] -= 1
        state[_RUNNING] += 1
        job, argument = np.uint64(state[_JOB]), np.uint64(state[_ARGUMENT])
        _unlock(mutex)
        _call(job, argument)
        _lock(mutex)
        state[_RUNNING] -= 1
        if state[_RUNNING] == 0:
            _wake_one(_part(state, _DONE))
    _unlock(mutex)


@njit(**KERNEL)
def run(state: np.ndarray, helpers: Any, job: Any, argument: Any) -> None:
    """Do a job here and on up to `helpers` helpers at once; one call at a time."""
    mutex = _part(state, _MUTEX)
    _lock(mutex)
    state[_WANTED], state[_JOB], state[_ARGUMENT] = helpers, job, argument
    _unlock(mutex)
    for _ in range(helpers):  # after unlocking: who wakes up takes the mutex first of all
        _wake_one(_part(state, _WORK))
    _call(np.uint64(job), np.uint64(argument))
    _lock(mutex)
    state[_WANTED] = 0  # who has not woken by now is not needed
    while state[_RUNNING] > 0:
        _wait(_part(state, _DONE), mutex)
    _unlock(mutex)


@njit(**KERNEL)
def stop(state: np.ndarray) -> None:
    """Let all helpers return, each after the job it is in."""
    _lock(_part(state, _MUTEX))
    state[_STOPPED] = 1
    _wake_all(_part(state, _WORK))
    _unlock(_part(state, _MUTEX))
