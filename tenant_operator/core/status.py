# SPDX-License-Identifier: Apache-2.0
"""The status of a VirtualCluster after a plan, as a merge patch of what differs."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from tenant_operator.core.conditions import (
    MAX_MESSAGE_CHARS,
    ConditionStatus,
    ConditionType,
    Finding,
    merged,
)
from tenant_operator.core.observed import Failed, Observed
from tenant_operator.core.plan import TenantPlan
from tenant_operator.core.tenant import RUNNING, UPDATING
from tenant_operator.model.objects import Object
from tenant_operator.model.virtual_cluster import Condition, VirtualCluster, VirtualClusterStatus

FAILED_TRIES = 3
# A port, or a number of what is used or requested.
_COUNTS = re.compile(r"(?<=[:=])\d+[A-Za-z]*")


def status_after(observed: Observed, plan: TenantPlan, failures: tuple[Failed, ...]) -> VirtualClusterStatus:
    """The status as it should be. A step that failed stands in condition Ready."""
    cluster = observed.virtual_cluster
    before = cluster.status
    findings = with_failure(plan.findings, failures, is_served=before.phase in (RUNNING, UPDATING))
    if failures:
        findings = tuple(_as_before(each, before.conditions) for each in findings)
    after = msgspec.structs.replace(
        before,
        observed_generation=cluster.metadata.generation,
        conditions=merged(before.conditions, findings, observed.now_s),
        phase=before.phase if plan.phase is None else plan.phase,
        cluster_namespace=before.cluster_namespace or plan.key or "",
        endpoint=before.endpoint if plan.endpoint is None else plan.endpoint,
        cluster_version=before.cluster_version if plan.cluster_version is None else plan.cluster_version,
        restore=before.restore if plan.restore is None else plan.restore,
        sleep=before.sleep if plan.sleep is msgspec.UNSET else plan.sleep,
        backups=before.backups if plan.backups is None else list(plan.backups),
        rotations=before.rotations if plan.rotations is None else list(plan.rotations),
        rotated=before.rotated if plan.rotated is None else plan.rotated,
        nodes_authority=before.nodes_authority if plan.nodes_authority is None else plan.nodes_authority,
        keys=before.keys if plan.keys is None else list(plan.keys),
        refused_requests=(
            before.refused_requests if plan.refused_requests is None else list(plan.refused_requests)
        ),
        upgrade=before.upgrade if plan.upgrade is None else plan.upgrade,
        kubernetes_version=(
            before.kubernetes_version if plan.kubernetes_version is None else plan.kubernetes_version
        ),
    )
    after = msgspec.structs.replace(
        after, previous_cluster_version="" if after.upgrade is None else after.upgrade.from_
    )
    if any(each.type is ConditionType.READY for each in findings):
        ready = next(each for each in after.conditions if each.type == ConditionType.READY)
        # Upstream's fields, which its tools show.
        after = msgspec.structs.replace(after, reason=ready.reason, message=ready.message)
    return after


def status_patch(cluster: VirtualCluster, after: VirtualClusterStatus) -> Object | None:
    """A merge patch; None if the status is as it should be."""
    before = cluster.status
    if _is_same(before, after):
        return None
    old, new = _fields(before), _fields(after)
    changed = {key: _patched(old.get(key), value) for key, value in new.items() if old.get(key) != value}
    changed |= {key: None for key in old if key not in new}
    # Upstream's definition requires it.
    changed.setdefault("phase", after.phase)
    return {"metadata": {"resourceVersion": cluster.metadata.resource_version}, "status": changed}


def _patched(before: object, after: object) -> object:
    """A merge patch keeps the fields of an object that it does not name."""
    if isinstance(before, dict) and isinstance(after, dict):
        return {key: None for key in before if key not in after} | after
    return after


def with_failure(
    findings: tuple[Finding, ...], failures: tuple[Failed, ...], *, is_served: bool
) -> tuple[Finding, ...]:
    """The findings with the first failed step in the place of condition Ready.

    Of a tenant that `is_served` in the place of UpToDate, until several tries have failed: a write that was
    throttled, or met another's, takes nothing from it.
    """
    if not failures:
        return findings
    first = failures[0]
    is_passing = is_served and first.tries < FAILED_TRIES
    type_ = ConditionType.UP_TO_DATE if is_passing else ConditionType.READY
    failed = Finding(type_, ConditionStatus.FALSE, first.reason, f"{first.ref}: {first.message}")
    return (failed, *(each for each in findings if each.type is not type_))


def _as_before(finding: Finding, known: Sequence[Condition]) -> Finding:
    """With the message that the condition has, if only numbers differ which change at each try (ports, what a
    quota counts): the status would be written each time."""
    for each in known:
        is_same = (each.type, each.status, each.reason) == (finding.type, finding.status, finding.reason)
        if is_same and _COUNTS.sub("", each.message) == _COUNTS.sub("", finding.message[:MAX_MESSAGE_CHARS]):
            return msgspec.structs.replace(finding, message=each.message)
    return finding


def _fields(status: Any) -> Object:
    found: Object = msgspec.to_builtins(status)
    return found


def _is_same(before: Any, after: Any) -> bool:
    return bool(before == after)
