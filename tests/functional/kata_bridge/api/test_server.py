# SPDX-License-Identifier: Apache-2.0
"""The node's gRPC API over a real socket, with fake guests."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from bridge_api.client import BridgeClient, BridgeRejectedError, BridgeUnavailableError
from bridge_api.messages import (
    Flow,
    Guest,
    GuestEvent,
    GuestEventKind,
    GuestResult,
    ResultCode,
    SetResolvConfRequest,
)
from bridge_api.rulesets import from_part
from daemonkit.tasks import Tasks
from devkit.kata.fake_channel import FakeChannelProvider
from kata_bridge.guests import broadcaster
from ruleset.delta import RulesetDelta, difference
from ruleset.document import Ruleset
from tests.functional.kata_bridge.served_bridge import DEADLINE_S, ServedBridge, bridge, ruleset
from tests.waiting import until

# Longer than the client waits before it connects again.
_BUSY_S = 0.5

FLOW = Flow(protocol="udp", destination="10.0.0.10", port=53)

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[ServedBridge]:
    async with bridge(tmp_path, FakeChannelProvider()) as running:
        running.guests.mark_synced()
        yield running


@pytest_asyncio.fixture
async def client(node: ServedBridge) -> AsyncIterator[BridgeClient]:
    async with BridgeClient(node.socket, timeout_s=DEADLINE_S) as connected:
        yield connected


async def results(stream: AsyncIterator[GuestResult]) -> dict[str, GuestResult]:
    async with asyncio.timeout(DEADLINE_S):
        return {result.guest: result async for result in stream}


async def test_set_ruleset_returns_a_result_for_each_guest(node: ServedBridge, client: BridgeClient) -> None:
    guests = node.add(*(f"g{n}" for n in range(30)))
    sent = ruleset(1, 100)
    outcomes = await results(client.set_ruleset([f"g{n}" for n in range(30)], sent, [FLOW]))
    assert {result.code for result in outcomes.values()} == {ResultCode.APPLIED}
    assert {result.digest for result in outcomes.values()} == {sent.digest}
    assert all(guest.ruleset == sent and guest.flushed == [FLOW] for guest in guests)
    # All guests share one value, and a guest that has it is not given it again.
    assert len({id(guest.ruleset.documents[0]) for guest in guests if guest.ruleset}) == 1
    outcomes = await results(client.set_ruleset(["g0"], ruleset(2, 100)))
    assert outcomes["g0"].code is ResultCode.UNCHANGED
    assert len(guests[0].applied) == 1


async def test_client_waits_for_a_busy_server(node: ServedBridge, tmp_path: Path) -> None:
    """gRPC gave a connection up after 100 ms, its delay before the next one: on a busy node a call failed."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_unix_connection(str(node.socket))

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):  # the other side has closed
                while data := await source.read(65536):
                    target.write(data)
            target.close()
            with contextlib.suppress(ConnectionError):
                await target.wait_closed()

        async def copy_late() -> None:
            await asyncio.sleep(_BUSY_S)
            await copy(server_reader, writer)

        await asyncio.gather(copy(reader, server_writer), copy_late())

    def start(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relays.append(tasks.spawn(relay(reader, writer), "relay"))

    node.add("g")
    busy = tmp_path / "busy.sock"
    tasks = Tasks("busy")
    relays: list[asyncio.Task[None]] = []
    async with await asyncio.start_unix_server(start, busy):
        async with BridgeClient(busy, timeout_s=DEADLINE_S) as client:
            outcomes = await results(client.set_ruleset(["g"], ruleset(1)))
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*relays)
    assert outcomes["g"].code is ResultCode.APPLIED


async def test_a_delta_stays_a_delta(node: ServedBridge, client: BridgeClient) -> None:
    (guest,) = node.add("g")
    first, second = ruleset(1, 2), ruleset(2, 3)
    delta = difference(first, second)
    assert delta is not None
    outcomes = await results(client.set_ruleset(["g"], delta))
    assert (outcomes["g"].code, outcomes["g"].message) == (
        ResultCode.NEEDS_FULL,
        "no ruleset was set for this guest",
    )
    await results(client.set_ruleset(["g"], first))
    await results(client.set_ruleset(["g"], delta))
    assert [type(given) for given in guest.applied] == [Ruleset, RulesetDelta]


async def test_a_guest_that_lost_its_base_gets_the_whole_ruleset(
    node: ServedBridge, client: BridgeClient
) -> None:
    (guest,) = node.add("g")
    first, second = ruleset(1, 2), ruleset(2, 3)
    await results(client.set_ruleset(["g"], first))
    guest.ruleset = None
    delta = difference(first, second)
    assert delta is not None
    outcomes = await results(client.set_ruleset(["g"], delta))
    assert outcomes["g"].code is ResultCode.APPLIED
    assert guest.ruleset == second


