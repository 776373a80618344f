# SPDX-License-Identifier: Apache-2.0
"""The intended differences of a guest from kube-proxy, each with its reason. Any other fails.

The sources are docs/spec/services.md and kubeproxy_ext/README.md.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kubeproxy_ext.compute.addresses import canonical_ip
from ruleset.model import Endpoint
from ruletrace.packet import PacketVerdict
from tests.k8s.oracle.draw import Json, ingress
from tests.k8s.oracle.probes import DestinationKind, FlowProbe
from tests.k8s.oracle.sides import OracleNode

IPTABLES, NFTABLES = "iptables", "nftables"
_OUTER = frozenset({DestinationKind.EXTERNAL_IP, DestinationKind.BALANCER_IP, DestinationKind.NODE_PORT})
_ANY = frozenset[PacketVerdict]()


@dataclass(frozen=True, slots=True)
class ComparedProbe:
    """One probe with both observations. `service` is its object, or None; `is_captured`: our rules have its
    destination."""

    probe: FlowProbe
    mode: str
    theirs: frozenset[Endpoint | PacketVerdict]
    ours: frozenset[Endpoint | PacketVerdict]
    service: Json | None
    is_captured: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """An accepted difference: for probes of these kinds, with kube-proxy in one of these modes, kube-proxy
    gives `theirs` and a guest `ours` (empty: anything)."""

    name: str
    reason: str
    modes: tuple[str, ...]
    kinds: tuple[DestinationKind, ...]
    theirs: frozenset[PacketVerdict]
    ours: frozenset[PacketVerdict]
    only_if: Callable[[ComparedProbe], bool] = lambda _: True

    def covers(self, case: ComparedProbe) -> bool:
        return (
            case.mode in self.modes
            and case.probe.kind in self.kinds
            and (not self.theirs or case.theirs == self.theirs)
            and (not self.ours or case.ours == self.ours)
            and self.only_if(case)
        )


def has_source_ranges(service: Json | None, destination: str) -> bool:
    """Whether the Service has source ranges of that address's family; kube-proxy applies these alone."""
    ranges = service["spec"].get("loadBalancerSourceRanges") or () if service is not None else ()
    return any((":" in one) == (":" in destination) for one in ranges)


def has_local_policy(service: Json | None) -> bool:
    """Whether external traffic reaches only endpoints on the node."""
    return service is not None and service["spec"].get("externalTrafficPolicy") == "Local"


def _is_ranged(case: ComparedProbe) -> bool:
    return has_source_ranges(case.service, case.probe.flow.destination)


def _is_both(case: ComparedProbe) -> bool:
    ips = {canonical_ip(one["ip"]) for one in ingress(case.service or {"spec": {}})}
    return case.probe.flow.destination in ips


DIFFERENCES = (
    Difference(
        name="no node ports",
        reason="a guest has its own address; a packet to the node's address goes to the node, whose "
        "kube-proxy does not serve the VPC",
        modes=(IPTABLES, NFTABLES),
        kinds=(DestinationKind.NODE_PORT,),
        theirs=_ANY,
        ours=frozenset({PacketVerdict.PASS}),
    ),
    Difference(
        name="the service range rejects",
        reason="kube-proxy in nftables mode drops packets to unallocated addresses of the service range. A "
        "guest rejects them: a SYN that is earlier than its Service's rules is then retried at once, "
        "not after a timeout",
        modes=(NFTABLES,),
        kinds=(
            DestinationKind.UNALLOCATED,
            DestinationKind.CLUSTER_IP,
            DestinationKind.WRONG_PORT,
            DestinationKind.WRONG_PROTOCOL,
        ),
        theirs=frozenset({PacketVerdict.DROP}),
        ours=frozenset({PacketVerdict.REJECT}),
        only_if=lambda case: not case.is_captured,
    ),
    Difference(
        name="missing endpoints are rejected outside the source ranges too",
        reason="kube-proxy's modes differ: iptables rejects a Service without endpoints before it checks "
        "source ranges, nftables checks these first; a guest does as iptables",
        modes=(NFTABLES,),
        kinds=(DestinationKind.BALANCER_IP,),
        theirs=frozenset({PacketVerdict.DROP}),
        ours=frozenset({PacketVerdict.REJECT}),
        only_if=_is_ranged,
    ),
    Difference(
        name="source ranges do not apply to external IPs",
        reason="where a Service has an address both as external IP and as load balancer address, kube-proxy "
        "in mode iptables treats it as external IP, and filters no sources; nftables filters. A guest does "
        "as iptables",
        modes=(NFTABLES,),
        kinds=(DestinationKind.EXTERNAL_IP,),
        theirs=frozenset({PacketVerdict.DROP}),
        ours=_ANY,
        only_if=lambda case: _is_ranged(case) and _is_both(case),
    ),
)

MASQUERADED = "masqueraded"
LEFT_BEHIND = "conntrack entries left behind"

OTHERS = {
    MASQUERADED: "kube-proxy masquerades packets whose replies must pass this node: those to an external "
    "address, and those of a pod to itself. Replies to a guest reach the guest, so endpoints "
    "see its address (`wrong_sources`)",
    LEFT_BEHIND: "after a sync with changed slices of UDP Services kube-proxy deletes UDP entries without a "
    "serving endpoint, but not those of a Service without serving endpoints, of a deleted "
    "Service, of a removed address, and not after a change of the Service alone; and never an untranslated "
    "TCP entry. As long as such an entry lives, its flow counts as external: it is dropped where "
    "externalTrafficPolicy is Local and the node has no endpoint, and in mode iptables at a load balancer "
    "address with source ranges (seen with 1.34.4). A guest deletes all these at once (`long_lived_flows`)",
}
"""Differences other than a packet's end."""

NOT_DRAWN = {
    "two Services with one address and port": "kube-proxy follows the order of a Go map",
    "different copies of an endpoint of which several do not terminate, or all do": "likewise",
    "a Service with the label of headless ones, a slice with that of another proxy": "kube-proxy ignores "
    "both in 1.34 and uses both in 1.36; a guest ignores them",
    "a probing pod's address as an endpoint of another node": "in mode nftables kube-proxy 1.36 does not "
    "masquerade what such a pod sends to itself, and no answer comes",
    "a slice whose label names another Service than before": "kube-proxy keeps its endpoints at the "
    "earlier Service until it restarts; a guest moves them (seen with 1.34.4)",
    "an endpoint's port beyond 65535, which the API server lets in": "iptables and nft refuse all later "
    "writes of kube-proxy; a guest leaves the port out (seen with 1.34.4)",
}
"""Inputs that are not drawn, and the reasons."""


def accepted(case: ComparedProbe) -> Difference | None:
    """The difference that covers a case; None without one."""
    return next((one for one in DIFFERENCES if one.covers(case)), None)


def wrong_sources(
    probe: FlowProbe,
    ends: frozenset[Endpoint | PacketVerdict],
    theirs: Iterable[str],
    ours: Iterable[str],
    node: OracleNode,
) -> str:
    """A message about wrong source addresses at the endpoints, or ""."""
    is_six = ":" in probe.flow.destination
    pod = node.pod_ips[is_six]
    if set(ours) - {pod}:
        return f"endpoints of ours saw {sorted(ours)}, not {pod}"
    may_masquerade = probe.kind in _OUTER or pod in {end.ip for end in ends if isinstance(end, Endpoint)}
    if set(theirs) - {pod} and not may_masquerade:
        return f"kube-proxy masqueraded: {sorted(theirs)}"
    return ""
