# SPDX-License-Identifier: Apache-2.0
"""The real daemon between a fake API server over TLS and a fake kata-bridge over gRPC.

Restarts are in test_daemon_restarts.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from daemonkit.kube.resources import Resource
from devkit.kube.storage import Selection
from tests.functional.daemon_node import NAME, running
from tests.functional.dnsconfig.node import DnsNode
from tests.functional.dnsconfig.two_tenants import node

pytestmark = pytest.mark.asyncio

EVENTS = Resource("", "v1", "events")
# Of a node with a pod that has its resolver and one that waits for its network.
EXPECTED = {
    'vcnode_dnsconfig_pods{state="applied"} 2.0',
    'vcnode_dnsconfig_waiting_pods{reason="NotFound"} 1.0',
    'vcnode_dnsconfig_pushes_total{result="applied"} 2.0',
    "vcnode_dnsconfig_bridge_connected 1.0",
    "vcnode_dnsconfig_retained_pods 0.0",
    "vcnode_dnsconfig_revoked_pods 0.0",
}


def events(here: DnsNode) -> list[dict[str, Any]]:
    return here.apiserver.storage.select(Selection(EVENTS))


async def test_pods_get_their_networks_server_before_a_sandbox(tmp_path: Path) -> None:
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
            states = [pod["state"] for pod in (await here.status())["pods"]]
            return states == ["applied"] * 4

        await here.until(are_current)
        assert len(here.bridge.resolv_conf_requests) == 4
        assert await here.stop() == 0


async def test_truncation_is_reported_by_one_event(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid = here.put_pod("a", "cut", dnsConfig={"searches": [f"s{number}" for number in range(40)]})
        await here.until(lambda: here.text(uid) and events(here))
        (event,) = events(here)
        assert event["involvedObject"] == {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "a-shop",
            "name": "cut",
            "uid": uid,
        }
        assert (event["type"], event["reason"]) == ("Warning", "DNSConfigForming")
        assert event["message"].startswith("Search Line limits were exceeded")
        # A restart posts no second Event.
        assert await here.stop() == 0
        await here.start()

        async def is_posted() -> bool:
            return 'vcnode_dnsconfig_events_total{result="posted"} 1.0' in (await here.get("/metrics"))[1]

        await here.until(is_posted)
        assert len(events(here)) == 1


async def test_guests_are_matched_to_their_pods(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid = here.put_pod("a", "web")
        await here.until(lambda: here.text(uid))
        # With the pod's UID; without one; of a deleted pod; of no tenant; and without a pod.
        here.bridge.add("g1", "a", "a-shop/web", uid=uid)
        here.put_pod("a", "db", network="blue")
        here.bridge.add("g2", "a", "a-shop/db", networks=("blue",))
        here.bridge.add("g3", "", "kube-system/proxy")
        here.bridge.add("g4", "a", "a-shop/stray")
        await here.until(lambda: here.waits("g4"))
        assert here.waits("g4") == "the API server has no such pod on this node (any more)"
        assert here.servers("g2") == ["10.96.0.11"]
        by_guest = {each.guest for each in here.bridge.resolv_conf_requests}
        assert by_guest == {"", "g1", "g2", "g4"}
        assert (await here.status())["guestsWithoutPod"] == ["g4"]


async def test_the_nodes_file_is_read_again_after_it_settled(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid = here.put_pod("a", "web", dnsPolicy="Default")
        await here.until(lambda: here.servers(uid) == ["192.0.2.1"])
        here.resolv_conf.write_text("nameserver\n")

        async def is_seen() -> bool:
            return bool((await here.status())["nodeResolver"]["problem"])

        await here.until(is_seen)
        assert here.servers(uid) == ["192.0.2.1"]
        # In place, and by a rename.
        here.resolv_conf.write_text("nameserver 192.0.2.2\n")
        await here.until(lambda: here.servers(uid) == ["192.0.2.2"])
        (tmp_path / "new").write_text("nameserver 192.0.2.3\n")
        (tmp_path / "new").rename(here.resolv_conf)
        await here.until(lambda: here.servers(uid) == ["192.0.2.3"])


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


async def test_check_config_exit_codes(tmp_path: Path) -> None:
    here = node(tmp_path)
    command = [sys.executable, "-m", "dnsconfig", "--config", str(here.write_config()), "--check-config"]
    for text, code in (("", 0), ("clusterDomain: No Domain\n", 2)):
        path = tmp_path / "config.yaml"
        path.write_text(path.read_text() + text)
        process = await asyncio.create_subprocess_exec(
            *command, stderr=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[3]
        )
        assert process.stderr is not None
        errors = (await process.stderr.read()).decode()
        assert (await process.wait(), "clusterDomain: expected a domain" in errors) == (code, bool(code))
