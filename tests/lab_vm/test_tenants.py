# SPDX-License-Identifier: Apache-2.0
"""From a Service in the super cluster to a connection in a guest: kubeproxy-ext and kata-bridge as
they are, and each guest has its own tenant's rules alone.
"""

import asyncio
import re
from pathlib import Path

import pytest

from daemonkit.kube.resources import SERVICES
from tests.functional.kubeproxy_ext.node import RulesNode
from tests.lab_vm.machine import Machine
from tests.lab_vm.site import Site


@pytest.mark.asyncio
async def test_each_guest_has_its_own_tenants_services_alone(site: Site, tmp_path: Path) -> None:
    node = RulesNode(tmp_path)
    node.bridge_socket = site.socket
    for tenant in ("vc-a", "vc-b"):
        node.put_tenant(tenant)
    # The same address in both, and one that only b has.
    node.put_service("vc-a", "web", "10.96.0.10", "10.0.0.21")
    node.put_service("vc-b", "web", "10.96.0.10", "10.0.0.22")
    node.put_service("vc-b", "secret", "10.96.0.20", "10.0.0.22")
    await node.apiserver.start()
    try:
        await node.start()
        a1, a2, b1 = site.guests.values()
        await wait_leads(node, {a1: "10.0.0.21:8080", a2: "10.0.0.21:8080", b1: "10.0.0.22:8080"})
        assert b1.end("10.96.0.20", 80) == "10.0.0.22:8080"
        for guest in (a1, a2):
            assert guest.end("10.96.0.20", 80) == "reject"
            rules = guest.output(*site.kernel.rules)
            # nft writes addresses and ports in one element as `10.0.0.21 . 8080`.
            assert re.search(r"10\.0\.0\.21(:| \. )8080", rules)
            assert "10.0.0.22" not in rules
            assert "vc-b" not in rules
        before = (
            len(site.log_lines(message="ruleset applied", guest="b1")),
            b1.output(*site.kernel.rules),
        )
        node.put_slice("vc-a", "web", "10.0.0.22")
        await wait_leads(node, dict.fromkeys((a1, a2, b1), "10.0.0.22:8080"))
        node.apiserver.storage.delete(SERVICES, "vc-a-default", "web")
        await wait_leads(node, {a1: "reject", a2: "reject", b1: "10.0.0.22:8080"})
        after = (
            len(site.log_lines(message="ruleset applied", guest="b1")),
            b1.output(*site.kernel.rules),
        )
        assert without_counters(after[1]) == without_counters(before[1])
        assert after[0] == before[0]
        assert await node.stop() == 0
    finally:
        if node.process is not None and node.process.returncode is None:
            node.process.kill()
            await node.process.wait()
        await node.apiserver.stop()


def without_counters(rules: str) -> list[str]:
    """The rules, without iptables-save's time and packet counters."""
    lines = (re.sub(r" \[\d+:\d+\]$", "", line) for line in rules.splitlines())
    return [line for line in lines if not line.startswith("#")]


async def wait_leads(node: RulesNode, where: dict[Machine, str]) -> None:
    """Wait until the Service at 10.96.0.10 leads there in each guest."""

    async def is_so() -> bool:
        ends = [await asyncio.to_thread(guest.end, "10.96.0.10", 80) for guest in where]
        return ends == list(where.values())

    await node.until(is_so)
