# SPDX-License-Identifier: Apache-2.0
"""The real daemon between a stand-in API server over TLS and a stand-in kata-bridge over gRPC."""

import asyncio
import functools
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from daemonkit.kube.resources import PODS, SERVICES, Resource
from daemonkit.testing.kube_storage import Selection
from dnsconfig.core.wire import NETWORKS
from dnsconfig.keeping import LOSS_S
from kata_bridge.api.messages import ResultCode
from tenancy import keys
from tests.functional.daemon_node import DEADLINE_S, NAME, running
from tests.functional.dnsconfig.node import Node
from tests.unit.dnsconfig.objects import network, service, tenant, virtual_cluster

pytestmark = pytest.mark.asyncio

EVENTS = Resource("", "v1", "events")
# Of a node with a pod that has its resolver and one that waits for its network.
EXPECTED = {
    'vcnode_dns_pods{state="current"} 2.0',
    'vcnode_dns_waiting_pods{cause="missing"} 1.0',
    'vcnode_pushes_total{result="applied"} 2',
    "vcnode_bridge_connected 1.0",
    "vcnode_dns_kept_pods 0",
    "vcnode_dns_lost_pods 0",
}


def node(directory: Path, **settings: object) -> Node:
    made = Node(directory, settings)
    made.put(
        *tenant("a", default="10.96.0.10", blue="10.96.0.11"),
        *tenant("b", default="10.96.0.20", blue="10.96.0.21"),
        virtual_cluster("b", "b.example"),
    )
    return made


def events(here: Node) -> list[dict[str, Any]]:
    return here.apiserver.storage.select(Selection(EVENTS))


