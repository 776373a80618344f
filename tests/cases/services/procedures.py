# SPDX-License-Identifier: Apache-2.0
"""What the in-guest cases do besides loading rules and sending packets: the words of `how`.

A procedure is asked of one packet filter at a time and returns what is wrong.
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
from tests.cases.services.arrivals import Arrival
from tests.cases.services.arrivals import parse as parse_reached
from tests.cases.services.entries import delete, entries_to
from tests.cases.services.evaluations import LiveKernels, Rendered
from tests.cases.services.filters import KernelFilter
from tests.cases.services.kernel_answers import complaints, ports
from tests.cases.services.lab import Lab
from tests.cases.services.probe import PATIENCE_S, ask
from tests.cases.services.questions import Question

_HEAD_START_S = 0.4
# A SYN is sent again after 1 s, and after 3 s: one of these must meet the rules, or none may.
_RETRANSMITTED_S = 3.5


@dataclass(frozen=True, slots=True)
class Scene:
    """What a procedure has to work with: `before` is what was loaded earlier, if anything."""

    kernel: LiveKernels
    filter: KernelFilter
    before: Rendered | None
    now: Rendered
    results: tuple[GuestRulesResult, GuestRulesResult] | None
    questions: tuple[Question, ...]
    within_s: float | None
    service_cidr: str


Procedure = Callable[[Scene], list[str]]


def load(scene: Scene) -> list[str]:
    """Load, then send. With `within_ms` an answer comes so soon, in the best of some tries."""
    found = scene.kernel.answers(scene.now, scene.questions, scene.filter)
    if scene.within_s is None:
        return found
    lab = _lab(scene)
    try:
        scene.filter.load(lab.guest, scene.now.family, _text(scene, scene.now))
        for question in scene.questions:
            packet = question.packet
            took_s = min(
                lab.probe.send(packet.protocol, packet.destination, packet.port).took_s for _ in range(5)
            )
            if took_s > scene.within_s:
                found.append(f"{question.name}: {took_s * 1000:.0f} ms")
    finally:
        lab.close()
    return found


def no_route(scene: Scene) -> list[str]:
    """No route covers the address; once one does, the rules act."""
    lab = _lab(scene, is_routed=False)
    try:
        found = scene.kernel.answers_in(lab, scene.now, scene.questions, scene.filter)
        lab.route(scene.service_cidr)
        for question in scene.questions:
            packet = question.packet
            endpoints = trace_model(scene.now.rules, packet).endpoints
            for endpoint in endpoints:  # translated packets are routed again
                lab.route(endpoint.ip)
            seen = lab.probe.send(packet.protocol, packet.destination, packet.port)
            if seen.reached is None or seen.reached.endpoint not in endpoints:
                found.append(f"{question.name}: {seen.word} although there is a route now")
        return found
    finally:
        lab.close()


def syn_before_rules(scene: Scene) -> list[str]:
    """A SYN leaves, and the rules land a moment later: does the connection come about?"""
    return _syn_before_rules(scene, is_repaired=False)


def syn_repaired(scene: Scene) -> list[str]:
    """`syn_before_rules`, with the entries deleted that the change makes stale, as our daemon does."""
    return _syn_before_rules(scene, is_repaired=True)


def _syn_before_rules(scene: Scene, *, is_repaired: bool) -> list[str]:
    (question,) = scene.questions
    packet = question.packet
    is_stuck = question.wanted == {PacketVerdict.DROP}
    # Nobody may listen where the packet goes without rules: it has to be sent again.
    lab = _lab(scene, without={packet.port})
    try:
        if scene.before is not None:
            scene.filter.load(lab.guest, scene.now.family, _text(scene, scene.before))
        with _socket(lab, scene, socket.SOCK_STREAM) as one:
            begin = time.monotonic()
            one.setblocking(False)
            one.connect_ex((packet.destination, packet.port))
            time.sleep(_HEAD_START_S)
            scene.filter.change(lab.guest, scene.now.family, _text(scene, scene.now))
            if is_repaired and scene.results is not None:
                delete(lab.guest, stale_flows(*scene.results))
            reached = _connected(one, _RETRANSMITTED_S if is_stuck else PATIENCE_S)
            took_s = time.monotonic() - begin
        if not is_stuck:
            is_right = reached is not None and reached.endpoint in question.wanted
            return _unless(is_right, f"{question.name}: {reached} after {took_s:.1f} s")
        found = _unless(reached is None, f"{question.name}: {reached} after {took_s:.1f} s")
        states = [entry.state for entry in entries_to(lab.guest, packet.destination)]
        return found + _unless(states == ["SYN_SENT"], f"{question.name}: conntrack says {states}")
    finally:
        lab.close()


def refused_before_rules(scene: Scene) -> list[str]:
    """A connection before the rules is refused at once, leaves nothing behind, and works after."""
    (question,) = scene.questions
    lab = _lab(scene)
    try:
        if scene.before is not None:
            scene.filter.load(lab.guest, scene.now.family, _text(scene, scene.before))
        packet = question.packet
        first = lab.probe.send(packet.protocol, packet.destination, packet.port)
        found = _unless(
            first.word == "reject", f"{question.name}: before the rules: {first.word}, not reject"
        )
        left = entries_to(lab.guest, packet.destination)
        found += _unless(not left, f"{question.name}: conntrack still has {left}")
        scene.filter.change(lab.guest, scene.now.family, _text(scene, scene.now))
        return found + [f"{question.name}: {one}" for one in complaints(lab, question)]
    finally:
        lab.close()


def udp_moved(scene: Scene) -> list[str]:
    """A socket's datagrams go on to an endpoint that is gone, until its conntrack entry is deleted."""
    (question,) = scene.questions
    if scene.before is None or scene.results is None:
        return ["udp-moved needs a state before"]
    packet = question.packet
    lab = _lab(scene)
    try:
        scene.filter.load(lab.guest, scene.now.family, _text(scene, scene.before))
        with _socket(lab, scene, socket.SOCK_DGRAM) as one:
            one.settimeout(PATIENCE_S)
            one.connect((packet.destination, packet.port))
            old = ask(one, b"1")
            scene.filter.change(lab.guest, scene.now.family, _text(scene, scene.now))
            still = ask(one, b"2")
            deleted = delete(lab.guest, stale_flows(*scene.results))
            try:
                moved = ask(one, b"3")
                outcome: Outcome = moved.endpoint if moved is not None else PacketVerdict.DROP
            except ConnectionRefusedError:
                outcome = PacketVerdict.REJECT
        if old is None or still is None or old.endpoint != still.endpoint:
            return [f"{question.name}: {old} before and {still} after, not the same"]
        is_right = {outcome} == question.wanted
        said = (
            f"{format_outcomes([outcome])} after {deleted} are gone, not {format_outcomes(question.wanted)}"
        )
        return _unless(is_right, f"{question.name}: {said}")
    finally:
        lab.close()


