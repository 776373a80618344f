# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a control plane, from what a person may read: objects in, causes with remedies out."""

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kubectl_vc.core.diagnosis import Diagnosis
from kubectl_vc.core.pod_faults import pod_diagnoses
from kubectl_vc.core.table import age, printable
from kubectl_vc.core.view import READY, SLEEPING, Object, TenantView, number, objects, parsed_time, text

OPERATOR = "vc-operator"
# Kubernetes' leader election takes over after 15 s; this is for clocks that differ.
_STALE_LEASE_S = 60
_SLOW_DELETION_S = 120
_MAX_EVENTS = 5
_EVENT_AGE_S = 3600
_REFUSED = ("RequestInvalid", "RestoreRefused")


class TenantFacts(NamedTuple):
    """None is what could not be read; `unread` has the reasons."""

    view: TenantView
    versions: Sequence[Object] | None = None
    leases: Sequence[Object] | None = None
    events: Sequence[Object] | None = None
    pods: Sequence[Object] | None = None
    workloads: Sequence[Object] | None = None
    claims: Sequence[Object] | None = None
    unread: tuple[str, ...] = ()


def diagnoses(facts: TenantFacts, now: dt.datetime) -> list[Diagnosis]:
    """In the order in which to mend them: the object, the operator, its conditions, pods, volumes, Events."""
    view = facts.view
    found = [
        *_of_object(facts, now),
        *_of_conditions(view),
        *pod_diagnoses(facts.pods or (), view.root_namespace),
        *_of_workloads(facts),
        *_of_claims(facts),
    ]
    return [*found, *_of_events(facts, now)]


def lines(facts: TenantFacts, found: Sequence[Diagnosis], now: dt.datetime) -> list[str]:
    """The report."""
    view = facts.view
    state = "Terminating" if view.is_deleting else view.phase or "Pending"
    version = view.version or view.desired_version
    shown = [
        f"VirtualCluster {view.path}: {state}, {version}, control plane in namespace"
        f" {view.root_namespace or '-'}"
    ]
    if view.sleeping_since:
        wake = f"kubectl vc wake {view.name} -n {view.namespace}"
        shown.append(f"It sleeps since {age(view.sleeping_since, now)}; to wake it: {wake}")
    for each in found:
        shown += [f"{each.subject}: {each.cause}", f"    {each.remedy}"]
    shown += [f"not examined: {each}" for each in facts.unread]
    if not found:
        shown.append("nothing is wrong in what could be examined" if facts.unread else "nothing is wrong")
    return [printable(each) for each in shown]


def _of_object(facts: TenantFacts, now: dt.datetime) -> Iterator[Diagnosis]:
    view = facts.view
    subject = f"VirtualCluster {view.path}"
    if facts.versions is not None and view.desired_version not in {
        text(each, "metadata", "name") for each in facts.versions
    }:
        yield Diagnosis(
            f"ClusterVersion {view.desired_version}",
            "it does not exist, and spec.clusterVersionName names it",
            f"apply it, or choose another: kubectl vc upgrade {view.name} -n {view.namespace} VERSION",
        )
    if view.is_deleting:
        since = parsed_time(text(view.value, "metadata", "deletionTimestamp"))
        if since is not None and (now - since).total_seconds() > _SLOW_DELETION_S:
            waits_for = view.message or view.condition(READY).message or "vc-operator"
            yield Diagnosis(
                subject,
                f"its deletion began {age(text(view.value, 'metadata', 'deletionTimestamp'), now)} ago and"
                f" waits for"
                f" {waits_for}",
                "mend or remove that object; see that vc-operator runs",
            )
    if view.is_observed and not view.is_deleting:
        return
    operator = _operator_problem(facts.leases, now)
    if operator is not None:
        yield operator
    elif not view.is_deleting:
        yield Diagnosis(
            subject,
            f"vc-operator has not observed generation {number(view.value, 'metadata', 'generation')}",
            f"see its log: kubectl logs -A -l app={OPERATOR}",
        )


