# SPDX-License-Identifier: Apache-2.0
"""The procedures of the in-guest cases, by their word in `how`.

A procedure runs on one packet filter at a time, and returns what is wrong.
"""

import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from kubeproxy_ext.compute.guest_view import GuestRulesResult
from kubeproxy_ext.compute.stale_flows import stale_flows
from ruleset.document import parse
from ruleset.names import Backend
from ruleset.restore.whole_tables import whole_tables
from ruletrace.model_trace import trace_model
from ruletrace.packet import Outcome, PacketVerdict, format_outcomes
from tests.cases.services import mesh
from tests.cases.services.entries import delete, entries_to
from tests.cases.services.evaluations import LiveKernels, Rendered
from tests.cases.services.filters import KernelFilter
from tests.cases.services.kernel_probes import ports, probe_failures
from tests.cases.services.lab import Lab
from tests.cases.services.packet_checks import PacketCheck
from tests.cases.services.probe import TIMEOUT_S, exchange_datagram
from tests.cases.services.responder import Arrival, parse_arrival

_HEAD_START_S = 0.4
# A SYN is sent again after 1 s, and after 3 s: one of these must meet the rules, or none may.
_RETRANSMITTED_S = 3.5


@dataclass(frozen=True, slots=True)
class ProcedureContext:
    """The input of a procedure: `before` was loaded earlier, if anything was."""

    kernel: LiveKernels
    filter: KernelFilter
    before: Rendered | None
    now: Rendered
    results: tuple[GuestRulesResult, GuestRulesResult] | None
    packet_checks: tuple[PacketCheck, ...]
    within_s: float | None
    service_cidr: str


Procedure = Callable[[ProcedureContext], list[str]]


def load(context: ProcedureContext) -> list[str]:
    """Load, then send. With `within_ms`, the best of five packets is answered in that time."""
    found = context.kernel.evaluate(context.now, context.packet_checks, context.filter)
    if context.within_s is None:
        return found
    lab = _lab(context)
    try:
        context.filter.load(lab.guest, context.now.family, _text(context, context.now))
        for packet_check in context.packet_checks:
            packet = packet_check.packet
            took_s = min(
                lab.probe.send(packet.protocol, packet.destination, packet.port).took_s for _ in range(5)
            )
            if took_s > context.within_s:
                found.append(f"{packet_check.name}: {took_s * 1000:.0f} ms")
    finally:
        lab.close()
    return found


def no_route(context: ProcedureContext) -> list[str]:
    """No route covers the address; once one does, the rules apply."""
    lab = _lab(context, is_routed=False)
    try:
        found = context.kernel.evaluate_in(lab, context.now, context.packet_checks, context.filter)
        lab.route(context.service_cidr)
        for packet_check in context.packet_checks:
            packet = packet_check.packet
            endpoints = trace_model(context.now.rules, packet).endpoints
            for endpoint in endpoints:  # translated packets are routed again
                lab.route(endpoint.ip)
            seen = lab.probe.send(packet.protocol, packet.destination, packet.port)
            if seen.reached is None or seen.reached.endpoint not in endpoints:
                found.append(f"{packet_check.name}: {seen.verdict} although it has a route now")
        return found
    finally:
        lab.close()


def syn_before_rules(context: ProcedureContext) -> list[str]:
    """A SYN leaves before the rules are applied: is the connection established?"""
    return _syn_before_rules(context, is_repaired=False)


def syn_repaired(context: ProcedureContext) -> list[str]:
    """`syn_before_rules`, with the entries deleted that the change makes stale, as our daemon does."""
    return _syn_before_rules(context, is_repaired=True)


