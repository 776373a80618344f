# SPDX-License-Identifier: Apache-2.0
"""coordination.k8s.io/v1 Leases of replicas, as client-go writes them. Pure.

The Lease of replica R of `vc-syncer` is `vc-syncer-R`. The claimed shards stand in an annotation.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from daemonkit.lease_times import duration_s, lease_time
from syncer.core.objects import Object, annotations_of, name_of, uid_of, version_of
from syncer.core.sharding import ReplicaLease, format_claims, parse_claims
from syncer.vnodes.lease import LEASES as LEASES
from tenancy import keys


@dataclass(frozen=True, slots=True)
class LeaseNames:
    """Where the replicas' Leases are, and how they are called."""

    namespace: str
    name: str

    @property
    def label_selector(self) -> str:
        return f"{keys.SHARDING}={self.name}"

    def of(self, replica: str) -> str:
        return f"{self.name}-{replica}"


def parse_leases(names: LeaseNames, objects: Iterable[Any]) -> Iterator[ReplicaLease]:
    """The replicas' Leases among the objects of a list."""
    prefix = names.of("")
    for value in objects:
        if isinstance(value, dict) and name_of(value).startswith(prefix):
            yield parse_lease(names, value)


def parse_lease(names: LeaseNames, value: Object) -> ReplicaLease:
    """One Lease. What is missing or of another type counts as not set."""
    spec = value.get("spec")
    fields: Object = spec if isinstance(spec, dict) else {}
    transitions = fields.get("leaseTransitions")
    return ReplicaLease(
        replica=name_of(value).removeprefix(names.of("")),
        holder=str(fields.get("holderIdentity") or ""),
        transitions=transitions if isinstance(transitions, int) else 0,
        claims=parse_claims(str(annotations_of(value).get(keys.SHARDS, ""))),
        version=version_of(value),
        uid=uid_of(value),
        duration_s=duration_s(fields.get("leaseDurationSeconds")),
    )


def new_lease(names: LeaseNames, lease: ReplicaLease, wall_s: float) -> Object:
    """The Lease to create."""
    patch = lease_patch(lease, wall_s, is_acquired=True)
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": names.of(lease.replica),
            "namespace": names.namespace,
            "labels": {keys.SHARDING: names.name},
            "annotations": patch["metadata"]["annotations"],
        },
        "spec": patch["spec"],
    }


def lease_patch(lease: ReplicaLease, wall_s: float, *, is_acquired: bool) -> Object:
    """The merge patch of an existing Lease, which the API server refuses at another version.

    `is_acquired`: the holder changes. The times are for people; no replica compares them with its clock.
    """
    at = lease_time(wall_s)
    spec: Object = {
        "holderIdentity": lease.holder,
        "leaseDurationSeconds": int(lease.duration_s),
        "leaseTransitions": lease.transitions,
        "renewTime": at,
    }
    if is_acquired:
        spec["acquireTime"] = at
    return {
        "metadata": {
            "uid": lease.uid,
            "resourceVersion": lease.version,
            "annotations": {keys.SHARDS: format_claims(lease.claims)},
        },
        "spec": spec,
    }
