# SPDX-License-Identifier: Apache-2.0
"""Which endpoints a Service port has, and which of them packets may go to."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kubeproxy_ext.compute.parse import EndpointInfo, PortInfo, SliceInfo
from ruleset.model import Endpoint, Family, Protocol

PortKey = tuple[str, Protocol]
"""What joins the ports of slices to those of Services: name and protocol, never the number."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An endpoint of a Service port, and what its slice says of it. Local: on the guest's node."""

    endpoint: Endpoint
    source: EndpointInfo
    is_local: bool

    @property
    def is_last_resort(self) -> bool:
        """It goes away and still answers: used when nothing is ready."""
        return self.source.is_serving and self.source.is_terminating


@dataclass(frozen=True, slots=True)
class CategorizedEndpoints:
    """Endpoints under each policy, sorted by their text; None: the Service has no use for it.

    `has_any`: something usable exists somewhere, if not under this policy.
    """

    cluster: tuple[Endpoint, ...] | None
    local: tuple[Endpoint, ...] | None
    has_any: bool


def join(
    ports: Iterable[PortInfo], slices: Iterable[SliceInfo], family: Family, node: str
) -> Mapping[PortKey, tuple[Candidate, ...]]:
    """The endpoints of each Service port that has some, over all slices of the Service.

    An `ip:port` that several slices name is one endpoint; a copy on this node wins, else that of the
    slice whose name sorts first (kube-proxy takes any).
    """
    wanted = {(port.name, port.protocol) for port in ports}
    found: dict[PortKey, dict[tuple[str, int], Candidate]] = {}
    for one in sorted(slices, key=lambda one: one.name):
        if one.family is not family:
            continue
        for port in one.ports:
            key = (port.name, port.protocol)
            if key not in wanted:
                continue
            known = found.setdefault(key, {})
            for source in one.endpoints:
                is_local = source.node == node
                place = (source.ip, port.port)
                if is_local or place not in known:
                    known[place] = Candidate(Endpoint(source.ip, port.port), source, is_local)
    return {key: tuple(known.values()) for key, known in found.items()}


def categorize(
    candidates: Sequence[Candidate], node: str, zone: str, *, uses_cluster: bool, uses_local: bool
) -> CategorizedEndpoints:
    """Who gets packets: the ready ones, else those that serve and terminate, each policy for itself.

    Topology hints narrow the Cluster set of ready endpoints alone.
    """
    ready = [one for one in candidates if one.source.is_ready]
    last = [one for one in candidates if one.is_last_resort]
    cluster = local = None
    if uses_cluster:
        cluster = _sorted(_near(ready, node, zone) or last)
    if uses_local:
        local = _sorted([one for one in ready if one.is_local] or [one for one in last if one.is_local])
    return CategorizedEndpoints(cluster, local, has_any=bool(ready or last))


def serving(candidates: Iterable[Candidate]) -> tuple[Endpoint, ...]:
    """The endpoints that may still answer a flow that goes to them, ready or not."""
    return _sorted([one for one in candidates if one.source.is_serving])


def _near(ready: Sequence[Candidate], node: str, zone: str) -> Sequence[Candidate]:
    """The endpoints that hints put near: by node, else by zone, else all.

    A level counts if every ready endpoint has a hint of it and one names us: a slice written before
    hints were switched on, or for other zones alone, must not leave us without endpoints.
    """
    for hints, here in (
        ([one.source.nodes for one in ready], node),
        ([one.source.zones for one in ready], zone),
    ):
        if here and _are_complete(hints, here):
            return [one for one, named in zip(ready, hints, strict=True) if here in named]
    return ready


def _are_complete(hints: Collection[tuple[str, ...]], here: str) -> bool:
    return all(hints) and any(here in named for named in hints)


def _sorted(candidates: Iterable[Candidate]) -> tuple[Endpoint, ...]:
    return tuple(sorted((one.endpoint for one in candidates), key=str))