async def test_a_slow_guest_delays_no_other_result(node: ServedBridge, client: BridgeClient) -> None:
    slow, _ = node.add("slow", "fast")
    await until(lambda: all(d.machine.observed is not None for d in node.guests.drivers.values()))
    slow.blocker = asyncio.Event()
    stream = client.set_ruleset(["slow", "fast"], ruleset(1))
    async with asyncio.timeout(DEADLINE_S):
        assert (await anext(stream)).guest == "fast"
        newer = client.set_ruleset(["slow"], ruleset(2, 3))
        asking = asyncio.ensure_future(anext(newer))  # noqa: TID251 - ends with this test
        superseded = await anext(stream)
        assert (superseded.guest, superseded.code) == ("slow", ResultCode.SUPERSEDED)
        slow.blocker.set()
        assert (await asking).code is ResultCode.APPLIED
    assert slow.ruleset == ruleset(2, 3)


async def test_each_failure_has_its_result_code(node: ServedBridge, client: BridgeClient) -> None:
    refusing, away = node.add("refusing", "away")
    refusing.refused_digests.add(ruleset(1).digest)
    away.is_reachable = False
    outcomes = await results(client.set_ruleset(["refusing", "away", "absent"], ruleset(1)))
    assert (outcomes["refusing"].code, outcomes["refusing"].message) == (
        ResultCode.REFUSED,
        "line 2: -j NOPE",
    )
    assert (outcomes["away"].code, outcomes["away"].message) == (
        ResultCode.UNREACHABLE,
        "fake: the fake guest is unreachable",
    )
    assert (outcomes["absent"].code, outcomes["absent"].message) == (
        ResultCode.GONE,
        "this node has no such sandbox",
    )
    # The ruleset stays desired: the guest gets it when it is back.
    away.is_reachable = True
    await until(lambda: away.ruleset == ruleset(1))


async def test_before_sync_an_absent_guest_is_unreachable(tmp_path: Path) -> None:
    async with bridge(tmp_path, FakeChannelProvider()) as node, BridgeClient(node.socket) as client:
        outcomes = await results(client.set_ruleset(["g"], ruleset(1)))
        assert outcomes["g"].code is ResultCode.UNREACHABLE


async def test_check_drift_finds_drift_that_is_repaired_later(tmp_path: Path) -> None:
    async with (
        bridge(tmp_path, FakeChannelProvider(), check_s=0.4) as node,
        BridgeClient(node.socket) as client,
    ):
        node.guests.mark_synced()
        (guest,) = node.add("g")
        await results(client.set_ruleset(["g"], ruleset(1)))
        assert (await results(client.check_drift()))["g"].code is ResultCode.APPLIED
        guest.has_drifted = True
        assert (await results(client.check_drift(["g"])))["g"].code is ResultCode.DRIFTED
        await until(lambda: not guest.has_drifted)
        assert len(guest.applied) == 2
        await until(lambda: node.metrics.repairs.value == 1)


async def test_after_a_restart_current_guests_get_no_push(tmp_path: Path) -> None:
    provider = FakeChannelProvider()
    async with bridge(tmp_path, provider) as node, BridgeClient(node.socket) as client:
        (guest,) = node.add("g")
        await results(client.set_ruleset(["g"], ruleset(1)))
    async with bridge(tmp_path, provider) as node, BridgeClient(node.socket) as client:
        node.add("g")
        node.guests.mark_synced()
        async with asyncio.timeout(DEADLINE_S):
            watch = client.watch_guests()
            async for event in watch:
                if event.guest is not None and event.guest.digest:
                    assert (event.guest.generation, event.guest.digest) == (1, ruleset(1).digest)
                    break
        outcomes = await results(client.set_ruleset(["g"], ruleset(1)))
        assert outcomes["g"].code is ResultCode.UNCHANGED
        assert guest.calls.count("apply") == 1


async def test_a_watch_has_all_guests_then_synced_then_changes(tmp_path: Path) -> None:
    async with bridge(tmp_path, FakeChannelProvider()) as node, BridgeClient(node.socket) as client:
        node.add("a")
        watch = client.watch_guests()
        async with asyncio.timeout(DEADLINE_S):
            first = await anext(watch)
            assert first.guest is not None
            assert (first.kind, first.guest.id) == (GuestEventKind.PRESENT, "a")
            node.guests.mark_synced()
            await seen(watch, lambda event: event.kind is GuestEventKind.SYNCED)
            node.add("b")
            event = await seen(watch, lambda event: _of(event, "b").capabilities is not None)
            assert _of(event, "b").tenant_namespace == "b"
            await results(client.set_ruleset(["b"], ruleset(1)))
            await seen(watch, lambda event: _of(event, "b").digest == ruleset(1).digest)
            node.remove("a")
            event = await seen(watch, lambda event: event.kind is GuestEventKind.GONE)
            assert event.guest == Guest(id="a")