def _syn_before_rules(context: ProcedureContext, *, is_repaired: bool) -> list[str]:
    (packet_check,) = context.packet_checks
    packet = packet_check.packet
    is_stuck = packet_check.expected == {PacketVerdict.DROP}
    # Without rules the packet must reach no listener, so that it is sent again.
    lab = _lab(context, without={packet.port})
    try:
        if context.before is not None:
            context.filter.load(lab.guest, context.now.family, _text(context, context.before))
        with _socket(lab, context, socket.SOCK_STREAM) as one:
            begin = time.monotonic()
            one.setblocking(False)
            one.connect_ex((packet.destination, packet.port))
            time.sleep(_HEAD_START_S)
            context.filter.change(lab.guest, context.now.family, _text(context, context.now))
            if is_repaired and context.results is not None:
                delete(lab.guest, stale_flows(*context.results))
            reached = _connected(one, _RETRANSMITTED_S if is_stuck else TIMEOUT_S)
            took_s = time.monotonic() - begin
        if not is_stuck:
            is_right = reached is not None and reached.endpoint in packet_check.expected
            return _unless(is_right, f"{packet_check.name}: {reached} after {took_s:.1f} s")
        found = _unless(reached is None, f"{packet_check.name}: {reached} after {took_s:.1f} s")
        states = [entry.state for entry in entries_to(lab.guest, packet.destination)]
        return found + _unless(states == ["SYN_SENT"], f"{packet_check.name}: conntrack has {states}")
    finally:
        lab.close()


def refused_before_rules(context: ProcedureContext) -> list[str]:
    """A connection before the rules is refused at once, leaves nothing behind, and works after."""
    (packet_check,) = context.packet_checks
    lab = _lab(context)
    try:
        if context.before is not None:
            context.filter.load(lab.guest, context.now.family, _text(context, context.before))
        packet = packet_check.packet
        first = lab.probe.send(packet.protocol, packet.destination, packet.port)
        found = _unless(
            first.verdict == "reject", f"{packet_check.name}: before the rules: {first.verdict}, not reject"
        )
        left = entries_to(lab.guest, packet.destination)
        found += _unless(not left, f"{packet_check.name}: conntrack still has {left}")
        context.filter.change(lab.guest, context.now.family, _text(context, context.now))
        return found + [f"{packet_check.name}: {one}" for one in probe_failures(lab, packet_check)]
    finally:
        lab.close()


def udp_moved(context: ProcedureContext) -> list[str]:
    """A socket's datagrams go on to an endpoint that is gone, until its conntrack entry is deleted."""
    (packet_check,) = context.packet_checks
    if context.before is None or context.results is None:
        return ["udp-moved needs a state before"]
    packet = packet_check.packet
    lab = _lab(context)
    try:
        context.filter.load(lab.guest, context.now.family, _text(context, context.before))
        with _socket(lab, context, socket.SOCK_DGRAM) as one:
            one.settimeout(TIMEOUT_S)
            one.connect((packet.destination, packet.port))
            old = exchange_datagram(one, b"1")
            context.filter.change(lab.guest, context.now.family, _text(context, context.now))
            still = exchange_datagram(one, b"2")
            deleted = delete(lab.guest, stale_flows(*context.results))
            try:
                moved = exchange_datagram(one, b"3")
                outcome: Outcome = moved.endpoint if moved is not None else PacketVerdict.DROP
            except ConnectionRefusedError:
                outcome = PacketVerdict.REJECT
        if old is None or still is None or old.endpoint != still.endpoint:
            return [f"{packet_check.name}: {old} before and {still} after, not the same"]
        is_right = {outcome} == packet_check.expected
        expected = format_outcomes(packet_check.expected)
        mismatch = f"{format_outcomes([outcome])} after deletion of {deleted}, not {expected}"
        return _unless(is_right, f"{packet_check.name}: {mismatch}")
    finally:
        lab.close()


