# SPDX-License-Identifier: Apache-2.0
"""Tells the super cluster what the gate holds and when it opens: the nudge, Events, a node condition.

All of it is help and none of it is the gate: without an API server pods wait somewhat longer and say
less. docs/decisions/0014 has what these credentials may do and why; everything that is written with
them is written here.
"""

import asyncio
import datetime as dt
import json
import secrets
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path

import msgspec

from daemonkit import logs
from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.lazy_client import LazyClient
from daemonkit.kube.resources import NODES, PODS, MetadataOnly, Resource
from daemonkit.tasks import Tasks
from daemonkit.token_bucket import TokenBucket
from kata_bridge.sandboxes.core.sandbox import Sandbox
from kata_bridge.start_gate.core.decision import Reason
from kata_bridge.start_gate.core.event_budget import Budget
from kata_bridge.start_gate.core.node_condition import Condition, Tally, condition_of
from tenancy import keys

EVENTS = Resource("", "v1", "events")
CONDITION = "VcnodePodsHeld"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"

# Ours, not the server's minute: a nudge that is late is of no use.
REQUEST_S = 5.0
# The client keeps four connections; more at once would all be new ones.
PARALLEL = 4
RETRIES_S = (0.2, 1.0)
# An API server that forgets Events after an hour needs no reminder within five minutes.
SAME_EVENT_S = 300.0
# For all tenants together; `gate_budget` has what each has besides.
EVENTS_PER_S, EVENTS_BURST = 2.0, 25.0
CONDITION_S = 10.0
# As a heartbeat, so that a reader can tell a condition that nobody looks after any more.
CONDITION_REFRESH_S = 300.0
READINESS_S = 1.0
MAX_REMEMBERED = 10_000

_log = logs.get(__name__)