async def seen(watch: AsyncIterator[GuestEvent], condition: Callable[[GuestEvent], bool]) -> GuestEvent:
    async for event in watch:
        if condition(event):
            return event
    raise AssertionError("the watch ended")


def _of(event: GuestEvent, name: str) -> Guest:
    """The guest of the event, if it is this one."""
    return event.guest if event.guest is not None and event.guest.id == name else Guest()


async def test_a_watch_that_is_not_read_ends_with_resource_exhausted(
    node: ServedBridge, client: BridgeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcaster, "MAX_PENDING", 10)
    watch = client.watch_guests()
    async with asyncio.timeout(DEADLINE_S):
        assert (await anext(watch)).kind is GuestEventKind.SYNCED
        # Without an await in between, so that the watcher reads nothing meanwhile.
        node.add(*(f"g{n}" for n in range(50)))
        with pytest.raises(BridgeUnavailableError, match="more than 10 guests changed unread: watch again"):
            [event async for event in watch]
    assert node.metrics.watchers_ended.value == 1
    await until(lambda: len(node.watchers) == 0)


async def test_read_back_has_observed_and_desired_rules(node: ServedBridge, client: BridgeClient) -> None:
    (guest,) = node.add("g")
    await results(client.set_ruleset(["g"], ruleset(1, 50)))
    guest.ruleset = ruleset(1, 3)
    reply = await client.read_back("g")
    assert reply.result is not None
    assert reply.result.code is ResultCode.APPLIED
    assert tuple(from_part(part) for part in reply.installed) == ruleset(1, 3).documents
    assert tuple(from_part(part) for part in reply.desired) == ruleset(1, 50).documents


async def test_set_resolv_conf_without_a_gate(node: ServedBridge, client: BridgeClient) -> None:
    (guest,) = node.add("g")
    assert (await client.set_resolv_conf(SetResolvConfRequest("absent", "x"))).code is ResultCode.GONE
    await until(lambda: node.guests.drivers["g"].selected is not None)
    assert (
        await client.set_resolv_conf(SetResolvConfRequest("g", "nameserver 10.0.0.10\n"))
    ).code is ResultCode.APPLIED
    assert guest.resolv_conf == "nameserver 10.0.0.10\n"
    others = await client.set_resolv_conf(
        SetResolvConfRequest("g", "nameserver 10.0.0.11\n", networks=("another",))
    )
    assert (others.code, others.message) == (
        ResultCode.REFUSED,
        "the resolver is for another network than the guest's",
    )
    assert guest.resolv_conf == "nameserver 10.0.0.10\n"
    # Without a start gate only the text counts: it is for running containers.
    waiting = await client.set_resolv_conf(
        SetResolvConfRequest("g", "nameserver 10.0.0.12\n", wait_message="no such network")
    )
    assert (waiting.code, guest.resolv_conf) == (ResultCode.APPLIED, "nameserver 10.0.0.12\n")
    with pytest.raises(BridgeRejectedError, match="has no start gate"):
        await client.set_resolv_conf(SetResolvConfRequest("g", "", wait_message="no such network"))


async def test_a_ruleset_above_4_mib_is_deflated(node: ServedBridge, client: BridgeClient) -> None:
    (guest,) = node.add("g")
    large = ruleset(1, 60_000)
    assert len(large.documents[0].text()) > 4 << 20
    outcomes = await results(client.set_ruleset(["g"], large))
    assert outcomes["g"].code is ResultCode.APPLIED
    assert guest.ruleset == large


async def test_an_invalid_ruleset_is_refused_without_effect(node: ServedBridge, client: BridgeClient) -> None:
    (guest,) = node.add("g")
    wrong = Ruleset(1, "00" * 32, ruleset(1).documents)
    with pytest.raises(BridgeRejectedError, match="the digest is"):
        await results(client.set_ruleset(["g"], wrong))
    with pytest.raises(BridgeRejectedError, match="more than 10000 guests"):
        await results(client.set_ruleset([str(n) for n in range(10_001)], ruleset(1)))
    with pytest.raises(BridgeRejectedError, match="more than 65536 characters"):
        await client.set_resolv_conf(SetResolvConfRequest("g", "x" * 65_537))
    assert guest.applied == []


async def test_without_a_bridge_the_client_is_unavailable(tmp_path: Path) -> None:
    async with BridgeClient(tmp_path / "nobody.sock", timeout_s=2) as client:
        with pytest.raises(BridgeUnavailableError, match=r"nobody\.sock"):
            await client.read_back("g")


async def test_a_call_on_a_closed_client_is_unavailable(node: ServedBridge) -> None:
    client = BridgeClient(node.socket)
    await client.close()
    with pytest.raises(BridgeUnavailableError, match="this connection is closed"):
        await client.read_back("g")
    with pytest.raises(BridgeUnavailableError, match="this connection is closed"):
        await results(client.check_drift())
