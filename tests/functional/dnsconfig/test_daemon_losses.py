# SPDX-License-Identifier: Apache-2.0
"""The daemon as a process where something goes away under it: an address, a network, a pod, kata-bridge."""

import signal
from pathlib import Path

import pytest

from bridge_api.messages import ResultCode
from daemonkit.kube.resources import PODS, SERVICES
from dnsconfig.cluster.objects import NETWORKS
from dnsconfig.retention.resolver_retention import REVOCATION_DELAY_S
from tests.functional.daemon_node import DEADLINE_S, running
from tests.functional.dnsconfig.two_tenants import node
from tests.unit.dnsconfig.objects import network, service

pytestmark = pytest.mark.asyncio


async def test_an_address_that_changes_is_rewritten_and_nothing_else(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        ours, theirs = here.put_pod("a", "web", network="blue"), here.put_pod("b", "web", network="blue")
        await here.until(lambda: here.text(ours) and here.text(theirs))
        sent = len(here.bridge.resolv_conf_requests)
        here.put(service("a", "blue", "10.96.0.99"))
        await here.until(lambda: here.servers(ours) == ["10.96.0.99"])
        # By way of a moment without any: what runs keeps the last.
        here.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        await here.until(lambda: here.log.read_text().count("pod retains a revoked DNS server") == 1)
        assert here.servers(ours) == ["10.96.0.99"]
        assert here.waits(ours) == ""
        here.put(service("a", "blue", "10.96.0.98"))
        await here.until(lambda: here.servers(ours) == ["10.96.0.98"])
        assert len(here.bridge.resolv_conf_requests) == sent + 2
        assert here.servers(theirs) == ["10.96.0.21"]


async def test_an_address_that_is_given_up_is_taken_from_who_has_it(tmp_path: Path) -> None:
    """Some 15 s later, also when the daemon ends on the way; and nothing but an address gives one back."""
    async with running(node(tmp_path)) as here:
        ours, theirs = here.put_pod("a", "web", network="blue"), here.put_pod("b", "web", network="blue")
        await here.until(lambda: here.text(ours) and here.text(theirs))
        await here.until(here.is_ready)
        here.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        await here.until(lambda: "pod retains a revoked DNS server for now" in here.log.read_text())
        assert here.servers(ours) == ["10.96.0.11"]
        assert await here.stop() == 0
        await here.start()
        await here.until(lambda: not here.servers(ours), REVOCATION_DELAY_S + DEADLINE_S)
        assert here.text(ours).startswith(
            "# The DNS server of network blue (Service kube-system/kube-dns-blue)"
        )
        assert "Service kube-system/kube-dns-blue does not exist" in here.waits(ours)
        await here.until(lambda: "revoked DNS server removed from the pod" in here.log.read_text())

        async def is_counted() -> bool:
            lines = (await here.get("/metrics"))[1].splitlines()
            return {"vcnode_dnsconfig_revoked_pods 1", "vcnode_dnsconfig_retained_pods 0"} <= set(lines)

        await here.until(is_counted)
        # Killed right then, and without the API server.
        assert await here.stop(signal.SIGKILL) == -signal.SIGKILL
        await here.apiserver.stop()
        sent = len(here.bridge.resolv_conf_requests)
        await here.start()
        await here.until(
            lambda: any(each.pod_uid == ours for each in here.bridge.resolv_conf_requests[sent:])
        )
        assert not any("10.96.0.11" in each.text for each in here.bridge.resolv_conf_requests[sent:])
        await here.apiserver.start()
        here.put(service("a", "blue", "10.96.0.98"))
        await here.until(lambda: here.servers(ours) == ["10.96.0.98"] and not here.waits(ours))
        assert here.servers(theirs) == ["10.96.0.21"]


async def test_deleted_pods_networks_and_relists(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid = here.put_pod("a", "web", network="blue")
        await here.until(lambda: here.text(uid))
        here.delete(NETWORKS, "a-kube-system", "blue")
        # Pods and Networks come by watches of their own: a pod that is heard of before its network's
        # end gets that network's server, and keeps it.
        await here.until(lambda: "pod retains its resolver" in here.log.read_text())
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
        # As many as it takes to be seen, however slow the machine is.
        here.bridge.next_resolv_conf_results = [(ResultCode.REFUSED, "no room")] * 100
        uid = here.put_pod("a", "web")

        async def is_failing() -> bool:
            pods = (await here.status())["pods"]
            return bool(pods) and (pods[0]["state"], pods[0]["problem"]) == ("failing", "no room")

        await here.until(is_failing)
        here.bridge.next_resolv_conf_results = [(ResultCode.UNREACHABLE, "away")]
        await here.until(lambda: here.text(uid))
