# SPDX-License-Identifier: Apache-2.0
"""What clients of kata-bridge may rely on: kept by the fake, in process and over gRPC, and by kata-bridge."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest
import pytest_asyncio

from bridge_api.client import BridgeClient, BridgeRejectedError
from bridge_api.messages import (
    Flow,
    Guest,
    GuestEvent,
    GuestEventKind,
    GuestResult,
    ReadBackReply,
    ResultCode,
)
from bridge_api.rulesets import from_part
from devkit.fake_bridge import FakeBridge
from devkit.kata.fake_channel import FakeChannelProvider
from ruleset.delta import RulesetDelta, difference
from ruleset.document import Ruleset
from tests.functional.kata_bridge.served_bridge import DEADLINE_S, ServedBridge, bridge, ruleset

pytestmark = pytest.mark.asyncio

FLOW = Flow(protocol="udp", destination="10.0.0.10", port=53)


class BridgeCalls(Protocol):
    """The calls of `BridgeClient`."""

    def watch_guests(self) -> AsyncIterator[GuestEvent]: ...
    def set_ruleset(
        self, guests: Sequence[str], ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow] = ()
    ) -> AsyncIterator[GuestResult]: ...
    def check_drift(self, guests: Sequence[str] = ()) -> AsyncIterator[GuestResult]: ...
    def flush_conntrack(self, guests: Sequence[str], flows: Sequence[Flow]) -> AsyncIterator[GuestResult]: ...
    async def read_back(self, guest: str) -> ReadBackReply: ...


class BridgeSubject(Protocol):
    """A bridge with guests, and a client of it."""

    client: BridgeCalls

    def add(self, name: str) -> None: ...
    def remove(self, name: str) -> None: ...
    def disconnect(self, name: str) -> None: ...
    def refuse(self, name: str, rules: Ruleset) -> None: ...
    def drift(self, name: str) -> None: ...
    def flushed(self, name: str) -> list[Flow]: ...


class FakeSubject:
    """`FakeBridge`, through `client`."""

    def __init__(self, fake: FakeBridge, client: BridgeCalls) -> None:
        self.fake, self.client = fake, client

    def add(self, name: str) -> None:
        self.fake.add(name, "vc-a")

    def remove(self, name: str) -> None:
        self.fake.remove(name)

    def disconnect(self, name: str) -> None:
        self.fake.guests[name].unreachable = "connection refused"

    def refuse(self, name: str, rules: Ruleset) -> None:
        self.fake.guests[name].next_results.append((ResultCode.REFUSED, "line 2: -j NOPE"))

    def drift(self, name: str) -> None:
        self.fake.guests[name].has_drifted = True

    def flushed(self, name: str) -> list[Flow]:
        return [flow for guest, flows in self.fake.flushed if guest == name for flow in flows]


class ServerSubject:
    """kata-bridge's server, with channels to guests in memory."""

    def __init__(self, served: ServedBridge, client: BridgeCalls) -> None:
        self.served, self.client = served, client

    def add(self, name: str) -> None:
        self.served.add(name)

    def remove(self, name: str) -> None:
        self.served.remove(name)

    def disconnect(self, name: str) -> None:
        self.served.provider.channels[name].is_reachable = False

    def refuse(self, name: str, rules: Ruleset) -> None:
        self.served.provider.channels[name].refused_digests.add(rules.digest)

    def drift(self, name: str) -> None:
        self.served.provider.channels[name].has_drifted = True

    def flushed(self, name: str) -> list[Flow]:
        return self.served.provider.channels[name].flushed


@asynccontextmanager
async def fake_in_process(_: Path) -> AsyncIterator[BridgeSubject]:
    fake = FakeBridge()
    yield FakeSubject(fake, fake)


@asynccontextmanager
async def fake_over_grpc(directory: Path) -> AsyncIterator[BridgeSubject]:
    fake = FakeBridge()
    await fake.serve(directory / "bridge.sock")
    try:
        async with BridgeClient(directory / "bridge.sock", timeout_s=DEADLINE_S) as client:
            yield FakeSubject(fake, client)
    finally:
        await fake.stop()


