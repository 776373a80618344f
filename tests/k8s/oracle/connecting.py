# SPDX-License-Identifier: Apache-2.0
"""The same questions with real sockets, there and back: a sample of each kind of answer.

Left out are packets that are dropped, the same silence to a socket as to anybody, and SCTP, which this
kernel can translate but not speak.
"""

import socket
from collections.abc import Iterable
from contextlib import ExitStack

from ruleset.model import Endpoint, Protocol
from ruletrace.packet import PacketVerdict, format_outcomes
from tests.cases.services.probe import Probe
from tests.cases.services.responder import Responder
from tests.k8s.oracle.draw import ENDPOINT_PORTS, SERVICE_PORTS
from tests.k8s.oracle.laboratory import Laboratory, Pair
from tests.k8s.oracle.questions import WRONG_PORT, Question
from tests.k8s.oracle.sides import Side

_PATIENCE_S = 10.0
# kube-proxy's ICMPv6 error comes while connect() holds the socket, and tells only at the next SYN,
# which is a second later.
_SLOW = 5


def sample(laboratory: Laboratory, pair: Pair) -> list[Question]:
    """Of the questions that both sides answered alike with packets, one for each kind of destination and
    of answer in each namespace, whatever the protocol."""
    found: dict[object, Question] = {}
    slow = 0
    asked = sorted(pair.agreed, key=str)
    laboratory.chooser("connections").shuffle(asked)
    for one in asked:
        ends = pair.agreed[one]
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
        word = ends & set(PacketVerdict) or pair.place.pod_ips[":" in one.flow.destination] in _ips(ends)
        namespace = one.service.partition("/")[0]
        found.setdefault((namespace, one.kind, word), one)
    return list(found.values())


def connect(laboratory: Laboratory, pair: Pair, asked: Iterable[Question]) -> list[str]:
    """Open each flow on both sides; what is wrong with where they ended."""
    problems = []
    with ExitStack() as stack:
        responder = Responder()
        stack.callback(responder.close)
        probes = [_probes(side, responder, stack) for side in pair.sides]
        for question in asked:
            laboratory.figures.connections += 1
            words = [_word(of[":" in question.flow.destination], question) for of in probes]
            problem = _wrong(pair, question, *words)
            if problem:
                problems.append(f"{pair.place.node}, {pair.mode}: {question}: {problem}")
    return problems


def _wrong(
    pair: Pair,
    question: Question,
    theirs: Endpoint | PacketVerdict | str,
    ours: Endpoint | PacketVerdict | str,
) -> str:
    expected = pair.agreed[question]
    if ours not in expected:
        return f"with us it came to {ours}, not to {format_outcomes(expected)}"
    if theirs not in expected:
        return f"with kube-proxy it came to {theirs}, not to {format_outcomes(expected)}"
    return ""


def _probes(side: Side, responder: Responder, stack: ExitStack) -> tuple[Probe, Probe]:
    """For IPv4 and IPv6."""
    ports = {*SERVICE_PORTS, *ENDPOINT_PORTS, WRONG_PORT}
    for namespace in (side.near, side.far):
        for family in (socket.AF_INET, socket.AF_INET6):
            stack.callback(responder.forget, responder.listen(namespace, family, ports))
    one, other = (Probe(side.near, responder, ip) for ip in side.place.pod_ips)
    return one, other


def _word(probe: Probe, question: Question) -> Endpoint | PacketVerdict | str:
    flow = question.flow
    seen = probe.send(flow.protocol, flow.destination, flow.port, _PATIENCE_S)
    if seen.word == "endpoint" and seen.reached is not None:
        return seen.reached.endpoint
    return {"pass": PacketVerdict.PASS, "reject": PacketVerdict.REJECT}.get(seen.word, seen.word)


def _ips(ends: Iterable[Endpoint | PacketVerdict]) -> set[str]:
    return {end.ip for end in ends if isinstance(end, Endpoint)}
