# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.cases [FILE ...] [--only PATTERN]`: files of cases against the real thing.

A FILE is a path, or a name below ../shared/cases; without one it is the shared files, where there
are any, and ours beside them: requests to vn-agent, and packets to Services. Which it is shows in
the file: one with `cases:` goes to a real agent, one with `flows:` or `guest:` to the model, the texts
and the kernel. Ends with a line `N passed, N failed`; the exit code is 1 if any case has failed, 2 if
a file cannot be read.
"""

import argparse
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import yaml

from tests.cases import runner, shape
from tests.cases.daemon import ROOT
from tests.cases.services import load as services
from tests.cases.services.results import Result as ServiceResult
from tests.cases.services.runner import Runner as ServiceRunner

SHARED = ROOT.parent / "shared" / "cases"
GROUND = Path(__file__).with_name("more.yaml")
MORE_SERVICES = Path(__file__).parent / "services" / "more.yaml"
DEFAULTS = [
    path
    for path in (
        *(SHARED / "vnagent-requests.yaml", GROUND),
        *(SHARED / "service-proxy.yaml", MORE_SERVICES),
    )
    if path.exists()
]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cases")
    parser.add_argument("files", nargs="*", default=[str(path) for path in DEFAULTS], metavar="FILE")
    parser.add_argument("--only", default="", metavar="PATTERN", help="regular expression on case ids")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="leave logs and files here")
    parser.add_argument("--failed-only", action="store_true", help="say nothing of cases that pass")
    arguments = parser.parse_args(argv)
    _allow_many_files()
    passed = failed = 0
    for name in arguments.files:
        try:
            results = _results(shape.find_file(name, SHARED), arguments.only, arguments.keep)
            for result in results:
                is_left_out = isinstance(result, ServiceResult) and result.is_left_out
                passed += result.has_passed
                failed += not (result.has_passed or is_left_out)
                if not arguments.failed_only or not (result.has_passed or is_left_out):
                    _show(result)
        except (shape.ShapeError, services.ShapeError) as problem:
            sys.stderr.write(f"{problem}\n")
            return 2
    sys.stdout.write(f"{passed} passed, {failed} failed\n")
    return 1 if failed else 0


def _results(path: Path, only: str, keep: Path | None) -> Iterator[runner.Result | ServiceResult]:
    """The results of one file, by the runner that its shape asks for."""
    if services.is_of_this_shape(_top(path)):
        with closing(ServiceRunner(services.read(path), _say)) as service_runner:
            yield from service_runner.run(lambda case: re.search(only, case.id) is not None)
        return
    with closing(runner.Runner(shape.load(path, GROUND), keep)) as request_runner:
        yield from request_runner.run(lambda case: re.search(only, case.id) is not None)


def _top(path: Path) -> object:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as problem:
        raise shape.ShapeError(f"{path}: {problem}") from problem


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _show(result: runner.Result | ServiceResult) -> None:
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
