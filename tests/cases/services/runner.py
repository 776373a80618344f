# SPDX-License-Identifier: Apache-2.0
"""Runs the cases of a service proxy's file. The model, a tracer of each text and live kernels evaluate every
group; all must agree with the file and with each other."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from tests.cases.services import rendering, sections
from tests.cases.services.case_file import ApiState, CaseFile, FlowCase, GuestCase
from tests.cases.services.evaluations import LiveKernels, Rendered, by_model, by_texts, render
from tests.cases.services.filters import FILTERS, KernelFilter
from tests.cases.services.kernel_probes import MISSED
from tests.cases.services.namespace import NamespaceError
from tests.cases.services.packet_checks import (
    GuestPacketChecks,
    PacketCheck,
    UnknownWordError,
    check_config,
    checks_of_flow,
    checks_of_guest,
    split,
    with_catch_all,
)
from tests.cases.services.procedures import PROCEDURES, ProcedureContext
from tests.cases.services.rendering import RenderedGuest, SubjectError
from tests.cases.services.sections import Job


@dataclass(frozen=True, slots=True)
class NamedCase:
    id: str


@dataclass(frozen=True, slots=True)
class ServiceCaseResult:
    """The result of a case; `note` has what was left out, and why."""

    case: NamedCase
    failures: tuple[str, ...]
    took_s: float
    note: str = ""
    is_left_out: bool = False

    @property
    def has_passed(self) -> bool:
        return not self.failures and not self.is_left_out


class Runner:
    """Owns the live kernels until `close`."""

    def __init__(
        self, file: CaseFile, print_line: Callable[[str], None], *, with_kernel: bool = True
    ) -> None:
        """`print_line` gets one line about the live kernels; `left_out` has what this machine cannot run."""
        self._file = file
        usable, missing = _usable()
        self.left_out = tuple(missing)
        self._kernel = LiveKernels(usable) if usable and with_kernel else None
        if self._kernel is not None:
            names = ", ".join(one.name for one in usable)
            print_line(
                f"live kernels: {names}; an endpoint of a set is missed with a probability below {MISSED:g}"
            )

    def close(self) -> None:
        if self._kernel is not None:
            self._kernel.close()

    def run(self, selected: Callable[[NamedCase], bool] = lambda _: True) -> Iterator[ServiceCaseResult]:
        """The selected cases, in the file's order: flows, guests, then the other sections."""
        for identifier, job in self._jobs():
            if selected(NamedCase(identifier)):
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
        origin = self._file.node_origin
        guest_checks = checks_of_flow(flow.checks, flow.state, origin)
        data = rendering.objects_list(flow.state, origin.node)
        found: list[str] = []
        for pod, packet_checks in guest_checks.packet_checks.items():
            found += self._evaluate(data, RenderedGuest(pod, origin.node), packet_checks)
            cidrs = _of_family(origin.service_cidr, pod)
            refused = tuple(with_catch_all(packet_check, cidrs) for packet_check in packet_checks)
            # The catch-all must change nothing else: the kernel evaluates again only where it does.
            found += [
                f"with the catch-all: {one}"
                for one in self._evaluate(
                    data,
                    RenderedGuest(pod, origin.node, service_cidrs=cidrs),
                    refused,
                    is_live=refused != packet_checks,
                )
            ]
        return found, _flow_note(guest_checks)

    def _evaluate(
        self,
        data: bytes,
        guest: RenderedGuest,
        packet_checks: tuple[PacketCheck, ...],
        *,
        is_live: bool = True,
    ) -> list[str]:
        rendered = render(data, guest)
        found = by_model(rendered, packet_checks) + by_texts(rendered, packet_checks)
        if self._kernel is not None and is_live:
            found += self._kernel.with_all_filters(
                lambda kernel, filter_: kernel.evaluate(rendered, packet_checks, filter_)
            )
        return found

    def _guest(self, case: GuestCase) -> tuple[list[str], str]:
        procedure = PROCEDURES.get(case.how)
        if procedure is None:
            raise UnknownWordError(f"the runner does not know how: {case.how!r}")
        origin = self._file.guest_origin
        pod = case.pod or origin.pod
        cidrs = _of_family(origin.service_cidr, pod)
        guest = RenderedGuest(
            pod,
            origin.node,
            tenant=case.tenant,
            networks=case.networks,
            service_cidrs=cidrs if case.has_catch_all else (),
        )
        packet_checks = checks_of_guest(case.checks, pod, case.how)
        now = _rendered(case.state, guest)
        found = by_model(now, packet_checks) + by_texts(now, packet_checks)
        if self._kernel is None:
            return found, f"{len(packet_checks)} checks, without its procedure {case.how!r}"
        before = None if case.before is None else _rendered(case.before, guest)
        results = None
        if case.before is not None:
            states = (case.before, case.state)
            old, new = (rendering.result_for(rendering.objects_list(s, guest.node), guest) for s in states)
            results = (old, new)
        within_s = None if case.within_ms is None else case.within_ms / 1000

        def run_procedure(kernel: LiveKernels, filter_: KernelFilter) -> list[str]:
            context = ProcedureContext(
                kernel, filter_, before, now, results, packet_checks, within_s, cidrs[0]
            )
            return [_named(filter_, failure) for failure in procedure(context)]

        found += self._kernel.with_all_filters(run_procedure)
        return found, f"{len(packet_checks)} checks, {case.how}"


def _unreadable(text: str) -> tuple[list[str], str]:
    return [text], ""


def _rendered(state: ApiState, guest: RenderedGuest) -> Rendered:
    return render(rendering.objects_list(state, guest.node), guest)


def _named(filter_: KernelFilter, failure: str) -> str:
    return failure if failure.startswith(filter_.name) else f"{filter_.name}, live: {failure}"


def _of_family(cidrs: str, pod: str) -> tuple[str, ...]:
    return tuple(cidr for cidr in split(cidrs) if (":" in cidr) == (":" in pod))


def _flow_note(guest_checks: GuestPacketChecks) -> str:
    left = ", ".join(f"{count} {reason}" for reason, count in sorted(guest_checks.left_out.items()))
    return f"{guest_checks.count} checks" + (f"; not a guest's: {left}" if left else "")


def _done(identifier: str, job: Job) -> ServiceCaseResult:
    """Run one case. Each error becomes a failure of it."""
    begin = time.monotonic()
    note = ""
    try:
        failures, note = job()
    except (NamespaceError, OSError, SubjectError, UnknownWordError, ValueError) as problem:
        failures = [f"{type(problem).__name__}: {problem}"]
    is_left_out = not failures and note.startswith(("0 checks", "left out"))
    return ServiceCaseResult(
        NamedCase(identifier), tuple(failures), time.monotonic() - begin, note, is_left_out
    )


def _usable() -> tuple[tuple[KernelFilter, ...], list[str]]:
    """The packet filters that this machine can run, and a line for each of the others."""
    if os.geteuid() != 0:
        return (), ["LEFT OUT: the live kernel, because this is not root: no case sends packets"]
    usable = tuple(one for one in FILTERS if not one.missing)
    left_out = [f"LEFT OUT: {one.name}: this machine has no {one.missing}" for one in FILTERS if one.missing]
    return usable, left_out
