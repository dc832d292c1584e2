"""The Criteo model of the GPU benchmarks, fused and in plain PyTorch, and the data it is trained on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock import Dataset
from penstock.data.parquet_file import NumbersFile, can_write
from penstock.data.synthetic import CARDINALITIES

SIZES, DIM, NUMBERS = list(CARDINALITIES["terabyte"]), 16, 13
CATEGORICAL, CONTINUOUS = [f"C{i}" for i in range(1, 27)], [f"I{i}" for i in range(1, 14)]
GIB = 2**30


def layers(nn, width: int, chain=None):
    """The dense part, as `nn.Sequential` or another chain of layers."""
    return (chain or nn.Sequential)(
        nn.Linear(width, 512), nn.ReLU(), nn.BatchNorm1d(512), nn.Linear(512, 256), nn.ReLU(), nn.BatchNorm1d(256),
        nn.Linear(256, 1),
    )  # fmt: skip


def model_over(torch, tables):
    """The model on some tables with `output="concat"`."""

    from penstock.nn import NormedLayers

    class Clicks(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = tables
            self.numbers = torch.nn.BatchNorm1d(NUMBERS, device="cuda")
            self.layers = layers(torch.nn, tables.width(NUMBERS), NormedLayers).to("cuda")

        def forward(self, ids, numbers):
            return self.layers(self.tables(ids, self.numbers(numbers))).squeeze(1)

    return Clicks()


def fused_model(torch, sizes: list[int], optimizer: str = "rowwise_adagrad", align: int = 16, cache_rows: int = 0):
    """The model on fused tables, or on cached ones."""
    from penstock.embedding import CachedEmbeddings, FusedEmbeddings

    settings = {"optimizer": optimizer, "lr": 0.01, "output": "concat", "align": align, "device": "cuda"}
    if cache_rows:
        return model_over(torch, CachedEmbeddings(sizes, DIM, cache_rows=cache_rows, **settings))
    return model_over(torch, FusedEmbeddings(sizes, DIM, **settings))


def fbgemm_model(torch, sizes: list[int]):
    """The layers as `nn.Sequential` over FBGEMM's CUDA tables; None where `fbgemm_gpu` is not installed."""
    tables = fbgemm_tables(torch, sizes, DIM, output="BF16")
    if tables is None:
        return None

    used = len(sizes) * DIM + NUMBERS
    width = -(-used // 16) * 16

    class OverFbgemm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = tables
            self.numbers = torch.nn.BatchNorm1d(NUMBERS, device="cuda")
            self.layers = layers(torch.nn, width).to("cuda")

        def forward(self, ids, numbers):
            found = self.looked_up(ids)
            beside = torch.nn.functional.pad(self.numbers(numbers), (0, width - used))
            return self.layers(torch.cat([found, beside.to(found.dtype)], 1)).squeeze(1)

        @torch.compiler.disable
        def looked_up(self, ids):
            offsets = torch.arange(ids.numel() + 1, device="cuda", dtype=torch.int32)
            return self.tables(ids.t().reshape(-1), offsets)

    return OverFbgemm()


def fbgemm_tables(torch, sizes: list[int], dim: int, output: str = "FP32", lr: float = 0.01):
    """FBGEMM's tables with row-wise Adagrad and float32 weights, or None where they are not installed."""
    try:
        from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import (
            BoundsCheckMode,
            EmbeddingLocation,
            PoolingMode,
        )
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
            ComputeDevice,
            SplitTableBatchedEmbeddingBagsCodegen,
        )
    except (ImportError, OSError):
        return None
    tables = SplitTableBatchedEmbeddingBagsCodegen(
        [(size, dim, EmbeddingLocation.DEVICE, ComputeDevice.CUDA) for size in sizes],
        optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD, learning_rate=lr, eps=1e-8, weights_precision=SparseType.FP32,
        output_dtype=SparseType[output], pooling_mode=PoolingMode.SUM, bounds_check_mode=BoundsCheckMode.NONE,
        device=torch.device("cuda"),
    )  # fmt: skip
    tables.init_embedding_weights_uniform(-0.01, 0.01)
    return tables


def plain_model(torch, sizes: list[int], sparse: bool, joint: bool = False):
    """The same in plain PyTorch: 26 tables as people write it, or `joint`, all rows in one, which launches less."""

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            rows = [sum(sizes)] if joint else sizes
            self.tables = torch.nn.ModuleList(
                torch.nn.Embedding(size, DIM, sparse=sparse, device="cuda") for size in rows
            )
            starts = torch.tensor([0, *sizes[:-1]], device="cuda").cumsum(0)
            self.register_buffer("starts", starts, persistent=False)
            self.numbers = torch.nn.BatchNorm1d(NUMBERS, device="cuda")
            self.layers = layers(torch.nn, 26 * DIM + NUMBERS).to("cuda")

        def forward(self, ids, numbers):
            if joint:
                found = [self.tables[0](ids + self.starts).flatten(1)]
            else:
                found = [table(ids[:, i]) for i, table in enumerate(self.tables)]
            return self.layers(torch.cat([*found, self.numbers(numbers)], 1)).squeeze(1)

    return Plain()


