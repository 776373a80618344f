# SPDX-License-Identifier: Apache-2.0
"""Changes of a tenant's pod on their way to its super pod. Pure.

Only what the API server lets change is compared, by what the tenant has: containers, gates, tolerations and
values that the super cluster added are not taken away.
"""

from collections.abc import Iterable
from typing import Any

from syncer.core.objects import Object, annotations_of, name_of, namespace_of, text_of_value, uid_of
from syncer.core.plan import Action, Patch, Refusal, Side, Wait
from syncer.core.unknown import Unknown
from syncer.core.view import View
from syncer.kinds import judgement
from syncer.kinds.pod.down import annotations_refusal, ephemeral_containers
from syncer.kinds.pod.metadata import (
    KIND,
    MAX_ANNOTATION_BYTES,
    annotation_bytes,
    pod_metadata_patch,
    super_metadata,
)
from syncer.kinds.pod.runtime_class import remove_class_scheduling
from syncer.kinds.pod.status import own_conditions, readiness_gates
from syncer.policy import pods as policy
from tenancy import keys

_TERMINAL = ("Succeeded", "Failed")

# Of the lists of containers those whose images and resources can be changed.
_CHANGED_LISTS = ("containers", "initContainers")
# The only resources of a container that can be resized (core/validation, ValidatePodResize).
_RESIZABLE = ("cpu", "memory")
# A list of containers: of each that is on both sides its name, the tenant's, and the super pod's.
_Containers = tuple[str, list[tuple[str, Object, Object]]]


def plan_updates(
    tenant: Object, found: Object, view: View
) -> tuple[tuple[Action, ...], tuple[Refusal, ...], Wait | None]:
    """The actions on an existing super pod, or why there are none.

    The policy is asked only about a change: a pod that is there stays as it was allowed.
    """
    tenant = {**tenant, "spec": dict(tenant["spec"])}
    runtime_class = remove_class_scheduling(tenant, view)
    wanted = super_metadata(tenant, namespace_of(found), view)
    meta = pod_metadata_patch(wanted, found, view)
    both = _containers_of_both(tenant, found)
    spec = _spec_patch(tenant, found, both)
    sizes = {} if found.get("status", {}).get("phase") in _TERMINAL else _resize_patch(both)
    added = _new_ephemeral_containers(tenant, found)
    gates = _condition_patch(tenant, found)
    # A condition is no part of what the policy judges.
    ready = (_patch(found, {"status": {"conditions": gates}}, subresource="status"),) if gates else ()
    if not (meta or spec or sizes or added):
        return ready, (), None
    if isinstance(runtime_class, Unknown):
        return ready, (), runtime_class.wait()  # part of it may be of the class alone
    refused = judgement.refusals(KIND.kind, tenant, view) + policy.refusals(tenant, view.policy, found)
    if meta and annotation_bytes(wanted) > MAX_ANNOTATION_BYTES:
        refused += (annotations_refusal(),)
    if refused:
        return ready, refused, None
    actions: list[Action] = list(ready)
    if meta or spec:
        # With the list of the tenant's containers first: what judges a new container reads it.
        body = ({"metadata": meta} if meta else {}) | ({"spec": spec} if spec else {})
        actions.append(_patch(found, body, is_strategic=bool(spec)))
    waiting: Wait | None = None
    if added:
        containers = ephemeral_containers(tenant, added, view)
        if isinstance(containers, Wait):
            waiting = containers
        elif isinstance(containers, tuple):
            return ready, containers, None
        else:
            body = {"spec": {"ephemeralContainers": containers}}
            actions.append(_patch(found, body, subresource="ephemeralcontainers"))
    if sizes:
        actions.append(_patch(found, {"spec": sizes}, subresource="resize", is_separate=True))
    return tuple(actions), (), waiting


def _patch(
    found: Object,
    body: Object,
    *,
    subresource: str = "",
    is_strategic: bool = True,
    is_separate: bool = False,
) -> Patch:
    return Patch(
        Side.SUPER,
        KIND,
        namespace_of(found),
        name_of(found),
        uid_of(found),
        body,
        subresource=subresource,
        is_strategic=is_strategic,
        is_separate=is_separate,
    )


def _by_name(containers: Iterable[Object] | None) -> dict[str, Object]:
    return {str(each.get("name")): each for each in containers or ()}


