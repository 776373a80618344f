# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.cases [FILE ...] [--only PATTERN]`: files of cases against the real thing.

A FILE is a path, or a name below ../shared/cases; without one it is the shared files and ours beside
them: requests to vn-agent, and packets to Services. Which it is shows in the file: one with `cases:`
goes to a real agent, one with `flows:` or `guest:` to the model, the texts and the kernel.

What was not run is printed: a shared file that does not exist, a packet filter that this machine
lacks, cases that `--only` leaves out. With `--require-all` (`make cases` in CI) each of them counts as
a failure. Ends with a line `N passed, N failed`. The exit code is 0 if at least one case ran and none
failed, 2 if a file cannot be read, else 1.
"""

import argparse
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.cases import case_file, runner
from tests.cases.daemon import ROOT
from tests.cases.services import load as services
from tests.cases.services.case_results import ServiceCaseResult as ServiceResult
from tests.cases.services.runner import Runner as ServiceRunner

SHARED = ROOT.parent / "shared" / "cases"
GROUND = Path(__file__).with_name("more.yaml")
MORE_SERVICES = Path(__file__).parent / "services" / "more.yaml"


def default_files(shared: Path) -> tuple[Path, ...]:
    """The files of a run without FILE; those of `shared` are not part of a clone."""
    return (
        *(shared / "vnagent-requests.yaml", GROUND),
        *(shared / "service-proxy.yaml", MORE_SERVICES),
    )


@dataclass(slots=True)
class Tally:
    """What came of a run. `missing` has a line for everything that should have been run and was not."""

    only: str
    passed: int = 0
    failed: int = 0
    # Cases whose own note says why no guest can be asked, such as packets from the node.
    left_out: int = 0
    not_wanted: int = 0
    unreadable: int = 0
    missing: list[str] = field(default_factory=list)

    def wants(self, identifier: str) -> bool:
        is_wanted = re.search(self.only, identifier) is not None
        self.not_wanted += not is_wanted
        return is_wanted

    def count(self, result: runner.CaseResult | ServiceResult) -> None:
        if isinstance(result, ServiceResult) and result.is_left_out:
            self.left_out += 1
        elif result.has_passed:
            self.passed += 1
        else:
            self.failed += 1

    def finish(self, *, require_all: bool) -> int:
        """Print what was not run, then the closing line. Returns the exit code."""
        if self.not_wanted:
            self.missing.append(f"LEFT OUT: {self.not_wanted} cases by --only {self.only!r}")
        if not self.passed + self.failed:
            self.missing.append("NOT RUN: no case at all")
            self.failed += 1
        for line in self.missing:
            _say(line)
        if self.left_out:
            _say(f"{self.left_out} cases ask nothing of a guest; their notes say why")
        if require_all:
            self.failed += len(self.missing)
        elif self.missing:
            _say("NOT COMPLETE: the lines above were not run; with --require-all they fail")
        _say(f"{self.passed} passed, {self.failed} failed")
        return 2 if self.unreadable else int(self.failed > 0)


def main(argv: list[str] | None = None, shared: Path = SHARED) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cases")
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--only", default="", metavar="PATTERN", help="regular expression on case ids")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="leave logs and files here")
    parser.add_argument("--failed-only", action="store_true", help="say nothing of cases that pass")
    parser.add_argument("--require-all", action="store_true", help="fail for whatever cannot be run")
    arguments = parser.parse_args(argv)
    _allow_many_files()
    tally = Tally(arguments.only)
    for path in _paths(arguments.files, shared, tally):
        try:
            for result in _results(path, tally, arguments.keep):
                tally.count(result)
                if not arguments.failed_only or result.complaints:
                    _show(result)
        except (case_file.RequestFileError, services.ServiceFileError) as problem:
            _unreadable(tally, problem)
    return tally.finish(require_all=arguments.require_all)


def _paths(names: list[str], shared: Path, tally: Tally) -> Iterator[Path]:
    """The files to run. One that was asked for by name and does not exist cannot be read."""
    for name in names:
        try:
            yield case_file.find_file(name, shared)
        except case_file.RequestFileError as problem:
            _unreadable(tally, problem)
    for path in () if names else default_files(shared):
        if path.is_file():
            yield path
        else:
            tally.missing.append(f"NOT FOUND: {path}: none of its cases were run")


def _unreadable(tally: Tally, problem: Exception) -> None:
    sys.stderr.write(f"NOT READ: {problem}\n")
    tally.unreadable += 1
    tally.failed += 1


def _results(path: Path, tally: Tally, keep: Path | None) -> Iterator[runner.CaseResult | ServiceResult]:
    """The results of one file, by the runner that its shape asks for."""
    if services.is_of_this_shape(_top(path)):
        with closing(ServiceRunner(services.read(path), _say)) as service_runner:
            tally.missing += [f"{line} ({path.name})" for line in service_runner.left_out]
            yield from service_runner.run(lambda case: tally.wants(case.id))
        return
    with closing(runner.Runner(case_file.load(path, GROUND), keep)) as request_runner:
        yield from request_runner.run(lambda case: tally.wants(case.id))


def _top(path: Path) -> object:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise case_file.RequestFileError(f"{path}: {problem}") from problem


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _show(result: runner.CaseResult | ServiceResult) -> None:
    note = ""
    word = "ok  " if result.has_passed else "FAIL"
    if isinstance(result, ServiceResult):
        note = f": {result.note}" if result.note else ""
        word = "none" if result.is_left_out else word
    _say(f"{word} {result.case.id} ({result.took_s:.1f} s){note}")
    for complaint in result.complaints:
        _say(f"       {complaint}")


def _allow_many_files() -> None:
    """2000 open tunnels have 2000 descriptors on this side."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))


if __name__ == "__main__":
    sys.exit(main())
