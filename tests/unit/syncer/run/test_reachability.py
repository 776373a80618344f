# SPDX-License-Identifier: Apache-2.0
"""When a tenant counts as not reachable, and when that is over."""

from typing import cast

import pytest

from daemonkit.kube.freshness import Failure
from daemonkit.remedies import Cause
from syncer.run.reachability import REPORT_AFTER_S, Reachability
from syncer.tenant.session import TenantSession


class FakeSession:
    def __init__(self) -> None:
        self.found: Failure | None = None
        self.has_synced = True
        self.caches = self
        self.memory = self
        self.problem: str | None = None
        self.looks = 0

    @property
    def failure(self) -> Failure | None:
        self.looks += 1
        return self.found


class ReachabilityEnvironment:
    def __init__(self, *was_reported: str) -> None:
        self.now = 0.0
        self.changes = 0
        self.reports: list[tuple[str, str]] = []
        self.session = FakeSession()
        self.sessions = {"t-acme": cast("TenantSession", self.session)}
        self.reachability = Reachability(
            self.sessions,
            lambda _, reason, message: self.reports.append((reason, message)),
            lambda _, reason: reason in was_reported,
            changes=lambda: self.changes,
            clock=lambda: self.now,
        )

    def poll_at(
        self, now: float, failure: str = "", *, is_memory: bool = False, cause: Cause = Cause.OTHER
    ) -> list[tuple[str, str]]:
        self.now = now
        self.session.problem = failure if is_memory else None
        failing = Failure(failure, now, cause=cause) if failure else None
        self.changes += self.session.found != failing
        self.session.found = failing
        self.reachability.poll()
        found, self.reports = self.reports, []
        return found


def test_a_failure_is_reported_once_it_lasts_and_when_it_ends() -> None:
    environment = ReachabilityEnvironment()
    assert environment.poll_at(0.0) == []
    assert environment.poll_at(1.0, "connect: refused") == []
    assert environment.poll_at(1.0 + REPORT_AFTER_S, "connect: refused") == [
        ("NotReachable", "connect: refused")
    ]
    assert environment.poll_at(30.0, "TLS: closed") == []
    assert environment.poll_at(31.0) == [("NotReachable", "")]
    assert environment.poll_at(32.0) == []


@pytest.mark.parametrize("cause", [each for each in Cause if each is not Cause.OTHER])
def test_what_to_do_about_it_is_reported(cause: Cause) -> None:
    environment = ReachabilityEnvironment()
    environment.poll_at(1.0, "why", cause=cause)
    ((_, message),) = environment.poll_at(1.0 + REPORT_AFTER_S, "why", cause=cause)
    why, _, remedy = message.partition("; ")
    assert why == "why"
    assert remedy


def test_a_short_failure_is_not_reported() -> None:
    environment = ReachabilityEnvironment()
    assert environment.poll_at(1.0, "connect: refused") == []
    assert environment.poll_at(5.0) == []
    assert environment.poll_at(6.0, "connect: refused") == []
    assert environment.poll_at(12.0, "connect: refused") == []


def test_what_an_earlier_process_reported_ends_after_a_sync() -> None:
    environment = ReachabilityEnvironment("NotReachable")
    environment.session.caches.has_synced = False
    assert environment.poll_at(0.0) == []
    environment.session.caches.has_synced = True
    assert environment.poll_at(1.0) == [("NotReachable", "")]
    assert environment.poll_at(2.0) == []


def test_a_session_that_ended_is_forgotten() -> None:
    environment = ReachabilityEnvironment()
    environment.poll_at(0.0, "connect: refused")
    del environment.sessions["t-acme"]
    assert environment.poll_at(20.0, "connect: refused") == []
    environment.sessions["t-acme"] = cast("TenantSession", environment.session)
    assert environment.poll_at(21.0, "connect: refused") == []


def test_a_tenant_without_memory_is_no_unreachable_one() -> None:
    environment = ReachabilityEnvironment()
    environment.poll_at(0.0, "no memory", is_memory=True)
    assert environment.poll_at(10.0, "no memory", is_memory=True) == [("OutOfMemory", "no memory")]
    assert environment.poll_at(11.0, "no memory", is_memory=True) == []
    assert environment.poll_at(12.0, "connect") == [("OutOfMemory", ""), ("NotReachable", "connect")]
    assert environment.poll_at(13.0, "no memory", is_memory=True) == [
        ("NotReachable", ""),
        ("OutOfMemory", "no memory"),
    ]
    assert environment.poll_at(14.0) == [("OutOfMemory", "")]
    assert environment.poll_at(15.0) == []


def test_another_reason_of_an_earlier_process_ends() -> None:
    environment = ReachabilityEnvironment("NotReachable")
    environment.poll_at(0.0, "no memory", is_memory=True)
    assert environment.poll_at(10.0, "no memory", is_memory=True) == [
        ("NotReachable", ""),
        ("OutOfMemory", "no memory"),
    ]


def test_who_does_not_fail_is_not_looked_at_each_second() -> None:
    environment = ReachabilityEnvironment()
    for second in range(10):
        assert environment.poll_at(float(second)) == []
    assert environment.session.looks == 1
    # A tenant that comes is looked at until it has synced.
    added = FakeSession()
    added.has_synced = False
    environment.sessions["t-other"] = cast("TenantSession", added)
    environment.poll_at(11.0)
    added.has_synced = True
    environment.poll_at(12.0)
    environment.poll_at(13.0)
    assert added.looks == 2
    # One that fails is looked at until it is over, whatever changes.
    looks = environment.session.looks
    assert environment.poll_at(20.0, "connect") == []
    environment.session.found = Failure("connect", 20.0)
    for second in range(21, 31):
        environment.now = float(second)
        environment.reachability.poll()
    assert environment.reports == [("NotReachable", "connect")]
    assert environment.session.looks == looks + 11
