# SPDX-License-Identifier: Apache-2.0
"""Keeps the node's condition in the super cluster up to date, and re-reads annotations of waiting pods."""

import asyncio
import json
from collections.abc import Callable, Iterable

from daemonkit.kube.resources import NODES
from kata_bridge.sandboxes.core.sandbox import Sandbox
from kata_bridge.start_gate.core.node_condition import CONDITION, BlockedPods, NodeCondition, condition_of
from kata_bridge.start_gate.super_cluster import STRATEGIC, PodGoneError, SuperClusterWriter, timestamp
from tenancy import keys

CONDITION_S = 10.0
# The heartbeat shows a reader that somebody still maintains the condition.
CONDITION_REFRESH_S = 300.0
READINESS_S = 1.0


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


async def sync_readiness(
    super_cluster: SuperClusterWriter,
    waiting: Callable[[], Iterable[Sandbox]],
    set_readiness: Callable[[str, str | None], None],
) -> None:
    """Re-read the annotation network-readiness of waiting pods until it lets them start; never returns."""
    gone: set[str] = set()
    while True:
        sandboxes = {sandbox.id: sandbox for sandbox in waiting()}
        gone &= sandboxes.keys()
        for sandbox in sandboxes.values():
            if sandbox.id in gone:
                continue
            try:
                annotations = await super_cluster.annotations(sandbox)
            except PodGoneError:
                gone.add(sandbox.id)
                continue
            if annotations is not None:
                set_readiness(sandbox.id, annotations.get(keys.NETWORK_READINESS))
        await asyncio.sleep(READINESS_S)
