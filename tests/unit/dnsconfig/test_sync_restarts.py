# SPDX-License-Identifier: Apache-2.0
"""The controller after a restart: which saved state it uses."""

import asyncio

import pytest

from daemonkit.kube.relist_guard import HOLD_SECONDS
from daemonkit.kube.resources import SERVICES
from dnsconfig.cluster.snapshot import Snapshot
from dnsconfig.delivery.pod_resolvers import GRACE_S
from dnsconfig.retention.desired import DesiredResolver
from dnsconfig.retention.resolver_retention import REVOCATION_DELAY_S, ResolverRetention
from dnsconfig.retention.sandbox_networks import SandboxNetworks
from tests.unit.dnsconfig.objects import service
from tests.unit.dnsconfig.two_tenants import as_saved, node, without_server

pytestmark = pytest.mark.asyncio


async def test_saved_state_is_used_until_all_sources_sync() -> None:
    before = node()
    uid = before.put_pod("a", network="blue")
    async with before.running():
        snapshot, retention, sandbox_networks = as_saved(before)
    here = node(before.storage)
    here.transport.is_stalled = True
    here.controller.restore(snapshot, retention, sandbox_networks)
    async with here.running():
        assert here.servers(uid) == ["10.96.0.11"]
        assert here.controller.is_restored
        here.put(service("a", "blue", "10.96.0.77"))
        here.transport.is_stalled = False
        await asyncio.sleep(200)
        assert here.servers(uid) == ["10.96.0.77"]
        assert not here.controller.is_restored


async def test_saved_state_expires_while_running() -> None:
    before = node()
    uid, waiting = before.put_pod("a", network="blue"), before.put_pod("a", "late", network="red")
    async with before.running():
        saved = as_saved(before)
    here = node(before.storage)
    here.transport.is_stalled = True
    here.controller.restore(*saved, here.clock() + 600.0)
    async with here.running(599.0):
        assert here.controller.is_restored
        assert (here.servers(uid), here.waits(waiting)) == (["10.96.0.11"], "network red does not exist")
        await asyncio.sleep(2)
        assert here.controller.snapshot == Snapshot()
        assert here.controller.pods.by_pod == {}
        # A pod with a resolver retains it, as in a later outage of the API server.
        here.bridge.add("g1", "a", "a-shop/web", uid=uid, networks=("blue",))
        here.bridge.add("g2", "a", "a-shop/late", uid=waiting, networks=("red",))
        await asyncio.sleep(2 * GRACE_S)
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.11"], "")
        assert here.waits(waiting) == "this node's pods are not synced with the API server yet"


async def test_resolvers_are_retained_without_a_snapshot() -> None:
    here = node()
    uid = here.put_pod("a", network="red")
    retention = ResolverRetention(HOLD_SECONDS)
    retention.record_applied(uid, DesiredResolver("nameserver 10.0.0.1\n", networks=("red",)))
    here.controller.restore(Snapshot(), retention, SandboxNetworks())
    async with here.running():
        assert here.servers(uid) == ["10.0.0.1"]
        assert here.waits(uid) == ""


@pytest.mark.parametrize("is_server_removed", [False, True])
async def test_a_revocation_continues_after_a_restart(is_server_removed: bool) -> None:
    """All Services of the tenant are deleted, so that the relist after it is distrusted."""
    before = node()
    uid = before.put_pod("a", network="blue")
    async with before.running():
        before.storage.delete(SERVICES, "a-kube-system", "kube-dns-default")
        before.storage.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        await asyncio.sleep(REVOCATION_DELAY_S + (1 if is_server_removed else -5))
        snapshot, retention, sandbox_networks = as_saved(before)
    here = node(before.storage)
    here.controller.restore(snapshot, retention, sandbox_networks)
    async with here.running():
        if not is_server_removed:
            assert here.servers(uid) == ["10.96.0.11"]
            await asyncio.sleep(5)
        without_server(here.bridge.resolv_confs[uid])
        assert (
            not any("10.96.0.11" in each.text for each in here.bridge.resolv_conf_requests)
            or not is_server_removed
        )
        here.put(service("a", "blue", "10.96.0.12"))
        await asyncio.sleep(1)
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.12"], "")


async def test_a_restart_while_unsynced_changes_no_revocation() -> None:
    before = node()
    uid = before.put_pod("a", network="blue")
    async with before.running():
        before.storage.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        await asyncio.sleep(REVOCATION_DELAY_S + 1)
        snapshot, retention, sandbox_networks = as_saved(before)
    for known in (snapshot, Snapshot()):
        here = node(before.storage)
        here.transport.is_stalled = True
        here.controller.restore(known, retention, sandbox_networks)
        async with here.running(2 * REVOCATION_DELAY_S):
            assert not any("10.96.0.11" in each.text for each in here.bridge.resolv_conf_requests)
            if known == snapshot:
                without_server(here.bridge.resolv_confs[uid])
                assert here.waits(uid)
    # Namespaces that the saved snapshot lacks are unknown.
    here = node(before.storage)
    here.transport.is_stalled = True
    retention.revoked.clear()
    here.controller.restore(snapshot, retention, sandbox_networks)
    async with here.running(2 * HOLD_SECONDS):
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.11"], "")
