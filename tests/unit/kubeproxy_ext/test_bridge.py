# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from bridge_api.client import BridgeError, BridgeRejectedError, BridgeUnavailableError
from bridge_api.messages import Flow, GuestEvent, GuestEventKind, GuestResult, ResultCode
from daemonkit.tasks import Tasks
from devkit.fake_bridge import scripted_watch
from kubeproxy_ext.bridge import MAX_FLOWS, MAX_SPARED, Pusher, PushHandlers
from kubeproxy_ext.compute.stale_flows import StaleFlow
from kubeproxy_ext.delivery.queue import RulesetPush
from ruleset.delta import RulesetDelta
from ruleset.document import Ruleset, make_ruleset
from ruleset.model import Protocol

pytestmark = pytest.mark.asyncio

RULES = make_ruleset(1, [])


class BridgeScript:
    """A bridge whose connections follow scripts."""

    def __init__(self, *connections: list[GuestEvent | BridgeError]) -> None:
        self.connections = list(connections)
        self.events: list[GuestEvent | BridgeError] = []
        self.replies: list[GuestResult | BridgeError] = []
        self.flows: list[Sequence[Flow]] = []

    def connect(self) -> "BridgeScript":
        self.events = (
            self.connections.pop(0) if self.connections else [BridgeUnavailableError("connection refused")]
        )
        return self

    def watch_guests(self) -> AsyncIterator[GuestEvent]:
        return scripted_watch(self.events)

    async def set_ruleset(
        self, guests: Sequence[str], ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow] = ()
    ) -> AsyncIterator[GuestResult]:
        async for result in self.flush_conntrack(guests, flush):
            yield result

    async def flush_conntrack(
        self, guests: Sequence[str], flows: Sequence[Flow]
    ) -> AsyncIterator[GuestResult]:
        self.flows.append(flows)
        for result in self.replies:
            await asyncio.sleep(0.01)
            if isinstance(result, BridgeError):
                raise result
            yield result

    async def close(self) -> None:
        pass


class RecordedResults:
    """A pusher on a script, and the results that it passed on."""

    def __init__(self, script: BridgeScript) -> None:
        self.script = script
        self.lines: list[str] = []
        self.tasks = Tasks("test")
        handlers = PushHandlers(
            lambda guest: self.lines.append(f"present {guest.id}"),
            lambda guest: self.lines.append(f"gone {guest}"),
            lambda: self.lines.append("synced"),
            lambda: self.lines.append("lost"),
            lambda push, result: self.lines.append(f"result {result.guest} {result.code.name}"),
            lambda push, guests, is_refused: self.lines.append(f"failed {sorted(guests)} {is_refused}"),
            lambda push: self.lines.append("done"),
        )
        self.pusher = Pusher(script.connect, handlers, self.tasks, lambda: 1.0, lambda: 0.0)

    @contextlib.asynccontextmanager
    async def running(self, seconds: float = 0.05) -> AsyncIterator[None]:
        self.tasks.spawn(self.pusher.run(), "run")
        await asyncio.sleep(seconds)
        yield
        assert await self.tasks.close(1.0) == ()


SYNCED = GuestEvent(GuestEventKind.SYNCED)


async def test_results_reach_their_handlers() -> None:
    results = RecordedResults(BridgeScript([SYNCED]))
    results.script.replies = [GuestResult("g1", ResultCode.APPLIED), GuestResult("g2", ResultCode.REFUSED)]
    async with results.running():
        results.pusher.push(RulesetPush(("g1", "g2"), RULES, ()))
        await asyncio.sleep(1)
        assert results.lines == ["synced", "result g1 APPLIED", "result g2 REFUSED", "done"]


@pytest.mark.parametrize(
    ("error", "is_refused"), [(BridgeUnavailableError("x"), False), (BridgeRejectedError("y"), True)]
)
async def test_guests_without_a_result_are_reported(error: BridgeError, is_refused: bool) -> None:
    results = RecordedResults(BridgeScript([SYNCED]))
    results.script.replies = [GuestResult("g1", ResultCode.APPLIED), error]
    async with results.running():
        results.pusher.push(RulesetPush(("g1", "g2"), RULES, ()))
        await asyncio.sleep(1)
        assert results.lines[-2:] == ["result g1 APPLIED", f"failed ['g2'] {is_refused}"]


async def test_push_without_connection_fails() -> None:
    results = RecordedResults(BridgeScript([SYNCED]))
    results.pusher.push(RulesetPush(("g1",), RULES, ()))
    assert results.lines == ["failed ['g1'] False"]


async def test_results_of_an_old_connection_are_ignored() -> None:
    results = RecordedResults(BridgeScript([SYNCED], [SYNCED]))
    results.script.replies = [GuestResult("g1", ResultCode.APPLIED)]
    async with results.running():
        results.pusher.push(RulesetPush(("g1",), RULES, ()))
        await asyncio.sleep(0)
        # A reconnect leaves another value in its place.
        results.pusher.bridge = BridgeScript()
        await asyncio.sleep(1)
        assert results.lines == ["synced"]


async def test_flows_are_cut_to_the_limit_of_a_request() -> None:
    results = RecordedResults(BridgeScript([SYNCED]))
    flow = StaleFlow(Protocol.UDP, "10.96.0.1", 53, keep_replies_from=("10.0.0.1:53",))
    async with results.running():
        results.pusher.push(RulesetPush(("g1",), None, (flow,) * (MAX_FLOWS + 5)))
        await asyncio.sleep(1)
        (flows,) = results.script.flows
        assert len(flows) == MAX_FLOWS
        assert flows[0] == Flow("udp", "10.96.0.1", 53, keep_replies_from=("10.0.0.1:53",))
        wide = StaleFlow(Protocol.UDP, "10.96.0.1", 53, keep_replies_from=("10.0.0.1:53",) * 1000)
        results.pusher.push(RulesetPush(("g1",), None, (wide,) * 1000))
        await asyncio.sleep(1)
        assert len(results.script.flows[-1]) == MAX_SPARED // 1000
