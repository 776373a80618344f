# SPDX-License-Identifier: Apache-2.0
"""Keeps the condition of the node, in the super cluster, up to date."""

import asyncio
import json
from collections.abc import Callable

from daemonkit.kube.resources import NODES
from kata_bridge.start_gate.core.node_condition import CONDITION, BlockedPods, NodeCondition, condition_of
from kata_bridge.start_gate.super_cluster_writer import STRATEGIC, SuperClusterWriter, timestamp

CONDITION_S = 10.0
# The heartbeat shows that kata-bridge still maintains the condition.
CONDITION_REFRESH_S = 300.0


async def sync_node_condition(
    super_cluster: SuperClusterWriter, blocked_pods: Callable[[], BlockedPods]
) -> None:
    """Write the condition whenever it changes, and as a heartbeat; never returns."""
    loop = asyncio.get_running_loop()
    written: NodeCondition | None = None
    written_s = float("-inf")
    since = timestamp(digits=0)
    while True:
        now_s = loop.time()
        condition = condition_of(blocked_pods())
        if condition != written or now_s - written_s >= CONDITION_REFRESH_S:
            if written is None or condition.is_blocked != written.is_blocked:
                since = timestamp(digits=0)
            if await _write_condition(super_cluster, condition, since) == "done":
                written, written_s = condition, now_s
        await asyncio.sleep(CONDITION_S)


async def _write_condition(super_cluster: SuperClusterWriter, condition: NodeCondition, since: str) -> str:
    value = {
        "type": CONDITION,
        "status": "True" if condition.is_blocked else "False",
        "reason": condition.reason,
        "message": condition.message,
        "lastHeartbeatTime": timestamp(digits=0),
        "lastTransitionTime": since,
    }
    path = f"{NODES.path(name=super_cluster.node)}/status"
    body = json.dumps({"status": {"conditions": [value]}}).encode()
    return await super_cluster.write("PATCH", path, body, STRATEGIC)
