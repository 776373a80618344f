# SPDX-License-Identifier: Apache-2.0
"""Objects that are too large: their pods wait or retain, with the reason, and cost no other tenant."""

import asyncio
from typing import Any

import pytest

from daemonkit.kube.resources import PODS, SERVICES
from dnsconfig.cluster.state import Absence
from dnsconfig.delivery.pod_resolvers import GRACE_S
from dnsconfig.delivery.withdrawals import FORGET_S
from dnsconfig.resolve import decision
from dnsconfig.resolve.resolver import compute_resolver
from tests.unit.dnsconfig.node import NAME, SimulatedNode
from tests.unit.dnsconfig.objects import network, pod, service, tenant

pytestmark = pytest.mark.asyncio

OPTIONS = [{"name": f"option-{number}"} for number in range(257)]
REASON = "too large: spec.dnsConfig.options has more than 256 entries"


def node() -> SimulatedNode:
    here = SimulatedNode()
    here.put(*tenant("a", default="10.0.0.1"), *tenant("b", default="10.0.0.2"))
    return here


async def test_a_too_large_pod_gets_an_event() -> None:
    here = node()
    large = here.put_pod("a", "large", dnsConfig={"options": OPTIONS})
    other, neighbour = here.put_pod("a", "web"), here.put_pod("b", "web")
    here.storage.put(PODS, pod("", "system", nodeName=NAME, dnsConfig={"options": OPTIONS}))
    async with here.running():
        assert (here.servers(other), here.servers(neighbour)) == (["10.0.0.1"], ["10.0.0.2"])
        assert here.bridge.resolv_confs.get(large, "") == ""
        assert [(name, event.reason, event.message) for name, event in here.events] == [
            ("large", "ObjectTooLarge", f"{REASON}: it gets no resolver")
        ]
        assert here.watch.unreadable()["Pod", ("a-shop", "large")] == REASON


async def test_a_tenants_only_pod_gets_its_event_too() -> None:
    here = SimulatedNode()
    here.put(*tenant("a", default="10.0.0.1"))
    here.put_pod("a", "large", dnsConfig={"options": OPTIONS})
    async with here.running():
        assert [event.reason for _, event in here.events] == ["ObjectTooLarge"]


async def test_the_guest_of_a_too_large_pod_waits() -> None:
    here = node()
    uid = here.put_pod("a", "large", dnsConfig={"options": OPTIONS})
    here.bridge.add("g", "a", "a-shop/large", uid=uid)
    async with here.running(GRACE_S + 1):
        assert here.waits(uid) == f"the pod's object cannot be read: {REASON}"


async def test_a_pod_that_becomes_too_large_retains_its_resolver() -> None:
    here = node()
    uid = here.put_pod("a", "web")
    async with here.running():
        assert here.servers(uid) == ["10.0.0.1"]
        here.put_pod("a", "web", labels={f"l{number}": "" for number in range(1_001)})
        await asyncio.sleep(3 * FORGET_S)
        assert here.servers(uid) == ["10.0.0.1"]
        assert uid in here.bridge.resolvers  # not withdrawn
        assert here.waits(uid) == ""


@pytest.mark.parametrize("kind", ["Network", "Service"])
async def test_too_large_services_and_networks_are_unreadable(kind: str) -> None:
    here = node()
    old = here.put_pod("a", "old")
    async with here.running():
        item = network("a", "default") if kind == "Network" else service("a", "default", "10.0.0.1")
        item["metadata"]["labels"] = {f"l{number}": "x" * 20 for number in range(1_001)}
        here.put(item)
        await asyncio.sleep(3 * FORGET_S)
        new = here.put_pod("a", "new")
        await asyncio.sleep(GRACE_S + 1)
        assert here.servers(old) == ["10.0.0.1"]
        assert "too large: metadata.labels has more than 1000 entries" in here.waits(new)


async def test_a_too_large_service_is_not_deleted() -> None:
    here = node()
    here.put_pod("a", "web")
    async with here.running():
        item = service("a", "default", "10.0.0.1")
        item["metadata"]["labels"] = {f"l{number}": "x" * 20 for number in range(1_001)}
        here.put(item)
        await asyncio.sleep(1)
        system_namespace = here.watch.snapshot().contents["a-kube-system"]
        assert (dict(system_namespace.services), system_namespace.absence) == ({}, Absence.CONFIRMED)
        assert here.controller.pods.retention.revoked == {}
        here.storage.delete(SERVICES, "a-kube-system", "kube-dns-default")
        await asyncio.sleep(1)
        assert here.controller.pods.retention.revoked != {}


async def test_a_resolver_is_computed_once_for_its_inputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[object] = []

    def counted(*inputs: Any) -> Any:
        made.append(inputs)
        return compute_resolver(*inputs)

    monkeypatch.setattr(decision, "compute_resolver", counted)
    here = node()
    options = [{"name": f"option-{number}"} for number in range(250)]
    for number in range(20):
        here.put_pod("a", f"web-{number}", dnsConfig={"options": options})
    mine = here.put_pod("b", "web")
    async with here.running():
        assert len(made) == 21
        run_sync_loop = here.metrics.sync_seconds.count
        here.put(service("b", "default", "10.0.0.9"))
        await asyncio.sleep(1)
        assert here.metrics.sync_seconds.count > run_sync_loop
        assert here.servers(mine) == ["10.0.0.9"]
        assert len(made) == 22
        here.put_pod("a", "web-0", dnsConfig={"options": options[1:]})
        await asyncio.sleep(1)
        assert len(made) == 23
