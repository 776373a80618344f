# SPDX-License-Identifier: Apache-2.0
"""One tenant's vNodes: made before the first pod is bound, kept as the super node is, removed when idle.

All requests go to the tenant's own API server, and only a few at a time: one that hangs holds up nobody else.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import msgspec

from daemonkit import logs
from daemonkit.backoff import backoff_s, spread_s
from daemonkit.kube import deep_json
from daemonkit.kube.client import ApiError, Requester, UnreachableError
from daemonkit.kube.resources import NODES, is_older
from daemonkit.tasks import Tasks
from syncer.core.objects import Object, metadata, uid_of, version_of
from syncer.core.plan import Conflict, Patch, Wait
from syncer.vnodes.desired import (
    VNodePolicy,
    VNodeScope,
    is_adoptable,
    is_own_vnode,
    vnode_changes,
    without_heartbeats,
)
from syncer.vnodes.lease import LEASE_NAMESPACE, LEASES, new_lease, renewal
from syncer.vnodes.super_nodes import SuperNodes

# As upstream (constants.go:94): a pod that is made again often comes back to its node.
IDLE_GRACE_S = 120.0
MAX_IN_FLIGHT = 4
# A renewal that takes as long as the interval is of no use any more.
RENEWAL_TIMEOUT_S = 10.0
FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 60.0
# Somebody else's write between our read and our patch; then the retry has its backoff.
_TRIES = 3
_MERGE_PATCH = "application/merge-patch+json"

NOT_READY = "VNodeNotReady"

_log = logs.get(__name__)

VNodeOutcome = Wait | Conflict | None


@dataclass(slots=True)
class VNodeCounts:
    """What all tenants' vNodes cost, for the metrics."""

    created: int = 0
    patched: int = 0
    deleted: int = 0
    failed: int = 0
    renewed: int = 0
    renewals_failed: int = 0


@dataclass(slots=True)
class _VNode:
    """One node of a tenant.

    `version` is that of the super node which was applied last, 0 if the vNode has to be looked at; `form`
    what was applied. `uid` is the Node's in the tenant, empty if there is none of ours, and
    `resource_version` that of our last write. `is_used`: a pod is or was there. Without that the tenant may
    have made the Node itself, and must not learn by it whether there is such a super node. `is_covered`: by
    the policy, whatever pods there are.
    """

    pods: set[str] = field(default_factory=set)
    is_used: bool = False
    is_covered: bool = False
    idle_since_s: float | None = None
    version: int = 0
    form: int = 0
    uid: str = ""
    resource_version: str = ""
    has_lease: bool = False
    outcome: VNodeOutcome = None
    failures: int = 0
    retry_s: float | None = None


