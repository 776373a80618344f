# SPDX-License-Identifier: Apache-2.0
"""One tenant's vNodes: made before the first pod is bound, kept as the super node is, removed when idle.

What is next for each is decided by its `VNodeMachine`, and carried out here. All requests go to the tenant's
own API server, and only a few at a time: one that hangs holds up no other.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Generator
from dataclasses import dataclass
from typing import Any

import msgspec

from daemonkit import logs
from daemonkit.fairness.scheduler import AccountRun, without_account
from daemonkit.fairness.steps import WorkStep, in_steps
from daemonkit.kube.answers import decoded
from daemonkit.kube.client import ApiError, Requester, UnreachableError
from daemonkit.kube.resources import NODES
from daemonkit.tasks import Tasks
from syncer.core.objects import Object, metadata, uid_of, version_of
from syncer.core.plan import Conflict, Patch, Wait
from syncer.vnodes.desired import (
    VNodePolicy,
    VNodeScope,
    is_adoptable,
    is_own_vnode,
    is_vnode_of,
    kept_as_shown,
    vnode_changes,
    without_heartbeats,
)
from syncer.vnodes.lease import LEASE_NAMESPACE, LEASES, new_lease, renewal
from syncer.vnodes.machine import (
    BindingAsked,
    DeletionBegun,
    LeaseMade,
    LeaseRenewed,
    NodeAbsent,
    NodeDeleted,
    NodeDrifted,
    NodeFound,
    NodeMatches,
    NodeVanished,
    NodeWritten,
    NothingToWrite,
    PodGone,
    PodsBound,
    PolicyChanged,
    RemovalEnded,
    StepFailed,
    SuperNodeChanged,
    SuperNodeFacts,
    Tick,
    TurnBegun,
    VNodeAction,
    VNodeEvent,
    VNodeMachine,
    VNodeOutcome,
)
from syncer.vnodes.super_nodes import SuperNodes

MAX_IN_FLIGHT = 4
# vNodes of super nodes that are gone, which are looked for at each tick until they are removed. A tenant may
# have 100 000 Nodes that look like that.
MAX_WITHOUT_NODE = 1_000
# vNodes that another policy is applied to in one step, of up to 10 us each.
_STEP = 500
# A renewal that takes as long as the interval is of no use any more.
RENEWAL_TIMEOUT_S = 10.0
# Another client's write between our read and our patch; then the retry has its backoff.
_TRIES = 3
_OBJECT = msgspec.json.Decoder(Object)
_MERGE_PATCH = "application/merge-patch+json"

NOT_READY = "VNodeNotReady"

_DONE = object()

_log = logs.get(__name__)


@dataclass(slots=True)
class VNodeCounts:
    """What all tenants' vNodes cost, for the metrics."""

    created: int = 0
    patched: int = 0
    deleted: int = 0
    failed: int = 0
    renewed: int = 0
    renewals_failed: int = 0


