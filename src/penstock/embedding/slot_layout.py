"""How a batch is laid out for the kernels: its positions numbered group after group, its memory, its bundles."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.core.runtime.buffers import BufferPool
from penstock.embedding.slots import EmbeddingConfig
from penstock.kernels import cpu_embedding_batch as layout

_BUNDLE = 4  # slots whose gradients are read together


@dataclass
class BatchWork:
    """What a look-up leaves for its update: the numbering of the batch's distinct signs, and their rows."""

    inputs: np.ndarray
    groups: np.ndarray
    inverse: np.ndarray
    signs: np.ndarray
    rows: np.ndarray
    positions: np.ndarray  # per group
    clock: int = 0
    keep: list[Any] = field(default_factory=list)  # the batch's own arrays, whose addresses `inputs` holds


class SlotLayout:
    """The configuration as the kernels read it.

    >>> from penstock.embedding.slots import EmbeddingConfig, SlotConfig
    >>> SlotLayout(EmbeddingConfig([SlotConfig("user", 4), SlotConfig("ad", 4)])).group_starts
    array([0, 1, 2])
    """

    def __init__(self, config: EmbeddingConfig, signs_given: bool = False) -> None:
        self.config = config
        names, key = config.names, secrets.randbits(64)
        self.slots = np.zeros((len(names), layout.NUM_SLOT_FIELDS), np.uint64)
        poolings = {"sum": layout.SUM, "mean": layout.MEAN, "sqrt_n": layout.SQRT_N, "raw": layout.RAW}
        for i, slot in enumerate(config):
            stack = slot.hash_stack
            self.slots[i] = (
                poolings[slot.pooling],
                slot.dim,
                slot.length or 0,
                stack.rounds if stack else 0,
                stack.size if stack else 0,
                0 if signs_given else config.prefix(slot.group),
                0 if signs_given or not config.prefix_bits else config.modulus,
                layout.FARMHASH if stack and stack.hashing == "farmhash" else layout.MIX,
                key,
            )
        self.turns = np.maximum(self.slots[:, layout.ROUNDS].astype(np.int64), 1)
        self.members = np.array([names.index(s.name) for g in config.groups for s in config.members(g)], np.int64)
        self.group_starts = np.cumsum([0] + [len(config.members(g)) for g in config.groups])

    def number(self, inputs: np.ndarray, pool: BufferPool) -> BatchWork:
        """Lay out the positions of a batch, group after group, and take the memory its work needs."""
        positions = inputs[:, layout.COUNT].astype(np.int64) * self.turns
        ordered = positions[self.members]
        ends = np.cumsum(ordered)
        inputs[self.members, layout.FIRST] = ends - ordered
        starts = np.concatenate([[0], ends])[self.group_starts]
        total = int(starts[-1])
        groups = np.zeros((len(starts) - 1, layout.NUM_GROUP_FIELDS), np.int64)
        groups[:, layout.START] = starts[:-1]
        return BatchWork(
            inputs,
            groups,
            pool.array((total,), np.uint32),
            pool.array((total,), np.uint64),
            pool.array((total,), np.uint32),
            np.diff(starts),
        )


def bundles(slots: SlotLayout, work: BatchWork, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Groups to update, in bundles whose gradients lie side by side in memory, and where each bundle begins.

    A packed gradient is read four slots at a time: 64 bytes out of every row would leave most of what memory
    delivers unused. Bundles with the most to do come first.
    """
    size = len(work.groups)
    if size != len(slots.slots):  # groups of several slots: one at a time
        return np.arange(size + 1), order
    inputs, dims = work.inputs, slots.slots[:, layout.SLOT_DIM]
    plain = (inputs[:, layout.OFFSETS] == 0) & (slots.slots[:, layout.ROUNDS] == 0)
    plain &= (slots.slots[:, layout.POOLING] != layout.RAW) & (inputs[:, layout.GRADIENT] > 0)
    beside = inputs[1:, layout.GRADIENT] == inputs[:-1, layout.GRADIENT] + (dims[:-1] << np.uint64(2))
    beside &= plain[1:] & plain[:-1]
    begins, run = [], 0
    for i in range(size):
        run = run + 1 if i and beside[i - 1] and run < _BUNDLE else 1
        if run == 1:
            begins.append(i)
    lengths = np.diff([*begins, size])
    cost = np.add.reduceat(work.positions + 2 * work.groups[:, layout.UNIQUE], begins)
    ranked = np.argsort(-cost, kind="stable")
    bundled = np.concatenate([np.arange(begins[i], begins[i] + lengths[i]) for i in ranked])
    return np.concatenate([[0], np.cumsum(lengths[ranked])]), bundled
