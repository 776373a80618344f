# SPDX-License-Identifier: Apache-2.0
"""Compares the observations of both sides, and checks differences against the accepted ones."""

import json
from collections.abc import Callable, Sequence

from ruletrace.packet import PacketVerdict
from tests.k8s.oracle.differences import MASQUERADED, ComparedProbe, accepted, wrong_sources
from tests.k8s.oracle.draw import Json
from tests.k8s.oracle.laboratory import Laboratory, NodeComparison
from tests.k8s.oracle.prober import ProbedFlow
from tests.k8s.oracle.probes import DestinationKind, FlowProbe
from tests.k8s.oracle.probing import Hint, ObservedEnds, probe_all

_SHOWN = 12
_SHOWN_WHOLE = 2


def compare(
    laboratory: Laboratory,
    comparison: NodeComparison,
    probes: Sequence[FlowProbe],
    *,
    may_forget: bool = True,
) -> list[str]:
    """Probe both sides; a message for each unaccepted difference."""
    node_ports = {one.flow for one in probes if one.kind is DestinationKind.NODE_PORT}
    flows = [one.flow for one in probes]
    their_hint, our_hint = _hints(comparison, node_ports)
    theirs = probe_all(comparison.theirs, flows, their_hint, may_forget=may_forget)
    ours = probe_all(comparison.ours, flows, our_hint, may_forget=may_forget)
    laboratory.figures.probes += len(probes)
    found = []
    for one in probes:
        problem = _compare_one(laboratory, comparison, one, theirs[one.flow], ours[one.flow])
        if problem:
            found.append(f"{comparison.node.name}, {comparison.mode}: {one}: {problem}")
            if len(found) <= _SHOWN_WHOLE:
                found[-1] += _evidence(laboratory, comparison, one)
    return found


def failure_message(laboratory: Laboratory, problems: Sequence[str]) -> str:
    """The message of a failed run, and the command that repeats it."""
    shown = "\n".join(problems[:_SHOWN])
    more = f"\nand {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    # `--oracle-changes` sets only how many of the same changes follow.
    repeat = f"--oracle-seed {laboratory.seed} --oracle-namespaces {laboratory.drawn}"
    command = f"python -m pytest tests/k8s/test_kube_proxy_oracle.py {repeat}"
    return f"{len(problems)} disagreements; repeat with: {command}\n{shown}{more}"


def _hints(
    comparison: NodeComparison, node_ports: set[ProbedFlow]
) -> tuple[Callable[[ProbedFlow], Hint], Callable[[ProbedFlow], Hint]]:
    def ours(flow: ProbedFlow) -> Hint:
        return Hint(comparison.guest.expected(flow), comparison.guest.has_affinity(flow))

    def theirs(flow: ProbedFlow) -> Hint:
        # Known to have other ends: more packets would not make them clearer.
        is_free = comparison.guest.frontend(flow) is None and comparison.guest.expected(flow) == {
            PacketVerdict.REJECT
        }
        return Hint(None) if flow in node_ports or is_free else ours(flow)

    return theirs, ours


def _compare_one(
    laboratory: Laboratory,
    comparison: NodeComparison,
    probe: FlowProbe,
    theirs: ObservedEnds,
    ours: ObservedEnds,
) -> str:
    """The unaccepted difference of two observations; "" without one."""
    flow, guest = probe.flow, comparison.guest
    model = guest.expected(flow)
    comparison.agreed.pop(probe, None)
    if not Hint(model, guest.has_affinity(flow)).explains(ours.ends):
        return f"our rules lead to {ours}, our model to {ObservedEnds(model, frozenset())}"
    if _is_same(theirs, ours, model, is_sticky=guest.has_affinity(flow)):
        comparison.agreed[probe] = model
    else:
        case = ComparedProbe(
            probe=probe,
            mode=comparison.mode,
            theirs=theirs.ends,
            ours=ours.ends,
            service=laboratory.service(probe.service),
            is_captured=guest.frontend(flow) is not None,
        )
        difference = accepted(case)
        if difference is None:
            return f"kube-proxy: {theirs}, our rules: {ours}"
        laboratory.figures.accepted[difference.name] += 1
    problem = wrong_sources(probe, theirs.ends, theirs.sources, ours.sources, comparison.node)
    if not problem and theirs.sources - {comparison.node.pod_ips[":" in flow.destination]}:
        laboratory.figures.accepted[MASQUERADED] += 1
    return problem


def _is_same(theirs: ObservedEnds, ours: ObservedEnds, model: frozenset[object], *, is_sticky: bool) -> bool:
    """With affinity each side makes its own choice, and keeps it."""
    if is_sticky and len(theirs.ends) == len(ours.ends) == 1:
        return theirs.ends <= model and ours.ends <= model
    return theirs.ends == ours.ends


def _evidence(laboratory: Laboratory, comparison: NodeComparison, probe: FlowProbe) -> str:
    """The objects of a probe, and both sides' rules for its address."""
    namespace, _, name = probe.service.partition("/")
    drawn = next((one for one in laboratory.namespaces if one.name == namespace), None)
    slices = drawn.slices_of(name) if drawn is not None and name else ()
    family = "IPv6" if ":" in probe.flow.destination else "IPv4"
    objects = [laboratory.service(probe.service), *(one for one in slices if one["addressType"] == family)]
    lines = [json.dumps(_short(one)) for one in objects if one is not None]
    frontend = comparison.guest.frontend(probe.flow)
    lines.append(f"ours: {frontend.to if frontend is not None else 'not captured'}")
    lines += [f"kube-proxy: {line}" for line in _rules(comparison, probe.flow.destination, probe.service)]
    return "".join(f"\n    {line}" for line in lines)


def _short(value: Json) -> Json:
    metadata = {key: value["metadata"].get(key) for key in ("namespace", "name", "labels")}
    return {**value, "metadata": metadata}


def _rules(comparison: NodeComparison, destination: str, service: str) -> list[str]:
    """kube-proxy's rules about an address or a Service."""
    if comparison.mode == "iptables":
        save = "ip6tables-legacy-save" if ":" in destination else "iptables-legacy-save"
        listed = comparison.theirs.side.ruled.run(save)
    else:
        listed = comparison.theirs.side.ruled.run("nft", "list", "ruleset")
    found = [
        line.strip() for line in listed.splitlines() if f"{service}:" in line or f" {destination} " in line
    ]
    return found[:20]
