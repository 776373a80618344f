# SPDX-License-Identifier: Apache-2.0
"""When a tenant counts as not reachable, and when that is over."""

from typing import cast

from daemonkit.kube.freshness import Failure
from syncer.run.reachability import REPORT_AFTER_S, Reachability
from syncer.tenant.session import TenantSession


class FakeSession:
    def __init__(self) -> None:
        self.failure: Failure | None = None
        self.has_synced = True
        self.caches = self


class ReachabilityEnvironment:
    def __init__(self, *, was_reported: bool = False) -> None:
        self.now = 0.0
        self.reports: list[str] = []
        self.session = FakeSession()
        self.sessions = {"t-acme": cast("TenantSession", self.session)}
        self.reachability = Reachability(
            self.sessions,
            lambda _, message: self.reports.append(message),
            lambda _: was_reported,
            clock=lambda: self.now,
        )

    def poll_at(self, now: float, failure: str = "") -> list[str]:
        self.now = now
        self.session.caches.failure = Failure(failure, now) if failure else None
        self.reachability.poll()
        found, self.reports = self.reports, []
        return found


def test_a_failure_is_reported_once_it_lasts_and_when_it_ends() -> None:
    environment = ReachabilityEnvironment()
    assert environment.poll_at(0.0) == []
    assert environment.poll_at(1.0, "connect: refused") == []
    assert environment.poll_at(1.0 + REPORT_AFTER_S, "connect: refused") == ["connect: refused"]
    assert environment.poll_at(30.0, "TLS: closed") == []
    assert environment.poll_at(31.0) == [""]
    assert environment.poll_at(32.0) == []


def test_a_short_failure_is_not_reported() -> None:
    environment = ReachabilityEnvironment()
    assert environment.poll_at(1.0, "connect: refused") == []
    assert environment.poll_at(5.0) == []
    assert environment.poll_at(6.0, "connect: refused") == []
    assert environment.poll_at(12.0, "connect: refused") == []


def test_what_an_earlier_process_reported_ends_after_a_sync() -> None:
    environment = ReachabilityEnvironment(was_reported=True)
    environment.session.caches.has_synced = False
    assert environment.poll_at(0.0) == []
    environment.session.caches.has_synced = True
    assert environment.poll_at(1.0) == [""]
    assert environment.poll_at(2.0) == []


def test_a_session_that_ended_is_forgotten() -> None:
    environment = ReachabilityEnvironment()
    environment.poll_at(0.0, "connect: refused")
    del environment.sessions["t-acme"]
    assert environment.poll_at(20.0, "connect: refused") == []
    environment.sessions["t-acme"] = cast("TenantSession", environment.session)
    assert environment.poll_at(21.0, "connect: refused") == []
