# SPDX-License-Identifier: Apache-2.0
"""The engine with its watch and connection, in virtual time."""

import asyncio

import pytest

from daemonkit.kube.resources import NAMESPACES, PODS, SERVICES
from daemonkit.testing.kube_storage import Storage
from dnsconfig.attachments import Attachments
from dnsconfig.core.decision import node_of
from dnsconfig.core.waits import Cause
from dnsconfig.core.wire import NETWORKS
from dnsconfig.delivery import Wanted
from dnsconfig.engine import FORGET_S, GRACE_S
from dnsconfig.keeping import HOLD_S, LOSS_S, Keeping
from dnsconfig.picture import Picture
from dnsconfig.saved_state import Restored, attachments_of, keeping_of, picture_of, state_of
from kata_bridge.api.messages import ResultCode
from tenancy import keys
from tests.unit.dnsconfig.node import Node
from tests.unit.dnsconfig.objects import namespace, network, pod, service, tenant

pytestmark = pytest.mark.asyncio


def node(storage: Storage | None = None) -> Node:
    made = Node(storage)
    if storage is None:
        made.put(*tenant("a", default="10.96.0.10", blue="10.96.0.11"), *tenant("b", default="10.96.0.20"))
    return made


async def test_what_is_on_its_way_is_told_to_nobody() -> None:
    here = node()
    uid = here.put_pod("a")
    async with here.running():
        assert here.servers(uid) == ["10.96.0.10"]
        (request,) = here.bridge.received
        assert (request.guest, request.pod_uid, request.waits) == ("", uid, "")


async def test_what_stays_unknown_is_told_after_a_moment() -> None:
    here = node()
    uid = here.put_pod("a")
    here.transport.is_stalled = True
    here.bridge.add("g1", "a", "a-shop/web")
    async with here.running(GRACE_S / 2):
        assert here.bridge.received == []
        await asyncio.sleep(GRACE_S)
        assert here.waits("g1") == "the API server has not told of this node's pods yet"
        here.transport.is_stalled = False
        await asyncio.sleep(200)
        assert here.servers("g1") == ["10.96.0.10"]
        assert here.waits("g1") == ""
        assert uid not in here.bridge.texts


@pytest.mark.parametrize("how", ["gone", "pending", "no server", "foreign"])
async def test_who_has_a_resolver_keeps_it(how: str) -> None:
    here = node()
    uid = here.put_pod("a", network="blue")
    async with here.running():
        sent = len(here.bridge.received)
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
        assert len(here.bridge.received) == sent + 1
        assert here.engine.pods["a-shop", "web"].is_kept
        # Also when the bridge is made anew, and when the pod gets another sandbox.
        here.bridge.forget_everything()
        await asyncio.sleep(1)
        here.bridge.add("g1", "a", "a-shop/web", uid=uid)
        await asyncio.sleep(1)
        assert here.bridge.received[-1].guest == "g1"
        assert here.servers(uid) == ["10.96.0.11"]
        # And when all is well again it gets what is then.
        here.put(network("a", "blue"), service("a", "blue", "10.96.0.12"))
        await asyncio.sleep(1)
        assert here.servers(uid) == here.servers(late) == ["10.96.0.12"]


async def test_a_pod_that_is_made_anew_under_its_name_keeps_nothing() -> None:
    here = node()
    uid = here.put_pod("a", network="blue")
    async with here.running():
        here.storage.delete(PODS, "a-shop", "web")
        here.storage.delete(NETWORKS, "a-kube-system", "blue")
        again = here.put_pod("a", network="blue")
        await asyncio.sleep(1)
        assert again != uid
        assert (here.servers(again), here.waits(again)) == ([], "network blue does not exist")


async def test_the_readiness_annotation_holds_also_who_keeps() -> None:
    here = node()
    uid = here.put_pod("a", network="blue", annotations={keys.NETWORK_READINESS: "true"})
    async with here.running():
        here.storage.delete(NETWORKS, "a-kube-system", "blue")
        here.put_pod("a", network="blue", annotations={keys.NETWORK_READINESS: "false"})
        await asyncio.sleep(1)
        assert here.servers(uid) == ["10.96.0.11"]
        assert "network-readiness" in here.waits(uid)
        assert here.engine.causes() == [Cause.HELD]


