"""What a service counts, in the text format that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.core.extras import require

require("prometheus_client", "serve")

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest  # noqa: E402
from prometheus_client.core import CounterMetricFamily  # noqa: E402
from prometheus_client.exposition import CONTENT_TYPE_LATEST  # noqa: E402

from penstock.serve.batching import Batcher  # noqa: E402
from penstock.serve.http.bodies import Bodies  # noqa: E402
from penstock.serve.predictor import Predictor  # noqa: E402

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


class Metrics:
    """The counters of one service, in a registry of their own, so that several live in one process."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, predictor: Predictor, batcher: Batcher, bodies: Bodies) -> None:
        self.registry = CollectorRegistry()
        mine: dict[str, Any] = {"registry": self.registry}
        self._requests = Counter("penstock_requests", "Predictions asked for, by HTTP status.", ["status"], **mine)
        self._seconds = Histogram("penstock_request_seconds", "From request to answer.", buckets=SECONDS, **mine)
        self._rows = Counter("penstock_rows", "Rows predicted.", **mine)
        self._batches = Histogram("penstock_batch_rows", "Rows predicted in one call.", buckets=ROWS, **mine)
        self._packets = Counter("penstock_feed_packets", "Packets of the feed applied.", **mine)
        self._gauge("penstock_queue_rows", "Rows waiting to be predicted.", lambda: batcher.queued_rows)
        self._gauge("penstock_feed_packet", "The last packet of the feed that was applied.", lambda: predictor.packet)
        self._gauge("penstock_feed_step", "The training step of that packet.", lambda: predictor.step or 0)
        self._gauge("penstock_body_bytes", "Bytes of long requests that are being read.", lambda: bodies.held)
        self._refused = Counter(
            "penstock_refused", "Connections and requests refused before they were looked at, by HTTP status.",
            ["status"], **mine,
        )  # fmt: skip
        model = Gauge("penstock_model_info", "The model that is served.", ["fingerprint"], **mine)
        model.labels(predictor.fingerprint).set(1)
        self.registry.register(_Counts(predictor, batcher))
        self._by_status: dict[int, Any] = {}

    def _gauge(self, name: str, text: str, value: Any) -> None:
        Gauge(name, text, registry=self.registry).set_function(value)

    def answered(self, status: int, seconds: float) -> None:
        """A request for predictions was answered."""
        if status not in self._by_status:
            self._by_status[status] = self._requests.labels(str(status))
        self._by_status[status].inc()
        self._seconds.observe(seconds)

    def refused(self, status: int) -> None:
        """A connection or request was turned away: too many, too large, too slow, or meant for another host."""
        self._refused.labels(str(status)).inc()

    def predicted(self, rows: int) -> None:
        """A batch was predicted."""
        self._rows.inc(rows)
        self._batches.observe(rows)

    def followed(self, packets: int) -> None:
        """Packets of the feed were applied."""
        self._packets.inc(packets)

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self.registry)


class _Counts:
    """What the predictor and the batcher count themselves, read when somebody asks."""

    def __init__(self, predictor: Predictor, batcher: Batcher) -> None:
        self.predictor, self.batcher = predictor, batcher

    def collect(self) -> Iterator[CounterMetricFamily]:
        unknown = self.predictor.unknown
        yield _family(
            "penstock_unknown_categories", "Values that training has not seen, by column.", "column",
            zip(unknown.columns, unknown.counts.tolist(), strict=True),
        )  # fmt: skip
        yield CounterMetricFamily(
            "penstock_requests_dropped", "Requests whose client hung up before they were predicted.",
            value=self.batcher.dropped,
        )  # fmt: skip


def _family(name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in values:
        family.add_metric([key], value)
    return family