class TenantVNodes:
    """The vNodes of one tenant. `close` it with its tenant: its Nodes stay then.

    Nothing is removed before `mark_synced`: until then pods are missing that are only not reported yet.
    """

    def __init__(
        self,
        client: Requester,
        policy: VNodePolicy,
        super_nodes: SuperNodes,
        tasks: Tasks,
        counts: VNodeCounts,
        renew_time: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self._client = client
        self._policy = policy
        self._super_nodes = super_nodes
        self._tasks = tasks
        self._counts = counts
        self._renew_time = renew_time
        self._jitter = jitter
        self._vnodes: dict[str, _VNode] = {}
        self._queue: dict[str, asyncio.Future[VNodeOutcome]] = {}
        self._running: set[str] = set()
        self._workers = 0
        self._leases: dict[str, None] = {}
        self._is_renewing = False
        self._has_synced = False
        self._spawned: set[asyncio.Task[None]] = set()
        for name in super_nodes:
            self.super_node_changed(name)

    # ---- What the engine reports

    def pod_bound(self, node: str, pod_uid: str) -> None:
        """A super pod of the tenant is on this node."""
        found = self._get_or_add(node)
        found.pods.add(pod_uid)
        found.is_used = True
        found.idle_since_s = None
        self._enqueue_unless_settled(node, found)

    def pod_gone(self, node: str, pod_uid: str) -> None:
        """A super pod of the tenant is no more."""
        found = self._vnodes.get(node)
        if found is not None and pod_uid in found.pods:
            found.pods.discard(pod_uid)
            if not found.pods:
                found.idle_since_s = _now()

    def mark_synced(self) -> None:
        """All pods that the tenant has in the super cluster have been reported."""
        self._has_synced = True

    def super_node_changed(self, name: str) -> None:
        """A super node appeared, changed or is gone."""
        is_covered = self._is_covered(name)
        if name not in self._vnodes and not is_covered:
            return
        found = self._get_or_add(name)
        if found.is_covered and not is_covered:
            found.idle_since_s = _now()
        found.is_covered = is_covered
        found.retry_s = None
        self._enqueue_unless_settled(name, found)

    def tenant_node_changed(self, name: str, actual: Object | None) -> None:
        """A Node of the tenant as it is now, None if it was deleted.

        What the engine's watch shows: so that edits of vNodes are repaired, and those are found that were
        left by an earlier run.
        """
        found = self._vnodes.get(name)
        if actual is None:
            if found is not None:
                found.version, found.retry_s = 0, None
                self._enqueue_unless_settled(name, found)
            return
        if found is None:
            if not is_own_vnode(actual):
                return
            found = self._get_or_add(name)
        if not self._is_shown(found) or is_older(version_of(actual), found.resource_version):
            return
        if self._settle_if_desired(name, found, actual):
            return
        found.version = 0
        self._enqueue_unless_settled(name, found)

    def set_policy(self, policy: VNodePolicy) -> None:
        """Apply another policy to all vNodes."""
        if policy == self._policy:
            return
        self._policy = policy
        for each in self._vnodes.values():
            each.version = each.form = 0
        for name in [*{*self._vnodes, *self._super_nodes}]:
            self.super_node_changed(name)

    # ---- What the engine asks

    async def ensure(self, node: str) -> VNodeOutcome:
        """Have the vNode there, for a pod that is to be bound to it; None once it is.

        One that is there costs nothing. Callers at the same time share the requests. The vNode then
        stays for the grace, so that the pod can be reported.
        """
        found = self._get_or_add(node)
        found.is_used = True
        if not found.pods:
            found.idle_since_s = _now()
        if found.retry_s is not None and _now() < found.retry_s:
            return found.outcome
        if self._is_settled(node, found):
            return found.outcome
        return await asyncio.shield(self._enqueue(node))

    def conflicts(self) -> dict[str, str]:
        """Nodes of the tenant that stand where a vNode should: name and message."""
        return {
            name: each.outcome.message
            for name, each in sorted(self._vnodes.items())
            if isinstance(each.outcome, Conflict)
        }

    # ---- What the timer does

    def tick(self) -> None:
        """Renew the Leases, retry what failed, remove what is idle. Call it once an interval of renewal."""
        now = _now()
        for name, each in self._vnodes.items():
            is_kept = self._is_kept(each)
            if not is_kept or (each.retry_s is not None and now >= each.retry_s):
                self._enqueue(name)
            if each.uid:
                self._leases[name] = None
        if self._leases and not self._is_renewing:
            self._is_renewing = True
            self._spawn(self._renew_leases(), "leases", self._end_renewing)

    def close(self) -> None:
        """End what goes on, and forget the tenant."""
        for task in self._spawned:
            task.cancel()
        for name in self._vnodes:
            self._super_nodes.remove_user(name)
        self._vnodes.clear()
        for waiter in self._queue.values():
            _end(waiter)
        self._queue.clear()
        self._leases.clear()

    # ---- State

    def _get_or_add(self, name: str) -> _VNode:
        found = self._vnodes.get(name)
        if found is None:
            found = self._vnodes[name] = _VNode(idle_since_s=_now(), is_covered=self._is_covered(name))
            self._super_nodes.add_user(name)
        return found

    def _is_kept(self, found: _VNode) -> bool:
        if found.pods or not self._has_synced or not self._super_nodes.has_synced:
            return True
        return found.is_covered or (
            found.idle_since_s is not None and _now() < found.idle_since_s + IDLE_GRACE_S
        )

    def _is_covered(self, name: str) -> bool:
        if self._policy.scope is VNodeScope.USED:
            return False
        node = self._super_nodes.find(name)
        return node is not None and self._policy.covers(node)

    @staticmethod
    def _is_shown(found: _VNode) -> bool:
        return found.is_used or found.is_covered

    def _is_settled(self, name: str, found: _VNode) -> bool:
        version = self._super_nodes.version(name)
        return version > 0 and found.version == version

    def _enqueue_unless_settled(self, name: str, found: _VNode) -> None:
        is_backing_off = found.retry_s is not None and _now() < found.retry_s
        if not is_backing_off and not self._is_settled(name, found):
            self._enqueue(name)

    def _settle_if_desired(self, name: str, found: _VNode, actual: Object) -> bool:
        """Take the Node of the tenant as applied, if it is right; return whether it is."""
        desired = self._super_nodes.desired(name, self._policy)
        if desired is None or not is_own_vnode(actual):
            return False
        try:
            if vnode_changes(desired, actual, self._policy):
                return False
        except (AttributeError, KeyError, TypeError, ValueError):
            return False  # no valid Node: what reads it next backs off
        found.uid = uid_of(actual)
        self._settle(name, found, desired)
        return True

    def _settle(self, name: str, found: _VNode, desired: Object) -> None:
        found.form = _form(desired)
        found.version = self._super_nodes.version(name)
        found.outcome, found.failures, found.retry_s = None, 0, None

    # ---- The queue

    def _enqueue(self, name: str) -> asyncio.Future[VNodeOutcome]:
        found = self._queue.get(name)
        if found is None:
            found = self._queue[name] = asyncio.get_running_loop().create_future()
        # Whoever works on it already takes it again.
        if self._workers < MAX_IN_FLIGHT and name not in self._running:
            self._workers += 1
            self._spawn(self._work(), "vnodes", self._end_worker)
        return found

    def _end_worker(self) -> None:
        self._workers -= 1

    def _spawn(self, coro: Coroutine[Any, Any, None], name: str, when_over: Callable[[], None]) -> None:
        task = self._tasks.spawn(coro, name, when_over=when_over)
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)

    async def _work(self) -> None:
        while (name := next((each for each in self._queue if each not in self._running), None)) is not None:
            waiter = self._queue.pop(name)
            self._running.add(name)
            try:
                outcome = await self._sync(name)
                if not waiter.done():
                    waiter.set_result(outcome)
            finally:
                self._running.discard(name)
                _end(waiter)  # if it has no result yet

    async def _sync(self, name: str) -> VNodeOutcome:
        """Bring one vNode to what it should be."""
        found = self._vnodes.get(name)
        if found is None:
            return None
        try:
            outcome = await self._apply(name, found)
        except ApiError as error:
            outcome = Wait(NOT_READY, f"node {name}: the tenant's API server answers {error.status.code}")
        except UnreachableError:
            outcome = Wait(NOT_READY, f"node {name}: the tenant's API server does not answer")
        # A tenant's API server may answer anything, and a task that fails here ends the daemon.
        except Exception as error:  # noqa: BLE001 - else one tenant stops all
            _log.warning("vNode cannot be read", node=name, error=error)
            outcome = Wait(NOT_READY, f"node {name}: the tenant's API server answers with no valid Node")
        if outcome is None:
            return None
        found.outcome = outcome
        found.failures += 1
        self._counts.failed += 1
        longest = backoff_s(found.failures, first_s=FIRST_BACKOFF_S, longest_s=MAX_BACKOFF_S)
        found.retry_s = _now() + spread_s(longest, self._jitter())
        return outcome

    async def _apply(self, name: str, found: _VNode) -> VNodeOutcome:
        if not self._is_kept(found):
            return await self._remove(name, found)
        if not self._is_shown(found):
            return None
        for _ in range(_TRIES):
            version = self._super_nodes.version(name)
            desired = self._super_nodes.desired(name, self._policy)
            if desired is None:
                if self._super_nodes.has_synced:
                    await self._delete(name, found)
                return Wait(NOT_READY, f"node {name} is not known in the super cluster")
            if found.version and found.form == _form(desired):
                found.version = version
                return None
            try:
                conflict = await self._write(name, found, desired)
            except ApiError as error:
                if error.status.code != 409:
                    raise
                continue  # made, or changed, since it was read
            if conflict is None:
                self._settle(name, found, desired)
                found.version = version
            return conflict
        return Wait(NOT_READY, f"node {name} is changed by others all the time")

    async def _write(self, name: str, found: _VNode, desired: Object) -> Conflict | None:
        actual = await self._read(name)
        if actual is None:
            actual = await self._request("POST", NODES.path(), desired)
            self._counts.created += 1
        elif not is_adoptable(actual):
            found.uid = ""
            return Conflict(f"Node {name} is the tenant's own, so the tenant has no vNode of that name")
        found.uid = uid_of(actual)
        for patch in vnode_changes(desired, actual, self._policy):
            actual = await self._patch(patch)
            self._counts.patched += 1
        found.resource_version = version_of(actual)
        return None

    async def _remove(self, name: str, found: _VNode) -> VNodeOutcome:
        await self._delete(name, found)
        # If a pod came meanwhile, whoever reported it has put the node into the queue again.
        if not self._is_kept(found) and self._vnodes.pop(name, None) is not None:
            self._super_nodes.remove_user(name)
        return None

    async def _delete(self, name: str, found: _VNode) -> None:
        """Delete the vNode. A Node that is not ours stays."""
        found.version = found.form = 0
        actual = await self._read(name)
        if actual is None or not is_own_vnode(actual):
            found.uid = ""
            return
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid_of(actual)}}
        try:
            await self._request("DELETE", NODES.path(None, name), body)
        except ApiError as error:
            if error.status.code != 404:
                raise
        found.uid, found.has_lease = "", False
        self._counts.deleted += 1

    # ---- Leases

    def _end_renewing(self) -> None:
        self._is_renewing = False

    async def _renew_leases(self) -> None:
        while self._leases:
            name = next(iter(self._leases))
            del self._leases[name]
            found = self._vnodes.get(name)
            if found is None or not found.uid or not self._super_nodes.is_alive(name):
                continue
            try:
                async with asyncio.timeout(RENEWAL_TIMEOUT_S):
                    await self._renew(name, found)
                self._counts.renewed += 1
            except ApiError:
                self._counts.renewals_failed += 1
            except (UnreachableError, TimeoutError):
                # The others are due again in the next interval, and would fail as well.
                self._counts.renewals_failed += 1
                self._leases.clear()
            # A tenant's API server may answer anything, and a task that fails here ends the daemon.
            except Exception as error:  # noqa: BLE001 - else one tenant stops all
                _log.warning("Lease cannot be renewed", node=name, error=error)
                self._counts.renewals_failed += 1

    async def _renew(self, name: str, found: _VNode) -> None:
        path, at_s = LEASES.path(LEASE_NAMESPACE, name), self._renew_time()
        try:
            await self._request("PATCH", path, renewal(name, at_s))
        except ApiError as error:
            if error.status.code != 404:
                raise
            await self._request("POST", LEASES.path(LEASE_NAMESPACE), new_lease(name, found.uid, at_s))
            if found.has_lease:
                # A Lease goes with its Node: that may be gone too.
                found.version = found.form = 0
                self._enqueue(name)
        found.has_lease = True

    # ---- Requests

    async def _read(self, name: str) -> Object | None:
        try:
            return _decode(await self._client.request("GET", NODES.path(None, name), {}))
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise

    async def _patch(self, patch: Patch) -> Object:
        path = NODES.path(None, patch.name)
        body = dict(patch.body)
        precondition = {"uid": patch.uid} | ({"resourceVersion": patch.version} if patch.version else {})
        body["metadata"] = metadata(body) | precondition
        return await self._request(
            "PATCH", f"{path}/{patch.subresource}" if patch.subresource else path, body
        )

    async def _request(self, method: str, path: str, body: Object) -> Object:
        content_type = _MERGE_PATCH if method == "PATCH" else "application/json"
        encoded = msgspec.json.encode(body)
        # Each may come twice: a second creation is a conflict, and is read again.
        answer = await self._client.request(method, path, {}, encoded, content_type=content_type)
        return _decode(answer)


def _decode(body: bytes) -> Object:
    try:
        if deep_json.has_too_many_values(body):
            raise UnreachableError(f"the answer has more than {deep_json.MAX_VALUES} values")
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreachableError(f"the answer is no object: {type(error).__name__}") from None


def _end(waiter: asyncio.Future[VNodeOutcome]) -> None:
    if not waiter.done():
        waiter.set_result(Wait(NOT_READY, "the tenant is not synced any more"))


def _form(desired: Object) -> int:
    """A number that differs for vNodes that differ in more than heartbeats."""
    return hash(msgspec.json.encode(without_heartbeats(desired)))


def _now() -> float:
    return asyncio.get_running_loop().time()