@asynccontextmanager
async def kata_bridge(directory: Path) -> AsyncIterator[BridgeSubject]:
    async with (
        bridge(directory, FakeChannelProvider()) as served,
        BridgeClient(served.socket, timeout_s=DEADLINE_S) as client,
    ):
        served.guests.mark_synced()
        yield ServerSubject(served, client)


@pytest_asyncio.fixture(params=[fake_in_process, fake_over_grpc, kata_bridge], ids=lambda each: each.__name__)
async def subject(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BridgeSubject]:
    async with request.param(tmp_path) as started:
        yield started


async def results(stream: AsyncIterator[GuestResult]) -> dict[str, GuestResult]:
    async with asyncio.timeout(DEADLINE_S):
        return {result.guest: result async for result in stream}


async def only(stream: AsyncIterator[GuestResult]) -> GuestResult:
    (result,) = (await results(stream)).values()
    return result


async def event(watch: AsyncIterator[GuestEvent], condition: Callable[[GuestEvent], bool]) -> GuestEvent:
    """The next event for which the condition holds."""
    seen: list[GuestEvent] = []
    try:
        async with asyncio.timeout(DEADLINE_S):
            async for each in watch:
                seen.append(each)
                if condition(each):
                    return each
    except TimeoutError:
        pytest.fail(f"no such event within {DEADLINE_S} s, but {seen}")
    pytest.fail(f"the watch ended after {seen}")


def change(old: Ruleset, new: Ruleset) -> RulesetDelta:
    delta = difference(old, new)
    assert delta is not None
    return delta


async def test_a_watch_sends_known_guests_before_synced(subject: BridgeSubject) -> None:
    subject.add("a")
    watch = subject.client.watch_guests()
    first = await event(watch, lambda _: True)
    assert first.guest is not None
    assert (first.kind, first.guest.id, first.guest.tenant) == (GuestEventKind.PRESENT, "a", "vc-a")
    synced = await event(watch, lambda each: each.kind is GuestEventKind.SYNCED)
    assert synced.guest is None


async def test_a_watch_sends_changes(subject: BridgeSubject) -> None:
    subject.add("a")
    watch = subject.client.watch_guests()
    await event(watch, lambda each: each.kind is GuestEventKind.SYNCED)
    subject.add("b")
    await event(watch, lambda each: each.guest is not None and each.guest.id == "b")
    subject.remove("a")
    gone = await event(watch, lambda each: each.kind is GuestEventKind.GONE)
    assert gone.guest == Guest(id="a")


async def test_a_new_watch_sends_the_applied_ruleset(subject: BridgeSubject) -> None:
    subject.add("g")
    await only(subject.client.set_ruleset(["g"], ruleset(3)))
    watch = subject.client.watch_guests()
    present = await event(watch, lambda each: each.guest is not None and each.guest.digest != "")
    assert present.guest is not None
    assert (present.guest.generation, present.guest.digest) == (3, ruleset(3).digest)


async def test_a_ruleset_is_applied_once(subject: BridgeSubject) -> None:
    subject.add("a")
    subject.add("b")
    found = await results(subject.client.set_ruleset(["a", "b"], ruleset(1), [FLOW]))
    digest = ruleset(1).digest
    assert found == {name: GuestResult(name, ResultCode.APPLIED, "", 1, digest) for name in ("a", "b")}
    assert (await only(subject.client.set_ruleset(["a"], ruleset(2)))).code is ResultCode.UNCHANGED


async def test_a_delta_applies_to_its_base_only(subject: BridgeSubject) -> None:
    subject.add("g")
    first, second = ruleset(1, 2), ruleset(2, 3)
    result = await only(subject.client.set_ruleset(["g"], change(first, second)))
    assert (result.code, bool(result.message)) == (ResultCode.NEEDS_FULL, True)
    await only(subject.client.set_ruleset(["g"], first))
    result = await only(subject.client.set_ruleset(["g"], change(first, second)))
    assert result == GuestResult("g", ResultCode.APPLIED, "", 2, second.digest)
    result = await only(subject.client.set_ruleset(["g"], change(ruleset(3, 9), ruleset(4, 8))))
    assert result.code is ResultCode.NEEDS_FULL


