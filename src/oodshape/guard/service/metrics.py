"""Metrics: what the service counts, in the format of Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The counters and gauges of one service."""

    def __init__(self, *, watch: bool) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = self._registry = CollectorRegistry()
        self.requests = Counter(
            "oodshape_requests",
            "Requests for predictions by status; 499: the client hung up.",
            ["status"],
            registry=registry,
        )
        self.images = Counter("oodshape_images", "Images that were scored.", registry=registry)
        self.unreadable = Counter("oodshape_unreadable", "Images that could not be read.", registry=registry)
        self.rejected = Counter(
            "oodshape_rejected", "Rejected images by predicted class.", ["class"], registry=registry
        )
        self.seconds = Histogram(
            "oodshape_request_seconds", "From a request's headers to its answer.", buckets=SECONDS, registry=registry
        )
        self.in_hand = Gauge("oodshape_requests_in_hand", "Requests that wait or are scored now.", registry=registry)
        self.restarts = Gauge("oodshape_worker_restarts", "Scoring processes that were replaced.", registry=registry)
        if not watch:
            return
        self.watch_images = Gauge("oodshape_watch_images", "Images that the watch has seen.", registry=registry)
        self.watch_alarm = Gauge("oodshape_watch_alarm", "1: the stream contradicts the guarantee.", registry=registry)
        self.watch_evidence = Gauge(
            "oodshape_watch_evidence",
            "Evidence against the guarantee; alarm at 4 / delta.",
            ["test"],
            registry=registry,
        )
        self.save_failures = Counter("oodshape_watch_save_failures", "Failed writes of the state.", registry=registry)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)
