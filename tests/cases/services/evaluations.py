# SPDX-License-Identifier: Apache-2.0
"""The evaluations of a packet check, and their comparison: model, rulesets' texts, real kernels."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from ruleset.document import Document, parse
from ruleset.model import EndpointSet, Family, GuestRules
from ruleset.names import Backend
from ruletrace import iptables, nft
from ruletrace.model_trace import trace_model
from ruletrace.packet import Outcome, Packet, Trace, format_outcomes
from tests.cases.services.consistency import problems
from tests.cases.services.filters import FILTERS, KernelFilter
from tests.cases.services.kernel_probes import ports, probe_failures
from tests.cases.services.lab import Lab
from tests.cases.services.packet_checks import PacketCheck
from tests.cases.services.rendering import RenderedGuest, rules_for, text_for
from tests.cases.services.responder import Responder

Tracer = Callable[[Packet], Trace]
_SHARE_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Rendered:
    """A guest's rules: the model, and a text for each backend."""

    guest: RenderedGuest
    rules: GuestRules
    texts: Mapping[Backend, str]

    @property
    def family(self) -> Family:
        return self.guest.family


def render(data: bytes, guest: RenderedGuest) -> Rendered:
    """Render with kubeproxy-ext. Raises SubjectError."""
    texts = {backend: text_for(data, guest, backend) for backend in Backend}
    return Rendered(guest, rules_for(data, guest), texts)


def tracer(document: Document) -> Tracer:
    """The tracer of a document."""
    trace = iptables.trace if document.backend is Backend.IPTABLES else nft.trace
    return partial(trace, document)


def by_model(rendered: Rendered, packet_checks: Iterable[PacketCheck]) -> list[str]:
    return _compared("model", lambda packet: trace_model(rendered.rules, packet), rendered, packet_checks)


def by_texts(rendered: Rendered, packet_checks: Iterable[PacketCheck]) -> list[str]:
    """Both texts are consistent, and their tracers agree with the expected outcomes and the model."""
    found = [f"iptables text: {problem}" for problem in problems(rendered.texts[Backend.IPTABLES])]
    packet_checks = list(packet_checks)
    for backend, text in rendered.texts.items():
        document = parse(text, rendered.family, backend)
        found += _compared(f"{backend.value} text", tracer(document), rendered, packet_checks)
    return found


class LiveKernels:
    """Evaluation by real kernels. `filters` are those that this machine can run."""

    def __init__(self, filters: Iterable[KernelFilter] = FILTERS) -> None:
        self.filters = tuple(filters)
        self.responder = Responder()

    def close(self) -> None:
        self.responder.close()

    def with_all_filters(self, evaluate: "Callable[[LiveKernels, KernelFilter], list[str]]") -> list[str]:
        """Evaluate with all filters at once: most time is spent waiting for programs and packets."""
        with ThreadPoolExecutor(len(self.filters)) as threads:
            results = threads.map(lambda filter_: evaluate(self, filter_), self.filters)
            return [failure for failures in results for failure in failures]

    def lab(
        self,
        rendered: Rendered,
        listen_ports: Iterable[int],
        filter_: KernelFilter,
        *,
        is_routed: bool = True,
    ) -> Lab:
        """A guest without rules, and an outside that listens on these ports."""
        restore_program = filter_.restore_program(rendered.family)
        return Lab(self.responder, rendered.guest.pod, listen_ports, restore_program, is_routed=is_routed)

    def evaluate(
        self, rendered: Rendered, packet_checks: Iterable[PacketCheck], filter_: KernelFilter
    ) -> list[str]:
        """Load the text, send packets, and trace what the kernel prints."""
        packet_checks = list(packet_checks)
        lab = self.lab(rendered, ports(packet_checks), filter_)
        try:
            return self.evaluate_in(lab, rendered, packet_checks, filter_)
        finally:
            lab.close()

    def evaluate_in(
        self, lab: Lab, rendered: Rendered, packet_checks: Iterable[PacketCheck], filter_: KernelFilter
    ) -> list[str]:
        """`evaluate`, in an existing guest."""
        packet_checks = list(packet_checks)
        text = rendered.texts[filter_.backend]
        filter_.load(lab.guest, rendered.family, text)

        def reload() -> None:
            filter_.clear(lab.guest, rendered.family)
            filter_.load(lab.guest, rendered.family, text)

        found = []
        for packet_check in packet_checks:
            has_affinity = _has_affinity(rendered.rules, packet_check.packet)
            failures = probe_failures(lab, packet_check, reload if has_affinity else None)
            found += [f"{filter_.name}, live: {packet_check.name}: {failure}" for failure in failures]
        saved = tracer(filter_.installed(lab.guest, rendered.family).document())
        return found + _compared(f"{filter_.name}, as the kernel prints it", saved, rendered, packet_checks)


def _compared(
    name: str, trace: Tracer, rendered: Rendered, packet_checks: Iterable[PacketCheck]
) -> list[str]:
    """The differences of `trace` from the expected outcomes, and from the model's chances.

    Where not only the rules decide, the model's outcomes are expected.
    """
    found = []
    for packet_check in packet_checks:
        traced, model = trace(packet_check.packet), trace_model(rendered.rules, packet_check.packet)
        expected = packet_check.expected if packet_check.is_decided_by_rules else model.outcomes
        if traced.outcomes != expected:
            steps = "".join(f"\n           {step}" for step in traced.steps)
            found.append(
                f"{name}: {packet_check.name}: {traced.summary}, not {format_outcomes(expected)}{steps}"
            )
        elif _rounded(traced.chances) != _rounded(model.chances):
            found.append(
                f"{name}: {packet_check.name}: chances {_shown(traced.chances)}, not {_shown(model.chances)}"
            )
    return found


def _rounded(chances: Mapping[Outcome, float]) -> dict[Outcome, float]:
    return {outcome: round(chance, _SHARE_DIGITS) for outcome, chance in chances.items()}


def _shown(chances: Mapping[Outcome, float]) -> str:
    return ", ".join(
        sorted(f"{format_outcomes([outcome])} {chance:.4f}" for outcome, chance in chances.items())
    )


def _has_affinity(rules: GuestRules, packet: Packet) -> bool:
    return any(
        isinstance(frontend.to, EndpointSet) and frontend.to.affinity_s is not None
        for frontend in rules.frontends()
        if (frontend.ip, frontend.port, frontend.protocol)
        == (packet.destination, packet.port, packet.protocol)
    )
