"""How many negatives and positives have which score: exact, until there are too many scores to keep each.

A bin is an interval of keys (a score's bits, as integers in the scores' order). It begins as one score. Where there are
too many, neighbours become one bin, but only along the binary trie of the keys, as in a q-digest: a bin is all keys
with a common beginning. Two such intervals are disjoint or one holds the other, so bins of different workers can be
merged in any order without growing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.metrics.arrays import arrays_of
from penstock.metrics.inputs import host_array

_KEY_BITS = 63  # levels of the trie: a block of the last one is all scores of one sign


@dataclass(frozen=True)
class ScoreBins:
    """Disjoint bins in ascending order: `[first, last]` keys, and the weight of their negatives and positives."""

    first: Any
    last: Any
    negatives: Any
    positives: Any

    def __len__(self) -> int:
        return len(self.first)

    def on_host(self) -> ScoreBins:
        """The same in NumPy's arrays."""
        return ScoreBins(*(host_array(part) for part in (self.first, self.last, self.negatives, self.positives)))


def bins_of_rows(scores: Any, labels: Any, weights: Any = None) -> ScoreBins:
    """A bin a row, in no order and not disjoint: `fold` puts them right."""
    keys = arrays_of(scores).keys_of(scores)
    positives = labels if weights is None else labels * weights
    negatives = 1.0 - labels if weights is None else weights - positives
    return ScoreBins(keys, keys, negatives, positives)


def fold(parts: Sequence[ScoreBins]) -> ScoreBins:
    """All bins together; one that lies in another joins it."""
    xp = arrays_of(parts[0].first)
    first, last, negatives, positives = (
        xp.concatenate([getattr(part, name) for part in parts]) for name in ("first", "last", "negatives", "positives")
    )
    if not len(first):
        return parts[0]
    order = xp.order_of(first)
    first, reach = first[order], xp.running_max(last[order])
    starts = xp.places(xp.starts_with_true(first[1:] > reach[:-1]))
    ends = xp.concatenate([starts[1:] - 1, starts[:1] + len(first) - 1])
    return ScoreBins(
        first[starts],
        reach[ends],
        xp.segment_sums(negatives[order], starts),
        xp.segment_sums(positives[order], starts),
    )


def compress(bins: ScoreBins, max_bins: int) -> ScoreBins:
    """At most `max_bins` bins: the largest blocks of the trie that hold no more than a small share of the weight."""
    share, total = 2.0 / max_bins, float(bins.negatives.sum() + bins.positives.sum())
    while len(bins) > max_bins:
        share *= 2
        bins = _merge_blocks(bins, share * total)
    return bins


def _merge_blocks(bins: ScoreBins, heaviest: float) -> ScoreBins:
    """The bins of every block that is light, and lies in no larger one that is, become one.

    A block weighs no less than those in it, so its level is found by halving, for all bins at once: on a GPU a loop
    over the levels would wait for the device at each.
    """
    xp = arrays_of(bins.first)
    upto = xp.running_sum(bins.negatives + bins.positives)
    upto = xp.concatenate([upto[:1] * 0, upto])
    light, most = bins.first * 0 - 1, bins.first * 0 + _KEY_BITS
    for _ in range(_KEY_BITS.bit_length() + 1):
        level = (light + most + 1) >> 1
        begin, end = _block(bins.first, ~((bins.first * 0 - 1) << level))
        weight = upto[xp.num_below(bins.first, end, or_equal=True)] - upto[xp.num_below(bins.first, begin)]
        light, most = xp.where(weight <= heaviest, level, light), xp.where(weight <= heaviest, most, level - 1)
    begin, _ = _block(bins.first, ~((bins.first * 0 - 1) << xp.where(light < 0, 0, light)))
    starts = xp.places(xp.starts_with_true(begin[1:] != begin[:-1]))
    ends = xp.concatenate([starts[1:] - 1, starts[:1] + len(begin) - 1])
    differ = bins.first[starts] ^ bins.last[ends]
    for shift in (1, 2, 4, 8, 16, 32):  # all bits below the highest in which a bin's keys differ
        differ = differ | (differ >> shift)
    return ScoreBins(
        *_block(bins.first[starts], differ),
        xp.segment_sums(bins.negatives, starts),
        xp.segment_sums(bins.positives, starts),
    )


def _block(keys: Any, below: Any) -> tuple[Any, Any]:
    """The first and the last key of the blocks that hold these keys; `below` has the bits that differ in a block."""
    return keys & ~below, keys | below


def area_and_bound(bins: ScoreBins) -> tuple[float, float]:
    """The area under the ROC curve, pairs within a bin counted half, and how far it can be from the true one.

    The bound is half of the sum, over bins of more than one score, of the share of negatives times that of positives:
    the true order within such a bin gives its pairs anything from nothing to all.
    """
    xp = arrays_of(bins.first)
    negatives, positives = bins.negatives, bins.positives
    pairs = float(negatives.sum()) * float(positives.sum())
    if not pairs > 0:
        return float("nan"), float("nan")
    below = xp.running_sum(negatives) - negatives
    area = float((positives * (below + 0.5 * negatives)).sum())
    unsure = 0.5 * float((negatives * positives * (bins.first != bins.last)).sum())
    return area / pairs, unsure / pairs
