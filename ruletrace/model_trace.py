# SPDX-License-Identifier: Apache-2.0
"""What a guest's rules, as a model, say of a packet: the answer that every text must give too."""

import ipaddress

from ruleset.model import Endpoint, EndpointSet, Frontend, GuestRules, NoBackendAction
from ruleset.render.frontends import is_renderable
from ruletrace.packet import Outcome, Packet, PacketVerdict, Trace

_REFUSALS = {
    NoBackendAction.REJECT: (
        PacketVerdict.REJECT,
        "no endpoint can take it, so it is rejected: the sender is told at once",
    ),
    NoBackendAction.DROP: (
        PacketVerdict.DROP,
        "this guest may not reach it that way, so it is dropped: the sender waits",
    ),
}


def trace_model(rules: GuestRules, packet: Packet) -> Trace:
    """Where `packet` can go under `rules`. A packet of the other family passes."""
    if packet.family is not rules.family:
        return _one(PacketVerdict.PASS, f"the rules are for {rules.family.value}: the packet passes")
    for frontend in rules.frontends():
        if _is_for(frontend, packet):
            return _captured(frontend, packet)
    for cidr in rules.service_cidrs:
        if packet.to in ipaddress.ip_network(cidr):
            return _one(
                PacketVerdict.REJECT,
                f"{packet.protocol.value} {Endpoint(packet.destination, packet.port)} belongs to no Service "
                f"port of this guest",
                f"{packet.destination} is in the service range {cidr}, where that is rejected",
            )
    place = f"{packet.protocol.value} {Endpoint(packet.destination, packet.port)}"
    return _one(PacketVerdict.PASS, f"no Service of this guest has {place}: the packet passes untouched")


def _is_for(frontend: Frontend, packet: Packet) -> bool:
    return (
        is_renderable(frontend)
        and frontend.port == packet.port
        and frontend.protocol is packet.protocol
        and ipaddress.ip_address(frontend.ip) == packet.to
    )


def _captured(frontend: Frontend, packet: Packet) -> Trace:
    place = Endpoint(packet.destination, packet.port)
    whose = f"{frontend.protocol.value} {place} belongs to Service port {frontend.service_port}"
    if isinstance(frontend.to, NoBackendAction):
        fate, why = _REFUSALS[frontend.to]
        return _one(fate, whose, why)
    return _chosen(frontend.to, whose)


def _chosen(target: EndpointSet, whose: str) -> Trace:
    count = len(target.endpoints)
    where = ", ".join(map(str, target.endpoints))
    local = " on this node" if target.is_local else ""
    how = f"its only endpoint{local}: {where}" if count == 1 else f"one of {count} endpoints{local}: {where}"
    steps = [whose, f"it goes to {how}"]
    if target.affinity_s is not None:
        steps.append(f"later connections within {target.affinity_s} s go to the same endpoint")
    chances: dict[Outcome, float] = dict.fromkeys(target.endpoints, 1 / count)
    return Trace(frozenset(chances), tuple(steps), chances)


def _one(fate: PacketVerdict, *steps: str) -> Trace:
    return Trace(frozenset({fate}), steps, {fate: 1.0})
