# SPDX-License-Identifier: Apache-2.0
"""vc-syncer's tenants, and one object of a tenant, as lines for people."""

import json
from collections.abc import Container
from typing import Any

import msgspec

from tenancy import keys
from vcnode.terminal import Style, columns, duration, styled, table

SYNCED = "Synced"


class TenantProblem(msgspec.Struct):
    """Why a tenant cannot be synced."""

    reason: str
    message: str


class HeldDeletions(msgspec.Struct):
    """Deletions that a person must release."""

    reason: str = ""
    message: str = ""
    token: str = ""


class QueueDepths(msgspec.Struct, rename="camel"):
    """How many objects of a tenant are in the queue."""

    ready: int = 0
    delayed: int = 0
    in_flight: int = 0


class UnsyncedObject(msgspec.Struct):
    """An object that is not synced, with the reason that its tenant was given."""

    kind: str
    object: str
    reason: str


class SyncedTenant(msgspec.Struct, rename="camel"):
    """A tenant in vc-syncer's /status."""

    phase: str
    problem: TenantProblem | None = None
    virtual_cluster: str | None = None
    key: str = ""
    weight: int = 1
    queue: QueueDepths = msgspec.field(default_factory=QueueDepths)
    oldest_item_seconds: float | None = None
    held: dict[str, HeldDeletions] = {}
    last_error: str = ""
    network_problem: str = ""
    not_synced: tuple[UnsyncedObject, ...] = ()
    not_synced_count: int = 0

    @property
    def is_good(self) -> bool:
        return self.phase == SYNCED and not self.held


class SyncerStatus(msgspec.Struct, rename="camel"):
    """The part of vc-syncer's /status that this verb reads."""

    daemon: str
    tenants: dict[str, SyncedTenant] = {}
    source_problem: str = ""


class PlannedAction(msgspec.Struct, rename="camel"):
    """One request that a fresh plan would send."""

    action: str
    side: str
    kind: str
    subresource: str = ""
    patch: Any = None
    paths: tuple[str, ...] = ()
    node: str = ""


class RefusedField(msgspec.Struct):
    """A field that may not go down."""

    path: str
    message: str


class LookedUp(msgspec.Struct):
    """An object that a plan which waits has looked up."""

    side: str
    kind: str
    namespace: str
    name: str


class FreshPlan(msgspec.Struct, rename="camel"):
    """What a plan of the object would do now."""

    actions: tuple[PlannedAction, ...] = ()
    refusals: tuple[RefusedField, ...] = ()
    wait: TenantProblem | None = None
    conflict: str = ""
    waits_for: tuple[LookedUp, ...] = ()


class ObjectPage(msgspec.Struct, rename="camel"):
    """vc-syncer's /explain of one object."""

    tenant: str
    kind: str
    namespace: str
    name: str
    is_in_tenant: bool
    is_in_super: bool
    is_synced: bool
    super_namespace: str | None = ""
    owns_super_namespace: bool = False
    super_name: str = ""
    unreadable: dict[str, str] = {}
    """Why the object of a side, `tenant` or `super`, is there and cannot be read."""
    is_held: bool = False
    reason: str = ""
    conflict: str = ""
    policy_problem: str = ""
    plan: FreshPlan | None = None


def listed(status: dict[str, Any], sources: Container[str]) -> dict[str, Any]:
    """A document of vc-syncer's whole /status: tenants of these sources in `items`, the rest in `status`."""
    tenants: dict[str, Any] = status.get("tenants", {})
    items = [{"source": source, **each} for source, each in tenants.items() if source in sources]
    return {"items": items, "status": {key: value for key, value in status.items() if key != "tenants"}}


def render(
    status: SyncerStatus, tenants: dict[str, SyncedTenant], width: int | None = None, *, is_wide: bool = False
) -> list[str]:
    """The lines about these tenants, by their sources; of at most `width` characters but for commands."""
    lines = [f"tenants cannot be read: {status.source_problem}"] if status.source_problem else []
    if not tenants:
        return [*lines, "no tenants"]
    queue = ("WEIGHT", "READY", "DELAYED", "IN FLIGHT") if is_wide else ("QUEUE",)
    head = ("TENANT", "PHASE", *queue, "OLDEST", "HELD", "UNSYNCED", "WHY")
    rows = (_row(source, each, is_wide=is_wide) for source, each in tenants.items())
    lines += table([head, *rows], width)
    for source, each in tenants.items():
        for side, held in each.held.items():
            lines += ["", f"{each.key or source}: deletions are held on side {side}: {held.message}"]
            lines.append(f"  if they are meant: {release_command(each, held.token)}")
    return lines


