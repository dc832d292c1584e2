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
    """The bins of every block that is light, and lies in no larger one that is, become one."""
    xp = arrays_of(bins.first)
    upto = xp.running_sum(bins.negatives + bins.positives)
    upto = xp.concatenate([upto[:1] * 0, upto])
    starts = xp.light_blocks(bins.first, upto, heaviest)
    ends = xp.concatenate([starts[1:] - 1, starts[:1] * 0 + len(bins) - 1])
    differ = bins.first[starts] ^ bins.last[ends]
    for shift in (1, 2, 4, 8, 16, 32):  # all bits below the highest in which a bin's keys differ
        differ = differ | (differ >> shift)
    return ScoreBins(
        bins.first[starts] & ~differ,
        bins.first[starts] | differ,
        xp.segment_sums(bins.negatives, starts),
        xp.segment_sums(bins.positives, starts),
    )


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