async def test_a_deleted_pod_is_withdrawn_when_it_has_been_gone_for_long() -> None:
    here = node()
    ours, waiting = here.put_pod("a"), here.put_pod("a", "late", network="red")
    async with here.running():
        here.storage.delete(PODS, "a-shop", "web")
        here.storage.delete(PODS, "a-shop", "late")
        await asyncio.sleep(FORGET_S / 2)
        assert here.servers(ours) == ["10.96.0.10"]
        await asyncio.sleep(FORGET_S)
        for uid in (ours, waiting):
            assert (here.bridge.texts[uid], here.waits(uid)) == ("", "")
            assert [each.pod_uid for each in here.bridge.received].count(uid) == 2
        assert here.engine.keeping.given == {}
        await asyncio.sleep(3 * FORGET_S)
        assert len(here.bridge.received) == 4
        assert here.engine.delivery.standings == {}


async def test_a_list_that_lacks_everything_takes_nothing_from_who_runs() -> None:
    here = node()
    uid = here.put_pod("a")
    async with here.running():
        sent = len(here.bridge.received)
        here.bridge.add("g1", "a", "a-shop/web", uid=uid)
        await asyncio.sleep(1)
        here.storage.delete(PODS, "a-shop", "web")
        here.storage.delete(SERVICES, "a-kube-system", "kube-dns-default")
        here.storage.compact()
        await asyncio.sleep(60)
        assert here.servers(uid) == ["10.96.0.10"]
        assert here.waits(uid) == ""
        assert len(here.bridge.received) == sent + 1


def without_server(uid_text: str) -> None:
    """A text with a line that says why, and with no server."""
    assert uid_text == (
        "# The DNS server of network blue (Service kube-system/kube-dns-blue) is gone, "
        "and its address may be somebody else's by now.\n"
        "search shop.svc.cluster.local svc.cluster.local cluster.local\n"
        "options ndots:5\n"
    )


@pytest.mark.parametrize("how", ["deleted", "headless", "external name", "another's", "with the network"])
async def test_an_address_that_is_given_up_is_taken_from_who_has_it(how: str) -> None:
    here = node()
    uid, theirs = here.put_pod("a", network="blue"), here.put_pod("b")
    async with here.running():
        sent = len(here.bridge.received)
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
        await asyncio.sleep(LOSS_S - 1)
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.11"], "")
        assert len(here.bridge.received) == sent
        state = here.engine.pods["a-shop", "web"]
        assert state.is_kept
        assert not state.has_lost
        await asyncio.sleep(2)
        without_server(here.bridge.texts[uid])
        state = here.engine.pods["a-shop", "web"]
        assert state.has_lost
        assert not state.is_kept
        assert here.waits(uid)
        assert here.waits(uid) == (state.decision.waits and state.decision.waits.reason)
        assert len(here.bridge.received) == sent + 1
        # Nothing brings it back but an address: not a bridge that is made anew, nor what is unknown.
        here.bridge.forget_everything()
        await asyncio.sleep(1)
        without_server(here.bridge.texts[uid])
        here.put({**service("a", "blue"), "spec": 7})
        await asyncio.sleep(1)
        without_server(here.bridge.texts[uid])
        assert here.waits(uid).startswith(
            ("Service kube-system/kube-dns-blue cannot be read", "network blue")
        )
        here.put(network("a", "blue"), service("a", "blue", "10.96.0.12"))
        await asyncio.sleep(1)
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.12"], "")
        assert here.engine.keeping.losses == {}
        assert here.servers(theirs) == ["10.96.0.20"]