def render_unsynced(tenant: SyncedTenant, width: int | None = None) -> list[str]:
    """The lines about the objects of a tenant that are not synced."""
    if not tenant.not_synced:
        return []
    rows = ((each.kind, each.object, each.reason) for each in tenant.not_synced)
    lines = ["", *table([("KIND", "OBJECT", "REASON"), *rows], width)]
    more = tenant.not_synced_count - len(tenant.not_synced)
    return [*lines, f"and {more} more"] if more > 0 else lines


def release_command(tenant: SyncedTenant, token: str) -> str:
    """What a person runs to release held deletions."""
    if tenant.virtual_cluster is None:
        return f"echo {token} > {tenant.key}.release   # in tenants.directory, beside the tenant's kubeconfig"
    namespace, _, name = tenant.virtual_cluster.partition("/")
    annotation = f"{keys.RELEASE_HELD}={token}"
    return f"kubectl annotate virtualcluster {name} --namespace {namespace} --overwrite {annotation}"


def _row(source: str, each: SyncedTenant, *, is_wide: bool) -> tuple[str, ...]:
    queue = each.queue
    depths = (queue.ready, queue.delayed, queue.in_flight)
    messages = (
        "" if each.problem is None else f"{each.problem.reason}: {each.problem.message}",
        each.network_problem,
        each.last_error,
    )
    return (
        each.key or source,
        styled(each.phase, Style.GOOD if each.phase == SYNCED else Style.WARNING),
        *map(str, (each.weight, *depths) if is_wide else (sum(depths),)),
        "-" if each.oldest_item_seconds is None else duration(each.oldest_item_seconds),
        ",".join(each.held) or "-",
        str(each.not_synced_count),
        "; ".join(filter(None, messages)) or "-",
    )


def is_agreed(page: ObjectPage) -> bool:
    """Whether both sides of the object are as they should be."""
    plan = page.plan
    return (
        (page.is_in_tenant or page.is_in_super)
        and not page.is_held
        and not page.reason
        and (plan is None or not (plan.actions or plan.refusals or plan.wait or plan.conflict))
    )


def render_object(page: ObjectPage, width: int | None = None) -> list[str]:
    """The lines about one object, of at most `width` characters."""
    rows = [
        ("tenant", _tenant_object(page)),
        ("super cluster", _super_object(page)),
        ("state", styled(_state(page), Style.GOOD if is_agreed(page) else Style.BAD)),
    ]
    if page.is_held:
        rows.append(("held", "its deletion waits for a person: vcnode tenants"))
    if page.policy_problem:
        rows.append(("policy", f"{page.policy_problem}: nothing new goes down"))
    if page.reason:
        rows.append(("reported", page.reason))
    if conflict := page.conflict or (page.plan.conflict if page.plan else ""):
        rows.append(("conflict", f"{conflict}; it is left as it is"))
    if page.plan is not None:
        rows += _plan_rows(page.plan)
    return columns(rows, width)


def _tenant_object(page: ObjectPage) -> str:
    own = f"{page.namespace}/{page.name}" if page.namespace else page.name
    if not page.is_in_tenant:
        return f"{page.kind} {own} does not exist"
    return f"{page.kind} {own}{_unreadable(page, 'tenant')}"


def _unreadable(page: ObjectPage, side: str) -> str:
    return f" cannot be read: {page.unreadable[side]}" if side in page.unreadable else ""


def _super_object(page: ObjectPage) -> str:
    if page.namespace and page.super_namespace is None:
        return "no super namespace can have the name"
    place = f"{page.super_namespace}/" if page.namespace else ""
    if page.is_in_super:
        return f"{page.kind} {place}{page.super_name}{_unreadable(page, 'super')}"
    if page.namespace and not page.owns_super_namespace:
        return f"namespace {page.super_namespace} is not there, or is not this tenant's"
    return f"none in {page.super_namespace}" if page.namespace else "none"


def _state(page: ObjectPage) -> str:
    if not (page.is_in_tenant or page.is_in_super):
        return "there is no such object on either side"
    if is_agreed(page):
        return "synced" if page.is_synced else "both sides agree"
    return "not synced"


def _plan_rows(plan: FreshPlan) -> list[tuple[str, str]]:
    rows = [("refused", f"{each.path}: {each.message}") for each in plan.refusals]
    if plan.wait is not None:
        rows.append(("waits", f"{plan.wait.reason}: {plan.wait.message}"))
        rows += [
            ("looked up", f"{each.side}: {each.kind} {each.namespace}/{each.name}") for each in plan.waits_for
        ]
    rows += [("differs", _action(each)) for each in plan.actions]
    return rows


def _action(each: PlannedAction) -> str:
    target = f"{each.kind}/{each.subresource}" if each.subresource else each.kind
    text = f"{each.action} {target} in the {'tenant' if each.side == 'tenant' else 'super cluster'}"
    if each.patch is not None:
        return f"{text}: {json.dumps(each.patch, ensure_ascii=False)}"
    if each.paths:
        return f"{text}: {', '.join(each.paths)}"
    return f"{text} to node {each.node}" if each.node else text
