"""Metrics: what the service counts, in the format of Prometheus."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The counters and gauges of one service."""

    def __init__(self, *, watch: bool) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = self._registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.requests = counter("oodshape_requests", "Requests by status; 499: the client disconnected.", ["status"])
        self.images = counter("oodshape_images", "Images that were scored.")
        self.unreadable = counter("oodshape_unreadable", "Images that could not be read.")
        self.rejected = counter("oodshape_rejected", "Rejected images by predicted class.", ["class"])
        about = "From a request's headers to its answer."
        self.seconds = Histogram("oodshape_request_seconds", about, buckets=SECONDS, registry=registry)
        self.in_hand = gauge("oodshape_requests_in_hand", "Requests that wait or are scored now.")
        self.restarts = gauge("oodshape_worker_restarts", "Scoring processes that were replaced.")
        if not watch:
            return
        self.watch_images = gauge("oodshape_watch_images", "Images that the watch has seen.")
        self.watch_alarm = gauge("oodshape_watch_alarm", "1: the stream contradicts the guarantee.")
        about = "Evidence against the guarantee; alarm at 4 / delta."
        self.watch_evidence = gauge("oodshape_watch_evidence", about, ["test"])
        self.save_failures = counter("oodshape_watch_save_failures", "Failed writes of the state.")

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)
