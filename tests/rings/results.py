# SPDX-License-Identifier: Apache-2.0
"""Results of rings: which failed tests run again, which are flaky, and the figures at the end."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# More failures than this have another cause than flakiness.
MOST_RERUN = 20
# The end of each log, with the failure. The ring's log file has all of it.
_SHOWN_CHARS = 12_000
_CLOSING = re.compile(r"^(\d+) passed, (\d+) failed$", re.MULTILINE)
# As `python -m tests.cases --rerun` prints a case that failed and then passed: below it, its failures.
_FLAKY_CASE = re.compile(r"^FLAKY (.+): failed, and passed .*\n((?:[ ]{7}.*\n)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Flaky:
    """A test that failed and then passed, with both outputs."""

    test: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class RingResult:
    """The result of one ring, or of a command other than pytest."""

    name: str
    seconds: float
    passed: int = 0
    failed: tuple[str, ...] = ()
    flaky: tuple[Flaky, ...] = ()
    skipped: int = 0
    slowest: tuple[tuple[str, float], ...] = field(default=())
    # Of what failed, for the end of the report: the log of a long run may be cut in its middle.
    log: str = ""


def to_rerun(record: Mapping[str, Any]) -> tuple[str, ...]:
    """The tests to run again; none after too many failures or an unlisted skip."""
    failed = tuple(record["failed"])
    return failed if len(failed) <= MOST_RERUN and not record["unlisted"] else ()


def result(
    name: str, seconds: float, first: Mapping[str, Any], second: Mapping[str, Any] | None = None
) -> RingResult:
    """The result of a pytest run and of the second run of its failed tests."""
    flaky, failed, logs = [], list(first["unlisted"]), []
    for test, log in first["failed"].items():
        if second is not None and test in second["outputs"] and test not in second["failed"]:
            flaky.append(Flaky(test, log, second["outputs"][test]))
        else:
            failed.append(test)
            logs.append(f"{test}\n{_end(log)}")
    return RingResult(
        name,
        seconds,
        # A flaky test counts as passed.
        first["passed"] + len(flaky),
        tuple(failed),
        tuple(flaky),
        len(first["skipped"]),
        tuple((test, took_s) for test, took_s in first["slowest"]),
        "\n".join(logs),
    )


def of_command(name: str, seconds: float, code: int, output: str) -> RingResult:
    """Of a program whose last line may be `N passed, N failed`; else only its exit code counts."""
    counts = _CLOSING.findall(output)
    passed, failed = map(int, counts[-1]) if counts else (0, 0)
    if code != 0 and not failed:
        failed = 1
    return RingResult(
        name,
        seconds,
        passed,
        tuple(f"{name} {number}" for number in range(1, failed + 1)),
        tuple(Flaky(case, failures, "passed") for case, failures in _FLAKY_CASE.findall(output)),
        log=_end(output) if failed else "",
    )


def report(results: Sequence[RingResult], expected: Sequence[str]) -> tuple[str, bool]:
    """The figures of all rings, and whether all is well. Its last line is `N passed, N failed`."""
    missing = [name for name in expected if name not in {one.name for one in results}]
    lines = [f"{'ring':<12}{'seconds':>9}{'passed':>9}{'failed':>9}{'flaky':>9}{'skipped':>9}"]
    lines += [
        f"{one.name:<12}{one.seconds:>9.0f}{one.passed:>9}{len(one.failed):>9}{len(one.flaky):>9}{one.skipped:>9}"
        for one in results
    ]
    slowest = sorted((pair for one in results for pair in one.slowest), key=lambda pair: -pair[1])[:15]
    lines += ["", "slowest tests:", *(f"{took_s:8.1f} s  {test}" for test, took_s in slowest)]
    for one in results:
        for flaky in one.flaky:
            lines += [
                "",
                f"FLAKY {flaky.test}: failed, and passed when it ran again. Its cause is to be found.",
            ]
            lines += [f"--- its first log ---\n{_end(flaky.first)}"]
            lines += [f"--- its second log ---\n{_end(flaky.second)}", f"--- end of FLAKY {flaky.test} ---"]
        if one.log:
            lines += ["", f"--- the log of what failed in {one.name} ---", one.log]
    lines += ["", *(f"FAILED {test} ({one.name})" for one in results for test in one.failed)]
    lines += [f"NOT RUN: {name}" for name in missing]
    flaky_count = sum(len(one.flaky) for one in results)
    if flaky_count:
        lines.append(f"FLAKY: {flaky_count} tests, with both logs above")
    failed_count = sum(len(one.failed) for one in results) + len(missing)
    lines.append(f"{sum(one.passed for one in results)} passed, {failed_count} failed")
    return "\n".join(lines), failed_count == 0


def _end(log: str) -> str:
    return log if len(log) <= _SHOWN_CHARS else f"[...]{log[-_SHOWN_CHARS:]}"
