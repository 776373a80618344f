# SPDX-License-Identifier: Apache-2.0
"""Whether the workloads of a control plane run, from their statuses alone: no request is made to learn it."""

from collections.abc import Sequence

import msgspec

from tenant_operator.core.live import LiveObject
from tenant_operator.core.observed import Observed
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Object

_MAX_PROBLEM = 512


class Readiness(msgspec.Struct, frozen=True):
    """Of one workload: how many replicas it should have, has ready, has of its current template, and has."""

    name: str
    desired: int = 0
    ready: int = 0
    updated: int = 0
    replicas: int = 0
    is_found: bool = False
    is_observed: bool = False
    problem: str = ""
    """Why its pods cannot be made, as its controller has it from the API server."""

    @property
    def is_settled(self) -> bool:
        """All replicas run the current template and are ready; none of an earlier one is left."""
        if self.replicas != self.updated:
            return False  # while it rolls out, a ready one may be of the earlier template
        return (
            self.is_found and self.is_observed and self.ready >= self.desired and self.updated >= self.desired
        )

    @property
    def is_available(self) -> bool:
        """Enough replicas are ready to serve: one, or of a store the majority."""
        least = self.desired // 2 + 1 if self.name == names.ETCD else min(self.desired, 1)
        return self.is_found and self.ready >= least

    @property
    def is_serving(self) -> bool:
        """Whether it is available, and not only because it should have no replica."""
        return self.is_available and self.desired > 0

    @property
    def has_no_pod(self) -> bool:
        """Whether its controller knows what is desired, and has no pod of it."""
        return self.is_found and self.is_observed and self.desired > 0 and not self.replicas

    @property
    def sentence(self) -> str:
        """For a condition's message."""
        if not self.is_found:
            return f"{self.name} does not exist yet"
        if not self.desired:
            return f"{self.name} is not started yet"
        refused = f"; its pods are refused: {self.problem}" if self.problem else ""
        return f"{self.name} has {self.ready} of {self.desired} replicas ready{refused}"


def readiness_of(name: str, live: LiveObject | None) -> Readiness:
    """The readiness of a Deployment or StatefulSet."""
    if live is None:
        return Readiness(name)
    value: Object = live.value
    spec, status = value.get("spec") or {}, value.get("status") or {}
    generation = value["metadata"].get("generation", 0)
    return Readiness(
        name,
        desired=int(spec.get("replicas", 1)),
        ready=int(status.get("readyReplicas", 0)),
        updated=int(status.get("updatedReplicas", 0)),
        replicas=int(status.get("replicas", 0)),
        is_found=True,
        is_observed=int(status.get("observedGeneration", 0)) >= generation,
        problem=_problem(status),
    )


def _problem(status: Object) -> str:
    """What a quota, Pod Security, a LimitRange or a webhook answered."""
    for each in status.get("conditions") or ():
        if (each.get("type"), each.get("status")) == ("ReplicaFailure", "True"):
            return str(each.get("message", ""))[:_MAX_PROBLEM]
    return ""


def pods_of(parts: Sequence[Readiness]) -> int:
    """How many pods there are, or may be: those of a change that was not observed yet are not known."""
    return sum(max(each.replicas, each.desired, each.is_found and not each.is_observed) for each in parts)


def workloads(observed: Observed, control_plane: ControlPlane) -> tuple[Readiness, ...]:
    """The store, if it is the tenant's own, the API server and the controller manager, in this order."""
    key = control_plane.key
    store = readiness_of(names.ETCD, observed.live("StatefulSet", key, names.ETCD))
    return (
        *((store,) if control_plane.has_own_store else ()),
        readiness_of(names.API_SERVER, observed.live("Deployment", key, names.API_SERVER)),
        readiness_of(names.CONTROLLER_MANAGER, observed.live("Deployment", key, names.CONTROLLER_MANAGER)),
    )
