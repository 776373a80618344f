# SPDX-License-Identifier: Apache-2.0
"""Runs the cases of a file. Cases of one configuration share an agent, which is reset between them."""

import json
import shutil
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cases import invariants, upstream
from tests.cases.admin import AdminError, parse_admin, run_admin
from tests.cases.case_file import CaseFile, Expect, RequestCase, path_of
from tests.cases.client import SendFailed
from tests.cases.client_run import ClientRun
from tests.cases.daemon import AGENT, DaemonError
from tests.cases.environment import OPTIONAL_PARTS, AgentEnvironment, EnvironmentSetupError, unknown_settings
from tests.cases.expand import ExpandError
from tests.cases.expectations import check_audit_words, check_expectations
from tests.cases.fixtures import RequestFixtures
from tests.cases.identities import Identities, IdentityError
from tests.cases.invariants import CaseEvidence, take_baseline
from tests.cases.pages import PageError, make_page
from tests.cases.parallel_client import REQUEST, ParallelClient
from tests.cases.record import Record
from tests.cases.steps import Advance, CaseStep, StepError, parse_steps

# Connections to the kubelet that exist before a case. Requests of the case then add none to the
# pool, which would count as a leak.
_WARM_CONNECTIONS = 3
_WARM_UP_DELAYS_S = (0.02, 0.2, 1.0)
_HOST = "node-1:10550"


@dataclass(frozen=True, slots=True)
class CaseResult:
    case: RequestCase
    failures: tuple[str, ...]
    took_s: float

    @property
    def has_passed(self) -> bool:
        return not self.failures