async def test_an_older_ruleset_is_superseded(subject: BridgeSubject) -> None:
    subject.add("g")
    await only(subject.client.set_ruleset(["g"], ruleset(5, 2)))
    result = await only(subject.client.set_ruleset(["g"], ruleset(4, 3)))
    assert (result.code, result.generation, result.digest) == (
        ResultCode.SUPERSEDED,
        5,
        ruleset(5, 2).digest,
    )


async def test_calls_report_an_unknown_guest_as_gone(subject: BridgeSubject) -> None:
    reply = await subject.client.read_back("g")
    gone = [
        await only(subject.client.set_ruleset(["g"], ruleset(1))),
        await only(subject.client.check_drift(["g"])),
        await only(subject.client.flush_conntrack(["g"], [FLOW])),
        reply.result or GuestResult(),
    ]
    assert [replace(each, message="") for each in gone] == [GuestResult("g", ResultCode.GONE)] * 4
    assert all(each.message for each in gone)
    assert (reply.installed, reply.desired) == ((), ())


async def test_a_refused_ruleset_is_reported(subject: BridgeSubject) -> None:
    subject.add("g")
    subject.refuse("g", ruleset(1))
    result = await only(subject.client.set_ruleset(["g"], ruleset(1)))
    assert (result.code, result.message) == (ResultCode.REFUSED, "line 2: -j NOPE")


async def test_an_unreachable_guest_keeps_its_desired_rules(subject: BridgeSubject) -> None:
    subject.add("g")
    subject.disconnect("g")
    assert (await only(subject.client.set_ruleset(["g"], ruleset(1)))).code is ResultCode.UNREACHABLE
    reply = await subject.client.read_back("g")
    assert reply.result is not None
    assert reply.result.code is ResultCode.UNREACHABLE
    assert reply.installed == ()
    assert tuple(map(from_part, reply.desired)) == ruleset(1).documents


async def test_drift_lasts_until_a_ruleset_is_applied(subject: BridgeSubject) -> None:
    subject.add("g")
    await only(subject.client.set_ruleset(["g"], ruleset(1)))
    assert (await only(subject.client.check_drift())).code is ResultCode.APPLIED
    subject.drift("g")
    assert (await only(subject.client.check_drift(["g"]))).code is ResultCode.DRIFTED
    await only(subject.client.set_ruleset(["g"], ruleset(2, 3)))
    assert (await only(subject.client.check_drift())).code is ResultCode.APPLIED


async def test_read_back_has_installed_and_desired_rules(subject: BridgeSubject) -> None:
    subject.add("g")
    await only(subject.client.set_ruleset(["g"], ruleset(1, 50)))
    reply = await subject.client.read_back("g")
    assert reply.result == GuestResult("g", ResultCode.APPLIED, "", 1, ruleset(1, 50).digest)
    assert tuple(map(from_part, reply.installed)) == ruleset(1, 50).documents
    assert reply.desired == reply.installed


async def test_conntrack_is_flushed(subject: BridgeSubject) -> None:
    subject.add("g")
    assert (await only(subject.client.flush_conntrack(["g"], [FLOW]))).code is ResultCode.APPLIED
    assert subject.flushed("g") == [FLOW]


@pytest.mark.parametrize("serve", [fake_over_grpc, kata_bridge])
async def test_a_ruleset_with_a_wrong_digest_is_rejected(
    serve: Callable[[Path], AbstractAsyncContextManager[BridgeSubject]], tmp_path: Path
) -> None:
    async with serve(tmp_path) as subject:
        subject.add("g")
        with pytest.raises(BridgeRejectedError, match="the digest is"):
            await results(subject.client.set_ruleset(["g"], Ruleset(1, "00" * 32, ruleset(1).documents)))
