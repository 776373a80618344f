# SPDX-License-Identifier: Apache-2.0
"""The daemon as a process that restarts: its saved state, and kata-bridge's restarts."""

import functools
import signal
from pathlib import Path

import pytest

from daemonkit.kube.resources import SERVICES
from dnsconfig.retention.resolver_retention import REVOCATION_DELAY_S
from tests.functional.daemon_node import DEADLINE_S, running
from tests.functional.dnsconfig.two_tenants import node
from tests.unit.dnsconfig.objects import service

pytestmark = pytest.mark.asyncio


async def test_a_start_without_the_api_server_uses_saved_state(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid, waiting = here.put_pod("a", "web"), here.put_pod("a", "late", network="red")
        await here.until(lambda: here.text(uid) and here.waits(waiting))
        await here.until(here.is_ready)
        assert await here.stop() == 0
        await here.apiserver.stop()
        here.bridge.lose_state()
        await here.start()
        await here.until(lambda: here.text(uid) and here.waits(waiting))
        assert here.waits(waiting) == "network red does not exist"
        status = await here.status()
        assert status["usesSavedState"]
        assert await here.is_ready()
        # The daemon then uses what the API server lists.
        here.put(service("a", "default", "10.96.0.77"))
        await here.apiserver.start()
        await here.until(lambda: here.servers(uid) == ["10.96.0.77"])

        async def has_synced() -> bool:
            return not (await here.status())["usesSavedState"]

        await here.until(has_synced)


async def test_a_killed_daemon_continues(tmp_path: Path) -> None:
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


async def test_revoked_server_is_removed_after_a_restart(tmp_path: Path) -> None:
    """The state on disk carries the time of revocation; metrics and log name the removal."""
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
            return {"vcnode_dnsconfig_revoked_pods 1.0", "vcnode_dnsconfig_retained_pods 0.0"} <= set(lines)

        await here.until(is_counted)
        assert here.servers(theirs) == ["10.96.0.21"]


async def test_a_restarted_bridge_gets_all_resolvers_again(tmp_path: Path) -> None:
    async with running(node(tmp_path)) as here:
        uid, waiting = here.put_pod("a", "web"), here.put_pod("a", "late", network="red")
        await here.until(lambda: here.text(uid) and here.waits(waiting))
        for _ in range(3):
            await here.bridge.stop()
            assert not here.text(uid)
            await here.bridge.serve(here.bridge_socket)
            await here.until(lambda: here.text(uid) and here.waits(waiting))
        await here.until(here.is_ready)
