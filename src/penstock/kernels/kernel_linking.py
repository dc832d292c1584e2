"""What only other kernels call gets neither machine code nor an entry for Python: it is linked into its callers.

numba compiles every function to the end, as if Python called it, and then once more inside each of its callers: a
helper that lies three calls deep is optimised four times. Here a library of code that nothing outside enters is left
as it was lowered, or optimised where its callers are better for it, and its callers make machine code of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import llvmlite.binding as llvm
from numba.core import codegen
from numba.core.environment import lookup_environment
from numba.core.registry import cpu_target
from numba.core.sigutils import normalize_signature

_ENTRIES = ("_ZN7cpython", "_ZN5cfunc")  # how numba names what Python and C enter a function by
_LOWERED = "_ZN"  # and all functions that it has lowered; its runtime has plain names
_ENVIRONMENT = "_ZN08NumbaEnv"
_INNER = "inner"  # the kind under which numba's cache keeps such a library


_Library: Any = codegen.JITCodeLibrary  # it has no types


class KernelLibrary(_Library):  # type: ignore[misc]
    """numba's library of code, without machine code where only kernels call it."""

    is_inner = False

    def finalize(self) -> None:
        """Settle what is in it; make machine code of it, unless it is only there to be linked."""
        self.is_inner = bool(_compiling) and self._is_only_called()
        super().finalize()
        if self.is_inner:
            return
        # What was linked in has no address of its own, so that nobody told the code where its constants are.
        for name in _environments_of(self._final_module):
            if (environment := lookup_environment(name)) is not None:
                self._codegen.set_env(name, environment)

    def _is_only_called(self) -> bool:
        names = [function.name for function in self._final_module.functions if not function.is_declaration]
        if any(name.startswith(_ENTRIES) for name in names) or not any(name.startswith(_LOWERED) for name in names):
            return False
        # A function that calls itself does so by its address, which only machine code has.
        return not any(v.name.startswith(codegen.RuntimeLinker.PREFIX) for v in self._final_module.global_variables)

    def _optimize_final_module(self) -> None:
        if not self.is_inner or _compiling[-1].optimised_apart:
            super()._optimize_final_module()

    def _finalize_final_module(self) -> None:
        if not self.is_inner:
            super()._finalize_final_module()
            return
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    @property
    def codegen(self) -> Any:
        """numba's generator of code; of an inner library, one that has no address to keep an environment at."""
        return _NoAddresses() if self.is_inner else self._codegen

    def serialize_using_object_code(self) -> Any:
        """For numba's cache: an inner library has no object code, only what is linked."""
        self._ensure_finalized()
        if not self.is_inner:
            return super().serialize_using_object_code()
        return self.name, _INNER, self._get_module_for_linking().as_bitcode()

    @classmethod
    def _unserialize(cls, generator: Any, state: Any) -> Any:
        name, kind, data = state
        if kind != _INNER:
            return super()._unserialize(generator, state)
        self = generator.create_library(name)
        self._final_module = self._shared_module = llvm.parse_bitcode(data)
        self.is_inner = self._finalized = True
        return self


class _NoAddresses:
    def set_env(self, name: str, environment: Any) -> None:
        """Nothing: whoever the code is linked into says where its environments are."""


def _environments_of(module: Any) -> list[str]:
    return [variable.name for variable in module.global_variables if variable.name.startswith(_ENVIRONMENT)]


cpu_target.target_context.codegen()._library_class = KernelLibrary

# Both are read and written by the thread that has numba's lock.
_compiling: list[Any] = []  # the kernels that are being compiled, each because the one before calls it
_asked_for: list[Any] = []  # the kernel that another one is about to call, until its compilation begins


def linked(kernel: Any, optimised_apart: bool = False) -> Any:
    """The kernel, compiled for Python when Python calls it, and else only as far as its callers need it."""
    kernel.optimised_apart = optimised_apart
    template_of, compile_whole, add_whole = kernel.get_call_template, kernel.compile, kernel.add_overload

    def get_call_template(args: Any, kws: Any) -> Any:
        with _pushed(_asked_for, kernel):
            return template_of(args, kws)

    def compile_as_asked(signature: Any) -> Any:
        inner = bool(_asked_for) and _asked_for[-1] is kernel
        with _pushed(_compiling, kernel), _pushed(_asked_for, None), _entry_left_out(kernel, inner):
            if inner:
                return compile_whole(signature)
            _drop_inner(kernel, signature)
            entry = compile_whole(signature)
            if _drop_inner(kernel, signature):  # found in the cache, for callers only
                with _cache_unread(kernel):
                    entry = compile_whole(signature)
            return entry

    def add_overload(result: Any) -> None:
        if getattr(result.library, "is_inner", False):
            kernel.overloads[tuple(result.signature.args)] = result  # and not where calls from Python look
        else:
            add_whole(result)

    kernel.get_call_template, kernel.compile, kernel.add_overload = get_call_template, compile_as_asked, add_overload
    return kernel


@contextmanager
def _pushed(stack: list[Any], kernel: Any) -> Iterator[None]:
    stack.append(kernel)
    try:
        yield
    finally:
        stack.pop()


@contextmanager
def _entry_left_out(kernel: Any, wanted: bool) -> Iterator[None]:
    """A block in which the kernel is compiled without the entry that Python calls it by, where that is wanted."""
    kernel.targetoptions["no_cpython_wrapper"] = wanted
    try:
        yield
    finally:
        kernel.targetoptions["no_cpython_wrapper"] = False


def _drop_inner(kernel: Any, signature: Any) -> bool:
    """Forget what was compiled for callers only; whether there was such."""
    types, _ = normalize_signature(signature)
    found = kernel.overloads.get(tuple(types))
    if found is None or not getattr(found.library, "is_inner", False):
        return False
    del kernel.overloads[tuple(types)]
    return True


@contextmanager
def _cache_unread(kernel: Any) -> Iterator[None]:
    """A block in which the kernel is compiled and kept, whatever numba's cache has of it."""
    kernel._cache.load_overload = lambda *_: None
    try:
        yield
    finally:
        del kernel._cache.load_overload
