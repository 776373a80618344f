# SPDX-License-Identifier: Apache-2.0
"""Looks at tenants again and again on threads of their own, while a test breaks something."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.k8s.operator.tenants import OperatedTenant
from tests.k8s.ring.processes import RingError

_PAUSE_S = 0.05
_STOPPED_S = 60.0
_PATH = "/api/v1/namespaces/default/configmaps"


@dataclass(slots=True)
class RequestTimes:
    """What requests to a tenant took that is not concerned, a connection each, and what failed."""

    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def check(self) -> None:
        """None failed, and there were some."""
        assert self.failures == []
        assert self.seconds

    def __str__(self) -> str:
        slowest = sorted(self.seconds)
        p50, p99 = (slowest[int(len(slowest) * part)] * 1e3 for part in (0.5, 0.99))
        return f"{len(slowest)} requests, {len(self.failures)} failed, p50 {p50:.0f} ms, p99 {p99:.0f} ms"


@dataclass(frozen=True, slots=True)
class ShownCondition:
    """A condition as it was seen, `after_s` from the beginning."""

    after_s: float
    kind: str
    status: str
    reason: str
    message: str


@dataclass(slots=True)
class ConditionHistory:
    """Each condition of a VirtualCluster that differs from what it was before."""

    shown: list[ShownCondition] = field(default_factory=list)

    def first(self, kind: str, status: str) -> ShownCondition | None:
        """The first time that a condition had a status after the beginning."""
        return next((each for each in self.shown if (each.kind, each.status) == (kind, status)), None)


@contextmanager
def asked(tenant: OperatedTenant) -> Iterator[RequestTimes]:
    """Within, the tenant's API server is asked for a list, again and again."""
    times, api = RequestTimes(), tenant.api()

    def ask() -> None:
        began = time.monotonic()
        try:
            api.get(_PATH)
        except (OSError, RingError) as error:
            times.failures.append(f"after {time.monotonic() - began:.2f} s: {error}")
        else:
            times.seconds.append(time.monotonic() - began)

    with _repeated(f"requests of {tenant.name}", ask):
        yield times


@contextmanager
def watched(tenant: OperatedTenant) -> Iterator[ConditionHistory]:
    """Within, all changes of the VirtualCluster's conditions are kept."""
    history, began = ConditionHistory(), time.monotonic()
    known: dict[str, tuple[str, str, str]] = {}

    def look() -> None:
        for each in tenant.get().get("status", {}).get("conditions", []):
            kind, now = each.get("type", ""), (each["status"], each["reason"], each.get("message", ""))
            if known.get(kind) != now:
                known[kind] = now
                history.shown.append(ShownCondition(time.monotonic() - began, kind, *now))

    with _repeated(f"conditions of {tenant.name}", look):
        yield history


@contextmanager
def _repeated(name: str, work: Callable[[], None]) -> Iterator[None]:
    """On a thread, until the end of the context."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            work()
            # pace: both cores are the control planes'
            over.wait(_PAUSE_S)

    thread = threading.Thread(target=run, name=name)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_STOPPED_S)
