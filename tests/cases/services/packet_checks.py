# SPDX-License-Identifier: Apache-2.0
"""The packet checks of a group that a guest can run, with the expected outcomes.

Flow groups are of nodes. In a guest the endpoints are the same where the source is the pod, `masq` is
ignored, and checks of node ports expect `pass`. Checks from other sources are left out. A hairpin is a
check for the guest that is the endpoint.
"""

import ipaddress
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ruleset.model import Endpoint, Protocol
from ruletrace.packet import Outcome, Packet, PacketVerdict
from tests.cases.services.case_file import ApiState, Check, FlowOrigin

_CONFIG_WORDS = frozenset({"masquerade_all", "detector", "localhost_nodeports", "nodeport_addresses"})
UNREACH = "unreach"
_NOT_OF_RULES = frozenset({"syn-before-rules"})


class UnknownWordError(Exception):
    """The runner does not know this word of the file."""


@dataclass(frozen=True, slots=True)
class PacketCheck:
    """One packet and all its allowed outcomes.

    `is_routed` False: it has no route. `is_decided_by_rules` False: routes or timing decide too.
    """

    name: str
    packet: Packet
    expected: frozenset[Outcome]
    is_routed: bool = True
    is_decided_by_rules: bool = True


@dataclass(frozen=True, slots=True)
class GuestPacketChecks:
    """The packet checks of a group by the guest's address, and the count of left out checks by reason."""

    packet_checks: dict[str, tuple[PacketCheck, ...]]
    left_out: Counter[str]

    @property
    def count(self) -> int:
        return sum(len(packet_checks) for packet_checks in self.packet_checks.values())


def checks_of_flow(checks: Iterable[Check], state: ApiState, origin: FlowOrigin) -> GuestPacketChecks:
    """The packet checks of a flow group, as kube-proxy treats it on a node."""
    packet_checks: dict[str, list[PacketCheck]] = {}
    left_out: Counter[str] = Counter()
    for check in checks:
        reason = _reason_left_out(check.source, origin)
        if reason:
            left_out[reason] += 1
            continue
        is_at_node_port = check.destination in origin.node_ips and check.port in _node_ports(state, check)
        expected = frozenset({PacketVerdict.PASS}) if is_at_node_port else _expected_outcomes(check)
        packet_checks.setdefault(check.source, []).append(PacketCheck(check.name, _packet(check), expected))
    return GuestPacketChecks({source: tuple(found) for source, found in packet_checks.items()}, left_out)


def checks_of_guest(checks: Iterable[Check], pod: str, how: str) -> tuple[PacketCheck, ...]:
    """The packet checks of an in-guest group: all packets are the pod's, also by loopback.

    Rules alone do not decide for packets without a route, or from before their rule.
    """
    return tuple(
        PacketCheck(
            check.name,
            _packet(check, pod),
            _expected_outcomes(check),
            is_routed=check.expect != UNREACH,
            is_decided_by_rules=check.expect != UNREACH and how not in _NOT_OF_RULES,
        )
        for check in checks
    )


def with_catch_all(packet_check: PacketCheck, service_cidrs: Iterable[str]) -> PacketCheck:
    """The same check under rules that reject addresses of these ranges without a Service."""
    passes = packet_check.expected == {PacketVerdict.PASS}
    to = packet_check.packet.address
    if not passes or not any(to in ipaddress.ip_network(cidr) for cidr in service_cidrs):
        return packet_check
    return PacketCheck(packet_check.name, packet_check.packet, frozenset({PacketVerdict.REJECT}))


def check_config(config: Iterable[str]) -> None:
    """Raise UnknownWordError for a setting of kube-proxy that is not known to be irrelevant here."""
    unknown = sorted(set(config) - _CONFIG_WORDS)
    if unknown:
        raise UnknownWordError(f"the runner does not know the config {unknown}")


def split(cidrs: str) -> tuple[str, ...]:
    """`10.0.0.0/8, fd00::/16` as ranges."""
    return tuple(cidr.strip() for cidr in cidrs.split(",") if cidr.strip())


def _reason_left_out(source: str, origin: FlowOrigin) -> str:
    address = ipaddress.ip_address(source)
    if address.is_loopback or source in origin.node_ips:
        return "from the node"
    ranges = split(origin.pod_cidr)
    is_pod = source == origin.pod or any(address in ipaddress.ip_network(cidr) for cidr in ranges)
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


def _expected_outcomes(check: Check) -> frozenset[Outcome]:
    if not isinstance(check.expect, str):
        return frozenset(endpoint(text) for text in check.expect)
    if check.expect in ("pass", "accept", UNREACH):
        return frozenset({PacketVerdict.PASS})
    return frozenset({PacketVerdict(check.expect)})


def endpoint(text: str) -> Endpoint:
    """`10.0.0.1:80`, `[fd00::1]:80`."""
    ip, _, port = text.rpartition(":")
    return Endpoint(ip.strip("[]"), int(port))
