# SPDX-License-Identifier: Apache-2.0
"""The session with kata-bridge, in virtual time, without a socket."""

import asyncio

import pytest

from bridge_api.client import BridgeRejectedError
from bridge_api.messages import GuestResult, SetResolvConfRequest
from daemonkit.tasks import Tasks
from devkit.fake_bridge import FakeBridge
from dnsconfig.bridge import ResolverHandlers, ResolverSession
from dnsconfig.delivery.queue import ResolverPush, ResolverTarget
from dnsconfig.retention.desired import DesiredResolver

pytestmark = pytest.mark.asyncio

PUSH = ResolverPush(1, ResolverTarget("g1"), DesiredResolver("nameserver 10.0.0.1\n", "why"), 0.0)


class Refusing(FakeBridge):
    async def set_resolv_conf(self, request: SetResolvConfRequest) -> GuestResult:
        raise BridgeRejectedError("no gate here")


class SessionFixture:
    def __init__(self) -> None:
        self.bridges: list[FakeBridge] = []
        self.calls: list[object] = []
        self.tasks = Tasks("test")
        self.next = FakeBridge()
        self.connection = ResolverSession(
            self._connect,
            ResolverHandlers(
                lambda guest: self.calls.append(("present", guest.id)),
                lambda guest: self.calls.append(("gone", guest)),
                lambda: self.calls.append("synced"),
                lambda: self.calls.append("lost"),
                lambda push, result: self.calls.append(("result", push.number, result.code.name)),
                lambda push, why: self.calls.append(("failed", push.number, why)),
            ),
            self.tasks,
            lambda: 1.0,
            lambda: 0.0,
        )

    def _connect(self) -> FakeBridge:
        self.bridges.append(self.next)
        return self.next


async def test_guests_and_results_reach_the_handlers() -> None:
    here = SessionFixture()
    here.next.add("g1", "a", "a-shop/web")
    here.tasks.spawn(here.connection.run(), "run")
    await asyncio.sleep(0.1)
    assert (here.connection.is_synced, here.connection.problem) == (True, "")
    here.connection.push(PUSH)
    await asyncio.sleep(0.1)
    here.next.remove("g1")
    await asyncio.sleep(0.1)
    assert here.calls == [("present", "g1"), "synced", ("result", 1, "APPLIED"), ("gone", "g1")]
    (request,) = here.next.resolv_conf_requests
    assert (request.guest, request.text, request.wait_message) == ("g1", PUSH.desired.text, "why")
    await here.tasks.close(1.0)


async def test_a_push_without_a_session_or_with_an_error_fails() -> None:
    here = SessionFixture()
    here.connection.push(PUSH)
    assert here.calls == [("failed", 1, "no session with kata-bridge")]
    here.next = Refusing()
    here.tasks.spawn(here.connection.run(), "run")
    await asyncio.sleep(0.1)
    here.connection.push(PUSH)
    await asyncio.sleep(0.1)
    assert here.calls[1:] == ["synced", ("failed", 1, "no gate here")]
    await here.tasks.close(1.0)


async def test_results_of_an_earlier_session_are_dropped() -> None:
    here = SessionFixture()
    here.next.delay_s = 1.0
    here.next.add("g1", "a", "a-shop/web")
    here.tasks.spawn(here.connection.run(), "run")
    await asyncio.sleep(0.1)
    here.connection.push(PUSH)
    await asyncio.sleep(0.1)
    here.next.lose_state()
    first, here.next = here.next, FakeBridge()
    await asyncio.sleep(5)
    assert first.resolv_conf_requests
    assert here.calls == [("present", "g1"), "synced", "lost", "synced"]
    await here.tasks.close(1.0)
