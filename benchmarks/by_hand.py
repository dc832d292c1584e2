"""The peer of `etl.py` and `pipeline.py`: the Criteo job by a good hand in polars and plain PyTorch, all in memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

CATEGORIES = [f"C{i}" for i in range(1, 27)]
NUMBERS = [f"I{i}" for i in range(1, 14)]
THRESHOLD = 6
FIRST_CODE = 3  # 0 is padding, 1 null, 2 unknown


def read_text(source: Path, hexadecimal: bool = True) -> pl.DataFrame:
    """Raw rows; hexadecimal text becomes integers at once, which every later step is faster for."""
    names = ["label", *NUMBERS, *CATEGORIES]
    schema = {n: pl.String if n in CATEGORIES else pl.Int32 for n in names}
    frame = pl.read_csv(source, has_header=False, separator="\t", schema=schema, quote_char=None)
    if hexadecimal:
        frame = frame.with_columns(pl.col(CATEGORIES).str.to_integer(base=16, dtype=pl.UInt32))
    return frame


@dataclass
class FittedByHand:
    """What the rows to train on teach: a vocabulary a category, mean and deviation of each number."""

    vocabularies: list[pl.DataFrame]
    means: dict[str, float]
    deviations: dict[str, float]

    @property
    def sizes(self) -> list[int]:
        """The codes of each category."""
        return [FIRST_CODE + len(vocabulary) for vocabulary in self.vocabularies]


def fit(frame: pl.DataFrame) -> FittedByHand:
    """One count a category, all of them side by side."""
    lazy = frame.lazy()
    counts = pl.collect_all(
        [
            lazy.select(pl.col(name).drop_nulls())
            .group_by(name)
            .len()
            .filter(pl.col("len") >= THRESHOLD)
            .sort("len", name, descending=[True, False])
            .select(pl.col(name), pl.int_range(FIRST_CODE, pl.len() + FIRST_CODE, dtype=pl.Int32).alias("code"))
            for name in CATEGORIES
        ]
    )
    logs = frame.select(_logs())
    return FittedByHand(counts, logs.mean().row(0, named=True), logs.std().row(0, named=True))


def transform(frame: pl.DataFrame, fitted: FittedByHand) -> pl.DataFrame:
    """Features: one join a category, lazily fused; numbers filled, clipped, logged and normalised."""
    lazy, encoded = frame.lazy(), []
    for name, vocabulary in zip(CATEGORIES, fitted.vocabularies, strict=True):
        joined = lazy.select(name).join(vocabulary.lazy(), on=name, how="left", maintain_order="left")
        unknown = pl.when(pl.col(name).is_null()).then(pl.lit(1, pl.Int32)).otherwise(pl.lit(2, pl.Int32))
        encoded.append(joined.select(pl.col("code").fill_null(unknown).alias(name)))
    numbers = frame.select("label", _logs()).with_columns(
        (pl.col(name) - pl.lit(fitted.means[name], pl.Float32)) / pl.lit(fitted.deviations[name], pl.Float32)
        for name in NUMBERS
    )
    return pl.concat([numbers, *pl.collect_all(encoded)], how="horizontal")


def _logs() -> pl.Expr:
    return pl.col(NUMBERS).fill_null(0).clip(0).cast(pl.Float32).log1p()


def write(features: pl.DataFrame, target: Path) -> None:
    """In the fastest of the output settings tried."""
    features.write_parquet(target, compression="uncompressed", statistics=False)


def polars_job(source: Path, target: Path, hexadecimal: bool = True) -> None:
    """Text to features on disk."""
    frame = read_text(source, hexadecimal)
    write(transform(frame, fit(frame)), target)


class ByHand:
    """A DLRM in plain PyTorch: one joint table, with dense gradients on a GPU and sparse ones on CPUs."""

    def __init__(self, sizes: list[int], device: str, dim: int = 16) -> None:
        import torch

        self.torch, self.device = torch, device
        torch.manual_seed(0)
        nn, on_gpu = torch.nn, device == "cuda"
        self.table = nn.Embedding(sum(sizes), dim, sparse=not on_gpu, device=device)
        nn.init.normal_(self.table.weight, std=0.01)
        self.starts = torch.tensor([sum(sizes[:i]) for i in range(len(sizes))], device=device)
        self.bottom = nn.Sequential(nn.Linear(len(NUMBERS), 64), nn.ReLU(), nn.Linear(64, dim), nn.ReLU()).to(device)
        self.pairs = torch.tril_indices(len(sizes) + 1, len(sizes) + 1, -1, device=device)
        width = dim + self.pairs.shape[1]
        self.top = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))
        self.top.to(device)
        dense = [*self.bottom.parameters(), *self.top.parameters()]
        if on_gpu:
            self.optimizers = [torch.optim.Adam([*dense, self.table.weight], 1e-3, fused=True)]
        else:
            self.optimizers = [torch.optim.Adam(dense, 1e-3), torch.optim.Adagrad(self.table.parameters(), 0.05)]

    def logits(self, codes, numbers):
        """Of one batch."""
        projected = self.bottom(numbers)
        vectors = self.torch.cat([projected.unsqueeze(1), self.table(codes + self.starts)], 1)
        products = self.torch.bmm(vectors, vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(self.torch.cat([projected, products], 1)).squeeze(1)

    def tensors(self, features: pl.DataFrame):
        """Features on the device, which holds them all."""
        codes = self.torch.from_numpy(features.select(CATEGORIES).to_numpy()).to(self.device)
        numbers = self.torch.from_numpy(features.select(NUMBERS).to_numpy()).to(self.device)
        labels = self.torch.from_numpy(features["label"].to_numpy().astype("float32")).to(self.device)
        return codes, numbers, labels

    def train(self, features: pl.DataFrame, epochs: int, batch_size: int) -> None:
        """Shuffled on the device."""
        torch = self.torch
        codes, numbers, labels = self.tensors(features)
        for _ in range(epochs):
            for rows in torch.randperm(len(labels), device=self.device).split(batch_size):
                for optimizer in self.optimizers:
                    optimizer.zero_grad(set_to_none=True)
                with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
                    logits = self.logits(codes[rows].long(), numbers[rows])
                torch.nn.functional.binary_cross_entropy_with_logits(logits.float(), labels[rows]).backward()
                for optimizer in self.optimizers:
                    optimizer.step()
        self.wait()

    def scores(self, features: pl.DataFrame, batch_size: int):
        """Probabilities and labels, as arrays."""
        codes, numbers, labels = self.tensors(features)
        with self.torch.inference_mode():
            batches = zip(codes.split(batch_size), numbers.split(batch_size), strict=True)
            found = [self.logits(c.long(), n).sigmoid() for c, n in batches]
        return self.torch.cat(found).float().cpu().numpy(), labels.cpu().numpy()

    def wait(self) -> None:
        """Until the device is done."""
        if self.device == "cuda":
            self.torch.cuda.synchronize()
