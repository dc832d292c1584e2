"""The list of kernels that are compiled ahead names kernels that are there, with arguments that they take."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from penstock.kernels import cpu_gather, cpu_lines
from penstock.kernels.kernel_lines import kernel_lines
from penstock.kernels.kernel_types import compile_line, compiled_here, kernel_of, types_of, words_of


@pytest.mark.parametrize("line", kernel_lines(), ids=lambda line: line.partition("(")[0])
def test_a_line_names_a_kernel_and_a_type_for_each_argument(line: str) -> None:
    assert len(types_of(line)) == len(inspect.signature(kernel_of(line).py_func).parameters)


def test_no_line_is_there_twice() -> None:
    assert len(set(kernel_lines())) == len(kernel_lines()) > 50


def test_what_is_called_is_listed_as_it_can_be_compiled() -> None:
    assert cpu_lines.count_byte(np.frombuffer(b"a,b,c", np.uint8).copy(), ord(",")) == 2
    cpu_gather.fill_permutation(np.empty(5, np.uint32), np.uint64(1))
    called = {"cpu_lines.count_byte(uint8[::1], int64)", "cpu_gather.fill_permutation(uint32[::1], uint64)"}
    assert called <= compiled_here()  # other tests of this process may have called them with other types
    for line in called:
        compile_line(line)  # again
        assert types_of(line) in kernel_of(line).overloads


@pytest.mark.parametrize("types", ["(float64[::1, :])", "(boolean, Array(float64, 1, 'C', True, aligned=True))"])
def test_types_are_written_as_they_are_read(types: str) -> None:
    assert f"({', '.join(map(words_of, types_of(types)))})" == types
