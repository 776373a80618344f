# SPDX-License-Identifier: Apache-2.0
"""The plan that all kinds share whose objects tenants make: down by creation, patch and deletion. Pure."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from syncer.core.field_ownership import with_foreign_fields
from syncer.core.objects import (
    Object,
    SyncedKind,
    annotations_of,
    is_deleting,
    merge_patch,
    name_of,
    namespace_of,
    uid_of,
)
from syncer.core.plan import (
    NOTHING,
    Action,
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
from syncer.kinds.metadata import metadata_patch, super_object
from tenancy import keys

WAITS_FOR_NAMESPACE = "NamespaceNotSynced"

OwnedPart = Callable[[Object], Object]
"""The fields of an object, beside its metadata, that the tenant decides; may share parts with the object.

What others wrote in these stays where the tenant has nothing.
"""


def owns(found: Object, view: View, namespace: str) -> bool:
    """Whether a super object carries this tenant's annotations for this namespace."""
    annotations = annotations_of(found)
    return (
        annotations.get(keys.CLUSTER) == view.tenant.key
        and annotations.get(keys.NAMESPACE) == namespace
        and bool(annotations.get(keys.UID))
    )


def is_claimed(found: Object) -> bool:
    """Whether a super object carries the annotations of any tenant."""
    annotations = annotations_of(found)
    return keys.CLUSTER in annotations or keys.UID in annotations


def start(kind: SyncedKind, tenant: Object, view: View) -> Object | Wait | tuple[Refusal, ...]:
    """The start of the desired super object, what it waits for, or what no object of its kind may have.

    `tenant` is as its author wrote it, and stays so.
    """
    namespace = namespace_of(tenant)
    super_namespace = view.super_namespace(namespace)
    if isinstance(super_namespace, Unknown):
        return super_namespace.wait()
    if super_namespace is None:
        return Wait(WAITS_FOR_NAMESPACE, f"namespace {namespace} is not in the super cluster yet")
    refused = judgement.refusals(kind.kind, tenant, view)
    return refused or super_object(kind.kind, tenant, super_namespace, view)


def plan_removal(
    kind: SyncedKind, found: Object, namespace: str, view: View, grace_s: int | None = None
) -> Plan:
    """The plan for a super object whose tenant object is gone; one that is not the tenant's stays."""
    if not owns(found, view, namespace) or is_deleting(found):
        return NOTHING
    where = namespace_of(found), name_of(found), uid_of(found)
    return Plan(Half((Delete(Side.SUPER, kind, *where, grace_s),)))


def plan_stay(
    kind: SyncedKind, found: Object | None, namespace: str, view: View, changes: tuple[Change, ...]
) -> Plan:
    """The plan for an object that stays in the tenant whole; one that is below goes."""
    return Plan(Half(refused_deletions(kind, found, namespace, view), changes=changes))


def plan_stay_by_policy(
    kind: SyncedKind, found: Object | None, namespace: str, view: View, changes: tuple[Change, ...]
) -> Plan:
    """As `plan_stay`, of what another policy might let go down."""
    if view.policy_wait is not None:
        return Plan(Half(wait=view.policy_wait))
    return plan_stay(kind, found, namespace, view, changes)


def refused_deletions(
    kind: SyncedKind, found: Object | None, namespace: str, view: View
) -> tuple[Delete, ...]:
    """The deletion of the tenant's super object, also where those are held that follow from an absence."""
    removal = NOTHING if found is None else plan_removal(kind, found, namespace, view)
    return tuple(replace(each, is_refused=True) for each in removal.actions if isinstance(each, Delete))


def plan_down(
    kind: SyncedKind,
    tenant: Object,
    found: Object | None,
    desired: Object | Wait | tuple[Refusal, ...],
    view: View,
    *,
    owned: OwnedPart,
    domains: tuple[str, ...] | None = None,
    more: Iterable[Action] = (),
    up: Iterable[Action] = (),
    adopts: bool = False,
    is_answered: bool = False,
    ends: Callable[[Object], bool] = lambda _: False,
    is_exclusive: bool = False,
) -> Plan:
    """The plan for an object that the tenant has.

    `desired` is the whole super object, what it waits for, or why it may not go down. `owned` takes the
    fields to compare from both; `more` are actions beside that go down once both exist, and `up` those that
    come up, whatever stops what goes down. With `adopts`, an object of the tenant's super namespace that no
    tenant has yet becomes this one's.
    One that is being deleted is in force until it is gone, as on any cluster: its finalizers may need the
    super object, and pods still mount it. `ends` says of which ones the deletion goes down at once. Of one
    that is being deleted nothing is made anew.
    `is_answered`: what the API server chooses in the creation comes up. `is_exclusive`: of the owned fields
    nothing stays but the tenant's, whichever client wrote it.
    A refused object that is in the super cluster stays as it last was allowed.
    """
    namespace = namespace_of(tenant)
    is_ending = is_deleting(tenant)
    if found is None and is_ending:
        return NOTHING
    is_adopted = adopts and found is not None and not is_claimed(found)
    if found is not None and not owns(found, view, namespace) and not is_adopted:
        taken = f"{kind.kind} {namespace_of(found)}/{name_of(found)} is not the tenant's"
        return NOTHING if is_ending else Plan(Half(conflict=Conflict(taken)))
    if is_adopted and is_ending:
        return NOTHING
    if found is not None and is_ending and ends(tenant):
        return plan_removal(kind, found, namespace, view)
    if found is not None and not is_adopted and annotations_of(found).get(keys.UID) != uid_of(tenant):
        # The tenant's object was deleted and made again; its follower comes once the old one is gone.
        return plan_removal(kind, found, namespace, view)
    shown = Half(tuple(up))
    if isinstance(desired, Wait):
        return Plan(Half(wait=desired), shown)
    if isinstance(desired, tuple):
        return Plan(Half(refusals=desired), shown)
    changes = judgement.changes(kind.kind, tenant, view)
    if found is None:
        return Plan(Half((Create(Side.SUPER, kind, desired),), changes=changes, is_partial=is_answered))
    if is_deleting(found):
        return Plan(up=shown)  # made again once it is gone
    opaque = view.settings.opaque_domains if domains is None else domains
    actual, wanted = owned(found), owned(desired)
    body = merge_patch(actual, wanted if is_exclusive else with_foreign_fields(wanted, actual, found))
    if meta := metadata_patch(desired, found, view.tenant, opaque):
        body["metadata"] = meta
    actions = list(more)
    if body:
        actions.insert(0, Patch(Side.SUPER, kind, namespace_of(found), name_of(found), uid_of(found), body))
    return Plan(Half(tuple(actions), changes=changes), shown)
