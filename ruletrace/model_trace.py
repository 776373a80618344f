# SPDX-License-Identifier: Apache-2.0
"""Traces a packet through the model of a guest's rules: what each packet filter's text must do too."""

import ipaddress

from ruleset.model import EndpointSet, Frontend, GuestRules, NoBackendAction
from ruleset.render.frontends import is_renderable
from ruletrace.packet import Outcome, Packet, PacketVerdict, Trace

_NO_BACKEND = {
    NoBackendAction.REJECT: (
        PacketVerdict.REJECT,
        "it has no endpoint: the packet is rejected, the sender fails at once",
    ),
    NoBackendAction.DROP: (
        PacketVerdict.DROP,
        "its traffic policy or source ranges leave this guest no endpoint: the packet is dropped",
    ),
}


def trace_model(rules: GuestRules, packet: Packet) -> Trace:
    """Every outcome of `packet` under `rules`. A packet of the other family passes."""
    if packet.family is not rules.family:
        return _one(PacketVerdict.PASS, f"the rules are for {rules.family.value}: the packet passes")
    for frontend in rules.frontends():
        if _is_for(frontend, packet):
            return _of_frontend(frontend, packet)
    matched = f"this guest has no Service port at {packet.protocol.value} {packet.endpoint}"
    for cidr in rules.service_cidrs:
        if packet.address in ipaddress.ip_network(cidr):
            why = f"{packet.destination} is in the service range {cidr}: the packet is rejected"
            return _one(PacketVerdict.REJECT, matched, why)
    return _one(PacketVerdict.PASS, f"{matched}: the packet passes untranslated")


def _is_for(frontend: Frontend, packet: Packet) -> bool:
    return (
        is_renderable(frontend)
        and frontend.port == packet.port
        and frontend.protocol is packet.protocol
        and ipaddress.ip_address(frontend.ip) == packet.address
    )


def _of_frontend(frontend: Frontend, packet: Packet) -> Trace:
    matched = f"{packet.protocol.value} {packet.endpoint} is Service port {frontend.service_port}"
    if isinstance(frontend.to, NoBackendAction):
        verdict, why = _NO_BACKEND[frontend.to]
        return _one(verdict, matched, why)
    return _of_endpoints(frontend.to, matched)


def _of_endpoints(endpoints: EndpointSet, matched: str) -> Trace:
    count = len(endpoints.endpoints)
    shown = ", ".join(map(str, endpoints.endpoints))
    selected = "on this node" if endpoints.is_local else "selected for this node"
    which = "the only endpoint" if count == 1 else f"one of {count} endpoints"
    steps = [matched, f"{which} {selected}: {shown}"]
    if endpoints.affinity_s is not None:
        steps.append(f"ClientIP affinity keeps a client on its endpoint for {endpoints.affinity_s} s")
    chances: dict[Outcome, float] = dict.fromkeys(endpoints.endpoints, 1 / count)
    return Trace(chances, tuple(steps))


def _one(verdict: PacketVerdict, *steps: str) -> Trace:
    return Trace({verdict: 1.0}, steps)
