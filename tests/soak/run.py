# SPDX-License-Identifier: Apache-2.0
"""One run: load, faults in turn, quiet times between them, and what came of it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.soak import schedule
from tests.soak.agent_faults import AgentFaults
from tests.soak.agent_load import AgentLoad
from tests.soak.answers import FaultWindow, Violation, fault_problems, unexplained
from tests.soak.authority_faults import AuthorityFaults
from tests.soak.bridge_faults import bridge_faults
from tests.soak.dns_load import DnsLoad
from tests.soak.faults import FaultError, SoakFault
from tests.soak.growth import Growth, growth, growth_problems, not_judged
from tests.soak.load import LoadThread
from tests.soak.node import RESIDENTS, SoakNode
from tests.soak.recorder import Recorder
from tests.soak.service_load import ServiceLoad
from tests.soak.supervisor import Supervisor
from tests.soak.sync_faults import SyncFaults
from tests.soak.sync_load import SyncLoad
from tests.waiting import holds_within
from vcnode_demo.daemon import Daemon

_GAUGES = ("vcnode_vnagent_tunnels", "vcnode_vnagent_connections", "vcnode_vnagent_buffered_bytes")
# A fault lasts, and so does the quiet time after it, until each thread of load has made a round. It lasts no
# shorter than this, so that a fast machine makes several.
FAULT_S, QUIET_S = 2.0, 3.0
# Rounds of a busy machine: a client waits 10 s for an answer, and a round has several.
ROUND_S = 120.0
# A patient round, which waits for 180 s, may be under way, and a whole one has to come after it.
RECOVERY_S = 300.0
_SETTLE_S = 60.0
_CHURN_REST_S = 0.5


@dataclass(frozen=True, slots=True)
class SoakOutcome:
    """All that a run found."""

    seed: int
    seconds: float
    cycles: int
    counts: Sequence[tuple[str, str, int]]
    windows: Sequence[FaultWindow]
    growths: Sequence[Growth]
    unjudged: Sequence[str]
    cuts_s: Sequence[float]
    rounds: int
    violations: Sequence[Violation]


class Run:
    """`run` does it all; `say` gets a line for each fault."""

    def __init__(self, node: SoakNode, seed: int, minutes: float, say: Callable[[str], None]) -> None:
        self._node = node
        self._seed = seed
        self._seconds = minutes * 60
        self._say = say
        self._recorder = Recorder()
        self._supervisor = Supervisor(node.daemons, node.agent, self._recorder)
        self._agent = AgentFaults(node, self._recorder, self._supervisor)
        self._threads: list[LoadThread] = []
        self._windows: list[FaultWindow] = []

    def run(self) -> SoakOutcome:
        """Raises ToolError where the node cannot be used at all."""
        churn = LoadThread("churn", self._recorder, self._node.churn, least_rest_s=_CHURN_REST_S)
        self._threads.append(churn)
        for tenant in self._node.tenants.values():
            self._supervisor.owners[tenant.secret_pod] = tenant.identity.key
            self._threads += AgentLoad(self._node, tenant, self._recorder).threads()
        synced = {
            name: SyncLoad(self._node, tenant, self._recorder).thread()
            for name, tenant in self._node.synced.items()
        }
        self._threads += synced.values()
        self._threads += [
            ServiceLoad(self._node, self._node.tenants[name], self._recorder).thread() for name in RESIDENTS
        ]
        self._threads += [DnsLoad(self._node, name, self._recorder).thread() for name in RESIDENTS]
        of_syncer = SyncFaults(self._node, self._recorder, self._supervisor, synced)
        of_guests = bridge_faults(self._node.guest_daemons, self._supervisor)
        of_authorities = AuthorityFaults(self._node, self._recorder)
        found = (*self._agent.faults(), *of_authorities.faults(), *of_syncer.faults(), *of_guests)
        faults = {fault.name: fault for fault in found}
        ending = frozenset(fault.name for fault in faults.values() if fault.ends_process)
        self._supervisor.start()
        for thread in self._threads:
            thread.start()
        cycles = 0
        try:
            while cycles == 0 or self._recorder.now_s() < self._seconds:
                share = self._recorder.now_s() / self._seconds
                for name in schedule.cycle(list(faults), ending, self._seed, cycles, share):
                    self._quiet()
                    self._cause(faults[name])
                    if cycles and self._recorder.now_s() > self._seconds:
                        break
                cycles += 1
            self._quiet()
            while self._recorder.now_s() < self._seconds:
                self._quiet()
        finally:
            self._end_load()
        self._judge_end()
        self._supervisor.stop()
        return self._outcome(cycles)

    # ---- faults

    def _quiet(self) -> None:
        self._supervisor.is_quiet = True
        self._wait_rounds(QUIET_S, ROUND_S)
        self._supervisor.is_quiet = False

    def _cause(self, fault: SoakFault) -> None:
        begin_s = self._recorder.now_s()
        for act in (fault.begin, fault.end):
            try:
                act()
            except FaultError as error:
                self._recorder.violation(f"{fault.name}: {error}")
            if act is fault.begin:
                self._wait_rounds(FAULT_S, ROUND_S)
        lifted_s = self._recorder.now_s()
        is_recovered = holds_within(
            lambda: all(thread.last_ok_begin_s > lifted_s for thread in self._living()), RECOVERY_S
        )
        window = FaultWindow(
            fault.name, begin_s, lifted_s, self._recorder.now_s(), fault.may, fault.must, is_recovered
        )
        self._windows.append(window)
        self._say(
            f"{begin_s:7.1f} s  {fault.name}: {lifted_s - begin_s:.1f} s,"
            f" recovered after {window.end_s - lifted_s:.1f} s"
        )

    def _living(self) -> list[LoadThread]:
        return [*self._threads, *(thread for _, threads in self._agent.visitors for thread in threads)]

    def _wait_rounds(self, least_s: float, within_s: float) -> None:
        """Until each thread has made a round that began after now, and for `least_s`."""
        begin_s = self._recorder.now_s()
        end_s = time.monotonic() + least_s
        threads = [thread for thread in self._living() if not thread.is_patient]
        if not holds_within(
            lambda: all(each.last_begin_s > begin_s for each in threads) and time.monotonic() >= end_s,
            within_s,
        ):
            late = [thread.name for thread in threads if thread.last_begin_s <= begin_s]
            self._recorder.violation(f"no round within {within_s:.0f} s: {', '.join(late)}")

    # ---- end

    def _end_load(self) -> None:
        threads = self._living()
        for thread in threads:
            thread.end()
        for thread in threads:
            thread.stop()

    def _judge_end(self) -> None:
        """Without load: all daemons ready, nothing left open, each decision in the audit log."""
        for name, daemon in self._node.daemons.items():
            self._expect(f"{name} is ready at the end", partial(_is_ready, daemon))
        for family in _GAUGES:
            self._expect(f"{family} is 0 without load", partial(_is_zero, self._node.agent, family))
        problem = self._supervisor.judge_audit()
        if problem:
            self._recorder.violation(problem)

    def _expect(self, what: str, condition: Callable[[], bool]) -> None:
        if not holds_within(condition, _SETTLE_S):
            self._recorder.violation(f"not within {_SETTLE_S:.0f} s: {what}")

    def _outcome(self, cycles: int) -> SoakOutcome:
        failures, windows = self._recorder.failures(), self._windows
        violations = [*self._recorder.violations(), *unexplained(failures, windows)]
        violations += fault_problems(failures, windows)
        growths, unjudged = [], []
        for name in self._node.daemons:
            grown = growth(name, self._supervisor.samples)
            unjudged.append(not_judged(name, grown))
            if grown is not None:
                growths.append(grown)
                violations += [Violation(self._recorder.now_s(), text) for text in growth_problems(grown)]
        return SoakOutcome(
            self._seed,
            self._recorder.now_s(),
            cycles,
            sorted((kind, outcome, count) for (kind, outcome), count in self._recorder.counts.items()),
            windows,
            growths,
            [*filter(None, unjudged)],
            self._agent.cuts_s,
            sum(thread.rounds for thread in self._threads),
            sorted(violations, key=lambda one: one.at_s),
        )


def _is_ready(daemon: Daemon) -> bool:
    return daemon.readyz()[0] == 200


def _is_zero(daemon: Daemon, family: str) -> bool:
    return daemon.metric(family) == 0


def keep_logs(node: SoakNode, directory: Path) -> None:
    """Copy the daemons' logs there, for a person to read."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, daemon in node.daemons.items():
        if daemon.log_file.exists():
            (directory / f"{name}.log").write_bytes(daemon.log_file.read_bytes())