def _containers_of_both(tenant: Object, found: Object) -> list[_Containers]:
    own, actual = tenant["spec"], found["spec"]
    both: list[_Containers] = []
    for field in _CHANGED_LISTS:
        if containers := own.get(field):
            there = _by_name(actual.get(field))
            pairs = [
                (name, each, there[name]) for name, each in _by_name(containers).items() if name in there
            ]
            both.append((field, pairs))
    return both


def _spec_patch(tenant: Object, found: Object, containers: Iterable[_Containers]) -> Object:
    """The strategic merge patch of `spec`; empty if nothing is to do."""
    own, actual = tenant["spec"], found["spec"]
    patch: Object = {}
    for field, pairs in containers:
        images = [
            {"name": name, "image": image}
            for name, container, there in pairs
            if (image := container.get("image")) and there.get("image") != image
        ]
        if images:
            patch[field] = images
    # It can be set, and made shorter; anything else is refused.
    deadline, limit = own.get("activeDeadlineSeconds"), actual.get("activeDeadlineSeconds")
    if deadline is not None and (limit is None or deadline < limit):
        patch["activeDeadlineSeconds"] = deadline
    # It can only be changed from a negative value to 1.
    grace = actual.get("terminationGracePeriodSeconds")
    if own.get("terminationGracePeriodSeconds") == 1 and grace is not None and grace < 0:
        patch["terminationGracePeriodSeconds"] = 1
    tolerations, wanted = actual.get("tolerations") or [], own.get("tolerations") or []
    if wanted != tolerations:
        tolerated = {text_of_value(each) for each in tolerations}
        more = [each for each in wanted if text_of_value(each) not in tolerated]
        if more:
            patch["tolerations"] = [*tolerations, *more]
    if actual.get("schedulingGates"):
        patch |= _gated_patch(own, found)
    return patch


def _gated_patch(own: Object, found: Object) -> Object:
    """What can be changed while a pod has scheduling gates: the gates, and where it may run."""
    actual: Object = found["spec"]
    patch: Object = {}
    held = {str(gate.get("name")) for gate in own.get("schedulingGates") or ()}
    brought = set(annotations_of(found).get(keys.SCHEDULING_GATES, "").split(","))
    removed = [
        {"$patch": "delete", "name": gate["name"]}
        for gate in actual["schedulingGates"]
        if gate.get("name") in brought and gate.get("name") not in held
    ]
    if removed:
        patch["schedulingGates"] = removed
    selector = actual.get("nodeSelector") or {}
    added = {key: value for key, value in (own.get("nodeSelector") or {}).items() if key not in selector}
    if added:
        patch["nodeSelector"] = added
    affinity = (own.get("affinity") or {}).get("nodeAffinity")
    if affinity and affinity != (actual.get("affinity") or {}).get("nodeAffinity"):
        patch["affinity"] = {"nodeAffinity": affinity}
    return patch


def _resize_patch(containers: Iterable[_Containers]) -> Object:
    """The strategic merge patch of containers whose tenant has resized them; empty without one."""
    patch: Object = {}
    for field, pairs in containers:
        changed = []
        for name, container, there in pairs:
            own, actual = container.get("resources"), there.get("resources") or {}
            sizes = _size_patch(own, actual) if own and own != actual else {}
            if sizes:
                changed.append({"name": name, "resources": sizes})
        if changed:
            patch[field] = changed
    return patch


def _size_patch(own: Object, actual: Object) -> Object:
    patch: Object = {}
    for field in ("requests", "limits"):
        wanted, there = own.get(field), actual.get(field) or {}
        if not wanted:
            continue
        changes = {
            name: wanted[name] for name in _RESIZABLE if name in wanted and wanted[name] != there.get(name)
        }
        if changes:
            patch[field] = changes
    return patch


def _new_ephemeral_containers(tenant: Object, found: Object) -> frozenset[str]:
    own = tenant["spec"].get("ephemeralContainers")
    if not own:
        return frozenset()
    return frozenset(_by_name(own)) - frozenset(_by_name(found["spec"].get("ephemeralContainers")))


def _condition_patch(tenant: Object, found: Object) -> list[Any]:
    """The conditions of the tenant's readiness gates, by type: the super kubelet computes Ready with them."""
    gates = readiness_gates(tenant) & readiness_gates(found)
    if not gates:
        return []
    own, actual = own_conditions(tenant), own_conditions(found)
    patch: list[Any] = []
    for kind in sorted(gates):
        if kind in own:
            if own[kind] != actual.get(kind):
                patch.append(own[kind])
        elif kind in actual:
            patch.append({"$patch": "delete", "type": kind})
    return patch
