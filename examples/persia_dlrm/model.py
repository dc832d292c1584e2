"""A small DLRM in the form that PERSIA's contexts feed: one tuple of numbers and embeddings."""

import torch
from torch import nn


class DLRM(nn.Module):
    def __init__(self, num_dense: int = 13, num_sparse: int = 26, dim: int = 8) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(num_dense, 32), nn.ReLU(), nn.Linear(32, dim))
        pairs = (num_sparse + 1) * num_sparse // 2
        self.top = nn.Sequential(nn.Linear((num_sparse + 1) * dim + pairs, 64), nn.ReLU(), nn.Linear(64, 1))
        rows, columns = torch.tril_indices(num_sparse + 1, num_sparse + 1, offset=-1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def forward(self, inputs: tuple[torch.Tensor, list[torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
        dense, sparse = inputs
        numbers = self.bottom(torch.log1p(dense.clamp(min=0)))
        vectors = torch.stack([numbers, *(embedding.float() for embedding in sparse)], dim=1)
        products = (vectors @ vectors.transpose(1, 2))[:, self.rows, self.columns]
        output = self.top(torch.cat([vectors.flatten(1), products], dim=1))
        return output, 1e-5 * output.square().mean()
