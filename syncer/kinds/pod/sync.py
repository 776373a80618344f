# SPDX-License-Identifier: Apache-2.0
"""The plan for a pod. Pure.

The life of a pod is decided here: who deletes whom, and when there is a super pod at all. A pod that was
bound in the tenant has run or may run, so it is never made again: like on any cluster its controller makes
another one.
"""

import itertools

from msgspec.structs import replace

from daemonkit.kube.resources import Key
from syncer.core.objects import (
    Object,
    annotations_of,
    is_deleting,
    merge_patch,
    metadata,
    name_of,
    namespace_of,
    uid_of,
)
from syncer.core.pair import Pair
from syncer.core.plan import (
    NOTHING,
    Action,
    Bind,
    Change,
    Conflict,
    Create,
    Delete,
    Half,
    Patch,
    Plan,
    Refusal,
    Side,
    Wait,
)
from syncer.core.unknown import Unknown
from syncer.core.view import View
from syncer.kinds import judgement
from syncer.kinds.downward import WAITS_FOR_NAMESPACE, owns
from syncer.kinds.metadata import transparent_patch
from syncer.kinds.pod.down import super_pod
from syncer.kinds.pod.hostname import hostname_changes
from syncer.kinds.pod.images import pull_changes
from syncer.kinds.pod.metadata import KIND
from syncer.kinds.pod.status import end_of, has_begun, readiness_gates, tenant_status
from syncer.kinds.pod.updates import plan_updates
from syncer.kinds.pod.volumes import missing_tokens, required_tokens
from syncer.kinds.port import KindSync, SameName, Scope
from syncer.policy.refusal_list import MAX_REFUSALS
from tenancy import keys

_TERMINAL = ("Succeeded", "Failed")
ORPHAN_GRACE_S = 30
"""Of super pods whose tenant pod is gone, if their own grace period is not shorter."""


class PodSync(SameName):
    """Pods."""

    kind = KIND
    scope = Scope.NAMESPACED

    def plan(self, key: Key, objects: Pair[Object], view: View) -> Plan:
        tenant, found = objects
        if tenant is None:
            return NOTHING if found is None else _plan_orphan(found, key[0], view)
        changes = () if is_deleting(tenant) else _changes(tenant, found, view)
        plan = self._plan(key, tenant, found, view)
        return replace(plan, down=replace(plan.down, changes=changes)) if changes else plan

    def _plan(self, key: Key, tenant: Object, found: Object | None, view: View) -> Plan:
        if found is None:
            return _plan_without_super_pod(tenant, view)
        if not owns(found, view, key[0]):
            return _plan_with_foreign_pod(tenant, found)
        if annotations_of(found).get(keys.UID) != uid_of(tenant):
            # Of an earlier pod of this name. The new one goes down once it is gone.
            return _plan_orphan(found, key[0], view)
        if is_deleting(tenant):
            return _plan_deletion(tenant, found, view)
        return _plan_both(tenant, found, view)


def _changes(tenant: Object, found: Object | None, view: View) -> tuple[Change, ...]:
    reported = itertools.chain(
        judgement.changes(KIND.kind, tenant, view),
        pull_changes(tenant, view),
        hostname_changes(tenant, found, view),
    )
    return tuple(itertools.islice(reported, MAX_REFUSALS))


def _plan_orphan(found: Object, namespace: str, view: View) -> Plan:
    """The tenant's pod is gone, which was deleted by force: an orderly deletion ends with the super pod's.

    So no tenant waits for a long grace period. Upstream's is the same (pod/checker.go).
    """
    own = (found.get("spec") or {}).get("terminationGracePeriodSeconds")
    grace = min(own, ORPHAN_GRACE_S) if isinstance(own, int) else ORPHAN_GRACE_S
    if (is_deleting(found) and (_grace(found) or 0) <= grace) or not owns(found, view, namespace):
        return NOTHING
    return Plan(Half((_delete(Side.SUPER, found, grace),)))


def _plan_without_super_pod(tenant: Object, view: View) -> Plan:
    if is_deleting(tenant):
        return _plan_end(tenant)
    if (tenant.get("status") or {}).get("phase") in _TERMINAL and not _node(tenant):
        return NOTHING
    if _was_bound(tenant):
        return Plan(up=Half((_delete(Side.TENANT, tenant, 0),)))
    namespace = namespace_of(tenant)
    super_namespace = view.super_namespace(namespace)
    if isinstance(super_namespace, Unknown):
        return Plan(Half(wait=super_namespace.wait()))
    if super_namespace is None:
        waiting = Wait(WAITS_FOR_NAMESPACE, f"namespace {namespace} is not in the super cluster yet")
        return Plan(Half(wait=waiting))
    # A pod that the tenant made with a node has it already. All others get their tokens once they are bound.
    tokens = required_tokens(tenant) if _node(tenant) else None
    made = super_pod(tenant, super_namespace, view)
    if isinstance(made, Wait):
        return Plan(Half(wait=made))
    if isinstance(made, tuple):
        return Plan(Half(refusals=made))
    create = Create(Side.SUPER, KIND, made.body)
    return Plan(Half((create,) if tokens is None else (tokens, create), is_partial=made.has_more))


def _plan_end(tenant: Object) -> Plan:
    """The tenant's pod is being deleted, and nothing of it runs any more.

    What waits for its end with a finalizer, as a Job does, sees that in its status alone.
    """
    is_kept = bool(metadata(tenant).get("finalizers"))
    actions: list[Action] = []
    if is_kept and (tenant.get("status") or {}).get("phase") not in _TERMINAL:
        actions.append(_tenant_patch(tenant, {"status": end_of(tenant)}, subresource="status"))
    if not (is_kept and _grace(tenant) == 0):
        actions.append(_delete(Side.TENANT, tenant, 0))
    return Plan(up=Half(tuple(actions)))


