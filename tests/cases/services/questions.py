# SPDX-License-Identifier: Apache-2.0
"""The questions that a guest can answer for a group of packets, with the expected outcomes.

Flow groups are of nodes. In a guest the endpoints are the same where the source is the pod, `masq` is
ignored, and checks of node ports expect `pass`. Checks from other sources are left out. A hairpin is a
question for the guest that is the endpoint.
"""

import ipaddress
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ruleset.model import Endpoint, Protocol
from ruletrace.packet import Outcome, Packet, PacketVerdict
from tests.cases.services.case_shape import ApiState, Check, FlowOrigin

_CONFIG_WORDS = frozenset({"masquerade_all", "detector", "localhost_nodeports", "nodeport_addresses"})
UNREACH = "unreach"
_NOT_OF_RULES = frozenset({"syn-before-rules"})


class UnknownWordError(Exception):
    """A word of the file that the runner does not know."""


@dataclass(frozen=True, slots=True)
class Question:
    """One packet and all its allowed outcomes.

    `is_routed` False: it has no route. `is_of_rules` False: not only the rules decide.
    """

    name: str
    packet: Packet
    wanted: frozenset[Outcome]
    is_routed: bool = True
    is_of_rules: bool = True


@dataclass(frozen=True, slots=True)
class GuestQuestions:
    """The questions of a group by the guest's address, and the number of left out checks by reason."""

    questions: dict[str, tuple[Question, ...]]
    left_out: Counter[str]

    @property
    def count(self) -> int:
        return sum(len(questions) for questions in self.questions.values())


def of_flow(checks: Iterable[Check], state: ApiState, world: FlowOrigin) -> GuestQuestions:
    """The questions of a flow group, as kube-proxy answered it on a node."""
    questions: dict[str, list[Question]] = {}
    left_out: Counter[str] = Counter()
    for check in checks:
        why = _not_of_a_guest(check.source, world)
        if why:
            left_out[why] += 1
            continue
        is_at_node_port = check.destination in world.node_ips and check.port in _node_ports(state, check)
        wanted = frozenset({PacketVerdict.PASS}) if is_at_node_port else _wanted(check)
        questions.setdefault(check.source, []).append(Question(check.name, _packet(check), wanted))
    return GuestQuestions({source: tuple(found) for source, found in questions.items()}, left_out)


def of_guest(checks: Iterable[Check], pod: str, how: str) -> tuple[Question, ...]:
    """The questions of an in-guest group: all packets are the pod's, also by loopback.

    Rules alone do not decide for packets without a route, or from before their rule.
    """
    return tuple(
        Question(
            check.name,
            _packet(check, pod),
            _wanted(check),
            is_routed=check.expect != UNREACH,
            is_of_rules=check.expect != UNREACH and how not in _NOT_OF_RULES,
        )
        for check in checks
    )


def with_catch_all(question: Question, service_cidrs: Iterable[str]) -> Question:
    """The same question under rules that reject addresses of these ranges without a Service."""
    passes = question.wanted == {PacketVerdict.PASS}
    to = question.packet.address
    if not passes or not any(to in ipaddress.ip_network(cidr) for cidr in service_cidrs):
        return question
    return Question(question.name, question.packet, frozenset({PacketVerdict.REJECT}))


def check_config(config: Iterable[str]) -> None:
    """Raise UnknownWordError for a setting of kube-proxy that is not known to be irrelevant here."""
    unknown = sorted(set(config) - _CONFIG_WORDS)
    if unknown:
        raise UnknownWordError(f"the runner does not know the config {unknown}")


def split(cidrs: str) -> tuple[str, ...]:
    """`10.0.0.0/8, fd00::/16` as ranges."""
    return tuple(cidr.strip() for cidr in cidrs.split(",") if cidr.strip())


def _not_of_a_guest(source: str, world: FlowOrigin) -> str:
    address = ipaddress.ip_address(source)
    if address.is_loopback or source in world.node_ips:
        return "from the node"
    ranges = split(world.pod_cidr)
    is_pod = source == world.pod or any(address in ipaddress.ip_network(cidr) for cidr in ranges)
    return "" if is_pod else "from outside"


def _node_ports(state: ApiState, check: Check) -> set[int]:
    found = {service.health_port for service in state.services if service.health_port}
    for service in state.services:
        found |= {p.node_port for p in service.ports if p.proto.lower() == check.protocol and p.node_port}
    return found


def _packet(check: Check, pod: str | None = None) -> Packet:
    try:
        protocol = Protocol(check.protocol)
    except ValueError as problem:
        raise UnknownWordError(f"check {check.name!r}: the protocol {check.protocol!r}") from problem
    source = check.source
    if pod is not None and source != pod and not ipaddress.ip_address(source).is_loopback:
        raise UnknownWordError(f"check {check.name!r}: {source} is not the guest's address {pod}")
    return Packet(source, protocol, check.destination, check.port)


def _wanted(check: Check) -> frozenset[Outcome]:
    if not isinstance(check.expect, str):
        return frozenset(endpoint(text) for text in check.expect)
    if check.expect in ("pass", "accept", UNREACH):
        return frozenset({PacketVerdict.PASS})
    return frozenset({PacketVerdict(check.expect)})


def endpoint(text: str) -> Endpoint:
    """`10.0.0.1:80`, `[fd00::1]:80`."""
    ip, _, port = text.rpartition(":")
    return Endpoint(ip.strip("[]"), int(port))
