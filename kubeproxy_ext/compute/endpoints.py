# SPDX-License-Identifier: Apache-2.0
"""Which endpoints a Service port has, and which of them get packets."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kubeproxy_ext.compute.parse import EndpointInfo, PortInfo, SliceInfo
from ruleset.model import Endpoint, Family, Protocol

PortKey = tuple[str, Protocol]
"""Ports of slices and Services are joined by name and protocol, never by number."""

_Rank = tuple[bool, bool, bool, bool, tuple[str, tuple[str, ...], tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Candidate:
    """An endpoint of a Service port, with its slice's conditions. Local means on the guest's node."""

    endpoint: Endpoint
    source: EndpointInfo
    is_local: bool

    @property
    def is_serving_terminating(self) -> bool:
        """Whether it terminates and still serves: used when no endpoint is ready."""
        return self.source.is_serving and self.source.is_terminating


@dataclass(frozen=True, slots=True)
class CategorizedEndpoints:
    """The usable endpoints under each traffic policy, sorted by text; None for an unused policy.

    `has_any`: there are usable endpoints, if not under this policy.
    """

    cluster: tuple[Endpoint, ...] | None
    local: tuple[Endpoint, ...] | None
    has_any: bool


def join(
    ports: Iterable[PortInfo], slices: Iterable[SliceInfo], family: Family, node: str
) -> Mapping[PortKey, tuple[Candidate, ...]]:
    """The endpoints of each Service port, over all slices of the Service.

    An `ip:port` may be listed more than once, in one slice or several: a pod's address is given anew while
    the old Pod is still there, or an endpoint moves from one slice to another. It is one endpoint, and the
    copy in the best condition counts, with its node and hints. Order decides nothing.
    """
    known = {(port.name, port.protocol) for port in ports}
    found: dict[PortKey, dict[tuple[str, int], tuple[_Rank, Candidate]]] = {}
    for one in slices:
        if one.family is not family:
            continue
        for port in one.ports:
            key = (port.name, port.protocol)
            if key not in known:
                continue
            by_address = found.setdefault(key, {})
            for source in one.endpoints:
                is_local = source.node == node
                address = (source.ip, port.port)
                rank = _rank(source, is_local=is_local)
                best = by_address.get(address)
                if best is None or rank < best[0]:
                    by_address[address] = (rank, Candidate(Endpoint(source.ip, port.port), source, is_local))
    return {key: tuple(one for _, one in each.values()) for key, each in found.items()}


def _rank(source: EndpointInfo, *, is_local: bool) -> _Rank:
    """The rank of a copy among those of its address; the least counts.

    kube-proxy 1.36 prefers any copy that does not terminate (kubernetes/kubernetes#135593), and leaves it to
    chance which. Here it is then a ready one, a serving one, one on this node, one with the least node and
    hints, so that equal objects give equal rules.
    """
    hints = (source.node or "", source.zones, source.nodes)
    return source.is_terminating, not source.is_ready, not source.is_serving, not is_local, hints


def categorize(
    candidates: Sequence[Candidate], node: str, zone: str, *, needs_cluster: bool, needs_local: bool
) -> CategorizedEndpoints:
    """The endpoints that get packets under each policy: ready ones, else serving terminating ones.

    Topology hints apply to ready endpoints under policy Cluster only. (kube-proxy: CategorizeEndpoints.)
    """
    ready = [one for one in candidates if one.source.is_ready]
    last = [one for one in candidates if one.is_serving_terminating]
    cluster = local = None
    if needs_cluster:
        cluster = _sorted(_selected_by_hints(ready, node, zone) or last)
    if needs_local:
        local = _sorted([one for one in ready if one.is_local] or [one for one in last if one.is_local])
    return CategorizedEndpoints(cluster, local, has_any=bool(ready or last))


def serving(candidates: Iterable[Candidate]) -> tuple[Endpoint, ...]:
    """The endpoints that still serve established flows, ready or not."""
    return _sorted([one for one in candidates if one.source.is_serving])


def _selected_by_hints(ready: Sequence[Candidate], node: str, zone: str) -> Sequence[Candidate]:
    """The endpoints that node hints select, else those that zone hints select, else all.

    Hints count if every ready endpoint has one and at least one names this node or zone. So a slice from
    before hints were enabled, or with hints for other zones only, leaves no node without endpoints.
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
