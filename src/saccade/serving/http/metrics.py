"""Counters for Prometheus: requests, refusals, time in queues and in batches, texts, tokens; and of the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from saccade.serving.processes.workers import Workers

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@final
class Metrics:
    """The counters of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "saccade_requests", "Requests by route and status.", ["route", "status"], registry=self.registry
        )
        self.latency = Histogram(
            "saccade_request_seconds", "Time to answer.", ["route"], buckets=SECONDS, registry=self.registry
        )
        self.refusals = Counter(
            "saccade_refusals", "Requests and connections that were refused or cut off.", ["reason"],
            registry=self.registry,
        )  # fmt: skip
        self.in_flight = Gauge("saccade_requests_in_flight", "Requests that are read or answered.",
                               registry=self.registry)  # fmt: skip
        self.connections = Gauge("saccade_connections", "Open connections.", registry=self.registry)
        self.in_line = Gauge("saccade_requests_in_line", "Requests that have not begun: their address sent many.",
                             registry=self.registry)  # fmt: skip
        self.queue = Gauge("saccade_queue_length", "Items that wait.", ["model"], registry=self.registry)
        self.queue_seconds = Histogram(
            "saccade_queue_seconds", "Time until a request begins.", ["model"], buckets=SECONDS, registry=self.registry
        )
        self.batches = Histogram(
            "saccade_batch_size", "Items answered together.", ["model"], buckets=SIZES, registry=self.registry
        )
        self.batch_seconds = Histogram(
            "saccade_batch_seconds", "Time that a batch computes.", ["model"], buckets=SECONDS, registry=self.registry
        )
        self.workers = Gauge("saccade_workers", "Processes for slow batches.", registry=self.registry)
        self.worker_seconds = Counter("saccade_worker_seconds", "Processor time of these.", registry=self.registry)
        self.workers_lost = Counter(
            "saccade_workers_lost", "Those that ended before their answer.", registry=self.registry
        )
        ProcessCollector(registry=self.registry)
        self.characters = Counter("saccade_characters", "Characters read.", ["model"], registry=self.registry)
        self.html = Counter(
            "saccade_html",
            "HTML by where its tags are: moved with words, in place, kept.",
            ["way"],
            registry=self.registry,
        )
        self.tokens = Counter("saccade_tokens", "Tokens written.", ["model"], registry=self.registry)

    def add_queue(self, model: str, length: Callable[[], int]) -> None:
        """Read the length of a queue each time the metrics are read."""
        self.queue.labels(model).set_function(length)

    def add_workers(self, workers: Workers) -> None:
        """Read what slow work takes in processes of its own."""
        self.workers.set_function(lambda: workers.num_workers)
        workers.on_batch, workers.on_lost = self.worker_seconds.inc, self.workers_lost.inc

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self.registry)
