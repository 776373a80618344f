# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.cases [FILE ...] [--only PATTERN]`: files of cases against the real agent.

A FILE is a path, or a name below ../shared/cases; without one it is the shared file, where there is
one, and `more.yaml` beside this module. Ends with a line `N passed, N failed`; the exit
code is 1 if any case has failed, 2 if a file cannot be read.
"""

import argparse
import re
import resource
import sys
from pathlib import Path

from tests.cases.daemon import ROOT
from tests.cases.runner import Result, Runner
from tests.cases.shape import ShapeError, find_file, load

SHARED = ROOT.parent / "shared" / "cases"
GROUND = Path(__file__).with_name("more.yaml")
DEFAULTS = [path for path in (SHARED / "vnagent-requests.yaml", GROUND) if path.exists()]


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
            file = load(find_file(name, SHARED), GROUND)
        except ShapeError as problem:
            sys.stderr.write(f"{problem}\n")
            return 2
        runner = Runner(file, arguments.keep)
        try:
            for result in runner.run(lambda case: re.search(arguments.only, case.id) is not None):
                passed += result.has_passed
                failed += not result.has_passed
                if not (result.has_passed and arguments.failed_only):
                    _show(result)
        finally:
            runner.close()
    sys.stdout.write(f"{passed} passed, {failed} failed\n")
    return 1 if failed else 0


def _show(result: Result) -> None:
    word = "ok  " if result.has_passed else "FAIL"
    sys.stdout.write(f"{word} {result.case.id} ({result.took_s:.1f} s)\n")
    for complaint in result.complaints:
        sys.stdout.write(f"       {complaint}\n")
    sys.stdout.flush()


def _allow_many_files() -> None:
    """2000 open tunnels have 2000 descriptors on this side."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))


if __name__ == "__main__":
    sys.exit(main())
