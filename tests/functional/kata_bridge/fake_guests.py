# SPDX-License-Identifier: Apache-2.0
"""Guests in memory behind real channels' interface, and a bridge on a real socket in front of them."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bridge_api.messages import Capabilities, Flow
from daemonkit.tasks import Tasks
from kata_bridge.api.peer_auth import PeerAuthProxy, PeerPolicy, bind
from kata_bridge.api.server import BridgeServer
from kata_bridge.channels.port import Channel, GuestRefused, GuestState, NeedsFull, Unreachable
from kata_bridge.guests.broadcaster import GuestBroadcaster
from kata_bridge.guests.core.ruleset_cache import RulesetCache
from kata_bridge.guests.driver import DriverContext, call_semaphores
from kata_bridge.guests.registry import GuestRegistry
from kata_bridge.metrics import KataBridgeMetrics
from kata_bridge.sandboxes.core.sandbox import Appeared, Sandbox, Vanished
from ruleset.delta import RulesetDelta, apply_delta
from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.model import Family
from ruleset.names import Backend

DEADLINE_S = 10.0


def ruleset(generation: int, services: int = 2, *, port: int = 80) -> Ruleset:
    rules = tuple(
        f"-d 10.0.{n // 256}.{n % 256}/32 -p tcp -m tcp --dport {port} -j DNAT --to-destination 10.1.0.1:8080"
        for n in range(services)
    )
    objects = {"nat/VCN-SERVICES": rules, "nat/OUTPUT": ("-j VCN-SERVICES",)}
    return make_ruleset(generation, (Document(Family.IPV4, Backend.IPTABLES, objects),))


@dataclass
class FakeGuest:
    """What is in a guest, and a channel to it that counts."""

    holds: Ruleset | None = None
    has_drifted: bool = False
    is_reachable: bool = True
    refuses: set[str] = field(default_factory=set)
    delay_s: float = 0.0
    calls: list[str] = field(default_factory=list)
    applied: list[Ruleset | RulesetDelta] = field(default_factory=list)
    flushed: list[Flow] = field(default_factory=list)
    resolv_conf: str = ""
    under_way: int = 0
    held_up: asyncio.Event | None = None

    async def _turn(self, name: str) -> None:
        self.calls.append(name)
        assert self.under_way == 0, "two calls at once"
        self.under_way += 1
        try:
            await asyncio.sleep(self.delay_s)
            if self.held_up is not None:
                await self.held_up.wait()
        finally:
            self.under_way -= 1
        if not self.is_reachable:
            raise Unreachable("nobody answers")

    async def probe(self) -> Capabilities:
        await self._turn("probe")
        return Capabilities("fake", ("iptables",), deltas=True, conntrack=True, resolv_conf=True)

    async def state(self) -> GuestState:
        await self._turn("state")
        return self._state()

    def _state(self) -> GuestState:
        if self.holds is None:
            return GuestState(0, "", self.has_drifted)
        return GuestState(self.holds.generation, self.holds.digest, self.has_drifted)

    async def apply(self, ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow]) -> GuestState:
        await self._turn("apply")
        if ruleset.digest in self.refuses:
            raise GuestRefused("line 2: -j NOPE")
        if self.holds is not None and self.holds.digest == ruleset.digest and not self.has_drifted:
            return self._state()
        if isinstance(ruleset, Ruleset):
            self.holds = ruleset
        elif self.holds is None or self.holds.digest != ruleset.base_digest:
            raise NeedsFull("another base")
        else:
            self.holds = apply_delta(self.holds, ruleset)
        self.has_drifted = False
        self.applied.append(ruleset)
        self.flushed += flush
        return self._state()

    async def read_back(self) -> tuple[Document, ...]:
        await self._turn("read_back")
        return () if self.holds is None else self.holds.documents

    async def flush_conntrack(self, flows: Sequence[Flow]) -> None:
        await self._turn("flush")
        self.flushed += flows

    async def set_resolv_conf(self, text: str) -> None:
        await self._turn("resolv_conf")
        self.resolv_conf = text

    async def close(self) -> None:
        pass


class FakeChannelProvider:
    """Guests by sandbox id, made when they are first asked for."""

    def __init__(self) -> None:
        self.guests: dict[str, FakeGuest] = {}

    async def open(self, sandbox: Sandbox) -> Channel:
        return self.guests.setdefault(sandbox.id, FakeGuest())

    async def forget(self, sandbox: str) -> None:
        self.guests.pop(sandbox, None)


@dataclass
class Bridge:
    """A bridge that serves, without its discovery."""

    socket: Path
    opener: FakeChannelProvider
    guests: GuestRegistry
    watchers: GuestBroadcaster
    metrics: KataBridgeMetrics

    def place(self, *ids: str) -> list[FakeGuest]:
        """Let sandboxes appear."""
        for each in ids:
            self.opener.guests.setdefault(each, FakeGuest())
        self.guests.update(Appeared(sandbox(each)) for each in ids)
        return [self.opener.guests[each] for each in ids]

    def remove(self, *ids: str) -> None:
        self.guests.update(Vanished(each) for each in ids)


def sandbox(name: str) -> Sandbox:
    return Sandbox(
        id=name,
        namespace=f"vc-a-{name}",
        name="pod",
        uid=f"uid-{name}",
        tenant="vc-a",
        tenant_namespace=name,
        tenant_name="pod",
        runtime_handler="kata",
    )


@asynccontextmanager
async def bridge(
    directory: Path, opener: FakeChannelProvider, *, check_s: float = 3600.0
) -> AsyncIterator[Bridge]:
    """Run a bridge on a socket in `directory` with a channel of its own kind for every sandbox."""
    metrics, watchers, tasks = KataBridgeMetrics(), GuestBroadcaster(), Tasks("bridge")
    shared = DriverContext(
        {"fake": opener}, RulesetCache(), metrics, tasks, call_semaphores(), lambda: 0.5, check_s
    )
    guests = GuestRegistry(shared, watchers, lambda _: ("fake",))
    server = BridgeServer(guests, watchers, metrics)
    path, inner = directory / "bridge.sock", directory / "inner.sock"
    await server.start(inner)
    allowed = PeerPolicy(frozenset((0, os.getuid())), None)
    front = PeerAuthProxy(bind(path, None), inner, allowed, tasks, metrics.peers_refused.inc)
    await front.start()
    try:
        yield Bridge(path, opener, guests, watchers, metrics)
    finally:
        await front.stop()
        guests.stop()
        await server.stop(0)
        await front.close()
        await tasks.close(2)
