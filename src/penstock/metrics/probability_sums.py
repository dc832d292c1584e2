"""What log loss and calibration have in common: sums over rows whose probabilities are known, counted once for both."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core.extras import require
from penstock.metrics.calibration import NUM_BINS, REACH
from penstock.metrics.inputs import label_error, read_clicks, wrong_labels
from penstock.metrics.log_loss import probability_limits
from penstock.metrics.protocol import Values

_SUM_BITS = 62  # of a sum of whole numbers on a device: fewer than an int64 has beside its sign


class ProbabilitySums:
    """The states of a `LogLoss` and of a `Calibration` that were given the `logit` of these probabilities.

    Probabilities of a GPU are counted there, and nobody waits for it before a state is asked for or the sums are
    merged: a label that is neither 0 nor 1 is refused then.

    Args:
        name: the metric that labels are refused for.

    Attributes:
        num_rows: how many rows there were, those of NaN too.

    >>> sums = ProbabilitySums("log_loss")
    >>> sums.add(np.array([0.5, 0.5], np.float32), np.array([0, 1]))
    >>> round(float(sums.log_loss_state()["total"]), 4)
    1.3863
    """

    def __init__(self, name: str) -> None:
        self.name, self.num_rows = name, 0
        self._bins = np.zeros((3, NUM_BINS))  # rows, and sums of probabilities and of clicks, by log odds
        self._totals = np.zeros(2)  # the sum of the losses, and how many probabilities are NaN
        self._device_sums: _DeviceSums | None = None

    def add(self, probabilities: Values, labels: Values) -> None:
        """Count some rows.

        Args:
            probabilities: floats, one a row; those below 0 count as 0, those above 1 as 1.
            labels: 0 or 1.

        Raises:
            DataError: the lengths differ, or a label is neither 0 nor 1. On a GPU the latter is raised later on.
        """
        found, clicked = read_clicks(self.name, probabilities, labels)
        if not len(found):
            return
        if isinstance(found, np.ndarray):
            _add_on_host(found, clicked, self._bins, self._totals)
        else:
            self._sums_on(found.device).add(found, clicked)
        self.num_rows += len(found)

    def merge(self, other: ProbabilitySums) -> None:
        """Add what another one has counted.

        Args:
            other: another one.

        Raises:
            DataError: a label of either is neither 0 nor 1.
        """
        for sums in (self, other):
            sums._read()
        self._bins += other._bins
        self._totals += other._totals
        self.num_rows += other.num_rows

    def log_loss_state(self) -> dict[str, np.ndarray]:
        """What `LogLoss.load_state` takes.

        Returns:
            Arrays by name.

        Raises:
            DataError: a label is neither 0 nor 1.
        """
        self._read()
        total, num_nan = self._totals
        return {"total": np.array(total), "weight": self._bins[0].sum(), "num_nan": np.array(int(num_nan))}

    def calibration_state(self) -> dict[str, np.ndarray]:
        """What `Calibration.load_state` takes.

        Returns:
            Arrays by name.

        Raises:
            DataError: a label is neither 0 nor 1.
        """
        self._read()
        rows, predicted, clicked = self._bins.copy()
        found = {"rows": rows.astype(np.int64), "weights": rows, "predicted": predicted, "clicked": clicked}
        return {**found, "num_nan": np.array(int(self._totals[1]))}

    def _sums_on(self, device: Any) -> _DeviceSums:
        if self._device_sums is None or self._device_sums.device != device:
            self._read()
            self._device_sums = _DeviceSums(self.name, device)
        return self._device_sums

    def _read(self) -> None:
        """Fetch what has been counted on a device; this waits for it."""
        if self._device_sums is not None:
            bins, totals = self._device_sums.read()
            self._device_sums = None
            self._bins += bins
            self._totals += totals


def _add_on_host(found: np.ndarray, clicked: np.ndarray, bins: np.ndarray, totals: np.ndarray) -> None:
    from penstock.kernels.cpu_intrinsics import kernel_input
    from penstock.kernels.cpu_score_figures import add_rows

    low, high = probability_limits(found.dtype)
    dtype = np.float32 if found.dtype == np.float32 else np.float64
    add_rows(kernel_input(found, dtype), kernel_input(clicked, np.uint8), low, high, REACH, bins, totals)


class _DeviceSums:
    """Sums on a device, of which nothing comes back before they are read.

    Probabilities are added up in a bin as whole numbers: a device adds in any order, and floats would give other last
    digits each time. They lose nothing that a float32 has, but below 2**-20.
    """

    def __init__(self, name: str, device: Any) -> None:
        self._torch: Any = require("torch", "torch")
        self.name, self.device = name, device
        wide = {"dtype": self._torch.float64, "device": device}
        self._bins = self._torch.zeros((3, NUM_BINS), **wide)
        self._totals = self._torch.zeros(2, **wide)
        self._wrong = self._torch.zeros(3, **wide)  # whether a label was, and the first one's row and value

    def add(self, probabilities: Any, labels: Any) -> None:
        """Count some rows, one at the least."""
        torch = self._torch
        low, high = probability_limits(probabilities.dtype)
        missing, clicked = probabilities.isnan(), labels == 1
        self._look_at(labels, wrong_labels(labels))
        p = probabilities.double().nan_to_num(nan=low).clamp(low, high)
        log, other = p.log(), (-p).log1p()
        losses = -torch.where(clicked, log, other).masked_fill(missing, 0.0)
        self._totals += torch.stack([losses.sum(), missing.sum().double()])
        bins = ((log - other + REACH) * (NUM_BINS / (2 * REACH))).clamp(0, NUM_BINS - 1).long()
        scale = 2.0 ** (_SUM_BITS - len(p).bit_length())
        parts = torch.stack([torch.ones_like(bins), (p * scale).round().long(), clicked.long()])
        found = bins.new_zeros((3, NUM_BINS)).index_add_(1, bins, parts.masked_fill_(missing, 0)).double()
        found[1] /= scale
        self._bins += found

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """Bins and totals on the host.

        Raises:
            DataError: a label is neither 0 nor 1.
        """
        found = self._torch.cat([self._bins.reshape(-1), self._totals, self._wrong]).cpu().numpy()
        bins, totals, (is_wrong, row, value) = np.split(found, [3 * NUM_BINS, 3 * NUM_BINS + 2])
        if is_wrong:
            raise label_error(self.name, value, row)
        return bins.reshape(3, NUM_BINS), totals

    def _look_at(self, labels: Any, wrong: Any) -> None:
        """Keep the first label that is wrong."""
        row = wrong.to(self._torch.uint8).argmax(0, keepdim=True)
        found = self._torch.cat([wrong[row].double(), row.double(), labels[row].double()])
        self._wrong = self._torch.where(self._wrong[0] > 0, self._wrong, found)
