# SPDX-License-Identifier: Apache-2.0
"""The evaluations of a question, and their comparison: model, rulesets' texts, real kernels."""

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
from tests.cases.services.kernel_answers import complaints, ports
from tests.cases.services.lab import Lab
from tests.cases.services.questions import Question
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


def by_model(rendered: Rendered, questions: Iterable[Question]) -> list[str]:
    return _compared("model", lambda packet: trace_model(rendered.rules, packet), rendered, questions)


def by_texts(rendered: Rendered, questions: Iterable[Question]) -> list[str]:
    """Both texts are consistent, and their tracers agree with the expected outcomes and the model."""
    found = [f"iptables text: {problem}" for problem in problems(rendered.texts[Backend.IPTABLES])]
    questions = list(questions)
    for backend, text in rendered.texts.items():
        document = parse(text, rendered.family, backend)
        found += _compared(f"{backend.value} text", tracer(document), rendered, questions)
    return found


class LiveKernels:
    """Evaluation by real kernels. `filters` are those that this machine can run."""

    def __init__(self, filters: Iterable[KernelFilter] = FILTERS) -> None:
        self.filters = tuple(filters)
        self.responder = Responder()

    def close(self) -> None:
        self.responder.close()

    def side_by_side(self, ask: "Callable[[LiveKernels, KernelFilter], list[str]]") -> list[str]:
        """Evaluate with all filters at once: most time is spent waiting for programs and packets."""
        with ThreadPoolExecutor(len(self.filters)) as threads:
            said = threads.map(lambda filter_: ask(self, filter_), self.filters)
            return [complaint for complaints in said for complaint in complaints]

    def lab(
        self, rendered: Rendered, listened: Iterable[int], filter_: KernelFilter, *, is_routed: bool = True
    ) -> Lab:
        """A guest without rules, and an outside that listens on these ports."""
        restorer = filter_.restorer(rendered.family)
        return Lab(self.responder, rendered.guest.pod, listened, restorer, is_routed=is_routed)

    def answers(self, rendered: Rendered, questions: Iterable[Question], filter_: KernelFilter) -> list[str]:
        """Load the text, send packets, and trace what the kernel prints."""
        questions = list(questions)
        lab = self.lab(rendered, ports(questions), filter_)
        try:
            return self.answers_in(lab, rendered, questions, filter_)
        finally:
            lab.close()

    def answers_in(
        self, lab: Lab, rendered: Rendered, questions: Iterable[Question], filter_: KernelFilter
    ) -> list[str]:
        """`answers`, in an existing guest."""
        questions = list(questions)
        text = rendered.texts[filter_.backend]
        filter_.load(lab.guest, rendered.family, text)

        def reload() -> None:
            filter_.clear(lab.guest, rendered.family)
            filter_.load(lab.guest, rendered.family, text)

        found = []
        for question in questions:
            has_affinity = _has_affinity(rendered.rules, question.packet)
            said = complaints(lab, question, reload if has_affinity else None)
            found += [f"{filter_.name}, live: {question.name}: {one}" for one in said]
        saved = tracer(filter_.held(lab.guest, rendered.family).document())
        return found + _compared(f"{filter_.name}, as the kernel prints it", saved, rendered, questions)


def _compared(name: str, ask: Tracer, rendered: Rendered, questions: Iterable[Question]) -> list[str]:
    """The differences of `ask` from the expected outcomes, and from the model's chances.

    Where not only the rules decide, the model's outcomes are expected.
    """
    found = []
    for question in questions:
        traced, model = ask(question.packet), trace_model(rendered.rules, question.packet)
        wanted = question.wanted if question.is_of_rules else model.outcomes
        if traced.outcomes != wanted:
            steps = "".join(f"\n           {step}" for step in traced.steps)
            found.append(f"{name}: {question.name}: {traced.summary}, not {format_outcomes(wanted)}{steps}")
        elif _rounded(traced.chances) != _rounded(model.chances):
            found.append(
                f"{name}: {question.name}: chances {_shown(traced.chances)}, not {_shown(model.chances)}"
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
