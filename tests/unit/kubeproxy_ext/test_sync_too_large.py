# SPDX-License-Identifier: Apache-2.0
"""A tenant's too large object: its rules end, it is reported, and no other tenant is affected."""

import asyncio

import pytest

from daemonkit.kube.resources import ENDPOINT_SLICES, SERVICES
from devkit.kube import wire as wire
from devkit.kube.storage import StatusError
from tests.unit.kubeproxy_ext.nodes import EngineNode, node

pytestmark = pytest.mark.asyncio

TOO_LARGE = "too large: spec.externalIPs has more than 65536 bytes"


def put_large(it: EngineNode, name: str, ip: str) -> None:
    ips = [f"192.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in range(10_000)]
    spec = {"clusterIP": ip, "ports": [{"name": "p", "port": 80}], "externalIPs": ips}
    it.storage.put(SERVICES, {"metadata": {"name": name, "namespace": "a-default"}, "spec": spec})


def problems(it: EngineNode) -> object:
    return it.report.status(asyncio.get_running_loop().time())["problems"]


async def test_service_that_grows_too_large_loses_its_rules() -> None:
    it = node()
    it.put("a", "shop", "10.96.0.2", "10.0.0.2")
    it.bridge.add("g", "a")
    it.bridge.add("h", "b")
    async with it.running():
        others = it.text("h")
        put_large(it, "shop", "10.96.0.2")
        await asyncio.sleep(1)
        assert "10.96.0.1" in it.text("g")
        assert "10.96.0.2" not in it.text("g")
        assert it.text("h") == others
        assert problems(it) == [
            {"tenant": "a", "namespace": "default", "service": "shop", "problem": f"all of it: {TOO_LARGE}"}
        ]
        it.put("a", "shop", "10.96.0.2", "10.0.0.2")
        await asyncio.sleep(1)
        assert "10.96.0.2" in it.text("g")
        assert problems(it) == []


async def test_relist_with_a_too_large_service_is_trusted() -> None:
    it = node()
    it.bridge.add("g", "a")
    async with it.running():
        assert "10.96.0.1" in it.text("g")
        put_large(it, "web", "10.96.0.1")
        # The watch breaks before the event, so only a list shows it.
        it.transport.inject(wire.event("ERROR", StatusError(410, "Expired", "too old").status))
        await asyncio.sleep(5)
        assert "10.96.0.1" not in it.text("g")
        assert it.controller.cache.distrusted == ()


async def test_tenant_syncs_with_a_too_large_service() -> None:
    it = node()
    put_large(it, "web", "10.96.0.1")
    it.bridge.add("g", "a")
    async with it.running():
        assert it.controller.tenants["a"].has_synced
        assert "10.96.0.1" not in it.text("g")


async def test_too_large_slice_has_no_endpoints() -> None:
    it = node()
    it.bridge.add("g", "a")
    async with it.running():
        assert "10.0.0.1:8080" in it.text("g")
        endpoints = [{"addresses": ["10.0.0.9"]}] * 1_001
        labels = {"kubernetes.io/service-name": "web"}
        metadata = {"name": "web-1", "namespace": "a-default", "labels": labels}
        body = {"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints}
        it.storage.put(ENDPOINT_SLICES, body)
        await asyncio.sleep(1)
        assert "10.0.0." not in it.text("g")
        assert "REJECT" in it.text("g") or "reject" in it.text("g")
        assert problems(it) == [
            {
                "tenant": "a",
                "namespace": "default",
                "service": "web-1",
                "problem": "EndpointSlice web-1: too large: endpoints has more than 1000 entries",
            }
        ]
