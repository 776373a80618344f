# SPDX-License-Identifier: Apache-2.0
"""Distrusted relists are logged and counted once each."""

import asyncio
import io

import pytest

from daemonkit import logs
from daemonkit.kube.resources import NAMESPACES, SERVICES
from tests.unit.kubeproxy_ext.nodes import HOLD_S, node

pytestmark = pytest.mark.asyncio


async def test_distrust_is_logged_when_it_begins_and_expires() -> None:
    stream = io.StringIO()
    it = node()
    for guest, tenant in (("g1", "a"), ("g2", "b")):
        it.bridge.add(guest, tenant)
    async with it.running():
        logs.setup(is_json=False, stream=stream, clock=lambda: 0)
        it.transport.is_stalled = True
        it.storage.delete(SERVICES, "a-default", "web")
        it.storage.delete(NAMESPACES, "", "b-default")
        it.storage.compact()
        it.transport.heal()
        await asyncio.sleep(HOLD_S - 1)
        counter = it.metrics.relists_distrusted
        assert [counter.labels(tenant).value for tenant in ("a", "b")] == [1, 1]
        assert {each.tenant for each in it.controller.distrusted} == {"a", "b"}
        assert "10.96.0.1" in it.text("g1")
        assert "10.96.1.1" in it.text("g2")
        await asyncio.sleep(200)
        assert it.controller.distrusted == frozenset()
        assert "10.96.0.1" not in it.text("g1")
        assert "10.96.1.1" not in it.text("g2")
    lines = sorted(line.split(" ", 3)[3] for line in stream.getvalue().splitlines() if "relist" in line)
    assert lines == [
        '"holdSeconds have passed, relist is trusted" tenant=a namespace=a-default',
        '"holdSeconds have passed, relist is trusted" tenant=b namespace=b-default',
        '"relist removed a Namespace though it has Services, keeping it for holdSeconds"'
        " tenant=b namespace=b-default services=0 hold_s=600.0",
        '"relist removed all Services though EndpointSlices remain, keeping them for holdSeconds"'
        " tenant=a namespace=a-default services=1 hold_s=600.0",
    ]