class Runner:
    """Owns the environments of one case file until `close`."""

    def __init__(self, file: CaseFile, directory: Path | None = None, *, module: str = AGENT) -> None:
        """`module` is run as the agent: `python -m module --config FILE`."""
        self._module = module
        self._file = file
        self._is_own_directory = directory is None
        self._directory = directory or Path(tempfile.mkdtemp(prefix="vnagent-cases-"))
        self._environments: dict[str, AgentEnvironment] = {}
        self._count = 0

    def close(self) -> None:
        for environment in self._environments.values():
            environment.stop()
        self._environments.clear()
        if self._is_own_directory:
            shutil.rmtree(self._directory, ignore_errors=True)

    def run(self, selected: Callable[[RequestCase], bool] = lambda _: True) -> Iterator[CaseResult]:
        """The selected cases, in the file's order."""
        for case in self._file.cases:
            if selected(case):
                yield self.run_case(case)

    def run_case(self, case: RequestCase) -> CaseResult:
        """Run one case. Each error becomes a failure of the case."""
        begin = time.monotonic()
        try:
            failures = list(case.problems) or self._run(case)
        except (
            AdminError,
            DaemonError,
            ExpandError,
            IdentityError,
            PageError,
            SendFailed,
            EnvironmentSetupError,
            StepError,
            OSError,
        ) as problem:
            failures = [f"{type(problem).__name__}: {problem}"]
        except Exception as error:  # noqa: BLE001 - else one case ends the run, and its name is lost
            failures = traceback.format_exception(error)
        return CaseResult(case, tuple(failures), time.monotonic() - begin)

    def _run(self, case: RequestCase) -> list[str]:
        steps, unknown = self._parse(case)
        if unknown:
            return unknown
        config = {key: value for key, value in case.config.items() if key not in OPTIONAL_PARTS}
        needs_part = any(case.config.get(part) for part in OPTIONAL_PARTS)
        expect = case.expect
        if needs_part:
            if case.otherwise is None:
                return ["the case needs a part that the agent lacks, and has no `otherwise`"]
            expect = case.otherwise
        if any(isinstance(step, Advance) for step in steps):
            config["movable_clock"] = True
        environment = self._environment(config)
        try:
            return self._run_in(environment, case, expect, steps)
        finally:
            self._restore(environment, config)

    def _parse(self, case: RequestCase) -> tuple[list[CaseStep], list[str]]:
        """The steps of a case, and a problem for each word that the harness does not know."""
        unknown = unknown_settings(case.config)
        if case.upstream is not None:
            unknown += upstream.check(case.upstream)
            if "page" in case.upstream:
                fixtures = RequestFixtures(self._file.fixtures, Identities(self._file.identities))
                pods = [pod.fake_pod() for pod in fixtures.pods]
                make_page(str(case.upstream["page"]), path_of(case.text), pods)
        for step in case.before:
            if set(step) - {"note"} != {"admin"}:
                unknown.append(f"harness does not know the step before: {dict(step)!r}")
            else:
                parse_admin(str(step["admin"]))
        return parse_steps(case.then, _HOST), unknown

    def _environment(self, config: Mapping[str, Any]) -> AgentEnvironment:
        key = json.dumps(config, sort_keys=True)
        environment = self._environments.get(key)
        if environment is None:
            self._count += 1
            directory = self._directory / f"environment-{self._count}"
            identities = Identities(self._file.identities)
            fixtures = RequestFixtures(self._file.fixtures, identities)
            environment = AgentEnvironment(fixtures, directory, config, module=self._module)
            self._environments[key] = environment
            try:
                environment.start()
            except DaemonError:
                del self._environments[key]
                environment.stop()
                raise
            if not environment.is_trust_empty:
                self._warm_up(environment)
        return environment

    def _restore(self, environment: AgentEnvironment, config: Mapping[str, Any]) -> None:
        """Reset the environment, or end it where that fails."""
        try:
            if environment.daemon.is_running and not environment.is_trust_empty:
                environment.reset()
                return
        except (DaemonError, OSError):
            pass  # the next case gets a new environment
        environment.stop()
        self._environments.pop(json.dumps(config, sort_keys=True), None)

    def _warm_up(self, environment: AgentEnvironment) -> None:
        """Fill the pool of connections. Requests that did not overlap are repeated with longer delays."""
        ten_b = environment.fixtures.identity_of("ten-b")
        for environment.warming_s in _WARM_UP_DELAYS_S:
            threads = [
                threading.Thread(target=environment.request, args=(ten_b, REQUEST))
                for _ in range(_WARM_CONNECTIONS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(10)
            if environment.kubelet.connections_open >= _WARM_CONNECTIONS:
                break
        environment.warming_s = 0.0

    def _run_in(
        self, environment: AgentEnvironment, case: RequestCase, expect: Expect, steps: list[CaseStep]
    ) -> list[str]:
        environment.fixtures.identities.raw(case.identity)
        if environment.is_trust_empty:
            return self._run_without_tenants(environment, case, expect, steps)
        if environment.fixtures.identities.was_registered(case.identity):
            environment.register_and_remove(case.identity)
        for step in case.before:
            run_admin(environment, parse_admin(str(step["admin"])))
        upstream_script = case.upstream or {}
        if upstream_script.get("cert", "good") != "good":
            environment.kubelet_certificate(str(upstream_script["cert"]))
        if upstream_script.get("down"):
            environment.kubelet_down()
        self._warm_up(environment)
        before = take_baseline(environment)
        environment.script, environment.script_tenant = (
            case.upstream,
            environment.fixtures.tenant_of(case.identity),
        )
        parallel_client = ParallelClient(environment, environment.fixtures.identity_of("ten-b"))
        client_run = ClientRun(environment, case, expect, steps, parallel_client)
        parallel_client.start()
        try:
            record = client_run.run()
        finally:
            parallel_client.stop()
        if environment.script_problem is not None:
            record.errors.append(environment.script_problem)
        evidence = CaseEvidence(
            environment,
            case,
            record,
            before,
            parallel_client,
            lambda text: _repeat_request(environment, case, text),
        )
        return self._verdict(case, expect, record, evidence)

    def _verdict(
        self, case: RequestCase, expect: Expect, record: Record, evidence: CaseEvidence
    ) -> list[str]:
        failures = check_expectations(case, expect, record)
        # I12 first: other checks open connections.
        for name in sorted(expect.hold, key=lambda name: (name != "I12", int(name[1:]))):
            failures += invariants.check(name, evidence)
        audit_words = case.words["audit_must_contain"] + case.words["audit_must_not_contain"]
        if audit_words:
            failures += invariants.check("I10", evidence)
            failures += check_audit_words(case, "\n".join(evidence.audit_lines()))
        return failures

    def _run_without_tenants(
        self, environment: AgentEnvironment, case: RequestCase, expect: Expect, steps: list[CaseStep]
    ) -> list[str]:
        """An agent without tenants refuses to start (exit code 2) or serves no client."""
        code = environment.daemon.exit_code
        if code is not None:
            return [] if code == 2 else [f"exit code {code}: {environment.daemon.log_tail(500)}"]
        parallel_client = ParallelClient(environment, environment.fixtures.identity_of("ten-b"))
        return check_expectations(
            case, expect, ClientRun(environment, case, expect, steps, parallel_client).run()
        )


def _repeat_request(environment: AgentEnvironment, case: RequestCase, text: str) -> bytes:
    return environment.request(case.identity, text)[1]
