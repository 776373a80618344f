# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.cases [FILE ...] [--only PATTERN]`: case files against the real daemons.

A FILE is a path, or a name below ../shared/cases. Default: the shared files and `more.yaml` beside them.
A file with `cases:` has requests, which go to a real vn-agent. One whose cases have a `direction` has
objects, for the plans of vc-syncer. One with `flows:` or `guest:` has packets to Services, which the model,
the rendered texts and the kernel evaluate.

It prints what it did not run: a missing shared file, a missing packet filter, cases that `--only` leaves
out. With `--require-all` (CI) each of them is a failure. With `--rerun` (CI) a file with failed cases runs
once more, and those that pass then are FLAKY, which fails nothing. The last line is `N passed, N failed`.
The exit code is 0 if at least one case ran and none failed, 2 if a file cannot be read, else 1.
"""

import argparse
import re
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent

import yaml

from tests.cases import case_file, runner
from tests.cases.daemon import ROOT
from tests.cases.services import load as services
from tests.cases.services.runner import Runner as ServiceRunner
from tests.cases.services.runner import ServiceCaseResult as ServiceResult
from tests.cases.sync import load as sync
from tests.cases.sync.runner import SyncCaseResult as SyncResult
from tests.cases.sync.runner import SyncRunner
from tests.rings.results import MOST_RERUN

_Result = runner.CaseResult | ServiceResult | SyncResult

SHARED = ROOT.parent / "shared" / "cases"
BASE_FILE = Path(__file__).with_name("more.yaml")


def default_files(shared: Path) -> tuple[Path, ...]:
    """The files of a run without FILE; `shared` is not part of a clone."""
    return (
        *(shared / "vnagent-requests.yaml", BASE_FILE),
        *(shared / "service-proxy.yaml", services.MORE),
        shared / "sync-objects.yaml",
    )


@dataclass(slots=True)
class Tally:
    """The counts of a run. `missing` has a line for each thing that was not run."""

    only: str
    passed: int = 0
    failed: int = 0
    # Cases that no runner can run, such as packets from the node; their notes give the reason.
    left_out: int = 0
    deselected: int = 0
    unreadable: int = 0
    missing: list[str] = field(default_factory=list)

    def selects(self, identifier: str) -> bool:
        is_selected = re.search(self.only, identifier) is not None
        self.deselected += not is_selected
        return is_selected

    def count(self, result: _Result) -> None:
        if isinstance(result, ServiceResult | SyncResult) and result.is_left_out:
            self.left_out += 1
        elif result.has_passed:
            self.passed += 1
        else:
            self.failed += 1

    def count_flaky(self) -> None:
        """A case that failed and then passed counts as passed."""
        self.failed -= 1
        self.passed += 1

    def finish(self, *, require_all: bool) -> int:
        """Print what was not run, then the closing line. Returns the exit code."""
        if self.deselected:
            self.missing.append(f"LEFT OUT: {self.deselected} cases by --only {self.only!r}")
        if not self.passed + self.failed:
            self.missing.append("NOT RUN: no case at all")
            self.failed += 1
        for line in self.missing:
            _print(line)
        if self.left_out:
            _print(f"{self.left_out} cases are for no runner; their notes give the reason")
        if require_all:
            self.failed += len(self.missing)
        elif self.missing:
            _print("NOT COMPLETE: the lines above were not run; with --require-all they fail")
        _print(f"{self.passed} passed, {self.failed} failed")
        return 2 if self.unreadable else int(self.failed > 0)


def main(argv: list[str] | None = None, shared: Path = SHARED) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cases")
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--only", default="", metavar="PATTERN", help="regular expression on case ids")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="leave logs and files here")
    parser.add_argument("--failed-only", action="store_true", help="print failed cases only")
    parser.add_argument("--rerun", action="store_true", help="run files with failed cases once more")
    parser.add_argument("--require-all", action="store_true", help="count what cannot be run as failed")
    arguments = parser.parse_args(argv)
    _allow_many_files()
    tally = Tally(arguments.only)
    for path in _paths(arguments.files, shared, tally):
        try:
            first = []
            for result in _results(path, tally.selects, tally.missing, arguments.keep):
                tally.count(result)
                if not arguments.failed_only or result.failures:
                    _show(result)
                first.append(result)
            if arguments.rerun and tally.failed <= MOST_RERUN:
                _rerun(path, first, tally, arguments.keep)
        except (case_file.RequestFileError, services.ServiceFileError, sync.SyncFileError) as problem:
            _unreadable(tally, problem)
    return tally.finish(require_all=arguments.require_all)


def _paths(names: list[str], shared: Path, tally: Tally) -> Iterator[Path]:
    """The files to run. A named file that does not exist counts as unreadable."""
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


def _rerun(path: Path, first: Sequence[_Result], tally: Tally, keep: Path | None) -> None:
    """Run a file's cases once more, against new daemons, up to the last one that failed: it may have failed
    for what an earlier one left behind."""
    numbers = [number for number, result in enumerate(first) if result.failures]
    if not numbers:
        return
    before = {result.case.id: result for result in first[: numbers[-1] + 1]}
    for result in _results(path, before.__contains__, [], None if keep is None else keep / "again"):
        was = before[result.case.id]
        if was.failures and result.failures:
            _print(f"FAILED TWICE {was.case.id}, now with:")
            _print_failures(result)
        elif was.failures:
            tally.count_flaky()
            _print(f"FLAKY {was.case.id}: failed, and passed when it ran again. It failed with:")
            _print_failures(was)
        elif result.failures:
            _print(f"FAILED THE SECOND TIME {was.case.id}, which had passed, with:")
            _print_failures(result)


def _results(
    path: Path, selects: Callable[[str], bool], missing: list[str], keep: Path | None
) -> Iterator[_Result]:
    """The results of one file, by the runner for its format; what cannot be run is added to `missing`."""
    top = _top(path)
    if sync.is_sync_file(top):
        yield from SyncRunner(sync.read(path)).run(lambda case: selects(case.id))
        return
    if services.is_service_file(top):
        with closing(ServiceRunner(services.read(path), _print)) as service_runner:
            missing += [f"{line} ({path.name})" for line in service_runner.left_out]
            yield from service_runner.run(lambda case: selects(case.id))
        return
    with closing(runner.Runner(case_file.load(path, BASE_FILE), keep)) as request_runner:
        yield from request_runner.run(lambda case: selects(case.id))


def _top(path: Path) -> object:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise case_file.RequestFileError(f"{path}: {problem}") from problem


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _show(result: _Result) -> None:
    note = ""
    word = "ok  " if result.has_passed else "FAIL"
    if isinstance(result, ServiceResult | SyncResult):
        note = f": {result.note}" if result.note else ""
        word = "none" if result.is_left_out else word
    _print(f"{word} {result.case.id} ({result.took_s:.1f} s){note}")
    _print_failures(result)


def _print_failures(result: _Result) -> None:
    for failure in result.failures:
        _print(indent(failure.rstrip(), " " * 7, lambda _: True))


def _allow_many_files() -> None:
    """A case opens 2000 tunnels, each with a descriptor in this process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))


if __name__ == "__main__":
    sys.exit(main())
