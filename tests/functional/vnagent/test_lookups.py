# SPDX-License-Identifier: Apache-2.0
"""Requests for unknown pods wait for the kubelet's list, a bounded number of each tenant."""

import contextlib
import json
from pathlib import Path

from devkit.kubelet.pods import pod_list
from devkit.kubelet.replies import Exchange, FakeReply
from tests.functional.vnagent.node import DEADLINE_S, AgentNode, head, tenant_pod
from tests.functional.vnagent.shop_and_bank import BANK, SHOP, status_of
from tests.waiting import wait_until
from vnagent.dispatch import MAX_LOOKUPS

MORE = 20


def test_a_tenants_lookups_are_bounded(tmp_path: Path) -> None:
    with AgentNode(tmp_path / "n", ["ten-a", "ten-b"], [SHOP, BANK]) as node, contextlib.ExitStack() as stack:
        vault = tenant_pod("ten-b", "web", "vault")
        page = json.dumps(pod_list([SHOP, BANK, vault])).encode()

        def slowly(exchange: Exchange) -> FakeReply | None:
            return FakeReply(200, (), page, delay_s=2.0) if exchange.path == "/pods" else None

        node.kubelet.script = slowly
        before = len(node.kubelet.requests("/pods"))
        wait_until(lambda: len(node.kubelet.requests("/pods")) > before, within_s=DEADLINE_S)
        for _ in range(MAX_LOOKUPS + MORE):
            client = stack.enter_context(node.client("ten-a"))
            client.send(head("GET /containerLogs/web/nothing/app"))

        def lookups_with(status: int) -> int:
            name = f'vcnode_vnagent_requests_total{{code="{status}",endpoint="containerLogs",tenant="ten-a"}}'
            return int(node.daemon.samples().get(name, 0))

        wait_until(lambda: lookups_with(429) == MORE, within_s=DEADLINE_S)
        assert lookups_with(404) == 0
        node.kubelet.pods = (SHOP, BANK, vault)
        assert status_of(node.logs("ten-b", "web", "vault")) == 200
        wait_until(lambda: lookups_with(404) == MAX_LOOKUPS, within_s=DEADLINE_S)
        # They count no longer.
        assert status_of(node.logs("ten-a", "web", "nothing")) == 404
        assert lookups_with(429) == MORE


def test_clients_that_leave_free_their_lookups(tmp_path: Path) -> None:
    with AgentNode(tmp_path / "n", ["ten-a"], [SHOP]) as node:
        page = json.dumps(pod_list([SHOP])).encode()
        node.kubelet.script = lambda exchange: (
            FakeReply(200, (), page, delay_s=1.0) if exchange.path == "/pods" else None
        )
        for _ in range(2):
            with contextlib.ExitStack() as stack:
                for _ in range(MAX_LOOKUPS):
                    client = stack.enter_context(node.client("ten-a"))
                    client.send(head("GET /containerLogs/web/nothing/app"))
            wait_until(lambda: node.daemon.metric("vcnode_vnagent_connections") == 0, within_s=DEADLINE_S)
        assert status_of(node.logs("ten-a", "web", "nothing")) == 404