async def test_pods_get_the_server_of_their_own_network_before_there_is_a_sandbox(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        pods = {
            (key, name): here.put_pod(key, f"{name}-0", network=name)
            for key in ("a", "b")
            for name in ("default", "blue")
        }
        await here.until(lambda: all(here.text(uid) for uid in pods.values()))
        assert {where: here.servers(uid) for where, uid in pods.items()} == {
            ("a", "default"): ["10.96.0.10"],
            ("a", "blue"): ["10.96.0.11"],
            ("b", "default"): ["10.96.0.20"],
            ("b", "blue"): ["10.96.0.21"],
        }
        assert here.text(pods["b", "blue"]) == (
            "search shop.svc.b.example svc.b.example b.example example.org\n"
            "nameserver 10.96.0.21\n"
            "options ndots:5\n"
        )
        await here.until(here.is_ready)
        status = await here.status()
        assert (status["daemon"], status["nodeName"], status["watches"]) == ("dnsconfig", NAME, 3 + 2 * 2)

        async def are_current() -> bool:
            return [pod["state"] for pod in (await here.status())["pods"]] == ["current"] * 4

        await here.until(are_current)
        assert len(here.bridge.received) == 4
        assert await here.stop() == 0


async def test_an_address_that_changes_is_rewritten_and_nothing_else(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        ours, theirs = here.put_pod("a", "web", network="blue"), here.put_pod("b", "web", network="blue")
        await here.until(lambda: here.text(ours) and here.text(theirs))
        sent = len(here.bridge.received)
        here.put(service("a", "blue", "10.96.0.99"))
        await here.until(lambda: here.servers(ours) == ["10.96.0.99"])
        # By way of a moment without any: what runs keeps the last.
        here.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        await here.until(lambda: here.log.read_text().count("a pod keeps its resolver") == 1)
        assert here.servers(ours) == ["10.96.0.99"]
        assert here.waits(ours) == ""
        here.put(service("a", "blue", "10.96.0.98"))
        await here.until(lambda: here.servers(ours) == ["10.96.0.98"])
        assert len(here.bridge.received) == sent + 2
        assert here.servers(theirs) == ["10.96.0.21"]


async def test_an_address_that_is_given_up_is_taken_from_who_has_it(tmp_path: Path) -> None:
    """Some 15 s later, also when the daemon ends on the way; and nothing but an address gives one back."""
    async with running(node(tmp_path)) as here:
        ours, theirs = here.put_pod("a", "web", network="blue"), here.put_pod("b", "web", network="blue")
        await here.until(lambda: here.text(ours) and here.text(theirs))
        await here.until(here.is_ready)
        here.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        await here.until(lambda: "a pod keeps its resolver for a while" in here.log.read_text())
        assert here.servers(ours) == ["10.96.0.11"]
        assert await here.stop() == 0
        await here.start()
        await here.until(lambda: not here.servers(ours), LOSS_S + DEADLINE_S)
        assert here.text(ours).startswith(
            "# The DNS server of network blue (Service kube-system/kube-dns-blue)"
        )
        assert "Service kube-system/kube-dns-blue does not exist" in here.waits(ours)
        await here.until(lambda: "the address of a pod's DNS server is taken from it" in here.log.read_text())

        async def is_counted() -> bool:
            lines = (await here.get("/metrics"))[1].splitlines()
            return {"vcnode_dns_lost_pods 1", "vcnode_dns_kept_pods 0"} <= set(lines)

        await here.until(is_counted)
        # Killed right then, and without the API server.
        assert await here.stop(signal.SIGKILL) == -signal.SIGKILL
        await here.apiserver.stop()
        sent = len(here.bridge.received)
        await here.start()
        await here.until(lambda: any(each.pod_uid == ours for each in here.bridge.received[sent:]))
        assert not any("10.96.0.11" in each.text for each in here.bridge.received[sent:])
        await here.apiserver.start()
        here.put(service("a", "blue", "10.96.0.98"))
        await here.until(lambda: here.servers(ours) == ["10.96.0.98"] and not here.waits(ours))
        assert here.servers(theirs) == ["10.96.0.21"]


async def test_a_pod_on_a_missing_network_waits_says_so_and_is_let_go(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid = here.put_pod("a", "web", network="red")
        await here.until(lambda: here.waits(uid))
        assert here.waits(uid) == "network red does not exist"
        assert here.text(uid) == ""
        here.put(network("a", "red", "Pending"))
        await here.until(lambda: here.waits(uid) == "network red is not ready, phase Pending")
        here.put(network("a", "red"))
        await here.until(lambda: "has no DNS server yet" in here.waits(uid))
        here.put(service("a", "red", "10.96.0.12"))
        await here.until(lambda: here.waits(uid) == "" and here.servers(uid) == ["10.96.0.12"])


async def test_what_was_cut_is_told_by_an_event(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid = here.put_pod("a", "cut", dnsConfig={"searches": [f"s{number}" for number in range(40)]})
        await here.until(lambda: here.text(uid) and events(here))
        (told,) = events(here)
        assert told["involvedObject"] == {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "a-shop",
            "name": "cut",
            "uid": uid,
        }
        assert (told["type"], told["reason"]) == ("Warning", "DNSConfigForming")
        assert told["message"].startswith("Search Line limits were exceeded")
        # It is one Event after a restart as well.
        assert await here.stop() == 0
        await here.start()

        async def is_posted() -> bool:
            return 'vcnode_events_total{result="posted"} 1' in (await here.get("/metrics"))[1]

        await here.until(is_posted)
        assert len(events(here)) == 1


async def test_the_readiness_annotation_holds_and_lets_go(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid = here.put_pod("a", "web", annotations={keys.NETWORK_READINESS: "false"})
        await here.until(lambda: here.waits(uid) and here.text(uid))
        here.put_pod("a", "web", annotations={keys.NETWORK_READINESS: "true"})
        await here.until(lambda: not here.waits(uid))
        assert here.servers(uid) == ["10.96.0.10"]


async def test_guests_are_found_by_their_pods(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid = here.put_pod("a", "web")
        await here.until(lambda: here.text(uid))
        # With the pod's UID; made by hand without one; of another time; of no tenant; and without a pod.
        here.bridge.add("g1", "a", "a-shop/web", uid=uid)
        here.put_pod("a", "db", network="blue")
        here.bridge.add("g2", "a", "a-shop/db")
        here.bridge.add("g3", "", "kube-system/proxy")
        here.bridge.add("g4", "a", "a-shop/stray")
        await here.until(lambda: here.waits("g4"))
        assert here.waits("g4") == "the API server has no such pod on this node (any more)"
        assert here.servers("g2") == ["10.96.0.11"]
        by_guest = {each.guest for each in here.bridge.received}
        assert by_guest == {"", "g1", "g2", "g4"}
        assert (await here.status())["guestsWithoutPod"] == ["g4"]


async def test_a_bridge_that_restarts_is_told_again(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid, waiting = here.put_pod("a", "web"), here.put_pod("a", "late", network="red")
        await here.until(lambda: here.text(uid) and here.waits(waiting))
        for _ in range(3):
            await here.bridge.stop()
            assert not here.text(uid)
            await here.bridge.serve(here.bridge_socket)
            await here.until(lambda: here.text(uid) and here.waits(waiting))
        await here.until(here.is_ready)


async def test_what_the_bridge_refuses_is_tried_again(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        here.bridge.refusals = [(ResultCode.REFUSED, "no room"), (ResultCode.UNREACHABLE, "away")]
        uid = here.put_pod("a", "web")

        async def is_failing() -> bool:
            pods = (await here.status())["pods"]
            return bool(pods) and (pods[0]["state"], pods[0]["problem"]) == ("failing", "no room")

        await here.until(is_failing)
        await here.until(lambda: here.text(uid))


async def test_the_nodes_own_file_is_followed_once_it_has_settled(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid = here.put_pod("a", "web", dnsPolicy="Default")
        await here.until(lambda: here.servers(uid) == ["192.0.2.1"])
        here.resolv_conf.write_text("nameserver\n")

        async def is_seen() -> bool:
            return bool((await here.status())["nodeResolver"]["problem"])

        await here.until(is_seen)
        assert here.servers(uid) == ["192.0.2.1"]
        # In place, and by a rename, as both are done.
        here.resolv_conf.write_text("nameserver 192.0.2.2\n")
        await here.until(lambda: here.servers(uid) == ["192.0.2.2"])
        (tmp_path / "new").write_text("nameserver 192.0.2.3\n")
        (tmp_path / "new").rename(here.resolv_conf)
        await here.until(lambda: here.servers(uid) == ["192.0.2.3"])


async def test_a_start_without_an_api_server_uses_what_is_saved(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid, waiting = here.put_pod("a", "web"), here.put_pod("a", "late", network="red")
        await here.until(lambda: here.text(uid) and here.waits(waiting))
        await here.until(here.is_ready)
        assert await here.stop() == 0
        await here.apiserver.stop()
        here.bridge.forget_everything()
        await here.start()
        await here.until(lambda: here.text(uid) and here.waits(waiting))
        assert here.waits(waiting) == "network red does not exist"
        status = await here.status()
        assert status["usesSavedState"]
        assert await here.is_ready()
        # What the API server then tells counts.
        here.put(service("a", "default", "10.96.0.77"))
        await here.apiserver.start()
        await here.until(lambda: here.servers(uid) == ["10.96.0.77"])

        async def has_heard_all() -> bool:
            return not (await here.status())["usesSavedState"]

        await here.until(has_heard_all)


async def test_without_an_api_server_and_without_saved_state_everybody_waits(tmp_path: Path) -> None:
    async with running(node(tmp_path), with_apiserver=False) as here:
        here.bridge.add("g1", "a", "a-shop/web")
        await here.until(lambda: here.waits("g1"))
        assert here.waits("g1") == "the API server has not told of this node's pods yet"
        assert not await here.is_ready()
        here.put_pod("a", "web")
        await here.apiserver.start()
        await here.until(lambda: here.servers("g1") == ["10.96.0.10"] and not here.waits("g1"))


@pytest.mark.parametrize("has_saved", [False, True])
async def test_a_restart_moves_no_guest_whose_label_was_changed(tmp_path: Path, has_saved: bool) -> None:
    """Guests are told one after another; with and without what was saved, nobody goes by its label first."""
    async with running(node(tmp_path)) as here:
        uids = [here.put_pod("a", f"w{number}", network="blue") for number in range(20)]
        for number, uid in enumerate(uids):
            here.bridge.add(f"g{number}", "a", f"a-shop/w{number}", uid=uid, networks=("blue",))
        await here.until(lambda: all(here.servers(uid) == ["10.96.0.11"] for uid in uids))
        await here.until(here.is_ready)
        for number in range(20):
            here.put_pod("a", f"w{number}", network="default")
        assert await here.stop() == 0
        if not has_saved:
            (tmp_path / "state" / "state.json").unlink()
        guests = [here.bridge.guests[f"g{number}"] for number in range(20)]
        here.bridge.guests.clear()
        here.bridge.forget_everything()
        here.bridge.received.clear()
        here.bridge.is_synced = False
        other = here.put_pod("a", "other")
        here.bridge.add("other", "a", "a-shop/other", uid=other, networks=("default",))
        await here.start()
        await here.until(lambda: here.servers(other) == ["10.96.0.10"])
        for guest in guests:
            pod = f"{guest.namespace}/{guest.name}"
            here.bridge.add(guest.id, "a", pod, uid=guest.uid, networks=guest.networks)
        await here.until(lambda: all(here.servers(uid) == ["10.96.0.11"] for uid in uids))
        here.bridge.synced()
        late = here.put_pod("a", "late")
        await here.until(lambda: here.servers(late) == ["10.96.0.10"])
        ours = [each for each in here.bridge.received if each.networks == ("blue",)]
        assert len(ours) == len(uids)
        assert {each.pod_uid for each in here.bridge.received if not each.guest} == {late}


async def test_a_restart_moves_no_pod_that_is_no_guest(tmp_path: Path) -> None:
    """What says where it is is what was saved; its text comes from its network of now as ever."""
    async with running(node(tmp_path)) as here:
        uid = here.put_pod("a", "web", network="blue")

        async def is_answered() -> bool:
            return [pod["state"] for pod in (await here.status())["pods"]] == ["current"]

        await here.until(is_answered)
        here.put_pod("a", "web", network="default")
        assert await here.stop() == 0
        here.bridge.forget_everything()
        here.put(service("a", "blue", "10.96.0.12"))
        sent = len(here.bridge.received)
        await here.start()
        late = here.put_pod("a", "late")
        await here.until(lambda: here.servers(uid) == ["10.96.0.12"] and here.text(late))
        its = [each for each in here.bridge.received[sent:] if each.pod_uid == uid]
        assert {each.networks for each in its} == {("blue",)}
        assert not any("10.96.0.10" in each.text for each in its)


async def test_killed_at_any_moment_it_goes_on_where_it_was(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid = here.put_pod("a", "web")
        await here.until(lambda: here.text(uid))

        def has(uid: str, address: str) -> bool:
            return here.servers(uid) == [address]

        for number in range(3):
            assert await here.stop(signal.SIGKILL) == -signal.SIGKILL
            address = f"10.96.1.{number}"
            here.put(service("a", "default", address))
            await here.start()
            await here.until(functools.partial(has, uid, address))


async def test_deleted_pods_networks_and_relists(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid = here.put_pod("a", "web", network="blue")
        await here.until(lambda: here.text(uid))
        here.delete(NETWORKS, "a-kube-system", "blue")
        # Pods and Networks come by watches of their own: a pod that is heard of before its network's
        # end gets that network's server, and keeps it.
        await here.until(lambda: "a pod keeps its resolver" in here.log.read_text())
        late = here.put_pod("a", "late", network="blue")
        await here.until(lambda: here.waits(late) == "network blue does not exist")
        assert (here.servers(uid), here.waits(uid)) == (["10.96.0.11"], "")
        here.apiserver.half_open()
        here.put(network("a", "blue"))
        here.delete(PODS, "a-shop", "web")
        here.apiserver.storage.compact()
        here.apiserver.expire_watches()
        here.apiserver.heal()
        await here.until(lambda: here.servers(late) == ["10.96.0.11"])

        async def is_gone() -> bool:
            return [pod["pod"] for pod in (await here.status())["pods"]] == ["a-shop/late"]

        await here.until(is_gone)


async def test_many_tenants_are_watched_together(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        for number in range(40):
            here.put(*tenant(f"t{number}", default=f"10.97.0.{number + 1}"))
        pods = [here.put_pod(f"t{number}", "web") for number in range(40)]
        await here.until(lambda: all(here.text(uid) for uid in pods))
        assert [here.servers(uid) for uid in pods] == [[f"10.97.0.{number + 1}"] for number in range(40)]
        # Those that were begun one by one go after a while.
        assert (await here.status())["watches"] < 3 + 2 * 33 + 3


async def test_a_pod_is_explained(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid = here.put_pod("a", "web", network="blue", dnsConfig={"searches": ["own.example"]})
        here.put_pod("b", "web")
        await here.until(lambda: here.text(uid))
        assert (await here.get("/explain?pod=shop/web"))[0] == 404
        code, body = await here.get("/explain?pod=shop/web&tenant=a")
        assert code == 200
        page = json.loads(body)
        assert page["pod"]["tenantPod"] == "shop/web"
        assert page["serverFrom"] == "network blue: Service kube-system/kube-dns-blue"
        assert page["lines"][0]["values"][-1] == {"value": "own.example", "source": "the pod's dnsConfig"}
        assert page["text"] == here.text(uid)
        assert (await here.get("/explain?pod=a-shop/web"))[0] == 200
        assert (await here.get("/explain"))[0] == 400


async def test_metrics_name_no_tenant(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid, waiting = here.put_pod("a", "web"), here.put_pod("b", "late", network="red")
        await here.until(lambda: here.text(uid) and here.waits(waiting))
        text = ""

        async def are_counted() -> bool:
            nonlocal text
            text = (await here.get("/metrics"))[1]
            return set(text.splitlines()) >= EXPECTED

        await here.until(are_counted)
        assert not any(word in text for word in ("a-shop", '"red"', '"web"', '"a"', '"b"'))


async def test_the_configuration_is_checked(tmp_path: Path) -> None:
    here = node(tmp_path)
    command = [sys.executable, "-m", "dnsconfig", "--config", str(here.write_config()), "--check-config"]
    for text, code in (("", 0), ("clusterDomain: No Domain\n", 2)):
        path = tmp_path / "config.yaml"
        path.write_text(path.read_text() + text)
        process = await asyncio.create_subprocess_exec(
            *command, stderr=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[3]
        )
        assert process.stderr is not None
        said = (await process.stderr.read()).decode()
        assert (await process.wait(), "clusterDomain: expected a domain" in said) == (code, bool(code))


async def test_the_state_is_nobody_elses_to_read(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid = here.put_pod("a", "web")
        await here.until(lambda: here.text(uid))
        await here.until(here.is_ready)
        await here.stop()
        state = tmp_path / "state"
        assert [path.name for path in state.iterdir()] == ["state.json"]
        assert state.stat().st_mode & 0o777 == 0o700
        assert (state / "state.json").stat().st_mode & 0o777 == 0o600
