# SPDX-License-Identifier: Apache-2.0
"""The controller where a DNS server's address is revoked: when it is removed, and from which pods."""

import asyncio

import pytest

from daemonkit.kube.relist_guard import HOLD_SECONDS
from daemonkit.kube.resources import EXCLUDING_LABELS, NAMESPACES, PODS, SERVICES, Resource
from dnsconfig.cluster.objects import NETWORKS
from dnsconfig.delivery.withdrawals import FORGET_S
from dnsconfig.retention.resolver_retention import REVOCATION_DELAY_S
from tenancy import keys
from tests.unit.dnsconfig.node import SimulatedNode
from tests.unit.dnsconfig.objects import namespace, network, pod, service
from tests.unit.dnsconfig.two_tenants import as_saved, node, without_server

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("how", ["deleted", "headless", "external name", "another's", "with the network"])
async def test_a_revoked_address_is_removed_after_the_delay(how: str) -> None:
    here = node()
    uid, theirs = here.put_pod("a", network="blue"), here.put_pod("b")
    async with here.running():
        sent = len(here.bridge.resolv_conf_requests)
        if how == "deleted":
            here.storage.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        elif how == "headless":
            here.put(service("a", "blue"))
        elif how == "external name":
            item = service("a", "blue", "10.96.0.11")
            item["spec"]["type"] = "ExternalName"
            here.put(item)
        elif how == "another's":
            here.put(service("a", "blue", "6.6.6.6", annotations={keys.CLUSTER: "b"}))
        else:
            here.storage.delete(NETWORKS, "a-kube-system", "blue")
            here.storage.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        await asyncio.sleep(REVOCATION_DELAY_S - 1)
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.11"], "")
        assert len(here.bridge.resolv_conf_requests) == sent
        state = here.controller.pods.by_pod["a-shop", "web"]
        assert state.is_retained
        assert not state.is_server_removed
        await asyncio.sleep(2)
        without_server(here.bridge.resolv_confs[uid])
        state = here.controller.pods.by_pod["a-shop", "web"]
        assert state.is_server_removed
        assert not state.is_retained
        assert here.waits(uid)
        assert here.waits(uid) == (state.decision.waiting and state.decision.waiting.message)
        assert len(here.bridge.resolv_conf_requests) == sent + 1
        # Only an address restores it: not a restarted kata-bridge, nor unknown state.
        here.bridge.lose_state()
        await asyncio.sleep(1)
        without_server(here.bridge.resolv_confs[uid])
        here.put({**service("a", "blue"), "spec": 7})
        await asyncio.sleep(1)
        without_server(here.bridge.resolv_confs[uid])
        assert here.waits(uid).startswith(
            ("Service kube-system/kube-dns-blue cannot be read", "network blue")
        )
        here.put(network("a", "blue"), service("a", "blue", "10.96.0.12"))
        await asyncio.sleep(1)
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.12"], "")
        assert here.controller.pods.retention.revoked == {}
        assert here.servers(theirs) == ["10.96.0.20"]


async def test_one_of_two_addresses_is_removed_alone() -> None:
    here = node()
    here.put(service("a", "blue", "10.96.0.11", "fd00::11"))
    uid = here.put_pod("a", network="blue")
    async with here.running():
        assert here.servers(uid) == ["10.96.0.11", "fd00::11"]
        here.put(network("a", "blue", "Pending"), service("a", "blue", "10.96.0.11"))
        await asyncio.sleep(REVOCATION_DELAY_S + 1)
        assert here.servers(uid) == ["10.96.0.11"]
        assert here.waits(uid)
        # Unknown state removes nothing more; a deletion removes the rest.
        here.put({**service("a", "blue"), "spec": 7})
        await asyncio.sleep(REVOCATION_DELAY_S + 1)
        assert here.servers(uid) == ["10.96.0.11"]
        here.storage.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        await asyncio.sleep(REVOCATION_DELAY_S + 1)
        without_server(here.bridge.resolv_confs[uid])


async def test_a_recreated_service_changes_the_file_once() -> None:
    here = node()
    uid = here.put_pod("a", network="blue")
    async with here.running():
        sent = len(here.bridge.resolv_conf_requests)
        for address in ("10.96.0.11", "10.96.0.12"):
            here.storage.delete(SERVICES, "a-kube-system", "kube-dns-blue")
            await asyncio.sleep(REVOCATION_DELAY_S - 1)
            here.put(service("a", "blue", address))
            await asyncio.sleep(1)
        await asyncio.sleep(2 * REVOCATION_DELAY_S)
        assert here.servers(uid) == ["10.96.0.12"]
        assert len(here.bridge.resolv_conf_requests) == sent + 1


