"""What the kernels of fused embeddings and their oracle agree on: the words of a batch, and which gradients count.

All tables lie one above the other in one weight. A *feature* is one column of a batch; row `f` of `features` says
where it lives: `(first row of its table, rows of its table, place in the output)`. An *occurrence* is one id of one
sample: a batch's occurrences are its single ids, feature by feature, then the values of its bags. An occurrence's
*key* is its row of the weight.
"""

from __future__ import annotations

POOLINGS = {"sum": 0, "mean": 1, "sqrt_n": 2}
FEATURE_FIELDS = 3
# Gradients from LIMIT on count as not finite. Kernels put HUGE in the place of what is not: its sums stay above the
# limit, and zero times it is zero, where zero times infinity is NaN.
LIMIT, HUGE = 2.0**119, 2.0**120
