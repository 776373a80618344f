# SPDX-License-Identifier: Apache-2.0
"""The controller with its watches and session, in virtual time: what pods and guests get.

Revoked addresses, restarts, changed labels and too large objects have files of their own: test_sync_*.
"""

import asyncio

import pytest

from bridge_api.messages import ResultCode
from daemonkit.kube.resources import PODS, SERVICES
from dnsconfig.cluster.objects import NETWORKS
from dnsconfig.delivery.pod_resolvers import GRACE_S
from dnsconfig.delivery.withdrawals import FORGET_S
from dnsconfig.resolve.decision import node_dns_of
from dnsconfig.resolve.waiting import WaitReason
from tenancy import keys
from tests.unit.dnsconfig.objects import network, pod, service, tenant
from tests.unit.dnsconfig.two_tenants import node

pytestmark = pytest.mark.asyncio


async def test_unsynced_data_is_not_reported_at_once() -> None:
    here = node()
    uid = here.put_pod("a")
    async with here.running():
        assert here.servers(uid) == ["10.96.0.10"]
        (request,) = here.bridge.resolv_conf_requests
        assert (request.guest, request.pod_uid, request.wait_message) == ("", uid, "")


async def test_unsynced_data_is_reported_after_grace_s() -> None:
    here = node()
    uid = here.put_pod("a")
    here.transport.is_stalled = True
    here.bridge.add("g1", "a", "a-shop/web")
    async with here.running(GRACE_S / 2):
        assert here.bridge.resolv_conf_requests == []
        await asyncio.sleep(GRACE_S)
        assert here.waits("g1") == "this node's pods are not synced with the API server yet"
        here.transport.is_stalled = False
        await asyncio.sleep(200)
        assert here.servers("g1") == ["10.96.0.10"]
        assert here.waits("g1") == ""
        assert uid not in here.bridge.resolv_confs


@pytest.mark.parametrize("how", ["gone", "pending", "no server", "foreign"])
async def test_a_pod_retains_its_resolver(how: str) -> None:
    here = node()
    uid = here.put_pod("a", network="blue")
    async with here.running():
        sent = len(here.bridge.resolv_conf_requests)
        if how == "gone":
            here.storage.delete(NETWORKS, "a-kube-system", "blue")
        elif how == "pending":
            here.put(network("a", "blue", "Failed"))
        elif how == "no server":
            here.put(service("a", "blue"))
        else:
            here.put(service("a", "blue", "6.6.6.6", annotations={keys.CLUSTER: "b"}))
        late = here.put_pod("a", "late", network="blue")
        await asyncio.sleep(1)
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.11"], "")
        assert (here.servers(late), bool(here.waits(late))) == ([], True)
        assert len(here.bridge.resolv_conf_requests) == sent + 1
        assert here.controller.pods.by_pod["a-shop", "web"].is_retained
        # Also after a restart of kata-bridge, and in another sandbox of the pod.
        here.bridge.lose_state()
        await asyncio.sleep(1)
        here.bridge.add("g1", "a", "a-shop/web", uid=uid, networks=("blue",))
        await asyncio.sleep(1)
        assert here.bridge.resolv_conf_requests[-1].guest == "g1"
        assert here.servers(uid) == ["10.96.0.11"]
        # With the network back it gets the current server.
        here.put(network("a", "blue"), service("a", "blue", "10.96.0.12"))
        await asyncio.sleep(1)
        assert here.servers(uid) == here.servers(late) == ["10.96.0.12"]


async def test_a_recreated_pod_retains_nothing() -> None:
    here = node()
    uid = here.put_pod("a", network="blue")
    async with here.running():
        here.storage.delete(PODS, "a-shop", "web")
        here.storage.delete(NETWORKS, "a-kube-system", "blue")
        again = here.put_pod("a", network="blue")
        await asyncio.sleep(1)
        assert again != uid
        assert (here.servers(again), here.waits(again)) == ([], "network blue does not exist")


async def test_readiness_annotation_blocks_and_unblocks() -> None:
    here = node()
    uid = here.put_pod("a", network="blue", annotations={keys.NETWORK_READINESS: "true"})
    async with here.running():
        here.storage.delete(NETWORKS, "a-kube-system", "blue")
        here.put_pod("a", network="blue", annotations={keys.NETWORK_READINESS: "false"})
        await asyncio.sleep(1)
        assert here.servers(uid) == ["10.96.0.11"]
        assert "network-readiness" in here.waits(uid)
        assert here.controller.wait_reasons() == [WaitReason.READINESS_ANNOTATION]
        here.put_pod("a", network="blue", annotations={keys.NETWORK_READINESS: "true"})
        await asyncio.sleep(1)
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.11"], "")


async def test_a_deleted_pod_is_withdrawn_after_forget_s() -> None:
    here = node()
    ours, waiting = here.put_pod("a"), here.put_pod("a", "late", network="red")
    async with here.running():
        here.storage.delete(PODS, "a-shop", "web")
        here.storage.delete(PODS, "a-shop", "late")
        await asyncio.sleep(FORGET_S / 2)
        assert here.servers(ours) == ["10.96.0.10"]
        await asyncio.sleep(FORGET_S)
        for uid in (ours, waiting):
            assert uid not in here.bridge.resolvers
            assert [each.pod_uid for each in here.bridge.resolv_conf_requests].count(uid) == 2
        assert here.controller.pods.retention.texts == {}
        await asyncio.sleep(3 * FORGET_S)
        assert len(here.bridge.resolv_conf_requests) == 4
        assert here.controller.delivery.statuses == {}