async def test_a_service_that_is_made_again_changes_the_file_once() -> None:
    here = node()
    uid = here.put_pod("a", network="blue")
    async with here.running():
        sent = len(here.bridge.received)
        for address in ("10.96.0.11", "10.96.0.12"):
            here.storage.delete(SERVICES, "a-kube-system", "kube-dns-blue")
            await asyncio.sleep(LOSS_S - 1)
            here.put(service("a", "blue", address))
            await asyncio.sleep(1)
        await asyncio.sleep(2 * LOSS_S)
        assert here.servers(uid) == ["10.96.0.12"]
        assert len(here.bridge.received) == sent + 1


async def test_who_starts_again_without_its_server_waits_and_who_brings_its_own_keeps_that() -> None:
    here = node()
    own = {"nameservers": ["192.0.2.53", "192.0.2.54", "192.0.2.55"]}
    uid = here.put_pod("a", network="blue", dnsConfig=own)
    host = here.put_pod("a", "host", network="blue", hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet")
    none = here.put_pod("a", "none", network="blue", dnsPolicy="None", dnsConfig=own)
    async with here.running():
        assert here.servers(uid) == ["10.96.0.11", "192.0.2.53", "192.0.2.54"]
        here.storage.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        await asyncio.sleep(LOSS_S + 1)
        assert here.servers(uid) == ["192.0.2.53", "192.0.2.54"]
        # Without any server it would ask the host itself.
        assert here.servers(host) == ["100::1"]
        assert here.waits(uid) == here.waits(host) != ""
        assert (here.servers(none), here.waits(none)) == (own["nameservers"], "")
        # Another sandbox of the same pod finds the same.
        here.bridge.add("g1", "a", "a-shop/web", uid=uid)
        await asyncio.sleep(1)
        assert here.bridge.received[-1].guest == "g1"
        assert here.bridge.received[-1].waits == here.waits(uid) != ""
        assert here.servers(uid) == ["192.0.2.53", "192.0.2.54"]


@pytest.mark.parametrize("how", ["pending", "no network", "label", "unreadable", "namespace", "two places"])
async def test_an_address_that_its_service_holds_is_left_to_who_has_it(how: str) -> None:
    """Also where nobody can say whether it does."""
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
        elif how == "namespace":
            here.storage.delete(NAMESPACES, "", "a-kube-system")
        else:
            here.put(namespace("a", "kube-system", called="other"))
        await asyncio.sleep(2 * HOLD_S)
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.11"], "")
        assert here.engine.pods["a-shop", "web"].is_kept
        assert here.engine.keeping.losses == {}


async def test_a_label_that_is_changed_makes_no_address_anothers() -> None:
    """What counts is the Service that had the address, not the one that the label names now."""
    here = node()
    uid = here.put_pod("a", network="blue")
    async with here.running():
        here.put_pod("a", network="red")
        await asyncio.sleep(2 * HOLD_S)
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.11"], "")
        here.storage.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        await asyncio.sleep(LOSS_S + 1)
        without_server(here.bridge.texts[uid])
        assert here.waits(uid).startswith("network blue has no DNS server")


async def test_a_providers_address_is_left_to_who_has_it() -> None:
    """The API server gives it to nobody."""
    here = node()
    here.put(network("a", "far", ipam="External", told_ip="172.31.0.2"))
    uid = here.put_pod("a", network="far")
    async with here.running():
        assert here.servers(uid) == ["172.31.0.2"]
        here.put(network("a", "far", ipam="External"))
        await asyncio.sleep(2 * HOLD_S)
        assert (here.servers(uid), here.waits(uid)) == (["172.31.0.2"], "")
        # Before a provider there was a Service: that one's address can be anybody's.
        here.put(network("a", "far", ipam="External"), service("a", "far", "10.96.0.13"))
        await asyncio.sleep(1)
        here.storage.delete(SERVICES, "a-kube-system", "kube-dns-far")
        await asyncio.sleep(LOSS_S + 1)
        assert here.servers(uid) == []
        assert here.waits(uid)


async def relisted(here: Node, *gone: str) -> None:
    """These are gone when the API server is there again, and no event ever said so."""
    here.transport.is_stalled = True
    await asyncio.sleep(200)
    for name in gone:
        here.storage.delete(SERVICES, "a-kube-system", name)
    here.storage.compact()
    here.transport.is_stalled = False


async def test_the_api_servers_silence_takes_nothing_and_a_list_that_lacks_one_does() -> None:
    here = node()
    uid, other = here.put_pod("a", network="blue"), here.put_pod("a", "other")
    async with here.running():
        await relisted(here, "kube-dns-blue")
        assert here.servers(uid) == ["10.96.0.11"]
        await asyncio.sleep(100)
        without_server(here.bridge.texts[uid])
        assert here.servers(other) == ["10.96.0.10"]


async def test_a_list_without_any_server_is_held_back_for_long() -> None:
    here = node()
    uid, other = here.put_pod("a", network="blue"), here.put_pod("a", "other")
    async with here.running():
        await relisted(here, "kube-dns-blue", "kube-dns-default")
        await asyncio.sleep(HOLD_S / 2)
        for each in here.engine.keeping.losses.values():
            assert not each.is_told
        assert len(here.engine.keeping.losses) == 2
        assert (here.servers(uid), here.servers(other)) == (["10.96.0.11"], ["10.96.0.10"])
        # They come back one by one; then the list is believed in the rest as well, after the same moment.
        here.put(service("a", "default", "10.96.0.10"))
        await asyncio.sleep(LOSS_S - 1)
        assert here.servers(uid) == ["10.96.0.11"]
        await asyncio.sleep(2)
        without_server(here.bridge.texts[uid])
        assert here.servers(other) == ["10.96.0.10"]


async def test_a_list_without_any_server_is_believed_in_the_end() -> None:
    here = node()
    uid = here.put_pod("a", network="blue")
    async with here.running():
        await relisted(here, "kube-dns-blue", "kube-dns-default")
        await asyncio.sleep(HOLD_S + 100)
        without_server(here.bridge.texts[uid])


def as_saved(before: Node, now: float) -> tuple[Picture, Keeping, Attachments]:
    """What the next one finds on disk."""
    engine = before.engine
    state = state_of(engine.picture, engine.keeping, engine.attachments, 0.0)
    restored = Restored(
        picture_of(state),
        state.given,
        0.0,
        state.origins,
        state.losses,
        state.given_networks,
        state.attachments,
    )
    return restored.picture, keeping_of(restored, 0.0, now), attachments_of(restored)


@pytest.mark.parametrize("has_lost", [False, True])
async def test_a_restart_in_the_middle(has_lost: bool) -> None:
    """All Services of the tenant are deleted, so that the list after it has none and says nothing."""
    before = node()
    uid = before.put_pod("a", network="blue")
    async with before.running():
        before.storage.delete(SERVICES, "a-kube-system", "kube-dns-default")
        before.storage.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        await asyncio.sleep(LOSS_S + (1 if has_lost else -5))
        picture, keeping, attachments = as_saved(before, before.clock())
    here = node(before.storage)
    here.engine.restore(picture, keeping, attachments)
    async with here.running():
        if not has_lost:
            assert here.servers(uid) == ["10.96.0.11"]
            await asyncio.sleep(5)
        without_server(here.bridge.texts[uid])
        assert not any("10.96.0.11" in each.text for each in here.bridge.received) or not has_lost
        here.put(service("a", "blue", "10.96.0.12"))
        await asyncio.sleep(1)
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.12"], "")


async def test_a_restart_without_the_api_server_gives_nothing_back_and_takes_nothing_new() -> None:
    before = node()
    uid = before.put_pod("a", network="blue")
    async with before.running():
        before.storage.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        await asyncio.sleep(LOSS_S + 1)
        picture, keeping, attachments = as_saved(before, before.clock())
    for known in (picture, Picture()):
        here = node(before.storage)
        here.transport.is_stalled = True
        here.engine.restore(known, keeping, attachments)
        async with here.running(2 * LOSS_S):
            assert not any("10.96.0.11" in each.text for each in here.bridge.received)
            if known == picture:
                without_server(here.bridge.texts[uid])
                assert here.waits(uid)
    # What only was not there when it was saved is unknown.
    here = node(before.storage)
    here.transport.is_stalled = True
    keeping.losses.clear()
    here.engine.restore(picture, keeping, attachments)
    async with here.running(2 * HOLD_S):
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.11"], "")


async def test_a_pod_that_is_gone_leaves_nothing_of_what_it_lost() -> None:
    here = node()
    here.put_pod("a", network="blue")
    async with here.running():
        here.storage.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        await asyncio.sleep(LOSS_S + 1)
        here.storage.delete(PODS, "a-shop", "web")
        await asyncio.sleep(3 * FORGET_S)
        keeping = here.engine.keeping
        assert (keeping.given, keeping.networks, keeping.origins, keeping.losses) == ({}, {}, {}, {})
        assert here.engine.attachments.known == {}


async def test_guests_and_their_pods() -> None:
    here = node()
    uid = here.put_pod("a")
    here.put_pod("b", "job", labels={})
    here.storage.put(PODS, pod("b", "done", nodeName="n1") | {"status": {"phase": "Succeeded"}})
    async with here.running():
        # An older sandbox of the same pod, one of a pod of the past, one that is nobody's.
        here.bridge.add("old", "a", "a-shop/web", uid=uid)
        here.bridge.add("new", "a", "a-shop/web", uid=uid)
        here.bridge.add("past", "a", "a-shop/web", uid="another")
        here.bridge.add("host", "", "kube-system/proxy")
        here.bridge.add("over", "b", "b-shop/done")
        await asyncio.sleep(2 * GRACE_S)
        told = {each.guest: each.waits for each in here.bridge.received if each.guest}
        assert told == {"new": "", "past": "the API server has another pod of this name on this node by now"}
        here.bridge.remove("new")
        await asyncio.sleep(1)
        assert here.bridge.received[-1].guest == "old"


async def test_a_label_that_is_changed_moves_no_guest_to_another_network() -> None:
    """Its sandbox is attached, and its guest has the Services, as the label was when it was made."""
    here = node()
    uid = here.put_pod("a", network="blue")
    async with here.running():
        here.bridge.add("g1", "a", "a-shop/web", uid=uid, networks=("blue",))
        await asyncio.sleep(1)
        here.put_pod("a", network="default")
        await asyncio.sleep(1)
        assert here.servers(uid) == ["10.96.0.11"]
        decision = here.engine.pods["a-shop", "web"].decision
        assert decision.network is not None
        assert decision.network.network == "blue"
        assert "sandbox" in decision.network.source
        # Nor while kata-bridge is away, or has told of a few of its guests only.
        here.engine.lost()
        here.engine.turn()
        assert "10.96.0.11" in here.engine.pods["a-shop", "web"].wanted.text
        here.bridge.forget_everything()
        await asyncio.sleep(1)
        # The next sandbox is attached by the label of now.
        here.bridge.remove("g1")
        here.bridge.add("g2", "a", "a-shop/web", uid=uid, networks=("default",))
        await asyncio.sleep(1)
        assert here.servers(uid) == ["10.96.0.10"]


async def test_an_object_that_cannot_be_read_is_not_a_missing_one() -> None:
    here = node()
    here.storage.put(PODS, pod("a", nodeName="n1", dnsPolicy=7))
    here.bridge.add("g1", "a", "a-shop/web-0")
    here.put({**network("a", "blue"), "status": 7})
    uid = here.put_pod("a", "other", network="blue")
    async with here.running(2 * GRACE_S):
        assert here.waits("g1").startswith("the pod's object cannot be read: Expected `str`")
        assert here.waits(uid).startswith("Network blue cannot be read: Expected `object | null`")


async def test_events_are_told_once() -> None:
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


async def test_an_empty_file_is_one_all_the_same() -> None:
    here = node()
    here.host = node_of("# nothing\n")
    uid = here.put_pod("a", dnsPolicy="Default")
    async with here.running():
        assert here.bridge.texts[uid] == "\n"
        here.host = node_of("nameserver 192.0.2.9\n")
        here.woken.set()
        await asyncio.sleep(1)
        assert here.servers(uid) == ["192.0.2.9"]


async def test_saved_state_counts_until_all_has_been_heard() -> None:
    before = node()
    uid = before.put_pod("a", network="blue")
    async with before.running():
        picture, keeping, attachments = as_saved(before, before.clock())
    here = node(before.storage)
    here.transport.is_stalled = True
    here.engine.restore(picture, keeping, attachments)
    async with here.running():
        assert here.servers(uid) == ["10.96.0.11"]
        assert here.engine.is_restored
        here.put(service("a", "blue", "10.96.0.77"))
        here.transport.is_stalled = False
        await asyncio.sleep(200)
        assert here.servers(uid) == ["10.96.0.77"]
        assert not here.engine.is_restored


async def test_what_pods_were_given_counts_without_any_picture() -> None:
    here = node()
    uid = here.put_pod("a", network="red")
    keeping = Keeping()
    keeping.remember(uid, Wanted("nameserver 10.0.0.1\n", networks=("red",)))
    here.engine.restore(Picture(), keeping, Attachments())
    async with here.running():
        assert here.servers(uid) == ["10.0.0.1"]
        assert here.waits(uid) == ""


async def test_many_pods_at_once_and_a_bridge_that_refuses_some() -> None:
    here = node()
    pods = [here.put_pod("a", f"web-{number}") for number in range(60)]
    here.bridge.refusals = [(ResultCode.REFUSED, "no")] * 20
    here.bridge.delay_s = 0.01
    async with here.running(5):
        assert all(here.servers(uid) == ["10.96.0.10"] for uid in pods)
        assert here.metrics.pushes.labels("refused").value == 20
        assert here.engine.pods["a-shop", "web-0"].decision.waits is None


async def test_one_tenants_changes_send_another_nothing() -> None:
    here = node()
    ours, theirs = here.put_pod("a"), here.put_pod("b")
    async with here.running():
        sent = [each for each in here.bridge.received if each.pod_uid == ours]
        here.put(service("b", "default", "10.96.0.99"), network("b", "x"), *tenant("c", default="10.9.9.9"))
        await asyncio.sleep(1)
        assert here.servers(theirs) == ["10.96.0.99"]
        assert [each for each in here.bridge.received if each.pod_uid == ours] == sent


async def test_what_was_saved_counts_no_longer_than_it_is_good() -> None:
    before = node()
    uid, waiting = before.put_pod("a", network="blue"), before.put_pod("a", "late", network="red")
    async with before.running():
        saved = as_saved(before, before.clock())
    here = node(before.storage)
    here.transport.is_stalled = True
    here.engine.restore(*saved, here.clock() + 600.0)
    async with here.running(599.0):
        assert here.engine.is_restored
        assert (here.servers(uid), here.waits(waiting)) == (["10.96.0.11"], "network red does not exist")
        await asyncio.sleep(2)
        assert here.engine.picture == Picture()
        assert here.engine.pods == {}
        # Who has been given something keeps that, as when the API server falls silent later.
        here.bridge.add("g1", "a", "a-shop/web", uid=uid, networks=("blue",))
        here.bridge.add("g2", "a", "a-shop/late", uid=waiting, networks=("red",))
        await asyncio.sleep(2 * GRACE_S)
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.11"], "")
        assert here.waits(waiting) == "the API server has not told of this node's pods yet"


async def test_a_static_pod_is_told_what_it_is() -> None:
    here = node()
    here.put_pod("a", annotations={"kubernetes.io/config.mirror": "c0ffee"})
    async with here.running():
        here.bridge.add("g1", "a", "a-shop/web", uid="c0ffee")
        await asyncio.sleep(2 * GRACE_S)
        assert here.waits("c0ffee").startswith("it is a static pod, of a file on the node")
        assert here.servers("c0ffee") == []
