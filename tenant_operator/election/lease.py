# SPDX-License-Identifier: Apache-2.0
"""The coordination.k8s.io/v1 Lease of a leader, as client-go's leader election writes it. Pure."""

import msgspec

from daemonkit.kube.resources import Resource
from daemonkit.lease_times import LEASE_DURATION_S, duration_s, lease_time
from tenant_operator.model.objects import Object

LEASES = Resource("coordination.k8s.io", "v1", "leases")

# client-go releases a Lease with it, as zero is no valid duration.
RELEASED_DURATION_S = 1.0


class LeaseRecord(msgspec.Struct, frozen=True):
    """What a Lease has. An empty holder has released it; without a version there is no such Lease yet.

    `renewed` changes with each renewal, and with no change of labels or annotations.
    """

    holder: str
    transitions: int = 0
    duration_s: float = LEASE_DURATION_S
    renewed: str = ""
    version: str = ""
    uid: str = ""


def parse_lease(value: Object) -> LeaseRecord:
    """One Lease. What is missing or of another type counts as not set."""
    metadata, spec = _mapping(value, "metadata"), _mapping(value, "spec")
    transitions = spec.get("leaseTransitions")
    return LeaseRecord(
        holder=_text(spec, "holderIdentity"),
        transitions=transitions if isinstance(transitions, int) else 0,
        duration_s=duration_s(spec.get("leaseDurationSeconds")),
        renewed=f"{_text(spec, 'acquireTime')} {_text(spec, 'renewTime')}",
        version=_text(metadata, "resourceVersion"),
        uid=_text(metadata, "uid"),
    )


def lease_body(namespace: str, name: str, record: LeaseRecord, wall_s: float, *, is_acquired: bool) -> Object:
    """The Lease to create, or the merge patch of one, which the API server refuses at another version.

    `is_acquired`: the holder changes. The times are for people; no process compares them with a clock.
    """
    at = lease_time(wall_s)
    spec: Object = {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": int(record.duration_s),
        "leaseTransitions": record.transitions,
        "renewTime": at,
    }
    if is_acquired:
        spec["acquireTime"] = at
    if record.version:
        return {"metadata": {"uid": record.uid, "resourceVersion": record.version}, "spec": spec}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def _mapping(value: Object, key: str) -> Object:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _text(value: Object, key: str) -> str:
    found = value.get(key)
    return found if isinstance(found, str) else ""