def plain_optimizers(torch, model, kind: str) -> list:
    dense = [*model.numbers.parameters(), *model.layers.parameters()]
    if kind.startswith("torch_dense"):
        return [torch.optim.Adam(model.parameters(), 1e-3, fused=True)]
    if kind == "torch_adagrad":  # dense gradients of zero leave a row as it is: the same numbers as sparse ones, sooner
        return [torch.optim.Adagrad(model.tables.parameters(), 0.01), torch.optim.Adam(dense, 1e-3, fused=True)]
    tables = {"torch_sparse": torch.optim.Adagrad, "torch_sgd": torch.optim.SGD}[kind]
    return [tables(model.tables.parameters(), 0.01), torch.optim.Adam(dense, 1e-3, fused=True)]


def plain_step(torch, model, optimizers: list, batch: tuple, amp: bool):
    ids, numbers, labels = batch
    with torch.autocast("cuda", torch.bfloat16, enabled=amp):
        logits = model(ids, numbers)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits.float(), labels)
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss.detach(), logits.detach().float()


class Batches:
    """Batches on the GPU as the loader lays them out; labels that numbers and the smaller tables explain."""

    def __init__(self, torch, sizes: list[int]) -> None:
        torch.manual_seed(0)
        self.torch, self.sizes = torch, sizes
        self.effects = [torch.randn(min(size, 1000), device="cuda") for size in sizes]

    def draw(self, rows: int) -> tuple:
        torch, columns = self.torch, []
        for size in self.sizes:
            drawn = torch.rand(rows, device="cuda", dtype=torch.float64)
            columns.append((float(size) ** drawn - 1).long().clamp_(0, size - 1))
        numbers = torch.randn(NUMBERS, rows, device="cuda")
        logit = numbers[:3].sum(0) * 0.5 - 1
        for column, effect in zip(columns, self.effects, strict=True):
            logit += 0.3 * effect[column % len(effect)]
        labels = (torch.rand(rows, device="cuda") < torch.sigmoid(logit)).float()
        return torch.stack(columns).to(torch.int32).t(), numbers.t(), labels


def batches(torch, rows: int, count: int, sizes: list[int]) -> list[tuple]:
    """Several at once."""
    source = Batches(torch, sizes)
    return [source.draw(rows) for _ in range(count)]


def write_files(folder: Path, rows: int, files: int = 16, codec: str = "none") -> None:
    """Rows as they leave the ETL, several files at once: by default with the pages that `to_parquet` writes."""

    def one(number: int) -> None:
        rng, count = np.random.default_rng(number), rows // files
        columns: dict[str, np.ndarray] = {"label": (rng.random(count) < 0.25).astype(np.float32)}
        columns |= {name: rng.standard_normal(count, np.float32) for name in CONTINUOUS}
        for name, size in zip(CATEGORICAL, SIZES, strict=True):
            draw = rng.random(count, np.float32)
            columns[name] = np.minimum(np.float32(size) ** draw - 1, size - 1).astype(np.int32)
        table, path = pa.table(columns), folder / f"{number:02d}.parquet"
        if can_write(table.schema, codec):
            file = NumbersFile(path, table.schema)
            file.write_table(table, row_group_size=250_000)
            file.close()
        else:
            pq.write_table(table, path, row_group_size=250_000, compression=codec)

    with ThreadPoolExecutor(files) as pool:
        list(pool.map(one, range(files)))


def dataset(folder: Path) -> Dataset:
    data = Dataset(str(folder))
    schema = data.schema.with_roles(categorical=CATEGORICAL, continuous=CONTINUOUS, label=["label"])
    for name, size in zip(CATEGORICAL, SIZES, strict=True):
        schema = schema.with_column(schema[name].with_(cardinality=size))
    return data.with_schema(schema)


def every_row(sizes: list[int], dim: int) -> dict:
    """The state of hashed tables that have seen each id below their sizes once."""
    import torch

    total = sum(sizes)
    return {
        "ids": torch.cat([torch.arange(size) for size in sizes]),
        "tables": torch.arange(len(sizes), dtype=torch.int32).repeat_interleave(torch.tensor(sizes)),
        "touched": torch.zeros(total, dtype=torch.int64),
        "free": torch.empty(0, dtype=torch.int64),
        "clock": torch.tensor(2),
        "weight": torch.empty(total, dim).uniform_(-0.01, 0.01),
        "first_state": torch.zeros(total),
    }
