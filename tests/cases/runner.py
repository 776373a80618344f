# SPDX-License-Identifier: Apache-2.0
"""Runs the cases of a file: one agent for all cases of one configuration, reset between them."""

import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cases import invariants, upstream
from tests.cases.admin import AdminError, parse_admin, run_admin
from tests.cases.client import SendFailed
from tests.cases.companion import REQUEST, Companion
from tests.cases.daemon import AGENT, DaemonError
from tests.cases.expand import ExpandError
from tests.cases.identities import Identities, IdentityError
from tests.cases.invariants import Evidence, look_before
from tests.cases.judge import judge, judge_audit
from tests.cases.pages import PageError, make_page
from tests.cases.play import Play
from tests.cases.record import Record
from tests.cases.shape import CaseFile, Expect, RequestCase, path_of
from tests.cases.stage import OPTIONAL_PARTS, Stage, StageError, unknown_settings
from tests.cases.steps import Advance, Step, StepError, parse_steps
from tests.cases.world import RequestFixtures

# So many connections to the kubelet are warm before a case, so that its own and its neighbour's
# requests do not add to the pool and look like a leak.
_WARM_CONNECTIONS = 3
_HELD_S = (0.02, 0.2, 1.0)
_HOST = "node-1:10550"


@dataclass(frozen=True, slots=True)
class CaseResult:
    case: RequestCase
    complaints: tuple[str, ...]
    took_s: float

    @property
    def has_passed(self) -> bool:
        return not self.complaints


