# SPDX-License-Identifier: Apache-2.0
"""Runs the cases of a service proxy's file: every group is answered by the model, by a tracer of each
text, and by live kernels, and all must agree with the file and with each other."""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial

from tests.cases.services import rendering, sections
from tests.cases.services.case_results import Job, NamedCase, ServiceCaseResult
from tests.cases.services.case_shape import ApiState, CaseFile, FlowCase, GuestCase
from tests.cases.services.evaluations import LiveKernels, Rendered, by_model, by_texts, render
from tests.cases.services.filters import FILTERS, KernelFilter
from tests.cases.services.kernel_answers import MISSED
from tests.cases.services.namespace import NamespaceError
from tests.cases.services.procedures import PROCEDURES, Scene
from tests.cases.services.questions import (
    GuestQuestions,
    Question,
    UnknownWordError,
    check_config,
    of_flow,
    of_guest,
    split,
    with_catch_all,
)
from tests.cases.services.rendering import RenderedGuest, SubjectError


class Runner:
    """Holds what live answers need. `close` ends it."""

    def __init__(self, file: CaseFile, say: Callable[[str], None], *, with_kernel: bool = True) -> None:
        """`say` gets one line about the live answers; `left_out` has what this machine cannot ask."""
        self._file = file
        usable, missing = _usable()
        self.left_out = tuple(missing)
        self._kernel = LiveKernels(usable) if usable and with_kernel else None
        if self._kernel is not None:
            names = ", ".join(one.name for one in usable)
            say(f"live answers: {names}; of a set of endpoints one is missed with a chance below {MISSED:g}")

    def close(self) -> None:
        if self._kernel is not None:
            self._kernel.close()

    def run(self, wanted: Callable[[NamedCase], bool] = lambda _: True) -> Iterator[ServiceCaseResult]:
        """The wanted cases in the file's order: flows, guests, then the other sections."""
        for identifier, job in self._jobs():
            if wanted(NamedCase(identifier)):
                yield _done(identifier, job)

    def _jobs(self) -> Iterator[tuple[str, Job]]:
        for problem in self._file.problems:
            yield problem.id, partial(_unreadable, problem.text)
        for flow in self._file.flows:
            yield flow.id, partial(self._flow, flow)
        for case in self._file.guest:
            yield case.id, partial(self._guest, case)
        yield from sections.jobs(self._file)

    def _flow(self, flow: FlowCase) -> tuple[list[str], str]:
        check_config(flow.config)
        world = self._file.world
        asked = of_flow(flow.checks, flow.state, world)
        data = rendering.objects_list(flow.state, world.node)
        found: list[str] = []
        for pod, questions in asked.questions.items():
            found += self._four_ways(data, RenderedGuest(pod, world.node), questions)
            cidrs = _of_family(world.service_cidr, pod)
            refused = tuple(with_catch_all(question, cidrs) for question in questions)
            # With the catch-all nothing else may change: the kernel is asked again where something does.
            found += [
                f"with the catch-all: {one}"
                for one in self._four_ways(
                    data,
                    RenderedGuest(pod, world.node, service_cidrs=cidrs),
                    refused,
                    is_live=refused != questions,
                )
            ]
        return found, _flow_note(asked)

    def _four_ways(
        self, data: bytes, guest: RenderedGuest, questions: tuple[Question, ...], *, is_live: bool = True
    ) -> list[str]:
        rendered = render(data, guest)
        found = by_model(rendered, questions) + by_texts(rendered, questions)
        if self._kernel is not None and is_live:
            found += self._kernel.side_by_side(
                lambda kernel, filter_: kernel.answers(rendered, questions, filter_)
            )
        return found

    def _guest(self, case: GuestCase) -> tuple[list[str], str]:
        procedure = PROCEDURES.get(case.how)
        if procedure is None:
            raise UnknownWordError(f"the runner does not know how: {case.how!r}")
        world = self._file.guest_world
        pod = case.pod or world.pod
        cidrs = _of_family(world.service_cidr, pod)
        guest = RenderedGuest(
            pod,
            world.node,
            tenant=case.tenant,
            networks=case.networks,
            service_cidrs=cidrs if case.has_catch_all else (),
        )
        questions = of_guest(case.checks, pod, case.how)
        now = _rendered(case.state, guest)
        found = by_model(now, questions) + by_texts(now, questions)
        if self._kernel is None:
            return found, f"{len(questions)} checks, without its procedure {case.how!r}"
        before = None if case.before is None else _rendered(case.before, guest)
        results = None
        if case.before is not None:
            states = (case.before, case.state)
            old, new = (rendering.result_for(rendering.objects_list(s, guest.node), guest) for s in states)
            results = (old, new)
        within_s = None if case.within_ms is None else case.within_ms / 1000

        def play(kernel: LiveKernels, filter_: KernelFilter) -> list[str]:
            scene = Scene(kernel, filter_, before, now, results, questions, within_s, cidrs[0])
            return [_named(filter_, said) for said in procedure(scene)]

        found += self._kernel.side_by_side(play)
        return found, f"{len(questions)} checks, {case.how}"


def _unreadable(text: str) -> tuple[list[str], str]:
    return [text], ""


def _rendered(state: ApiState, guest: RenderedGuest) -> Rendered:
    return render(rendering.objects_list(state, guest.node), guest)


def _named(filter_: KernelFilter, said: str) -> str:
    return said if said.startswith(filter_.name) else f"{filter_.name}, live: {said}"


def _of_family(cidrs: str, pod: str) -> tuple[str, ...]:
    return tuple(cidr for cidr in split(cidrs) if (":" in cidr) == (":" in pod))


def _flow_note(asked: GuestQuestions) -> str:
    left = ", ".join(f"{count} {why}" for why, count in sorted(asked.left_out.items()))
    return f"{asked.count} checks" + (f"; not a guest's: {left}" if left else "")


def _done(identifier: str, job: Job) -> ServiceCaseResult:
    """Run one case. Whatever goes wrong is a complaint of it."""
    begin = time.monotonic()
    note = ""
    try:
        complaints, note = job()
    except (NamespaceError, OSError, SubjectError, UnknownWordError, ValueError) as problem:
        complaints = [f"{type(problem).__name__}: {problem}"]
    is_left_out = not complaints and note.startswith(("0 checks", "left out"))
    return ServiceCaseResult(
        NamedCase(identifier), tuple(complaints), time.monotonic() - begin, note, is_left_out
    )


def _usable() -> tuple[tuple[KernelFilter, ...], list[str]]:
    """The packet filters that can be asked here, and what to say of the others."""
    if os.geteuid() != 0:
        return (), ["LEFT OUT: the live kernel, because this is not root: no case is answered by packets"]
    usable = tuple(one for one in FILTERS if not one.missing)
    said = [f"LEFT OUT: {one.name}, because there is no {one.missing} here" for one in FILTERS if one.missing]
    return usable, said