def _plan_with_foreign_pod(tenant: Object, found: Object) -> Plan:
    """A pod that is not the tenant's, or has lost its annotations, stays.

    The tenant's may be deleted if it never ran: nothing says that the other one is not its super pod.
    """
    if is_deleting(tenant) and not _node(tenant):
        return Plan(up=Half((_delete(Side.TENANT, tenant, 0),)))
    return Plan(Half(conflict=Conflict(f"Pod {namespace_of(found)}/{name_of(found)} is not the tenant's")))


def _plan_deletion(tenant: Object, found: Object, view: View) -> Plan:
    """The tenant's pod is being deleted; the shorter grace period of both sides is that of both."""
    status = _status_actions(tenant, found, view, in_sync=False)
    grace = _grace(tenant)
    if not is_deleting(found):
        return Plan(Half((_delete(Side.SUPER, found, grace),)), Half(status))
    super_grace = _grace(found)
    if grace is None or super_grace is None or grace == super_grace:
        return Plan(up=Half(status))
    if super_grace < grace:
        # At 0 the super pod is about to go. The tenant's goes after it, not before.
        return Plan(up=Half((*status, _delete(Side.TENANT, tenant, super_grace)) if super_grace else status))
    return Plan(Half((_delete(Side.SUPER, found, grace),)), Half(status))


def _plan_both(tenant: Object, found: Object, view: View) -> Plan:
    node, super_node = _node(tenant), _node(found)
    if node and super_node and node != super_node:
        return Plan(up=Half((_delete(Side.TENANT, tenant, None),)))
    down: tuple[Action, ...] = ()
    refused: tuple[Refusal, ...] = ()
    waiting: Wait | None = None
    if not is_deleting(found):
        down, refused, waiting = plan_updates(tenant, found, view)
    actions: list[Action] = []
    is_binding = False
    # The API server refuses to bind a pod that its own gates hold.
    if super_node and not node and not tenant["spec"].get("schedulingGates") and not is_deleting(found):
        actions.append(Bind(namespace_of(tenant), name_of(tenant), uid_of(tenant), super_node))
        is_binding = True
    # The kubelet waits with the mount until they are there: they come right after the binding.
    if (is_binding or (node and super_node)) and _may_start(found):
        tokens = missing_tokens(tenant, found, view)
        actions += () if tokens is None else (tokens,)
    in_sync = not (down or refused or waiting or is_deleting(found))
    upward = _upward_metadata(tenant, found, view)
    # The version of the tenant's pod changes with these, and a status of one with readiness gates needs it.
    is_status_later = (is_binding or bool(upward)) and bool(readiness_gates(tenant))
    actions += upward
    # Most super pods are bound before they have more to report than a binding sets: a request less for each.
    # What they have comes up with the next plan, as the binding changes the tenant's pod.
    if not is_status_later and not (is_binding and not has_begun(found)):
        actions += _status_actions(tenant, found, view, in_sync=in_sync)
    if is_deleting(found):
        actions.append(_delete(Side.TENANT, tenant, _grace(found)))
    up = Half(tuple(actions), is_partial=is_status_later)
    return Plan(up=up) if in_sync else Plan(Half(down, refused, waiting, is_partial=bool(down)), up)


def _may_start(found: Object) -> bool:
    """Whether containers of a super pod will start, or run."""
    return not is_deleting(found) and (found.get("status") or {}).get("phase") not in _TERMINAL


def _upward_metadata(tenant: Object, found: Object, view: View) -> list[Action]:
    changes = transparent_patch(tenant, found, view.tenant)
    return [_tenant_patch(tenant, {"metadata": changes})] if changes else []


def _status_actions(tenant: Object, found: Object, view: View, *, in_sync: bool) -> tuple[Patch, ...]:
    if not found.get("status"):
        return ()
    wanted = tenant_status(tenant, found, view, in_sync=in_sync)
    body = merge_patch(tenant.get("status") or {}, wanted)
    if not body:
        return ()
    # The patch replaces the list of conditions, into which the tenant writes too.
    version = str(metadata(tenant).get("resourceVersion", "")) if readiness_gates(tenant) else ""
    return (_tenant_patch(tenant, {"status": body}, subresource="status", version=version),)


def _tenant_patch(tenant: Object, body: Object, *, subresource: str = "", version: str = "") -> Patch:
    return Patch(
        Side.TENANT,
        KIND,
        namespace_of(tenant),
        name_of(tenant),
        uid_of(tenant),
        body,
        subresource=subresource,
        version=version,
    )


def _delete(side: Side, pod: Object, grace_s: int | None) -> Delete:
    return Delete(side, KIND, namespace_of(pod), name_of(pod), uid_of(pod), grace_s)


def _node(pod: Object) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _grace(pod: Object) -> int | None:
    found = metadata(pod).get("deletionGracePeriodSeconds")
    return found if isinstance(found, int) else None


def _was_bound(tenant: Object) -> bool:
    """Whether the tenant's pod was bound, and not created with a node.

    A binding sets PodScheduled. A pod that has started was bound too, whatever its conditions are.
    """
    status = tenant.get("status") or {}
    if not _node(tenant):
        return False
    return status.get("phase") not in (None, "Pending") or any(
        each.get("type") == "PodScheduled" and each.get("status") == "True"
        for each in status.get("conditions") or ()
    )


SYNC: KindSync = PodSync()