class ClusterReports:
    """Speaks to the super cluster with the credentials of a kubeconfig, as `gate.Reports`.

    Who made it sets `tally`, `read_readiness`, and `counted`, which is told how each nudge ended.
    """

    def __init__(self, kubeconfig: Path, node: str, tasks: Tasks) -> None:
        self._client = LazyClient(kubeconfig, "kata-bridge")
        self._node = node
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._turns = asyncio.Semaphore(PARALLEL)
        self._under_way: dict[tuple[str, str], Coroutine[object, object, object] | None] = {}
        self._told_s: dict[tuple[str, str], float] = {}
        self._budget = Budget(TokenBucket(EVENTS_BURST, EVENTS_PER_S, EVENTS_BURST, self._loop.time()))
        self._not_ready: dict[str, Sandbox] = {}
        self._problem = ""
        self.tally: Callable[[], Tally] = Tally
        self.counted: Callable[[str], None] = lambda _: None
        self.read_readiness: Callable[[str, str | None], None] = lambda _sandbox, _readiness: None

    @property
    def problem(self) -> str:
        """Why the super cluster is not told; empty if it is."""
        return self._problem

    def start(self) -> None:
        """Begin to keep the node's condition and to read annotations."""
        self._tasks.spawn(self._keep_condition(), "node condition")
        self._tasks.spawn(self._read_annotations(), "network readiness")

    async def close(self) -> None:
        """End the connections."""
        await self._client.close()

    # ---- what the gate says

    def held(self, sandbox: Sandbox, reasons: tuple[Reason, ...]) -> None:
        words = "; ".join(reason.words for reason in reasons)
        self._tell(sandbox, "WaitsAtGate", f"Its containers are not started yet: {words}.")

    def opened(self, sandbox: Sandbox) -> None:
        self._begin("nudge", sandbox.id, self._nudge(sandbox))

    def got_through(self, sandbox: Sandbox, container: str) -> None:
        words = (
            f"Container {container} was started while the gate of node {self._node} was not asked: its first \
steps may have been without Services or with another DNS server."
        )
        self._tell(sandbox, "NotAskedAtGate", words)

    def not_ready(self, sandbox: Sandbox) -> None:
        """Read this pod's annotation until it says that its network is ready."""
        self._not_ready[sandbox.id] = sandbox

    def forgotten(self, sandbox: Sandbox) -> None:
        self._not_ready.pop(sandbox.id, None)

    # ---- the nudge

    async def _nudge(self, sandbox: Sandbox) -> None:
        metadata = {"uid": sandbox.uid, "annotations": {keys.GATE_OPENED: _now()}}
        path = PODS.path(sandbox.namespace, sandbox.name)
        result = await self._write("PATCH", path, {"metadata": metadata}, MERGE)
        self.counted(result)

    # ---- events

    def _tell(self, sandbox: Sandbox, reason: str, message: str) -> None:
        now_s = self._loop.time()
        key = (sandbox.uid, f"{reason} {message}")
        is_told = now_s - self._told_s.get(key, float("-inf")) < SAME_EVENT_S
        if is_told or not self._budget.take(sandbox.tenant, now_s):
            return
        self._told_s.pop(key, None)
        self._told_s[key] = now_s
        while len(self._told_s) > MAX_REMEMBERED:
            del self._told_s[next(iter(self._told_s))]
        event = self._event(sandbox, reason, message)
        write = self._write("POST", EVENTS.path(sandbox.namespace), event, "application/json")
        self._begin(f"event {reason}", sandbox.id, write)

    def _event(self, sandbox: Sandbox, reason: str, message: str) -> Mapping[str, object]:
        now = _now(digits=0)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            # A name has 253 characters at most, as the pod's own.
            "metadata": {
                "name": f"{sandbox.name[:230]}.{secrets.token_hex(8)}",
                "namespace": sandbox.namespace,
            },
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": sandbox.namespace,
                "name": sandbox.name,
                "uid": sandbox.uid,
            },
            "reason": reason,
            "message": message[:1024],
            "type": "Warning",
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": "kata-bridge", "host": self._node},
            "reportingComponent": "vcnode.io/kata-bridge",
            "reportingInstance": self._node,
        }

    # ---- the node's condition

    async def _keep_condition(self) -> None:
        said: Condition | None = None
        said_s = float("-inf")
        since = _now(digits=0)
        while True:
            now_s = self._loop.time()
            condition = condition_of(self.tally())
            if condition != said or now_s - said_s >= CONDITION_REFRESH_S:
                if said is None or condition.is_held != said.is_held:
                    since = _now(digits=0)
                if await self._say_condition(condition, since) == "done":
                    said, said_s = condition, now_s
            await asyncio.sleep(CONDITION_S)

    async def _say_condition(self, condition: Condition, since: str) -> str:
        value = {
            "type": CONDITION,
            "status": "True" if condition.is_held else "False",
            "reason": condition.reason,
            "message": condition.message,
            "lastHeartbeatTime": _now(digits=0),
            "lastTransitionTime": since,
        }
        path = f"{NODES.path(name=self._node)}/status"
        return await self._write("PATCH", path, {"status": {"conditions": [value]}}, STRATEGIC)

    # ---- annotations

    async def _read_annotations(self) -> None:
        while True:
            for sandbox in list(self._not_ready.values()):
                metadata = await self._metadata(sandbox)
                if metadata is None or sandbox.id not in self._not_ready:
                    continue
                readiness = metadata.metadata.annotations.get(keys.NETWORK_READINESS)
                self.read_readiness(sandbox.id, readiness)
            await asyncio.sleep(READINESS_S)

    async def _metadata(self, sandbox: Sandbox) -> MetadataOnly | None:
        """A patch of nothing is answered with the pod, writes nothing, and needs no leave to read."""
        nothing = json.dumps({"metadata": {"uid": sandbox.uid}}).encode()
        path = PODS.path(sandbox.namespace, sandbox.name)
        try:
            async with self._turns, asyncio.timeout(REQUEST_S):
                body = await self._client.request("PATCH", path, {}, nothing, content_type=MERGE)
            return msgspec.json.decode(body, type=MetadataOnly)
        except ApiError as error:
            if error.status.code in (404, 409):
                self._not_ready.pop(sandbox.id, None)
            else:
                self._fails(error)
            return None
        except (UnreachableError, TimeoutError, msgspec.DecodeError) as error:
            self._fails(error)
            return None

    # ---- requests

    def _begin(self, what: str, sandbox: str, work: Coroutine[object, object, object]) -> None:
        """Do it, one at a time for each sandbox; what is asked for meanwhile is done once, afterwards."""
        key = (what, sandbox)
        if key in self._under_way:
            later = self._under_way[key]
            if later is not None:
                later.close()
            self._under_way[key] = work
            return
        self._under_way[key] = None

        async def done() -> None:
            try:
                await work
            finally:
                later = self._under_way.pop(key)
                if later is not None:
                    self._begin(what, sandbox, later)

        try:
            self._tasks.spawn(done(), f"{what} {sandbox[:12]}")
        except RuntimeError:  # the daemon ends: no gate waits for a report
            del self._under_way[key]
            work.close()

    async def _write(self, method: str, path: str, value: Mapping[str, object], content_type: str) -> str:
        """Send it, again if that may help; return in a word how it ended."""
        body = json.dumps(value).encode()
        for wait_s in (*RETRIES_S, None):
            try:
                async with self._turns, asyncio.timeout(REQUEST_S):
                    await self._client.request(method, path, {}, body, content_type=content_type)
            except ApiError as error:
                if error.status.code in (404, 409):
                    return "gone"  # the pod, or it is another one of that name
                self._fails(error)
                if error.status.code < 500 and error.status.code != 429:
                    return "refused"
            except (UnreachableError, TimeoutError) as error:
                self._fails(error)
            else:
                self._works()
                return "done"
            if wait_s is not None:
                await asyncio.sleep(wait_s)
        return "failed"

    def _fails(self, error: Exception) -> None:
        reason = str(error) or f"no answer within {REQUEST_S:g} s"
        if not self._problem:
            _log.warning("the super cluster cannot be told of pods that wait", reason=reason)
        self._problem = reason

    def _works(self) -> None:
        if self._problem:
            _log.info("the super cluster is told again of pods that wait")
        self._problem = ""


def _now(*, digits: int = 6) -> str:
    now = dt.datetime.now(dt.UTC)
    return f"{now.isoformat(timespec='microseconds' if digits else 'seconds').removesuffix('+00:00')}Z"