def _operator_problem(leases: Sequence[Object] | None, now: dt.datetime) -> Diagnosis | None:
    """None if it runs, or that cannot be seen."""
    if leases is None:
        return None
    renewed = [parsed_time(text(each, "spec", "renewTime")) for each in leases]
    last = max((each for each in renewed if each is not None), default=None)
    remedy = f"see its Deployment: kubectl get deployments -A -l app={OPERATOR}"
    if last is None:
        return Diagnosis(
            OPERATOR, "it has never run in this cluster: it has no Lease", f"install it; or {remedy}"
        )
    silent_s = int((now - last).total_seconds())
    if silent_s > _STALE_LEASE_S:
        return Diagnosis(OPERATOR, f"no replica runs: its Lease was renewed {silent_s} s ago", remedy)
    return None


def _of_conditions(view: TenantView) -> Iterator[Diagnosis]:
    """Ready repeats another one, so it is shown if it is alone."""
    failing = [each for each in view.conditions if not each.is_true and each.type != SLEEPING]
    causes = [each for each in failing if each.type != READY] or failing
    if view.sleeping_since:
        # What a person asks is refused asleep or awake.
        causes = [each for each in causes if each.reason in _REFUSED]
    for each in causes:
        cause, _, remedy = each.message.partition("; ")
        yield Diagnosis(
            f"condition {each.type}",
            f"{each.status}, {each.reason or 'without a reason'}{': ' * bool(cause)}{cause}",
            remedy or "its cause is among what follows, or in the log of vc-operator",
        )


def _of_workloads(facts: TenantFacts) -> Iterator[Diagnosis]:
    """Those that could not make a pod; what is wrong with a pod, its own diagnosis says."""
    for each in facts.workloads or ():
        name = f"{text(each, 'kind')} {text(each, 'metadata', 'name')}"
        for condition in objects(each, "status", "conditions"):
            if text(condition, "type") == "ReplicaFailure" and text(condition, "status") == "True":
                yield Diagnosis(
                    name,
                    f"it cannot make pods: {text(condition, 'message')}",
                    "change the quota, policy or webhook of the super cluster that the message names",
                )


def _of_claims(facts: TenantFacts) -> Iterator[Diagnosis]:
    for each in facts.claims or ():
        phase = text(each, "status", "phase")
        if phase not in ("", "Bound"):
            storage_class = text(each, "spec", "storageClassName") or "the default StorageClass"
            yield Diagnosis(
                f"PersistentVolumeClaim {text(each, 'metadata', 'name')}",
                f"it is {phase}, of {storage_class}",
                f"see why: kubectl -n {facts.view.root_namespace} describe pvc"
                f" {text(each, 'metadata', 'name')}",
            )


def _of_events(facts: TenantFacts, now: dt.datetime) -> Iterator[Diagnosis]:
    """The newest Warning of each object and reason, within an hour."""
    newest: dict[tuple[str, str], tuple[dt.datetime, Object]] = {}
    for each in facts.events or ():
        at = _time_of(each)
        if text(each, "type") != "Warning" or at is None or (now - at).total_seconds() > _EVENT_AGE_S:
            continue
        key = (_regarding(each), text(each, "reason"))
        if key not in newest or newest[key][0] < at:
            newest[key] = (at, each)
    for at, each in sorted(newest.values(), key=lambda pair: pair[0], reverse=True)[:_MAX_EVENTS]:
        yield Diagnosis(
            f"Event of {_regarding(each)}",
            f"{text(each, 'reason')}: {text(each, 'message')}",
            f"it was seen {int((now - at).total_seconds())} s ago",
        )


def _regarding(event: Object) -> str:
    return f"{text(event, 'involvedObject', 'kind')} {text(event, 'involvedObject', 'name')}"


def _time_of(event: Object) -> dt.datetime | None:
    """Both APIs of Events have their own fields."""
    times = (
        ("series", "lastObservedTime"),
        ("lastTimestamp",),
        ("eventTime",),
        ("metadata", "creationTimestamp"),
    )
    return next((found for path in times if (found := parsed_time(text(event, *path))) is not None), None)
