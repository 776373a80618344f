# SPDX-License-Identifier: Apache-2.0
"""A client of a tenant under changes: client-go's own retries, and what fails all the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.k8s.operator import client_process
from tests.k8s.ring.kubectl import Kubectl


@dataclass(slots=True)
class LoadReport:
    """What the client counted. Empty until it has ended."""

    requests: int = 0
    failed: int = 0
    slowest_ms: int = 0
    tokens: int = 0
    watches: int = 0
    failures: list[str] = field(default_factory=list)

    def check(self) -> None:
        """No request failed, no token died, and there were some of both."""
        assert self.failed == 0, f"{self.failed} of {self.requests} failed:\n" + "\n".join(self.failures)
        assert self.requests > 0
        assert self.tokens > 0

    def __str__(self) -> str:
        return (
            f"{self.requests} requests, {self.failed} failed, slowest {self.slowest_ms} ms, "
            f"{self.tokens} tokens, {self.watches} watches"
        )


@contextmanager
def running(
    binary: str, kubectl: Kubectl, namespace: str = "default", workers: int = 3
) -> Iterator[LoadReport]:
    """The client works within, from its first complete round on; the report is complete afterwards.

    It is who `kubectl` is. `namespace` has an account `default`. Raises `RingError` when it cannot start.
    """
    report = LoadReport()
    argv = [
        *kubectl.network.enter,
        binary,
        f"--kubeconfig={kubectl.kubeconfig}",
        f"--namespace={namespace}",
        f"--workers={workers}",
    ]
    with client_process.running("client-load", argv) as found:
        yield report
    report.requests, report.failed = found["requests"], found["failed"]
    report.slowest_ms, report.failures = found["slowestMs"], found["failures"]
    report.tokens, report.watches = found["tokens"], found["watches"]