async def test_a_reduced_pod_waits_and_keeps_its_own_servers() -> None:
    here = node()
    own = {"nameservers": ["192.0.2.53", "192.0.2.54", "192.0.2.55"]}
    uid = here.put_pod("a", network="blue", dnsConfig=own)
    host = here.put_pod("a", "host", network="blue", hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet")
    none = here.put_pod("a", "none", network="blue", dnsPolicy="None", dnsConfig=own)
    async with here.running():
        assert here.servers(uid) == ["10.96.0.11", "192.0.2.53", "192.0.2.54"]
        here.storage.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        await asyncio.sleep(REVOCATION_DELAY_S + 1)
        assert here.servers(uid) == ["192.0.2.53", "192.0.2.54"]
        # Without any server it would query the host's.
        assert here.servers(host) == ["100::1"]
        assert here.waits(uid) == here.waits(host) != ""
        assert (here.servers(none), here.waits(none)) == (own["nameservers"], "")
        # Another sandbox of the pod gets the same.
        here.bridge.add("g1", "a", "a-shop/web", uid=uid, networks=("blue",))
        await asyncio.sleep(1)
        assert here.bridge.resolv_conf_requests[-1].guest == "g1"
        assert here.bridge.resolv_conf_requests[-1].wait_message == here.waits(uid) != ""
        assert here.servers(uid) == ["192.0.2.53", "192.0.2.54"]


@pytest.mark.parametrize(
    "how", ["pending", "no network", "label", "unreadable", "no owner", "unreadable namespace", "two places"]
)
async def test_an_address_of_its_service_is_never_revoked(how: str) -> None:
    """Also while that is unknown."""
    here = node()
    uid = here.put_pod("a", network="blue")
    async with here.running():
        if how == "pending":
            here.put(network("a", "blue", "Failed"))
        elif how == "no network":
            here.storage.delete(NETWORKS, "a-kube-system", "blue")
        elif how == "label":
            here.put(service("a", "blue", "10.96.0.11", labels={keys.ARKTOS_NETWORK: "red"}))
        elif how == "unreadable":
            here.put({**service("a", "blue"), "spec": 7})
        elif how == "no owner":
            here.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a-kube-system"}})
        elif how == "unreadable namespace":
            found = namespace("a", "kube-system")
            found["metadata"]["annotations"] = 7
            here.put(found)
        else:
            here.put(namespace("a", "kube-system", called="other"))
        await asyncio.sleep(2 * HOLD_SECONDS)
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.11"], "")
        assert here.controller.pods.by_pod["a-shop", "web"].is_retained
        assert here.controller.pods.retention.revoked == {}


async def test_a_changed_label_revokes_no_address() -> None:
    """The Service that had the address counts, not the one that the label names now."""
    here = node()
    uid = here.put_pod("a", network="blue")
    async with here.running():
        here.put_pod("a", network="red")
        await asyncio.sleep(2 * HOLD_SECONDS)
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.11"], "")
        here.storage.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        await asyncio.sleep(REVOCATION_DELAY_S + 1)
        without_server(here.bridge.resolv_confs[uid])
        assert here.waits(uid).startswith("network blue has no DNS server")


async def test_a_providers_address_is_never_revoked() -> None:
    """It is not a cluster IP: the API server gives it to no Service."""
    here = node()
    here.put(network("a", "far", ipam="External", dns_service_ip="172.31.0.2"))
    uid = here.put_pod("a", network="far")
    async with here.running():
        assert here.servers(uid) == ["172.31.0.2"]
        here.put(network("a", "far", ipam="External"))
        await asyncio.sleep(2 * HOLD_SECONDS)
        assert (here.servers(uid), here.waits(uid)) == (["172.31.0.2"], "")
        # The address of the Service before the provider may be another tenant's now.
        here.put(network("a", "far", ipam="External"), service("a", "far", "10.96.0.13"))
        await asyncio.sleep(1)
        here.storage.delete(SERVICES, "a-kube-system", "kube-dns-far")
        await asyncio.sleep(REVOCATION_DELAY_S + 1)
        assert here.servers(uid) == []
        assert here.waits(uid)


async def relisted(
    here: SimulatedNode, *gone: str, resource: Resource = SERVICES, where: str = "a-kube-system"
) -> None:
    """These are gone after an outage of the API server, without a watch event."""
    here.transport.is_stalled = True
    await asyncio.sleep(200)
    for name in gone:
        here.storage.delete(resource, where, name)
    here.storage.compact()
    here.transport.is_stalled = False


async def test_an_outage_revokes_nothing_and_a_relist_does() -> None:
    here = node()
    uid, other = here.put_pod("a", network="blue"), here.put_pod("a", "other")
    async with here.running():
        await relisted(here, "kube-dns-blue")
        assert here.servers(uid) == ["10.96.0.11"]
        await asyncio.sleep(100)
        without_server(here.bridge.resolv_confs[uid])
        assert here.servers(other) == ["10.96.0.10"]


async def test_a_relist_without_servers_is_distrusted() -> None:
    here = node()
    uid, other = here.put_pod("a", network="blue"), here.put_pod("a", "other")
    async with here.running():
        await relisted(here, "kube-dns-blue", "kube-dns-default")
        await asyncio.sleep(HOLD_SECONDS / 2)
        for each in here.controller.pods.retention.revoked.values():
            assert not each.is_confirmed
        assert len(here.controller.pods.retention.revoked) == 2
        assert (here.servers(uid), here.servers(other)) == (["10.96.0.11"], ["10.96.0.10"])
        # One of them is back. The relist is trusted for the rest, after the delay.
        here.put(service("a", "default", "10.96.0.10"))
        await asyncio.sleep(REVOCATION_DELAY_S - 1)
        assert here.servers(uid) == ["10.96.0.11"]
        await asyncio.sleep(2)
        without_server(here.bridge.resolv_confs[uid])
        assert here.servers(other) == ["10.96.0.10"]


async def test_a_distrusted_relist_is_trusted_in_the_end() -> None:
    here = node()
    uid = here.put_pod("a", network="blue")
    async with here.running():
        await relisted(here, "kube-dns-blue", "kube-dns-default")
        await asyncio.sleep(HOLD_SECONDS + 100)
        without_server(here.bridge.resolv_confs[uid])


@pytest.mark.parametrize("is_namespace_first", [True, False])
async def test_a_deleted_namespace_has_no_services(is_namespace_first: bool) -> None:
    """Its deletion may arrive before that of its Services, which then are not watched any more."""
    here = node()
    uid, theirs = here.put_pod("a", network="blue"), here.put_pod("b")
    deletions = [(NAMESPACES, "", "a-kube-system"), (SERVICES, "a-kube-system", "kube-dns-blue")]
    async with here.running():
        for each in deletions if is_namespace_first else reversed(deletions):
            here.storage.delete(*each)
        await asyncio.sleep(REVOCATION_DELAY_S - 1)
        assert here.servers(uid) == ["10.96.0.11"]
        await asyncio.sleep(2)
        without_server(here.bridge.resolv_confs[uid])
        assert here.waits(uid) == "namespace kube-system does not exist in the super cluster (yet)"
        # It is there again, and its Services are not.
        here.put(namespace("a", "kube-system"))
        await asyncio.sleep(1)
        without_server(here.bridge.resolv_confs[uid])
        here.put(service("a", "blue", "10.96.0.12"))
        await asyncio.sleep(1)
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.12"], "")
        assert here.servers(theirs) == ["10.96.0.20"]


@pytest.mark.parametrize("gone", [["a-kube-system"], ["a-kube-system", "a-shop"]])
async def test_a_relist_without_the_namespace_is_distrusted(gone: list[str]) -> None:
    here = node()
    uid, theirs = here.put_pod("a", network="blue"), here.put_pod("b")
    async with here.running():
        await relisted(here, *gone, resource=NAMESPACES, where="")
        await is_revoked(here)
        await asyncio.sleep(HOLD_SECONDS - 2)
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.11"], "")
        await asyncio.sleep(3)
        without_server(here.bridge.resolv_confs[uid])
        assert here.waits(uid)
        assert here.servers(theirs) == ["10.96.0.20"]


@pytest.mark.parametrize("is_readable", [True, False])
async def test_a_namespace_that_is_back_ends_the_revocation(is_readable: bool) -> None:
    here = node()
    uid = here.put_pod("a", network="blue")
    async with here.running():
        await relisted(here, "a-kube-system", resource=NAMESPACES, where="")
        await is_revoked(here)
        back = namespace("a", "kube-system")
        if not is_readable:
            back["metadata"]["annotations"] = 7
        here.put(back)
        await asyncio.sleep(2 * HOLD_SECONDS)
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.11"], "")
        assert bool(here.controller.pods.retention.revoked) is not is_readable


async def test_a_deleted_pod_leaves_no_revocation() -> None:
    here = node()
    here.put_pod("a", network="blue")
    async with here.running():
        here.storage.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        await asyncio.sleep(REVOCATION_DELAY_S + 1)
        here.storage.delete(PODS, "a-shop", "web")
        await asyncio.sleep(3 * FORGET_S)
        retention = here.controller.pods.retention
        assert (retention.texts, retention.networks, retention.revocable, retention.revoked) == (
            {},
            {},
            {},
            {},
        )
        assert here.controller.pods.sandbox_networks.known == {}


async def is_revoked(here: SimulatedNode) -> None:
    for _ in range(300):
        if here.controller.pods.retention.revoked:
            return
        await asyncio.sleep(1)
    pytest.fail(f"nothing is revoked: {here.controller.pods.by_pod}")


@pytest.mark.parametrize("hold_s", [60.0, 1800.0])
async def test_hold_seconds_bounds_a_distrusted_relist(hold_s: float) -> None:
    """kubeproxy-ext has the same setting: guests keep a Service and its address for as long (decision 24)."""
    here = node(hold_s=hold_s)
    uid = here.put_pod("a", network="blue")
    async with here.running():
        await relisted(here, "kube-dns-blue", "kube-dns-default")
        await is_revoked(here)
        await asyncio.sleep(hold_s - 2)
        assert here.servers(uid) == ["10.96.0.11"]
        await asyncio.sleep(3)
        without_server(here.bridge.resolv_confs[uid])


async def test_hold_seconds_below_the_delay_removes_no_sooner() -> None:
    """A confirmed removal takes REVOCATION_DELAY_S; a distrusted one is never faster."""
    here = node(hold_s=0.0)
    uid = here.put_pod("a", network="blue")
    async with here.running():
        await relisted(here, "kube-dns-blue", "kube-dns-default")
        await is_revoked(here)
        await asyncio.sleep(REVOCATION_DELAY_S - 2)
        assert here.servers(uid) == ["10.96.0.11"]
        await asyncio.sleep(3)
        without_server(here.bridge.resolv_confs[uid])


@pytest.mark.parametrize("label", EXCLUDING_LABELS)
async def test_an_event_confirms_a_deletion_whatever_its_labels(label: str) -> None:
    """kubeproxy-ext does not list such a Service, but a pod's server it may be."""
    here = SimulatedNode()
    here.put(namespace("a", "shop"), namespace("a", "kube-system"), network("a", "blue"))
    here.put(service("a", "blue", "10.96.0.11", labels={keys.ARKTOS_NETWORK: "blue", label: "x"}))
    uid = here.put_pod("a", network="blue")
    async with here.running():
        assert here.servers(uid) == ["10.96.0.11"]
        here.storage.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        await asyncio.sleep(REVOCATION_DELAY_S + 1)
        without_server(here.bridge.resolv_confs[uid])


async def test_an_unreadable_namespace_is_deleted_by_its_event() -> None:
    here = node()
    uid = here.put_pod("a", network="blue")
    async with here.running():
        item = namespace("a", "kube-system")
        here.put({**item, "metadata": {**item["metadata"], "annotations": 7}})
        await asyncio.sleep(HOLD_SECONDS * 2)
        assert here.servers(uid) == ["10.96.0.11"]
        here.storage.delete(NAMESPACES, "", "a-kube-system")
        await asyncio.sleep(REVOCATION_DELAY_S + 1)
        without_server(here.bridge.resolv_confs[uid])


async def test_a_confirmed_deletion_outlasts_an_unreadable_pod() -> None:
    """Meanwhile no pod on the node was known to be the tenant's."""
    here = node()
    uid = here.put_pod("a", network="blue")
    async with here.running():
        item = pod("a", "web", network="blue", nodeName="n1", dnsPolicy=7)
        here.storage.put(PODS, {**item, "metadata": {**item["metadata"], "uid": uid}})
        await asyncio.sleep(1)
        here.storage.delete(NAMESPACES, "", "a-kube-system")
        await asyncio.sleep(1)
        assert here.put_pod("a", network="blue") == uid
        await asyncio.sleep(REVOCATION_DELAY_S + 1)
        without_server(here.bridge.resolv_confs[uid])


async def test_no_removal_is_announced_while_a_loss_is_unknown() -> None:
    before = node()
    uid = before.put_pod("a", network="blue")
    async with before.running():
        await relisted(before, "a-kube-system", resource=NAMESPACES, where="")
        await is_revoked(before)
        assert before.controller.pods.by_pod["a-shop", "web"].is_removal_scheduled
        saved = as_saved(before)
    here = node(before.storage)
    here.controller.restore(*saved)
    async with here.running():
        await asyncio.sleep(2 * HOLD_SECONDS)
        assert here.servers(uid) == ["10.96.0.11"]
        assert not here.controller.pods.by_pod["a-shop", "web"].is_removal_scheduled