class Runner:
    """Holds the stages of one file of cases. `close` ends them."""

    def __init__(self, file: CaseFile, directory: Path | None = None, *, module: str = AGENT) -> None:
        """`module` is run as the agent: `python -m module --config FILE`."""
        self._module = module
        self._file = file
        self._is_own_directory = directory is None
        self._directory = directory or Path(tempfile.mkdtemp(prefix="vnagent-cases-"))
        self._stages: dict[str, Stage] = {}
        self._count = 0

    def close(self) -> None:
        for stage in self._stages.values():
            stage.stop()
        self._stages.clear()
        if self._is_own_directory:
            shutil.rmtree(self._directory, ignore_errors=True)

    def run(self, wanted: Callable[[RequestCase], bool] = lambda _: True) -> Iterator[CaseResult]:
        """The wanted cases in the file's order."""
        for case in self._file.cases:
            if wanted(case):
                yield self.run_case(case)

    def run_case(self, case: RequestCase) -> CaseResult:
        """One case. Whatever goes wrong is a complaint of it."""
        begin = time.monotonic()
        try:
            complaints = list(case.problems) or self._play(case)
        except (
            AdminError,
            DaemonError,
            ExpandError,
            IdentityError,
            PageError,
            SendFailed,
            StageError,
            StepError,
            OSError,
        ) as problem:
            complaints = [f"{type(problem).__name__}: {problem}"]
        return CaseResult(case, tuple(complaints), time.monotonic() - begin)

    def _play(self, case: RequestCase) -> list[str]:
        steps, unknown = self._understood(case)
        if unknown:
            return unknown
        config = {key: value for key, value in case.config.items() if key not in OPTIONAL_PARTS}
        wants_part = any(case.config.get(part) for part in OPTIONAL_PARTS)
        expect = case.expect
        if wants_part:
            if case.otherwise is None:
                return ["the case wants a part that the agent has not got, and says no otherwise"]
            expect = case.otherwise
        if any(isinstance(step, Advance) for step in steps):
            config["movable_clock"] = True
        stage = self._stage(config)
        try:
            return self._play_on(stage, case, expect, steps)
        finally:
            self._restore(stage, config)

    def _understood(self, case: RequestCase) -> tuple[list[Step], list[str]]:
        """The steps of a case, and everything about it that is not understood."""
        unknown = unknown_settings(case.config)
        if case.upstream is not None:
            unknown += upstream.check(case.upstream)
            if "page" in case.upstream:
                world = RequestFixtures(
                    self._file.fixtures, Identities(self._file.identities, self._directory)
                )
                pods = [pod.stand_in() for pod in world.pods]
                make_page(str(case.upstream["page"]), path_of(case.text), pods)
        for step in case.before:
            if set(step) - {"note"} != {"admin"}:
                unknown.append(f"harness does not know the step before: {dict(step)!r}")
            else:
                parse_admin(str(step["admin"]))
        return parse_steps(case.then, _HOST), unknown

    def _stage(self, config: Mapping[str, Any]) -> Stage:
        key = json.dumps(config, sort_keys=True)
        stage = self._stages.get(key)
        if stage is None:
            self._count += 1
            directory = self._directory / f"stage-{self._count}"
            identities = Identities(self._file.identities, directory / "identities")
            world = RequestFixtures(self._file.fixtures, identities)
            stage = Stage(world, directory, config, module=self._module)
            self._stages[key] = stage
            try:
                stage.start()
            except DaemonError:
                del self._stages[key]
                stage.stop()
                raise
            if not stage.is_trust_empty:
                self._warm_up(stage)
        return stage

    def _restore(self, stage: Stage, config: Mapping[str, Any]) -> None:
        """Back to the start; an agent that cannot be brought there is thrown away."""
        try:
            if stage.daemon.is_running and not stage.is_trust_empty:
                stage.reset()
                return
        except (DaemonError, OSError):
            pass  # the next case gets a new one, and this case's complaints say what happened
        stage.stop()
        self._stages.pop(json.dumps(config, sort_keys=True), None)

    def _warm_up(self, stage: Stage) -> None:
        """Where not all were there at once, the pool is smaller: they are then held for longer."""
        neighbour = stage.world.identity_of("ten-b")
        for stage.warming_s in _HELD_S:
            threads = [
                threading.Thread(target=stage.ask, args=(neighbour, REQUEST))
                for _ in range(_WARM_CONNECTIONS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(10)
            if stage.kubelet.connections_open >= _WARM_CONNECTIONS:
                break
        stage.warming_s = 0.0

    def _play_on(self, stage: Stage, case: RequestCase, expect: Expect, steps: list[Step]) -> list[str]:
        stage.world.identities.raw(case.identity)
        if stage.is_trust_empty:
            return self._play_without_trust(stage, case, expect, steps)
        if stage.world.identities.was_registered(case.identity):
            stage.was_registered_once(case.identity)
        run_admin(stage, [str(step["admin"]) for step in case.before])
        said = case.upstream or {}
        if said.get("cert", "good") != "good":
            stage.kubelet_certificate(str(said["cert"]))
        if said.get("down"):
            stage.kubelet_down()
        self._warm_up(stage)
        before = look_before(stage)
        stage.script, stage.script_tenant = case.upstream, stage.world.tenant_of(case.identity)
        companion = Companion(stage, stage.world.identity_of("ten-b"))
        play = Play(stage, case, expect, steps, companion)
        companion.start()
        try:
            record = play.run()
        finally:
            companion.stop()
        if stage.script_problem is not None:
            record.errors.append(stage.script_problem)
        evidence = Evidence(stage, case, record, before, companion, lambda text: _again(stage, case, text))
        return self._verdict(case, expect, record, evidence)

    def _verdict(self, case: RequestCase, expect: Expect, record: Record, evidence: Evidence) -> list[str]:
        complaints = judge(case, expect, record)
        # I12 first: the others make connections of their own.
        for name in sorted(expect.hold, key=lambda name: (name != "I12", int(name[1:]))):
            complaints += invariants.check(name, evidence)
        audit_words = case.words["audit_must_contain"] + case.words["audit_must_not_contain"]
        if audit_words:
            complaints += invariants.check("I10", evidence)
            complaints += judge_audit(case, "\n".join(evidence.audit_lines()))
        return complaints

    def _play_without_trust(
        self, stage: Stage, case: RequestCase, expect: Expect, steps: list[Step]
    ) -> list[str]:
        """An agent that trusts nobody has refused to start (exit code 2) or serves nobody."""
        code = stage.daemon.exit_code
        if code is not None:
            return [] if code == 2 else [f"exit code {code}: {stage.daemon.log_tail(500)}"]
        companion = Companion(stage, stage.world.identity_of("ten-b"))
        return judge(case, expect, Play(stage, case, expect, steps, companion).run())


def _again(stage: Stage, case: RequestCase, text: str) -> bytes:
    return stage.ask(case.identity, text)[1]
