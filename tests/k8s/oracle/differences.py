# SPDX-License-Identifier: Apache-2.0
"""Where a guest is meant to do otherwise than kube-proxy, each with its reason. Nothing else is let pass.

The sources are ../shared/reference/service-proxy.md 1.8, 2.7 and 3.1, and kubeproxy_ext/README.md.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kubeproxy_ext.compute.addresses import canonical_ip
from ruleset.model import Endpoint
from ruletrace.packet import PacketVerdict
from tests.k8s.oracle.draw import Json, ingress
from tests.k8s.oracle.questions import DestinationKind, Question
from tests.k8s.oracle.sides import NodeAndPod

IPTABLES, NFTABLES = "iptables", "nftables"
_OUTER = frozenset({DestinationKind.EXTERNAL_IP, DestinationKind.BALANCER_IP, DestinationKind.NODE_PORT})
_ANY = frozenset[PacketVerdict]()


@dataclass(frozen=True, slots=True)
class ComparedQuestion:
    """One question with both answers. `service` is the object, None where the question is of none;
    `is_captured` whether our rules have its destination."""

    question: Question
    mode: str
    theirs: frozenset[Endpoint | PacketVerdict]
    ours: frozenset[Endpoint | PacketVerdict]
    service: Json | None
    is_captured: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """Answers that may differ so: questions of these kinds, kube-proxy in one of these modes, which
    says `theirs` where a guest says `ours` (empty: anything)."""

    name: str
    reason: str
    modes: tuple[str, ...]
    kinds: tuple[DestinationKind, ...]
    theirs: frozenset[PacketVerdict]
    ours: frozenset[PacketVerdict]
    only_if: Callable[[ComparedQuestion], bool] = lambda _: True

    def covers(self, case: ComparedQuestion) -> bool:
        return (
            case.mode in self.modes
            and case.question.kind in self.kinds
            and (not self.theirs or case.theirs == self.theirs)
            and (not self.ours or case.ours == self.ours)
            and self.only_if(case)
        )


def has_source_ranges(service: Json | None, destination: str) -> bool:
    """Whether a Service's author names who may come to its load balancer addresses of that address's
    family; kube-proxy goes by these ranges alone."""
    ranges = service["spec"].get("loadBalancerSourceRanges") or () if service is not None else ()
    return any((":" in one) == (":" in destination) for one in ranges)


def has_local_policy(service: Json | None) -> bool:
    """Whether only endpoints of the node get what comes to its external addresses from outside."""
    return service is not None and service["spec"].get("externalTrafficPolicy") == "Local"


def _is_ranged(case: ComparedQuestion) -> bool:
    return has_source_ranges(case.service, case.question.flow.destination)


def _is_both(case: ComparedQuestion) -> bool:
    ips = {canonical_ip(one["ip"]) for one in ingress(case.service or {"spec": {}})}
    return case.question.flow.destination in ips


DIFFERENCES = (
    Difference(
        name="no node ports",
        reason="to a guest its own address is its own; a packet to the node's goes to the node, whose "
        "own kube-proxy is none of a VPC's",
        modes=(IPTABLES, NFTABLES),
        kinds=(DestinationKind.NODE_PORT,),
        theirs=_ANY,
        ours=frozenset({PacketVerdict.PASS}),
    ),
    Difference(
        name="the service range answers",
        reason="kube-proxy in nftables mode drops what is for an address in the service range that is no "
        "Service's of its own; a guest rejects it, as a SYN that beats its Service's rules is then "
        "tried again at once and not after a timeout",
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
        name="no endpoints are told of outside the source ranges too",
        reason="kube-proxy's modes differ: iptables rejects where there are no endpoints before it looks at "
        "source ranges, nftables looks at these first; a guest does as iptables",
        modes=(NFTABLES,),
        kinds=(DestinationKind.BALANCER_IP,),
        theirs=frozenset({PacketVerdict.DROP}),
        ours=frozenset({PacketVerdict.REJECT}),
        only_if=_is_ranged,
    ),
    Difference(
        name="source ranges are not an external IP's",
        reason="of an address that a Service has both as external IP and as load balancer address kube-proxy "
        "in mode iptables takes the first for it, and filters no sources; nftables filters. A guest does "
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
    MASQUERADED: "kube-proxy masquerades what may have to come back by this node: what is for an external "
    "address, and what a pod sends to itself. A guest's packets come back to the guest, so that endpoints "
    "see its address (`wrong_sources`)",
    LEFT_BEHIND: "after a sync with changed slices of UDP Services kube-proxy deletes UDP entries that no "
    "serving endpoint answers, but not those of a Service without serving endpoints, of one that was "
    "deleted, of an address that it lost, and not after a change of the Service alone; and never a TCP "
    "entry that was not translated. As long as such an entry lives, its flow counts as one from outside "
    "the cluster: it is dropped where externalTrafficPolicy is Local and the node has no endpoint, and in "
    "mode iptables at a load balancer address with source ranges (seen with 1.34.4). A guest is rid of "
    "all these at once (`following`)",
}
"""Differences that are not of a packet's end."""

NOT_ASKED = {
    "two Services with one address and port": "kube-proxy goes by the order of a Go map",
    "copies of an endpoint in several slices that say different things": "likewise",
    "a slice whose label names another Service than before": "kube-proxy leaves its endpoints with the one "
    "that it named before, until it starts anew; a guest moves them (seen with 1.34.4)",
    "an endpoint's port beyond 65535, which the API server lets in": "iptables and nft refuse all that "
    "kube-proxy writes from then on; a guest leaves the port out (seen with 1.34.4)",
}
"""What is not drawn, and why."""


def accepted(case: ComparedQuestion) -> Difference | None:
    """The difference that covers a case; None if there is none."""
    return next((one for one in DIFFERENCES if one.covers(case)), None)


def wrong_sources(
    question: Question,
    ends: frozenset[Endpoint | PacketVerdict],
    theirs: Iterable[str],
    ours: Iterable[str],
    place: NodeAndPod,
) -> str:
    """What is wrong with the addresses that endpoints saw as the sender's; "" if nothing is."""
    is_six = ":" in question.flow.destination
    pod = place.pod_ips[is_six]
    if set(ours) - {pod}:
        return f"endpoints of ours saw {sorted(ours)}, not {pod}"
    may_masquerade = question.kind in _OUTER or pod in {end.ip for end in ends if isinstance(end, Endpoint)}
    if set(theirs) - {pod} and not may_masquerade:
        return f"kube-proxy masqueraded: {sorted(theirs)}"
    return ""
