# SPDX-License-Identifier: Apache-2.0
"""Holds what both sides said against each other and against the list of differences."""

import json
from collections.abc import Callable, Sequence

from ruletrace.packet import PacketVerdict
from tests.k8s.oracle.asking import Hint, PacketAnswer, ask_all
from tests.k8s.oracle.differences import MASQUERADED, ComparedQuestion, accepted, wrong_sources
from tests.k8s.oracle.draw import Json
from tests.k8s.oracle.laboratory import Laboratory, Pair
from tests.k8s.oracle.questions import DestinationKind, Question
from tests.k8s.oracle.volley import AskedFlow

_SHOWN = 12
_SHOWN_WHOLE = 2


def judge(
    laboratory: Laboratory, pair: Pair, asked: Sequence[Question], *, may_forget: bool = True
) -> list[str]:
    """Ask both sides; what is wrong with the answers, a text each."""
    node_ports = {one.flow for one in asked if one.kind is DestinationKind.NODE_PORT}
    flows = [one.flow for one in asked]
    their_hint, our_hint = _hints(pair, node_ports)
    theirs = ask_all(pair.theirs, flows, their_hint, may_forget=may_forget)
    ours = ask_all(pair.ours, flows, our_hint, may_forget=may_forget)
    laboratory.figures.questions += len(asked)
    found = []
    for one in asked:
        problem = _judge(laboratory, pair, one, theirs[one.flow], ours[one.flow])
        if problem:
            found.append(f"{pair.place.node}, {pair.mode}: {one}: {problem}")
            if len(found) <= _SHOWN_WHOLE:
                found[-1] += _evidence(laboratory, pair, one)
    return found


def told(laboratory: Laboratory, problems: Sequence[str]) -> str:
    """What to say of a run that failed, and how to repeat it."""
    shown = "\n".join(problems[:_SHOWN])
    more = f"\nand {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    # `--oracle-changes` only says how many of the same changes follow.
    repeat = f"--oracle-seed {laboratory.seed} --oracle-namespaces {laboratory.drawn}"
    command = f"python -m pytest tests/k8s/test_kube_proxy_oracle.py {repeat}"
    return f"{len(problems)} disagreements; again with: {command}\n{shown}{more}"


def _hints(
    pair: Pair, node_ports: set[AskedFlow]
) -> tuple[Callable[[AskedFlow], Hint], Callable[[AskedFlow], Hint]]:
    def ours(flow: AskedFlow) -> Hint:
        return Hint(pair.guest.expected(flow), pair.guest.has_affinity(flow))

    def theirs(flow: AskedFlow) -> Hint:
        # Known to be other ends: asking more often would make them no clearer.
        is_free = pair.guest.frontend(flow) is None and pair.guest.expected(flow) == {PacketVerdict.REJECT}
        return Hint(None) if flow in node_ports or is_free else ours(flow)

    return theirs, ours


def _judge(
    laboratory: Laboratory, pair: Pair, question: Question, theirs: PacketAnswer, ours: PacketAnswer
) -> str:
    """What is wrong with two answers; "" if nothing is."""
    flow, guest = question.flow, pair.guest
    model = guest.expected(flow)
    pair.agreed.pop(question, None)
    if not Hint(model, guest.has_affinity(flow)).explains(ours.ends):
        return f"our rules' answer is {ours}, our model's {PacketAnswer(model, frozenset())}"
    if _is_same(theirs, ours, model, is_sticky=guest.has_affinity(flow)):
        pair.agreed[question] = model
    else:
        case = ComparedQuestion(
            question=question,
            mode=pair.mode,
            theirs=theirs.ends,
            ours=ours.ends,
            service=laboratory.service(question.service),
            is_captured=guest.frontend(flow) is not None,
        )
        difference = accepted(case)
        if difference is None:
            return f"kube-proxy says {theirs}, we say {ours}"
        laboratory.figures.accepted[difference.name] += 1
    problem = wrong_sources(question, theirs.ends, theirs.sources, ours.sources, pair.place)
    if not problem and theirs.sources - {pair.place.pod_ips[":" in flow.destination]}:
        laboratory.figures.accepted[MASQUERADED] += 1
    return problem


def _is_same(theirs: PacketAnswer, ours: PacketAnswer, model: frozenset[object], *, is_sticky: bool) -> bool:
    """With affinity either side has its own choice, and keeps to it."""
    if is_sticky and len(theirs.ends) == len(ours.ends) == 1:
        return theirs.ends <= model and ours.ends <= model
    return theirs.ends == ours.ends


def _evidence(laboratory: Laboratory, pair: Pair, question: Question) -> str:
    """The objects in question, and what either side's rules have of the address."""
    namespace, _, name = question.service.partition("/")
    drawn = next((one for one in laboratory.namespaces if one.name == namespace), None)
    slices = drawn.slices_of(name) if drawn is not None and name else ()
    family = "IPv6" if ":" in question.flow.destination else "IPv4"
    objects = [laboratory.service(question.service), *(one for one in slices if one["addressType"] == family)]
    lines = [json.dumps(_short(one)) for one in objects if one is not None]
    frontend = pair.guest.frontend(question.flow)
    lines.append(f"ours: {frontend.to if frontend is not None else 'not captured'}")
    lines += [f"kube-proxy: {line}" for line in _rules(pair, question.flow.destination, question.service)]
    return "".join(f"\n    {line}" for line in lines)


def _short(value: Json) -> Json:
    metadata = {key: value["metadata"].get(key) for key in ("namespace", "name", "labels")}
    return {**value, "metadata": metadata}


def _rules(pair: Pair, destination: str, service: str) -> list[str]:
    """kube-proxy's rules about an address or a Service."""
    if pair.mode == "iptables":
        save = "ip6tables-legacy-save" if ":" in destination else "iptables-legacy-save"
        listed = pair.theirs.side.ruled.run(save)
    else:
        listed = pair.theirs.side.ruled.run("nft", "list", "ruleset")
    found = [
        line.strip() for line in listed.splitlines() if f"{service}:" in line or f" {destination} " in line
    ]
    return found[:20]
