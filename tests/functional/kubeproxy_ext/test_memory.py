# SPDX-License-Identifier: Apache-2.0
"""The real daemon, given all that a tenant may write, stays within the formula of its README."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from daemonkit.kube.resources import ENDPOINT_SLICES, SERVICES
from kubeproxy_ext.compute.rule_limit import MAX_RULES
from tests.functional.daemon_node import running
from tests.functional.kubeproxy_ext.node import RulesNode
from tests.functional.memory import MB, peak_mb

pytestmark = pytest.mark.asyncio

SLICES, ENDPOINTS = 100, 1_000
TOO_LARGE = 20


def allowed_mb(*, waiting: int, served: int, rules: int, namespaces: int) -> float:
    """kubeproxy_ext/README.md, "How much memory": in MB."""
    return 50 + 2 * 24 * namespaces + (waiting * 60 + served * 400 + rules * 1_000) / MB


def many(first: int, count: int) -> list[str]:
    return [f"{first}.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(count)]


def service(name: str, ip: str, externals: list[str], ports: int) -> dict[str, Any]:
    spec = {
        "clusterIP": ip,
        "ports": [{"name": f"p{port}", "protocol": "TCP", "port": port + 1} for port in range(ports)],
        "externalIPs": externals,
    }
    return {"metadata": {"name": name, "namespace": "a-default"}, "spec": spec}


def endpoint_slice(name: str, of: str, ports: int) -> dict[str, Any]:
    labels = {"kubernetes.io/service-name": of}
    return {
        "metadata": {"name": name, "namespace": "a-default", "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [ip], "conditions": {"ready": True}} for ip in many(10, ENDPOINTS)],
        "ports": [{"name": f"p{port}", "protocol": "TCP", "port": 8000 + port} for port in range(ports)],
    }


async def test_memory_stays_within_the_documented_formula(tmp_path: Path) -> None:
    here = RulesNode(tmp_path)
    for tenant in ("a", "b"):
        here.put_tenant(tenant)
        here.bridge.add(f"guest-{tenant}", tenant)
    here.put_service("b", "web", "10.96.1.1", "10.2.0.1")
    storage = here.apiserver.storage
    for number in range(SLICES):
        storage.put(ENDPOINT_SLICES, endpoint_slice(f"waiting-{number}", f"nothing-{number}", 1))
    for number in range(TOO_LARGE):
        storage.put(SERVICES, service(f"large-{number}", "10.96.0.2", many(192, 100_000), 1))
    # As many rules as a guest gets, and the first of these beyond that.
    for number in range(3):
        storage.put(SERVICES, service(f"most-{number}", f"10.96.0.{10 + number}", many(193, 999), 40))
        storage.put(ENDPOINT_SLICES, endpoint_slice(f"most-{number}", f"most-{number}", 1))
    async with running(here):
        await here.until(lambda: here.has("guest-b", "10.96.1.1"), 60.0)
        await here.until(lambda: here.has("guest-a", "10.96.0.12"), 60.0)
        for number in range(20):  # and again
            storage.put(ENDPOINT_SLICES, endpoint_slice(f"waiting-{number}", f"nothing-{number}", 2))
            storage.put(SERVICES, service("large-0", "10.96.0.2", many(192 + number, 100_000), 1))
        here.put_slice("b", "web", "10.2.0.9")
        await here.until(lambda: here.has("guest-b", "10.2.0.9"), 60.0)
        await asyncio.sleep(1)
        assert await here.metric("vcnode_process_oversized_objects") == TOO_LARGE
        assert await here.metric("vcnode_kubeproxyext_endpoint_slices") == SLICES + 4
        waiting, served = SLICES * ENDPOINTS, 3 * ENDPOINTS
        most = allowed_mb(waiting=waiting, served=served, rules=MAX_RULES, namespaces=1)
        peak = peak_mb(here.process)
        print(f"peak {peak:.0f} MB, allowed {most:.0f} MB")  # noqa: T201 - the figure of the README
        assert peak < most
        assert await here.stop() == 0
