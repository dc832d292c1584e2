"""The trainer of a PERSIA program of 2021: mixed precision where there is a GPU, embeddings beside the dense model."""

import os

import numpy as np
import torch
from model import DLRM
from persia.ctx import TrainCtx
from persia.logger import get_default_logger
from persia.sparse.optim import Adagrad
from torch.optim import SGD

logger = get_default_logger()


def auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """The chance that a click is scored above a row without one."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores)] = np.arange(1, len(scores) + 1)
    clicks = labels > 0.5
    return (ranks[clicks].sum() - clicks.sum() * (clicks.sum() + 1) / 2) / (clicks.sum() * (~clicks).sum())


def train() -> float:
    """Train on what the data loader sends; the AUC over the second half, each batch scored before it is learnt."""
    torch.manual_seed(0)
    model = DLRM()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)
    dense_optimizer = SGD(model.parameters(), lr=0.1)
    sparse_optimizer = Adagrad(lr=0.2)
    scaler = torch.cuda.amp.GradScaler()  # switched off where there is no GPU
    loss_fn = torch.nn.BCEWithLogitsLoss()
    scores, labels, losses = [], [], []

    with TrainCtx(
        grad_scaler=scaler,
        sparse_optimizer=sparse_optimizer,
        port=int(os.environ["TRAINER_PORT"]),
        data_queue_size=int(os.environ["FORWARD_QUEUE_SIZE"]),
    ) as ctx:
        for batch_idx, data in enumerate(ctx.data_loader()):
            (dense, sparse), target = ctx.prepare_features(data)
            output, aux_loss = model((dense, sparse))
            loss = aux_loss + loss_fn(output, target)

            scaler.scale(loss).backward()
            scale = scaler.get_scale()
            finite = ctx.on_after_backward(scale, batch_idx)
            scaler.step(dense_optimizer)
            dense_optimizer.zero_grad()
            if finite:
                scaler.update()
            else:
                scaler.update(scale / 4.0)

            scores.append(output.detach().cpu().numpy())
            labels.append(target.cpu().numpy())
            losses.append(loss.item())
            if batch_idx % 20 == 0:
                logger.info(f"current idx: {batch_idx} loss: {losses[-1]:.4f}")
        rows = ctx.get_embedding_size()

    half, tenth = len(scores) // 2, max(1, len(losses) // 10)
    first, last = np.mean(losses[:tenth]), np.mean(losses[-tenth:])
    result = auc(np.concatenate(scores[half:]).ravel(), np.concatenate(labels[half:]).ravel())
    print(f"loss {first:.4f} -> {last:.4f}, AUC {result:.4f}, {sum(rows)} embeddings")
    return result


if __name__ == "__main__":
    train()