def foreign_chain(scene: Scene) -> list[str]:
    """Others' rules stay as they are: with our text, and when whole tables are replaced by what is
    merged for a stock guest."""
    lab = _lab(scene)
    family, save = scene.now.family, scene.filter.save
    try:
        mesh.load(scene.filter, lab.guest, family, scene.service_cidr)
        theirs = mesh.lines(save(lab.guest, family))
        scene.filter.load(lab.guest, family, _text(scene, scene.now))
        found = _unless(theirs == mesh.lines(save(lab.guest, family)), "the foreign chain has changed")
        if scene.filter.backend is Backend.IPTABLES:
            document = parse(_text(scene, scene.now), family, Backend.IPTABLES)
            whole = whole_tables(save(lab.guest, family), document)
            lab.guest.run(scene.filter.restorer(family), "-w", "5", text=whole)
            found += _unless(
                theirs == mesh.lines(save(lab.guest, family)), "merged: the foreign chain is gone"
            )
        return found + _through_mesh(scene, lab)
    finally:
        lab.close()


def mesh_first(scene: Scene) -> list[str]:
    """The mesh sees a cluster IP first; what its proxy sends comes to our rules."""
    lab = _lab(scene)
    try:
        mesh.load(scene.filter, lab.guest, scene.now.family, scene.service_cidr)
        scene.filter.load(lab.guest, scene.now.family, _text(scene, scene.now))
        return _through_mesh(scene, lab)
    finally:
        lab.close()


def same_rules(scene: Scene) -> list[str]:
    """Another tenant's change changes nothing here, to the byte."""
    if scene.before is None:
        return ["same-rules needs a state before"]
    found = [
        f"the {backend.value} text is not what it was"
        for backend in Backend
        if scene.before.texts[backend] != scene.now.texts[backend]
    ]
    return found + scene.kernel.answers(scene.now, scene.questions, scene.filter)


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


def _text(scene: Scene, rendered: Rendered) -> str:
    return rendered.texts[scene.filter.backend]


def _lab(scene: Scene, *, is_routed: bool = True, without: frozenset[int] | set[int] = frozenset()) -> Lab:
    """A guest, and a world that listens wherever the rules of both states lead, and to the mesh."""
    listened = ports(scene.questions) | {mesh.PORT}
    for rendered in filter(None, (scene.before, scene.now)):
        for question in scene.questions:
            listened |= {end.port for end in trace_model(rendered.rules, question.packet).endpoints}
    return scene.kernel.lab(scene.now, listened - without, scene.filter, is_routed=is_routed)


def _socket(lab: Lab, scene: Scene, kind: socket.SocketKind) -> socket.socket:
    family = socket.AF_INET6 if ":" in scene.now.guest.pod else socket.AF_INET
    return lab.guest.call(socket.socket, family, kind)


def _connected(one: socket.socket, patience_s: float) -> Arrival | None:
    """Wait for a connection that has been begun, and read where it ended; None if it did not."""
    poll = select.poll()
    poll.register(one, select.POLLIN)
    if not poll.poll(patience_s * 1000) or one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        return None
    return parse_reached(one.recv(2048))


def _through_mesh(scene: Scene, lab: Lab) -> list[str]:
    found = []
    for question in scene.questions:
        packet = question.packet
        seen = lab.probe.send(packet.protocol, packet.destination, packet.port)
        if seen.reached is None or seen.reached.port != mesh.PORT:
            found.append(f"{question.name}: {seen} before the mesh saw it")
        seen = lab.probe.send(packet.protocol, packet.destination, packet.port, mark=mesh.MARK)
        if seen.reached is None or seen.reached.endpoint not in question.wanted:
            found.append(f"{question.name}: {seen} behind the mesh, not {format_outcomes(question.wanted)}")
    return found


def _unless(is_right: bool, complaint: str) -> list[str]:
    return [] if is_right else [complaint]
