# SPDX-License-Identifier: Apache-2.0
"""Guests keep a Service's rules and its address in resolv.conf for as long (decision 24).

kubeproxy-ext and dnsconfig are real processes on one node: with one API server, one kata-bridge, and one
clock that the test steps.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from daemonkit.kube.resources import NAMESPACES, SERVICES, Resource
from dnsconfig.cluster.objects import NETWORKS
from tests import moved_clock
from tests.functional.daemon_node import running
from tests.functional.dnsconfig.node import DnsNode as ResolverNode
from tests.functional.kubeproxy_ext.node import RulesNode
from tests.unit.dnsconfig import objects

# Another value than the default, and shorter than a reflector waits for an idle watch (90 s).
HOLD_S = 60.0
DNS_IP = "10.96.0.10"


class Both:
    """Both daemons of a node, and a pod of tenant `a` that is a guest."""

    def __init__(self, directory: Path) -> None:
        self.clock = directory / "clock"
        self.step(0.0)
        settings = {"holdSeconds": HOLD_S}
        for name in ("rules", "resolver"):
            (directory / name).mkdir()
        self.rules = RulesNode(directory / "rules", settings)
        self.resolver = ResolverNode(directory / "resolver", settings)
        self.resolver.share(self.rules)
        for node, module in ((self.rules, "kubeproxy_ext"), (self.resolver, "dnsconfig")):
            node.program = ("-m", "tests.moved_clock", str(self.clock), "monotonic", module)
        self.uid = ""

    def put_objects(self) -> None:
        storage = self.rules.apiserver.storage
        for name in ("shop", "kube-system"):
            storage.put(NAMESPACES, objects.namespace("a", name))
        storage.put(NETWORKS, objects.network("a", "default"))
        service = objects.service("a", "default", DNS_IP)
        service["spec"] |= {"ports": [{"name": "dns", "protocol": "UDP", "port": 53}], "ipFamilies": ["IPv4"]}
        storage.put(SERVICES, service)
        self.rules.put_slice("a", "kube-dns-default", "10.1.0.9", namespace="kube-system", protocol="UDP")
        self.uid = self.resolver.put_pod("a", "web-0", tenant_namespace="shop", network="default")
        self.rules.bridge.add("g", "a", networks=("default",), uid=self.uid)

    def step(self, offset_s: float) -> None:
        """Set both clocks this much ahead of the real one."""
        moved_clock.move(self.clock, offset_s)

    def has_rules(self) -> bool:
        return self.rules.has("g", DNS_IP)

    def has_server(self) -> bool:
        return self.resolver.servers(self.uid) == [DNS_IP]

    async def distrusted_s(self) -> float:
        """For how long kubeproxy-ext has distrusted the relist. The request makes both event loops
        iterate."""
        await self.resolver.status()
        removals = (await self.rules.status())["distrustedRelists"]
        return float(removals[0]["seconds"]) if removals else -1.0

    async def has_resolver_observed(self) -> bool:
        """Whether dnsconfig has observed the loss. Its delay begins then: step the clock after that."""
        (pod,) = (await self.resolver.status())["pods"]
        return pod["serverRemovedInSeconds"] is not None

    def relist_without(self, resource: Resource, namespace: str, name: str) -> None:
        """As from a restored backup: the next list lacks this object, without an event."""
        apiserver = self.rules.apiserver
        apiserver.half_open()
        apiserver.storage.delete(resource, namespace, name)
        apiserver.storage.compact()
        apiserver.expire_watches()
        apiserver.heal()

    async def assert_held_until_hold_seconds(self) -> None:
        """Rules and resolver stay for HOLD_S, then both go."""

        async def is_distrusted() -> bool:
            return await self.distrusted_s() >= 0

        await self.rules.until(is_distrusted)
        await self.resolver.until(self.has_resolver_observed)
        # A new guest gets the same rules.
        self.rules.bridge.add("g2", "a", networks=("default",))
        await self.rules.until(lambda: self.rules.has("g2", DNS_IP))
        self.step(HOLD_S - 20)

        async def is_nearly_over() -> bool:
            return await self.distrusted_s() >= HOLD_S - 20

        await self.rules.until(is_nearly_over)
        assert (self.has_rules(), self.has_server()) == (True, True)
        self.step(HOLD_S)
        await self.rules.until(lambda: not (self.has_rules() or self.rules.has("g2", DNS_IP)))
        await self.resolver.until(lambda: not self.has_server())
        assert await self.distrusted_s() < 0
        # The address may be another tenant's by now: nothing leads to it, and containers that start wait.
        assert self.resolver.servers(self.uid) == []
        assert self.resolver.waits(self.uid)


@contextlib.asynccontextmanager
async def both_running(directory: Path) -> AsyncIterator[Both]:
    both = Both(directory)
    both.put_objects()
    async with running(both.rules), running(both.resolver, with_servers=False):
        await both.rules.until(both.has_rules)
        await both.resolver.until(both.has_server)
        yield both


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "lacking",
    [(SERVICES, "a-kube-system", "kube-dns-default"), (NAMESPACES, "", "a-kube-system")],
    ids=["service", "namespace"],
)
async def test_rules_and_resolver_go_after_hold_seconds(
    tmp_path: Path, lacking: tuple[Resource, str, str]
) -> None:
    async with both_running(tmp_path) as both:
        both.relist_without(*lacking)
        await both.assert_held_until_hold_seconds()


@pytest.mark.asyncio
async def test_rules_and_resolver_go_if_another_service_is_left(tmp_path: Path) -> None:
    async with both_running(tmp_path) as both:
        other = objects.service("a", "default", "10.96.0.11")
        other["metadata"]["name"] = "metrics-server"
        other["spec"]["ports"] = [{"port": 443}]
        both.rules.apiserver.storage.put(SERVICES, other)
        both.relist_without(SERVICES, "a-kube-system", "kube-dns-default")
        await both.rules.until(lambda: not both.has_rules())
        assert await both.distrusted_s() < 0
        await both.resolver.until(both.has_resolver_observed)
        # dnsconfig gives a deleted Service 15 s to come back.
        both.step(HOLD_S - 20)
        await both.resolver.until(lambda: not both.has_server())


@pytest.mark.asyncio
async def test_a_service_of_another_proxy_does_not_count_as_left(tmp_path: Path) -> None:
    async with both_running(tmp_path) as both:
        other = objects.service("a", "default", labels={"service.kubernetes.io/headless": ""})
        other["metadata"]["name"] = "etcd-peers"
        both.rules.apiserver.storage.put(SERVICES, other)
        both.relist_without(SERVICES, "a-kube-system", "kube-dns-default")
        await both.assert_held_until_hold_seconds()


@pytest.mark.asyncio
async def test_rules_and_resolver_go_with_their_namespace(tmp_path: Path) -> None:
    async with both_running(tmp_path) as both:
        storage = both.rules.apiserver.storage
        # Two watches: dnsconfig may receive the Namespace's event first, and then watches no Services of it.
        storage.delete(NAMESPACES, "", "a-kube-system")
        storage.delete(SERVICES, "a-kube-system", "kube-dns-default")
        await both.rules.until(lambda: not both.has_rules())
        await both.resolver.until(both.has_resolver_observed)
        both.step(HOLD_S - 20)
        await both.resolver.until(lambda: not both.has_server())
        assert both.resolver.waits(both.uid)
