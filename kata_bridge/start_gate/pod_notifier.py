# SPDX-License-Identifier: Apache-2.0
"""Reports the start gate's decisions on pods to the super cluster: Events, and the nudge.

The nudge is an annotation: the kubelet syncs a pod that changed, and so tries its containers again at once.
"""

import asyncio
import datetime as dt
import json
import secrets
from collections.abc import Callable, Coroutine

from daemonkit.kube.event_recorder import EVENTS, EventSource, build_event
from daemonkit.kube.resources import PODS, EventReason
from daemonkit.tasks import Tasks
from daemonkit.token_bucket import TokenBucket
from kata_bridge.sandboxes.core.sandbox import Sandbox
from kata_bridge.start_gate.core.decision import Blocker
from kata_bridge.start_gate.core.event_budget import EventBudget
from kata_bridge.start_gate.super_cluster_writer import JSON, MERGE, SuperClusterWriter, timestamp
from tenancy import keys


class GateEventReason(EventReason):
    """Why the start gate posts an Event about a pod."""

    BLOCKED = "ContainerStartBlocked"
    STARTED_UNGATED = "ContainerStartedUngated"


EVENT_REASONS = {
    GateEventReason.BLOCKED: (
        "The start gate blocks the pod's containers; the message names the missing needs."
    ),
    GateEventReason.STARTED_UNGATED: (
        "A container started without a decision of the start gate, as kata-bridge was away."
    ),
}

# An API server that forgets Events after an hour needs no reminder within five minutes.
SAME_EVENT_S = 300.0
# For all tenants together; `event_budget` has what each has besides.
EVENTS_PER_S, EVENTS_BURST = 2.0, 25.0
MAX_REMEMBERED = 10_000


class PodNotifier:
    """A `gate.GateReporter`; `on_nudged` is called with the result of each nudge."""

    def __init__(
        self, super_cluster: SuperClusterWriter, tasks: Tasks, on_nudged: Callable[[str], None]
    ) -> None:
        self._super_cluster = super_cluster
        self._source = EventSource("kata-bridge", super_cluster.node, "vcnode.io/kata-bridge")
        self._tasks = tasks
        self._on_nudged = on_nudged
        self._loop = asyncio.get_running_loop()
        # By what and sandbox: the request that follows the one in flight.
        self._in_flight: dict[tuple[str, str], Coroutine[object, object, object] | None] = {}
        self._reported_s: dict[tuple[str, str], float] = {}
        self._budget = EventBudget(TokenBucket(EVENTS_BURST, EVENTS_PER_S, EVENTS_BURST, self._loop.time()))

    # ---- gate.GateReporter

    def blocked(self, sandbox: Sandbox, blockers: tuple[Blocker, ...]) -> None:
        messages = "; ".join(blocker.message for blocker in blockers)
        self._event(sandbox, GateEventReason.BLOCKED, f"Its containers are not started yet: {messages}.")

    def unblocked(self, sandbox: Sandbox) -> None:
        self._begin("nudge", sandbox.id, self._nudge(sandbox))

    def started_ungated(self, sandbox: Sandbox, container: str) -> None:
        message = (
            f"Container {container} started without a decision of the start gate of node {self._source.host}:"
            " its first steps may have been without Services or with another DNS server."
        )
        self._event(sandbox, GateEventReason.STARTED_UNGATED, message)

    # ---- requests

    async def _nudge(self, sandbox: Sandbox) -> None:
        metadata = {"uid": sandbox.uid, "annotations": {keys.GATE_OPENED: timestamp()}}
        body = json.dumps({"metadata": metadata}).encode()
        path = PODS.path(sandbox.namespace, sandbox.name)
        self._on_nudged(await self._super_cluster.write("PATCH", path, body, MERGE))

    def _event(self, sandbox: Sandbox, reason: GateEventReason, message: str) -> None:
        now_s = self._loop.time()
        key = (sandbox.uid, f"{reason} {message}")
        is_repeated = now_s - self._reported_s.get(key, float("-inf")) < SAME_EVENT_S
        if is_repeated or not self._budget.try_acquire(sandbox.tenant, now_s):
            return
        self._reported_s.pop(key, None)
        self._reported_s[key] = now_s
        while len(self._reported_s) > MAX_REMEMBERED:
            del self._reported_s[next(iter(self._reported_s))]
        now, suffix = dt.datetime.now(dt.UTC), secrets.token_hex(8)
        event = build_event(sandbox, reason, message, self._source, now, suffix=suffix)
        write = self._super_cluster.write("POST", EVENTS.path(event.namespace), event.body, JSON)
        self._begin(f"event {reason}", sandbox.id, write)

    def _begin(self, what: str, sandbox: str, work: Coroutine[object, object, object]) -> None:
        """Send one such request at a time for each sandbox; of those that come meanwhile, only the last."""
        key = (what, sandbox)
        if key in self._in_flight:
            later = self._in_flight[key]
            if later is not None:
                later.close()
            self._in_flight[key] = work
            return
        self._in_flight[key] = None

        async def done() -> None:
            try:
                await work
            finally:
                later = self._in_flight.pop(key)
                if later is not None:
                    self._begin(what, sandbox, later)

        try:
            self._tasks.spawn(done(), f"{what} {sandbox[:12]}")
        except RuntimeError:  # the daemon ends: drop the report, the gate must not wait for it
            del self._in_flight[key]
            work.close()