class TenantVNodes:
    """The vNodes of one tenant. `close` it with its tenant, and `forget`: its Nodes stay then.

    Nothing is removed before `mark_synced`: until then pods are missing that are only not reported yet. While
    the policy is not known (None) nothing is made or removed either, and what it would decide stays as the
    tenant's Nodes have it. So a vNode without a pod stays.
    """

    def __init__(
        self,
        client: Requester,
        policy: VNodePolicy | None,
        super_nodes: SuperNodes,
        tasks: Tasks,
        counts: VNodeCounts,
        renew_time: Callable[[], float],
        jitter: Callable[[], float],
        run: AccountRun = without_account,
    ) -> None:
        """`run` has the tenant pay for what goes on: its API server decides how much that is."""
        self._client = client
        self._run = run
        self._has_policy = policy is not None
        self._policy = policy or VNodePolicy()
        self._super_nodes = super_nodes
        self._tasks = tasks
        self._counts = counts
        self._renew_time = renew_time
        self._jitter = jitter
        self._vnodes: dict[str, VNodeMachine] = {}
        # Before a policy is known: those that an earlier one showed, with or without pods.
        self._shown_before: set[str] = set()
        self._queue: dict[str, asyncio.Future[VNodeOutcome]] = {}
        self._running: set[str] = set()
        self._workers = 0
        self._leases: dict[str, None] = {}
        self._is_renewing = False
        self._has_synced = self._may_remove = False
        self._is_closed = False
        self._spawned: set[asyncio.Task[None]] = set()
        self._follow_scope()
        for name in self._nodes_in_scope():
            self.super_node_changed(name)

    # ---- What the engine reports

    def pod_bound(self, node: str, pod_uid: str) -> None:
        """A super pod of the tenant is on this node."""
        self.pods_bound(node, (pod_uid,))

    def pods_bound(self, node: str, pod_uids: Collection[str]) -> None:
        """Super pods of the tenant are on this node."""
        self._handle(node, self._get_or_add(node), PodsBound(pod_uids))

    def pod_gone(self, node: str, pod_uid: str) -> None:
        """A super pod of the tenant is no more."""
        if (found := self._vnodes.get(node)) is not None:
            self._handle(node, found, PodGone(pod_uid))

    def mark_synced(self) -> None:
        """All pods that the tenant has in the super cluster have been reported."""
        self._has_synced = True
        self._may_remove = self._has_policy

    def super_node_changed(self, name: str) -> None:
        """A super node appeared, changed or is gone."""
        if self._is_closed:
            return
        is_covered = self._is_covered(name)
        if name in self._vnodes or is_covered:
            self._handle(name, self._get_or_add(name), SuperNodeChanged(is_covered))

    def tenant_node_changed(self, name: str, actual: Object | None) -> None:
        """A Node of the tenant as it is now, None if it was deleted.

        What the engine's watch shows: so that edits of vNodes are repaired, and those are found that were
        left by an earlier run.
        """
        found = self._vnodes.get(name)
        if actual is None:
            self._note_shown_before(name, None)
            if found is not None:
                self._handle(name, found, NodeVanished())
            return
        if found is None:
            if not is_own_vnode(actual) or self._has_most_without_node(name):
                return
            found = self._get_or_add(name)
        self._note_shown_before(name, actual)
        if found.counts(version_of(actual)):
            self._handle(name, found, self._compare(name, actual))

    def set_policy(self, policy: VNodePolicy | None) -> None:
        """Apply another policy to all vNodes. None changes nothing: the last one that was known stays."""
        if policy is None or (policy == self._policy and self._has_policy):
            return
        self._policy, self._has_policy = policy, True
        self._shown_before.clear()
        self._may_remove = self._has_synced
        self._follow_scope()
        work = self._apply_policy()
        # The first step is taken at once: most tenants need no other one.
        if next(work, _DONE) is None:
            self._spawn(in_steps(work), "policy", lambda: None)

    def _apply_policy(self) -> Generator[None, None, None]:
        step = WorkStep(_STEP)
        for name in [*{*self._vnodes, *self._nodes_in_scope()}]:
            if (found := self._vnodes.get(name)) is not None:
                self._handle(name, found, PolicyChanged())
            self.super_node_changed(name)
            if step.count():
                yield

    # ---- What the engine asks

    async def ensure(self, node: str) -> VNodeOutcome:
        """Have the vNode there, for a pod that is to be bound to it; None once it is.

        One that is there costs nothing. Callers at the same time share the requests. The vNode then
        stays for the grace, so that the pod can be reported.
        """
        found = self._get_or_add(node)
        turn = self._handle(node, found, BindingAsked())
        return found.outcome if turn is None else await asyncio.shield(turn)

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
        for name, each in self._vnodes.items():
            self._handle(name, each, Tick())
            if each.uid and self._super_nodes.is_alive(name):
                self._leases[name] = None
        if self._leases and not self._is_renewing:
            self._is_renewing = True
            self._spawn(self._renew_leases(), "leases", self._end_renewing)

    def close(self) -> None:
        """End what goes on: nothing begins any more. `forget` is to follow."""
        self._is_closed = True
        for task in self._spawned:
            task.cancel()
        self._super_nodes.remove_user_of_all(self)
        for waiter in self._queue.values():
            _end(waiter)
        self._queue.clear()
        self._leases.clear()

    def forget(self) -> Generator[None, None, None]:
        """Give back in steps what is held of vNodes, after `close`."""
        step = WorkStep()
        while self._vnodes:
            name, _ = self._vnodes.popitem()
            self._super_nodes.remove_user(name, self)
            if step.count():
                yield

    # ---- State

    def _get_or_add(self, name: str) -> VNodeMachine:
        found = self._vnodes.get(name)
        if found is None:
            found = self._vnodes[name] = VNodeMachine(_now(), is_covered=self._is_covered(name))
            self._super_nodes.add_user(name, self)
        return found

    def _follow_scope(self) -> None:
        """Hear of nodes without a vNode only if the policy can cover them."""
        if self._policy.scope is VNodeScope.USED:
            self._super_nodes.remove_user_of_all(self)
        else:
            self._super_nodes.add_user_of_all(self)

    def _nodes_in_scope(self) -> list[str]:
        """The super nodes that the policy may show without pods."""
        return [] if self._policy.scope is VNodeScope.USED else list(self._super_nodes)

    def _has_most_without_node(self, name: str) -> bool:
        """Whether no further vNode is looked after that no super node has, or may have."""
        is_without_node = self._super_nodes.is_known(name) and name not in self._super_nodes
        return is_without_node and len(self._vnodes) >= len(self._super_nodes) + MAX_WITHOUT_NODE

    def _note_shown_before(self, name: str, actual: Object | None) -> None:
        """While no policy says whether the tenant has this vNode, one that it has is to stay alive."""
        if self._has_policy:
            return
        node = None if actual is None else self._super_nodes.find(name)
        is_shown = actual is not None and node is not None and is_vnode_of(actual, node)
        if (name in self._shown_before) != is_shown:
            (self._shown_before.add if is_shown else self._shown_before.discard)(name)
            self.super_node_changed(name)

    def _is_covered(self, name: str) -> bool:
        if not self._has_policy:
            return name in self._shown_before
        if self._policy.scope is VNodeScope.USED:
            return False
        node = self._super_nodes.find(name)
        return node is not None and self._policy.covers(node)

    def _send_event(self, name: str, found: VNodeMachine, event: VNodeEvent) -> VNodeAction | None:
        is_synced = self._may_remove and self._super_nodes.is_known(name)
        facts = SuperNodeFacts(self._super_nodes.version(name), is_synced)
        jitter = self._jitter() if isinstance(event, StepFailed) else 0.0
        return found.handle(event, facts, _now(), jitter)

    def _handle(
        self, name: str, found: VNodeMachine, event: VNodeEvent
    ) -> asyncio.Future[VNodeOutcome] | None:
        """Pass an event, and give the vNode a turn if it needs one: that is returned."""
        return self._enqueue(name) if self._send_event(name, found, event) is VNodeAction.ENQUEUE else None

    def _compare(self, name: str, actual: Object) -> NodeMatches | NodeDrifted:
        """Whether the tenant's Node is what it should be."""
        desired = self._super_nodes.desired(name, self._policy)
        if desired is None or not is_own_vnode(actual):
            return NodeDrifted()
        try:
            if self._changes(desired, actual):
                return NodeDrifted()
        except (AttributeError, KeyError, TypeError, ValueError):
            return NodeDrifted()  # no valid Node: what reads it next backs off
        return NodeMatches(uid_of(actual), _form(desired))

    def _changes(self, desired: Object, actual: Object) -> tuple[Patch, ...]:
        if not self._has_policy:
            desired = kept_as_shown(desired, actual)
        return vnode_changes(desired, actual, self._policy)

    # ---- The queue

    def _enqueue(self, name: str) -> asyncio.Future[VNodeOutcome]:
        found = self._queue.get(name)
        if found is None:
            found = self._queue[name] = asyncio.get_running_loop().create_future()
        # The task that works on it already takes it again.
        if self._workers < MAX_IN_FLIGHT and name not in self._running:
            self._workers += 1
            self._spawn(self._work(), "vnodes", self._end_worker)
        return found

    def _end_worker(self) -> None:
        self._workers -= 1

    def _spawn(self, coro: Coroutine[Any, Any, None], name: str, when_over: Callable[[], None]) -> None:
        task = self._tasks.spawn(self._run(coro), name, when_over=when_over)
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
            outcome = await self._take_turn(name, found)
        except ApiError as error:
            outcome = Wait(NOT_READY, f"node {name}: the tenant's API server answers {error.status.code}")
        except UnreachableError:
            outcome = Wait(NOT_READY, f"node {name}: the tenant's API server does not answer")
        # A tenant's API server may answer anything, and a task that fails here ends the daemon.
        except Exception as error:  # noqa: BLE001 - else one tenant stops all
            _log.warning("vNode cannot be read", node=name, error=error)
            outcome = Wait(NOT_READY, f"node {name}: the tenant's API server answers with no valid Node")
        if outcome is not None:
            self._send_event(name, found, StepFailed(outcome))
            self._counts.failed += 1
        return outcome

    async def _take_turn(self, name: str, found: VNodeMachine) -> VNodeOutcome:
        match self._send_event(name, found, TurnBegun()):
            case VNodeAction.REMOVE:
                await self._delete(name, found)
                is_over = self._send_event(name, found, RemovalEnded()) is VNodeAction.FORGET
                if is_over and self._vnodes.pop(name, None) is not None:
                    self._super_nodes.remove_user(name, self)
                return None
            case VNodeAction.APPLY:
                return await self._apply(name, found)
        return None

    async def _apply(self, name: str, found: VNodeMachine) -> VNodeOutcome:
        for _ in range(_TRIES):
            version = self._super_nodes.version(name)
            desired = self._super_nodes.desired(name, self._policy)
            if desired is None:
                if self._super_nodes.is_known(name):
                    await self._delete(name, found)
                return Wait(NOT_READY, f"node {name} is not known in the super cluster")
            form = _form(desired)
            if found.version and found.form == form:
                self._send_event(name, found, NothingToWrite(version))
                return None
            try:
                written = await self._write(name, found, desired)
            except ApiError as error:
                if error.status.code != 409:
                    raise
                continue  # made, or changed, since it was read
            if isinstance(written, Conflict | Wait):
                return written
            self._send_event(name, found, NodeWritten(version, form, written))
            return None
        return Wait(NOT_READY, f"node {name} is changed by others all the time")

    async def _write(self, name: str, found: VNodeMachine, desired: Object) -> Conflict | Wait | str:
        """Returns the version of what was written last."""
        actual = await self._read(name)
        if actual is None and not self._has_policy:
            self._send_event(name, found, NodeAbsent())
            return Wait(NOT_READY, f"node {name} is made once the SyncPolicy of the tenant is known")
        if actual is None:
            actual = await self._request("POST", NODES.path(), desired)
            self._counts.created += 1
        elif not is_adoptable(actual):
            self._send_event(name, found, NodeAbsent())
            return Conflict(f"Node {name} is the tenant's own, so the tenant has no vNode of that name")
        self._send_event(name, found, NodeFound(uid_of(actual)))
        for patch in self._changes(desired, actual):
            actual = await self._patch(patch)
            self._counts.patched += 1
        return version_of(actual)

    async def _delete(self, name: str, found: VNodeMachine) -> None:
        """Delete the vNode. A Node that is not ours stays."""
        self._send_event(name, found, DeletionBegun())
        actual = await self._read(name)
        if actual is None or not is_own_vnode(actual):
            self._send_event(name, found, NodeAbsent())
            return
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid_of(actual)}}
        try:
            await self._request("DELETE", NODES.path(None, name), body)
        except ApiError as error:
            if error.status.code != 404:
                raise
        self._send_event(name, found, NodeDeleted())
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

    async def _renew(self, name: str, found: VNodeMachine) -> None:
        path, at_s = LEASES.path(LEASE_NAMESPACE, name), self._renew_time()
        try:
            await self._request("PATCH", path, renewal(name, at_s))
        except ApiError as error:
            if error.status.code != 404:
                raise
            await self._request("POST", LEASES.path(LEASE_NAMESPACE), new_lease(name, found.uid, at_s))
            self._handle(name, found, LeaseMade())
            return
        self._send_event(name, found, LeaseRenewed())

    # ---- Requests

    async def _read(self, name: str) -> Object | None:
        try:
            return decoded(_OBJECT, await self._client.request("GET", NODES.path(None, name), {}))
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
        return decoded(_OBJECT, answer)


def _end(waiter: asyncio.Future[VNodeOutcome]) -> None:
    if not waiter.done():
        waiter.set_result(Wait(NOT_READY, "the tenant is not synced any more"))


def _form(desired: Object) -> int:
    """A number that differs for vNodes that differ in more than heartbeats."""
    return hash(msgspec.json.encode(without_heartbeats(desired)))


def _now() -> float:
    return asyncio.get_running_loop().time()
