# SPDX-License-Identifier: Apache-2.0
"""The ring with kata-bridge and kubeproxy-ext on its node."""

from __future__ import annotations

import asyncio
import datetime as dt
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from kata_bridge.cri.client import CriClient
from kata_bridge.sandboxes.core.sandbox import SandboxObservation
from kata_bridge.sandboxes.cri_source import CriLister
from tests.k8s.ring import daemons, guests, services
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.daemons import NodeDaemon
from tests.k8s.ring.node import KATA_HANDLERS, RealNode
from tests.k8s.ring.processes import RingError, wait_for
from tests.k8s.ring.services import RingService
from tests.k8s.ring.tenants import RingTenant

KATA, AGENT, STOCK = KATA_HANDLERS
CHANNELS = {KATA: "netns", AGENT: "agent", STOCK: "shim"}
# Both tenants' own control planes allocated it to a Service.
OWN_IP = "10.32.0.7"
CHANGED_S = 10.0


@dataclass(frozen=True, slots=True)
class ServingNode:
    """The ring with both daemons on its node, and a Service of each tenant with the same own IP."""

    ring: Ring
    bridge: NodeDaemon
    proxy: NodeDaemon
    stock: guests.StockKata
    of_acme: RingService
    of_acme_x: RingService

    def web_address(self, tenant: RingTenant, name: str = "web") -> str:
        """The address at which a pod of the ring serves its name."""
        return web_address(self.ring, tenant, name)

    @contextmanager
    def guest(
        self, tenant: RingTenant, handler: str, spec: dict[str, Any] | None = None
    ) -> Iterator[services.TenantPod]:
        """A pod of that handler, with the containers that its handler needs; it need not start."""
        spec = services.sleeper() if spec is None else spec
        if handler == AGENT:
            spec = guests.with_agent(self.ring, spec)
        with services.pod(self.ring, tenant, handler, spec) as made:
            yield made

    def sandbox_of(self, pod: services.TenantPod) -> SandboxObservation:
        """The sandbox of a running pod, as the runtime reports it."""
        return sandbox_of(self.ring.node, pod.namespace, pod.name)

    def rules_in(self, sandbox: SandboxObservation) -> str:
        """The output of a guest's own packet filter; a rewritten rule has another handle."""
        return services.rules_in(self.ring.node.outside(sandbox.netns))

    def delivery_ms(self, sandbox: str) -> float:
        """The time from a sandbox's event to its first rules."""
        (appeared,) = self.bridge.lines("guest added", guest=sandbox)
        return 1000 * (self.applied_at_s(sandbox) - _seconds(appeared))

    def applied_at_s(self, sandbox: str) -> float:
        """When a guest got its first rules, since 1970."""
        return _seconds(self.bridge.lines("ruleset applied", guest=sandbox)[0])

    def applied(self, sandbox: str) -> Counter[str]:
        """How often each ruleset was applied to a guest, over all lives of the bridge."""
        return Counter(line["digest"] for line in self.bridge.lines("ruleset applied", guest=sandbox))

    def wait_current(self, *sandboxes: str) -> None:
        """Wait until both daemons report these guests as current."""

        def is_current() -> bool:
            desired = {each["id"]: each["desiredDigest"] for each in self.proxy.status().get("guests", [])}
            states = {each["id"]: each for each in self.bridge.status().get("guests", [])}
            return all(
                desired.get(each)
                and states.get(each, {}).get("digest") == desired[each]
                and states[each]["state"] == "current"
                for each in sandboxes
            )

        try:
            wait_for("guests are current", is_current, timeout_s=30)
        except RingError as error:
            views = (self.bridge.status().get("guests"), self.proxy.status().get("guests"))
            raise RingError(f"{error}: {views}") from None


@contextmanager
def serving(ring: Ring, gate: dict[str, Any] | None = None) -> Iterator[ServingNode]:
    """Start both daemons, and stock Kata for the handler of that name; `gate` is kata-bridge's setting."""
    services.create_runtime_classes(ring, *KATA_HANDLERS)
    bridge = daemons.kata_bridge(ring, sys.executable, gate)
    proxy = daemons.kubeproxy_ext(ring, sys.executable)
    with ExitStack() as stack:
        stack.callback(bridge.stop)
        stack.callback(proxy.stop)
        bridge.start()
        proxy.start()
        stock = stack.enter_context(guests.StockKata(ring, STOCK))
        of_acme, of_acme_x = (
            stack.enter_context(services.service(ring, tenant, web_address(ring, tenant), own_ip=OWN_IP))
            for tenant in ring.tenants
        )
        yield ServingNode(ring, bridge, proxy, stock, of_acme, of_acme_x)


def sandbox_of(node: RealNode, namespace: str, name: str) -> SandboxObservation:
    """The sandbox of a running pod of a node, as its runtime reports it."""

    async def list_sandboxes() -> list[SandboxObservation]:
        async with CriClient(node.cri_socket) as client:
            return list(await CriLister(client).sandboxes(lambda _: False))

    return next(
        each
        for each in asyncio.run(list_sandboxes())
        if (each.namespace, each.name, each.is_alive) == (namespace, name, True)
    )


def web_address(ring: Ring, tenant: RingTenant, name: str = "web") -> str:
    """The address at which a pod of the ring serves its name."""
    return str(ring.syncer.super_pod(tenant, "default", name)["status"]["podIP"])


def _seconds(line: dict[str, Any]) -> float:
    return dt.datetime.fromisoformat(line["time"]).timestamp()


def print_figure(figure: str) -> None:
    """Print a figure; pytest shows it with `-rP` or `-s`."""
    sys.stdout.write(f"{figure}\n")
