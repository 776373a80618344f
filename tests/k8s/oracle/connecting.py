# SPDX-License-Identifier: Apache-2.0
"""The same probes with real sockets, in both directions: a sample of each kind of outcome.

Dropped packets are left out, as a socket sees the same silence. SCTP is left out, as this kernel can
translate but not speak it.
"""

import socket
from collections.abc import Iterable
from contextlib import ExitStack

from ruleset.model import Endpoint, Protocol
from ruletrace.packet import PacketVerdict, format_outcomes
from tests.cases.services.probe import Probe
from tests.cases.services.responder import Responder
from tests.k8s.oracle.draw import ENDPOINT_PORTS, SERVICE_PORTS
from tests.k8s.oracle.laboratory import Laboratory, NodeComparison
from tests.k8s.oracle.probes import WRONG_PORT, FlowProbe
from tests.k8s.oracle.sides import OracleSide

_TIMEOUT_S = 10.0
# kube-proxy's ICMPv6 error arrives while connect() locks the socket, and takes effect only at the next
# SYN, a second later.
_SLOW = 5


def sample(laboratory: Laboratory, comparison: NodeComparison) -> list[FlowProbe]:
    """Of the probes on which both sides agreed, one for each kind of destination and of outcome in each
    namespace, for all protocols together."""
    found: dict[object, FlowProbe] = {}
    slow = 0
    probes = sorted(comparison.agreed, key=str)
    laboratory.rng_for("connections").shuffle(probes)
    for one in probes:
        ends = comparison.agreed[one]
        if ends == {PacketVerdict.DROP}:
            continue
        if one.flow.protocol is Protocol.SCTP:
            continue
        if (
            ends == {PacketVerdict.REJECT}
            and one.flow.protocol is Protocol.TCP
            and ":" in one.flow.destination
        ):
            slow += 1
            if slow > _SLOW:
                continue
        outcome = ends & set(PacketVerdict) or comparison.node.pod_ips[":" in one.flow.destination] in _ips(
            ends
        )
        namespace = one.service.partition("/")[0]
        found.setdefault((namespace, one.kind, outcome), one)
    return list(found.values())


def connect(laboratory: Laboratory, comparison: NodeComparison, probes: Iterable[FlowProbe]) -> list[str]:
    """Open each flow on both sides; a message for each wrong end."""
    problems = []
    with ExitStack() as stack:
        responder = Responder()
        stack.callback(responder.close)
        senders = [_senders(side, responder, stack) for side in comparison.sides]
        for probe in probes:
            laboratory.figures.connections += 1
            ends = [_end_of(of[":" in probe.flow.destination], probe) for of in senders]
            problem = _mismatch(comparison, probe, *ends)
            if problem:
                problems.append(f"{comparison.node.name}, {comparison.mode}: {probe}: {problem}")
    return problems


def _mismatch(
    comparison: NodeComparison,
    probe: FlowProbe,
    theirs: Endpoint | PacketVerdict | str,
    ours: Endpoint | PacketVerdict | str,
) -> str:
    expected = comparison.agreed[probe]
    if ours not in expected:
        return f"with our rules it reached {ours}, not {format_outcomes(expected)}"
    if theirs not in expected:
        return f"with kube-proxy it reached {theirs}, not {format_outcomes(expected)}"
    return ""


def _senders(side: OracleSide, responder: Responder, stack: ExitStack) -> tuple[Probe, Probe]:
    """For IPv4 and IPv6."""
    ports = {*SERVICE_PORTS, *ENDPOINT_PORTS, WRONG_PORT}
    for namespace in (side.near, side.far):
        for family in (socket.AF_INET, socket.AF_INET6):
            stack.callback(responder.forget, responder.listen(namespace, family, ports))
    one, other = (Probe(side.near, responder, ip) for ip in side.node.pod_ips)
    return one, other


def _end_of(sender: Probe, probe: FlowProbe) -> Endpoint | PacketVerdict | str:
    flow = probe.flow
    seen = sender.send(flow.protocol, flow.destination, flow.port, _TIMEOUT_S)
    if seen.verdict == "endpoint" and seen.reached is not None:
        return seen.reached.endpoint
    return {"pass": PacketVerdict.PASS, "reject": PacketVerdict.REJECT}.get(seen.verdict, seen.verdict)


def _ips(ends: Iterable[Endpoint | PacketVerdict]) -> set[str]:
    return {end.ip for end in ends if isinstance(end, Endpoint)}