async def test_an_empty_relist_takes_no_resolver() -> None:
    here = node()
    uid = here.put_pod("a")
    async with here.running():
        sent = len(here.bridge.resolv_conf_requests)
        here.bridge.add("g1", "a", "a-shop/web", uid=uid)
        await asyncio.sleep(1)
        here.storage.delete(PODS, "a-shop", "web")
        here.storage.delete(SERVICES, "a-kube-system", "kube-dns-default")
        here.storage.compact()
        await asyncio.sleep(60)
        assert here.servers(uid) == ["10.96.0.10"]
        assert here.waits(uid) == ""
        assert len(here.bridge.resolv_conf_requests) == sent + 1


async def test_the_newest_guest_of_a_pod_gets_its_resolver() -> None:
    here = node()
    uid = here.put_pod("a")
    here.put_pod("b", "job", labels={})
    here.storage.put(PODS, pod("b", "done", nodeName="n1") | {"status": {"phase": "Succeeded"}})
    async with here.running():
        # An older sandbox of the same pod, one of a deleted pod, one of the super cluster.
        here.bridge.add("old", "a", "a-shop/web", uid=uid)
        here.bridge.add("new", "a", "a-shop/web", uid=uid)
        here.bridge.add("past", "a", "a-shop/web", uid="another")
        here.bridge.add("host", "", "kube-system/proxy")
        here.bridge.add("over", "b", "b-shop/done")
        await asyncio.sleep(2 * GRACE_S)
        submitted = {each.guest: each.wait_message for each in here.bridge.resolv_conf_requests if each.guest}
        assert submitted == {"new": "", "past": "the API server has another pod of this name on this node"}
        here.bridge.remove("new")
        await asyncio.sleep(1)
        assert here.bridge.resolv_conf_requests[-1].guest == "old"


async def test_an_unreadable_object_is_not_missing() -> None:
    here = node()
    here.storage.put(PODS, pod("a", nodeName="n1", dnsPolicy=7))
    here.bridge.add("g1", "a", "a-shop/web-0")
    here.put({**network("a", "blue"), "status": 7})
    uid = here.put_pod("a", "other", network="blue")
    async with here.running(2 * GRACE_S):
        assert here.waits("g1").startswith("the pod's object cannot be read: Expected `str`")
        assert here.waits(uid).startswith("Network blue cannot be read: Expected `object | null`")


async def test_an_event_is_recorded_once_for_its_text() -> None:
    here = node()
    searches = [f"s{number}" for number in range(40)]
    uid = here.put_pod("a", dnsConfig={"searches": searches})
    async with here.running():
        assert [(name, event.reason) for name, event in here.events] == [("web", "DNSConfigForming")]
        here.put(service("a", "default", "10.96.0.99"))
        await asyncio.sleep(1)
        assert len(here.events) == 1
        here.put_pod("a", dnsConfig={"searches": [*searches[1:], "other"]})
        await asyncio.sleep(1)
        assert len(here.events) == 2
        assert here.servers(uid) == ["10.96.0.99"]


async def test_an_empty_text_is_submitted_as_a_line_feed() -> None:
    here = node()
    here.host = node_dns_of("# nothing\n")
    uid = here.put_pod("a", dnsPolicy="Default")
    async with here.running():
        assert here.bridge.resolv_confs[uid] == "\n"
        here.host = node_dns_of("nameserver 192.0.2.9\n")
        here.woken.set()
        await asyncio.sleep(1)
        assert here.servers(uid) == ["192.0.2.9"]


async def test_refused_resolvers_are_retried_for_many_pods() -> None:
    here = node()
    pods = [here.put_pod("a", f"web-{number}") for number in range(60)]
    here.bridge.next_resolv_conf_results = [(ResultCode.REFUSED, "no")] * 20
    here.bridge.delay_s = 0.01
    async with here.running(5):
        assert all(here.servers(uid) == ["10.96.0.10"] for uid in pods)
        assert here.metrics.pushes.labels("refused").value == 20
        assert here.controller.pods.by_pod["a-shop", "web-0"].decision.waiting is None


async def test_one_tenants_change_submits_nothing_for_another() -> None:
    here = node()
    ours, theirs = here.put_pod("a"), here.put_pod("b")
    async with here.running():
        sent = [each for each in here.bridge.resolv_conf_requests if each.pod_uid == ours]
        here.put(service("b", "default", "10.96.0.99"), network("b", "x"), *tenant("c", default="10.9.9.9"))
        await asyncio.sleep(1)
        assert here.servers(theirs) == ["10.96.0.99"]
        assert [each for each in here.bridge.resolv_conf_requests if each.pod_uid == ours] == sent


async def test_a_static_pod_waits_with_an_explanation() -> None:
    here = node()
    here.put_pod("a", annotations={"kubernetes.io/config.mirror": "c0ffee"})
    async with here.running():
        here.bridge.add("g1", "a", "a-shop/web", uid="c0ffee")
        await asyncio.sleep(2 * GRACE_S)
        assert here.waits("c0ffee").startswith("it is a static pod, of a file on the node")
        assert here.servers("c0ffee") == []
