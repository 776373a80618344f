# SPDX-License-Identifier: Apache-2.0
"""What callers of a channel may rely on: kept by the fake, the stock channel and the agent's channel."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest
import pytest_asyncio

from bridge_api.rulesets import to_message
from daemonkit.protobuf import decode
from daemonkit.tasks import Tasks
from devkit.fake_packet_filter import FakePacketFilter
from devkit.kata.fake_channel import FakeChannel
from devkit.kata.fake_kata import FakeKata
from devkit.kata.guest_tables import FakeTables
from guest_agent.api.messages import AgentHello, NodeRequest
from guest_agent.reconciler import RulesetReconciler
from guest_agent.request_handler import RequestHandler
from kata_bridge.channels.agent.channel import AgentChannel
from kata_bridge.channels.port import Channel, GuestRefused, GuestState, NeedsFull, Unreachable
from kata_bridge.channels.stock.channel import stock_channel
from ruleset.delta import RulesetDelta, difference
from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.model import Family
from ruleset.names import Backend

pytestmark = pytest.mark.asyncio


def _ruleset(generation: int, *rules: str) -> Ruleset:
    objects = {"nat/VCN-SERVICES": rules, "nat/OUTPUT": ("-j VCN-SERVICES",)}
    return make_ruleset(generation, (Document(Family.IPV4, Backend.IPTABLES, objects),))


ONE = _ruleset(1, "-d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j RETURN")
TWO = _ruleset(2, *ONE.documents[0].objects["nat/VCN-SERVICES"], "-d 10.96.0.2/32 -j RETURN")
BAD = _ruleset(3, "-d 10.96.0.3/32 -j NOPE")
NO_RULESET = GuestState(0, "", has_drifted=False)


def _delta(old: Ruleset, new: Ruleset) -> RulesetDelta:
    delta = difference(old, new)
    assert delta is not None
    return delta


def _holding(ruleset: Ruleset) -> GuestState:
    return GuestState(ruleset.generation, ruleset.digest, has_drifted=False)


class ContractSubject(Protocol):
    """A channel, and what its guest can do without it."""

    @property
    def channel(self) -> Channel: ...

    def drift(self) -> None: ...
    async def disconnect(self) -> None: ...


class FakeSubject:
    def __init__(self) -> None:
        self.guest = self.channel = FakeChannel(refused_digests={BAD.digest})

    def drift(self) -> None:
        self.guest.has_drifted = True

    async def disconnect(self) -> None:
        self.guest.is_reachable = False


class StockSubject:
    def __init__(self, kata: FakeKata, tables: FakeTables) -> None:
        self._kata, self._tables = kata, tables
        self.channel = stock_channel(kata.sandbox_id, roots=kata.roots)

    def drift(self) -> None:
        self._tables.flush(Family.IPV4, "nat", "OUTPUT")

    async def disconnect(self) -> None:
        await self._kata.__aexit__()


class AgentSubject:
    def __init__(self, state_path: Path, tasks: Tasks) -> None:
        self._filter = FakePacketFilter()
        handler = RequestHandler(RulesetReconciler(self._filter, None), None, state_path, ())
        hello = AgentHello("sb", "1", "boot", handler.capabilities(self._filter), handler.state())
        self.channel = AgentChannel("sb", hello, "unix", to_message)
        tasks.spawn(self._answer(handler), "agent")

    async def _answer(self, handler: RequestHandler) -> None:
        while True:
            request = decode(NodeRequest, await self.channel.outbox.get())
            self.channel.complete_request(handler.handle(request))

    def drift(self) -> None:
        self._filter.iptables[Family.IPV4].tables["nat"]["OUTPUT"].clear()

    async def disconnect(self) -> None:
        self.channel.end("the agent closed the stream")


@asynccontextmanager
async def _fake(_: Path) -> AsyncIterator[ContractSubject]:
    yield FakeSubject()


@asynccontextmanager
async def _stock(directory: Path) -> AsyncIterator[ContractSubject]:
    tables = FakeTables()
    async with FakeKata(directory, tables) as kata:
        yield StockSubject(kata, tables)


@asynccontextmanager
async def _agent(directory: Path) -> AsyncIterator[ContractSubject]:
    tasks = Tasks("agent")
    yield AgentSubject(directory / "state", tasks)
    await tasks.close(1.0)


MakeSubject = Callable[[Path], AbstractAsyncContextManager[ContractSubject]]


@pytest_asyncio.fixture(params=[_fake, _stock, _agent], ids=["fake", "stock", "agent"])
async def subject(request: pytest.FixtureRequest, short_dir: Path) -> AsyncIterator[ContractSubject]:
    make: MakeSubject = request.param
    async with make(short_dir) as made:
        yield made


async def test_fresh_guest_holds_no_ruleset(subject: ContractSubject) -> None:
    assert await subject.channel.state() == NO_RULESET
    assert await subject.channel.read_back() == ()


async def test_probe_names_the_channel_and_its_backends(subject: ContractSubject) -> None:
    capabilities = await subject.channel.probe()
    assert capabilities.channel
    assert "iptables" in capabilities.backends


async def test_applied_ruleset_is_the_state_and_is_read_back(subject: ContractSubject) -> None:
    for ruleset in (ONE, ONE, TWO):
        assert await subject.channel.apply(ruleset, ()) == _holding(ruleset)
        assert await subject.channel.state() == _holding(ruleset)
        assert await subject.channel.read_back() == ruleset.documents


async def test_delta_is_applied_to_its_base_if_supported(subject: ContractSubject) -> None:
    capabilities = await subject.channel.probe()
    await subject.channel.apply(ONE, ())
    if capabilities.deltas:
        assert await subject.channel.apply(_delta(ONE, TWO), ()) == _holding(TWO)
        return
    with pytest.raises(NeedsFull):
        await subject.channel.apply(_delta(ONE, TWO), ())


async def test_delta_of_another_base_needs_the_full_ruleset(subject: ContractSubject) -> None:
    with pytest.raises(NeedsFull):
        await subject.channel.apply(_delta(ONE, TWO), ())
    assert await subject.channel.state() == NO_RULESET


async def test_drift_is_seen_and_repaired_by_apply(subject: ContractSubject) -> None:
    await subject.channel.apply(ONE, ())
    subject.drift()
    state = await subject.channel.state()
    assert (state.digest, state.has_drifted) == (ONE.digest, True)
    assert await subject.channel.apply(ONE, ()) == _holding(ONE)
    assert await subject.channel.state() == _holding(ONE)


async def test_refused_ruleset_leaves_the_one_before(subject: ContractSubject) -> None:
    await subject.channel.apply(ONE, ())
    with pytest.raises(GuestRefused):
        await subject.channel.apply(BAD, ())
    assert await subject.channel.read_back() == ONE.documents


async def test_disconnected_guest_is_unreachable(subject: ContractSubject) -> None:
    await subject.channel.probe()
    await subject.disconnect()
    for call in (subject.channel.probe, subject.channel.state, subject.channel.read_back):
        with pytest.raises(Unreachable):
            async with asyncio.timeout(20):
                await call()