def foreign_chain(context: ProcedureContext) -> list[str]:
    """Foreign rules stay as they are: with our text, and when whole tables are replaced by the merge
    for a stock guest."""
    lab = _lab(context)
    family, save = context.now.family, context.filter.save
    try:
        mesh.load(context.filter, lab.guest, family, context.service_cidr)
        theirs = mesh.lines(save(lab.guest, family))
        context.filter.load(lab.guest, family, _text(context, context.now))
        found = _unless(theirs == mesh.lines(save(lab.guest, family)), "the foreign chain has changed")
        if context.filter.backend is Backend.IPTABLES:
            document = parse(_text(context, context.now), family, Backend.IPTABLES)
            whole = whole_tables(save(lab.guest, family), document)
            lab.guest.run(context.filter.restore_program(family), "-w", "5", text=whole)
            found += _unless(
                theirs == mesh.lines(save(lab.guest, family)), "merged: the foreign chain is gone"
            )
        return found + _through_mesh(context, lab)
    finally:
        lab.close()


def mesh_first(context: ProcedureContext) -> list[str]:
    """The mesh sees a cluster IP first; its proxy's packets come to our rules."""
    lab = _lab(context)
    try:
        mesh.load(context.filter, lab.guest, context.now.family, context.service_cidr)
        context.filter.load(lab.guest, context.now.family, _text(context, context.now))
        return _through_mesh(context, lab)
    finally:
        lab.close()


def same_rules(context: ProcedureContext) -> list[str]:
    """Another tenant's change changes nothing here, to the byte."""
    if context.before is None:
        return ["same-rules needs a state before"]
    found = [
        f"the {backend.value} text has changed"
        for backend in Backend
        if context.before.texts[backend] != context.now.texts[backend]
    ]
    return found + context.kernel.evaluate(context.now, context.packet_checks, context.filter)


PROCEDURES: dict[str, Procedure] = {
    "load": load,
    "no-route": no_route,
    "syn-before-rules": syn_before_rules,
    "syn-repaired": syn_repaired,
    "refused-before-rules": refused_before_rules,
    "udp-moved": udp_moved,
    "foreign-chain": foreign_chain,
    "mesh-first": mesh_first,
    "same-rules": same_rules,
}
"""By the word of `how`."""


def _text(context: ProcedureContext, rendered: Rendered) -> str:
    return rendered.texts[context.filter.backend]


def _lab(
    context: ProcedureContext, *, is_routed: bool = True, without: frozenset[int] | set[int] = frozenset()
) -> Lab:
    """A guest, and an outside that listens on the ports of both states' rules, and on the mesh's."""
    listened = ports(context.packet_checks) | {mesh.PORT}
    for rendered in filter(None, (context.before, context.now)):
        for packet_check in context.packet_checks:
            listened |= {end.port for end in trace_model(rendered.rules, packet_check.packet).endpoints}
    return context.kernel.lab(context.now, listened - without, context.filter, is_routed=is_routed)


def _socket(lab: Lab, context: ProcedureContext, kind: socket.SocketKind) -> socket.socket:
    family = socket.AF_INET6 if ":" in context.now.guest.pod else socket.AF_INET
    return lab.guest.call(socket.socket, family, kind)


def _connected(one: socket.socket, timeout_s: float) -> Arrival | None:
    """Wait until a begun connection is established, and read where it arrived; None if it is not."""
    poll = select.poll()
    poll.register(one, select.POLLIN)
    if not poll.poll(timeout_s * 1000) or one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        return None
    return parse_arrival(one.recv(2048))


def _through_mesh(context: ProcedureContext, lab: Lab) -> list[str]:
    found = []
    for packet_check in context.packet_checks:
        packet = packet_check.packet
        seen = lab.probe.send(packet.protocol, packet.destination, packet.port)
        if seen.reached is None or seen.reached.port != mesh.PORT:
            found.append(f"{packet_check.name}: {seen} before the mesh saw it")
        seen = lab.probe.send(packet.protocol, packet.destination, packet.port, mark=mesh.MARK)
        if seen.reached is None or seen.reached.endpoint not in packet_check.expected:
            found.append(
                f"{packet_check.name}: {seen} behind the mesh, not {format_outcomes(packet_check.expected)}"
            )
    return found


def _unless(is_right: bool, failure: str) -> list[str]:
    return [] if is_right else [failure]
