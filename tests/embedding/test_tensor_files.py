"""Tensors that cannot be written are an error of the system, as any other file."""

from __future__ import annotations

import errno
import resource
from pathlib import Path

import pytest
import torch

from penstock.embedding.tensor_files import write_tensors


def test_a_disk_that_takes_no_more_is_an_error_of_the_system(tmp_path: Path) -> None:
    path, (soft, hard) = tmp_path / "dense.safetensors", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match=r"dense\.safetensors") as caught:
            write_tensors({"weights": torch.zeros(10_000)}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    write_tensors({"weights": torch.zeros(10_000)}, path)
