# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin of all rings: prints skipped tests, fails for them where required, and writes
a record of the run. `tests/conftest.py` has its hooks.

Under pytest-xdist it acts in the process that hands out the tests, which gets all reports.
"""

import json
import time
from pathlib import Path

import pytest

from tests.rings.skips import is_allowed

_SLOWEST = 15


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rings")
    group.addoption(
        "--require-run",
        action="store_true",
        help="fail for every skip that tests/rings/skips.py does not list",
    )
    group.addoption(
        "--record-output", action="store_true", help="with what tests printed, also those that passed"
    )
    group.addoption("--record", type=Path, metavar="FILE", help="write what came of the run here, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist only sends reports
        rings = Rings(
            config.getoption("--record"),
            require_run=config.getoption("--require-run"),
            keep_output=config.getoption("--record-output"),
        )
        config.pluginmanager.register(rings, "vcnode-rings")


class Rings:
    """One run. `require_run`: a skip that `skips.py` has not got makes the run fail."""

    def __init__(self, record: Path | None, *, require_run: bool, keep_output: bool = False) -> None:
        """`record` is written at the end; with `keep_output` also what passed tests printed."""
        self._record = record
        self._keep_output = keep_output
        self._require_run = require_run
        self._began_s = time.monotonic()
        self._skips: dict[str, str] = {}
        self._took_s: dict[str, float] = {}
        self._failed: dict[str, str] = {}
        # The output of each test that passed; empty unless the run requested it.
        self._passed: dict[str, str] = {}

    @property
    def unlisted(self) -> dict[str, str]:
        """Skipped tests that `skips.py` does not list, with their reasons."""
        return {test: reason for test, reason in self._skips.items() if not is_allowed(test, reason)}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._skips[report.nodeid] = _reason(report.longrepr)
        elif report.failed:
            self._failed[report.nodeid] = report.longreprtext

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid
        self._took_s[test] = self._took_s.get(test, 0.0) + report.duration
        if report.failed:
            parts = [self._failed.get(test, ""), f"{report.when}: {report.longreprtext}", _output(report)]
            self._failed[test] = "\n".join(filter(None, parts))
            self._passed.pop(test, None)
        elif report.skipped:
            # An expected failure is a result, not a test that was left out.
            if not hasattr(report, "wasxfail"):
                self._skips[test] = _reason(report.longrepr)
        elif report.when == "call" and test not in self._failed:
            took = f"passed in {report.duration:.1f} s"
            self._passed[test] = f"{took}\n{_output(report)}" if self._keep_output else ""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        # "No tests collected" too: every test was left out.
        harmless = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if self._require_run and self.unlisted and session.exitstatus in harmless:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self._record is not None:
            self._record.write_text(json.dumps(self._document()), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test, reason in self._skips.items():
            if not is_allowed(test, reason):
                word = "NOT RUN, and it must" if self._require_run else "LEFT OUT"
                terminalreporter.write_line(f"{word}: {test}: {reason}", red=self._require_run)
            else:
                terminalreporter.write_line(f"LEFT OUT, as tests/rings/skips.py has it: {test}: {reason}")

    def _document(self) -> dict[str, object]:
        slowest = sorted(self._took_s.items(), key=lambda item: -item[1])[:_SLOWEST]
        return {
            "passed": len(self._passed),
            "outputs": self._passed if self._keep_output else {},
            "failed": self._failed,
            "skipped": self._skips,
            "unlisted": sorted(self.unlisted) if self._require_run else [],
            "seconds": time.monotonic() - self._began_s,
            "slowest": slowest,
        }


def _reason(longrepr: object) -> str:
    """The reason of a skip; pytest keeps file, line and reason."""
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return str(text).removeprefix("Skipped: ")


def _output(report: pytest.TestReport) -> str:
    """What pytest captured: stdout, stderr and log lines of the test and its fixtures."""
    return "\n".join(f"--- {name} ---\n{text}" for name, text in report.sections)
