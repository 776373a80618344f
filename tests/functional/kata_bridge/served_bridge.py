# SPDX-License-Identifier: Apache-2.0
"""A bridge on a real socket, without discovery, whose guests are fake channels."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from daemonkit.tasks import Tasks
from devkit.kata.fake_channel import FakeChannel, FakeChannelProvider
from kata_bridge.api.peer_auth import PeerAuthProxy, PeerPolicy, bind
from kata_bridge.api.server import BridgeServer
from kata_bridge.guests.broadcaster import GuestBroadcaster
from kata_bridge.guests.core.ruleset_cache import RulesetCache
from kata_bridge.guests.driver import DriverContext, call_semaphores
from kata_bridge.guests.registry import GuestRegistry
from kata_bridge.metrics import KataBridgeMetrics
from kata_bridge.sandboxes.core.sandbox import Appeared, Sandbox, Vanished
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
class ServedBridge:
    """A bridge that serves, without its discovery."""

    socket: Path
    provider: FakeChannelProvider
    guests: GuestRegistry
    watchers: GuestBroadcaster
    metrics: KataBridgeMetrics

    def add(self, *ids: str) -> list[FakeChannel]:
        """Let sandboxes appear."""
        for each in ids:
            self.provider.channels.setdefault(each, FakeChannel())
        self.guests.update(Appeared(sandbox(each)) for each in ids)
        return [self.provider.channels[each] for each in ids]

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
    directory: Path, provider: FakeChannelProvider, *, check_s: float = 3600.0
) -> AsyncIterator[ServedBridge]:
    """Run a bridge on a socket in `directory` with a channel of its own kind for every sandbox."""
    metrics, watchers, tasks = KataBridgeMetrics(), GuestBroadcaster(), Tasks("bridge")
    shared = DriverContext(
        {"fake": provider}, RulesetCache(), metrics, tasks, call_semaphores(), lambda: 0.5, check_s
    )
    guests = GuestRegistry(shared, watchers, lambda _: ("fake",))
    server = BridgeServer(guests, watchers, metrics)
    path, inner = directory / "bridge.sock", directory / "inner.sock"
    await server.start(inner)
    allowed = PeerPolicy(frozenset((0, os.getuid())), None)
    proxy = PeerAuthProxy(bind(path, None), inner, allowed, tasks, metrics.peers_refused.inc)
    await proxy.start()
    try:
        yield ServedBridge(path, provider, guests, watchers, metrics)
    finally:
        await proxy.stop()
        guests.stop()
        await server.stop(0)
        await proxy.close()
        await tasks.close(2)
