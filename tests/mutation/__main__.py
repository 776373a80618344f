# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.mutation [NAME ...]`: finds cures that could be lost without a failing test.

Works on a copy of the tree in a scratch directory. First the named tests of all chosen cures run on the
copy as it is: a test that fails anyway shows nothing. Then one cure at a time is taken out, its tests
run, and it is put back. Prints a line for each, `killed`, `SURVIVED` (with the tests that did not notice),
`LEFT OUT` (with those that were skipped on this machine, and why) or `BROKEN` (the tests could not run), and
ends with a line `N passed, N failed`. The exit code is 0 if
all were killed, 1 if not, 2 if a list is wrong or lines of a cure are not found. The lists are the files
of `cures/`; `cures.py` has their format.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.cures import Cure, CureError, Verdict, blind, left_out, parse, verdict, without

ROOT = Path(__file__).resolve().parents[2]
LISTS = Path(__file__).with_name("cures")
# A mutant may hang; what its tests need when they are well is far below this.
_TESTS_S = 900.0
_IGNORED = shutil.ignore_patterns(
    *(".git", ".venv", "build", "dist", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"),
    *("*.egg-info", ".hypothesis", ".import_linter_cache"),
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these cures")
    parser.add_argument("--lists", type=Path, default=LISTS, metavar="FOLDER")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the tree to copy")
    parser.add_argument("--print", action="store_true", help="print the list of cures and run nothing")
    chosen = parser.parse_args(argv)
    try:
        cures = _chosen(parse(read(chosen.lists)), chosen.names)
        # All before any runs, so that an outdated list fails at once.
        mutants = [without(cure, (chosen.tree / cure.file).read_text(encoding="utf-8")) for cure in cures]
    except (CureError, OSError) as problem:
        sys.stderr.write(f"{problem}\n")
        return 2
    if chosen.print:
        for cure in cures:
            _print_line(f"{cure.name}: {cure.file}: {', '.join(cure.tests)}")
        return 0
    with _copy(chosen.tree) as tree:
        return _run(tree, cures, mutants)


def read(folder: Path) -> dict[str, str]:
    """The texts of the lists in `folder`, by package. Raises OSError."""
    return {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.toml")}


def _run(tree: Path, cures: Sequence[Cure], mutants: Sequence[str]) -> int:
    tests = sorted({test for cure in cures for test in cure.tests})
    done = _pytest(tree, tests)
    if done.code != 0:
        bad = [*done.failed, *done.uncollected]
        _print_line(f"the tests do not pass with all cures in place: {bad}\n{done.log}")
        _print_line("0 passed, 1 failed")
        return 1
    killed = 0
    for cure, mutant in zip(cures, mutants, strict=True):
        begin, path = time.monotonic(), tree / cure.file
        original = path.read_text(encoding="utf-8")
        path.write_text(mutant, encoding="utf-8")
        try:
            done = _pytest(tree, cure.tests)
        finally:
            path.write_text(original, encoding="utf-8")
        result = verdict(cure, done.code, done.failed, done.uncollected, done.skipped)
        killed += result is Verdict.KILLED
        _print_line(f"{result.value:<9}{cure.name} ({time.monotonic() - begin:.1f} s)")
        for test in blind(cure, done.failed) if result is Verdict.SURVIVED else ():
            _print_line(f"         not noticed by {test}")
        for test in left_out(cure, done.failed, done.skipped) if result is Verdict.LEFT_OUT else ():
            _print_line(f"         did not run: {test}")
        if result is Verdict.BROKEN:
            _print_line(f"         pytest ended with {done.code}\n{done.log[-2000:]}")
    _print_line(f"{killed} passed, {len(cures) - killed} failed")
    return 0 if killed == len(cures) else 1


def _chosen(cures: Sequence[Cure], names: Sequence[str]) -> list[Cure]:
    unknown = set(names) - {cure.name for cure in cures}
    if unknown:
        raise CureError(f"no cure is called {sorted(unknown)}")
    chosen = [cure for cure in cures if not names or cure.name in names]
    if not chosen:
        raise CureError("the lists have no cure")
    return chosen


@contextmanager
def _copy(tree: Path) -> Iterator[Path]:
    """The tree in a directory of its own, with the files that tests read beside a clone."""
    with tempfile.TemporaryDirectory(prefix="vcnode-mutants-") as scratch:
        made = Path(scratch) / "tree"
        shutil.copytree(tree, made, ignore=_IGNORED, symlinks=True)
        shared = tree.parent / "shared"
        if shared.is_dir():
            (Path(scratch) / "shared").symlink_to(shared)
        yield made


@dataclass(frozen=True, slots=True)
class _Run:
    """Of pytest: its exit code, failed tests, files that could not be collected, skipped tests and files with
    their reasons, and what it printed."""

    code: int
    failed: Sequence[str]
    uncollected: Sequence[str]
    skipped: Mapping[str, str]
    log: str


def _pytest(tree: Path, tests: Sequence[str]) -> _Run:
    record = tree / "mutant.json"
    record.unlink(missing_ok=True)
    # A file that changes twice in a second may look to Python like the one that it has compiled.
    environment = ("env", f"PYTHONPATH={tree}", "PYTHONDONTWRITEBYTECODE=1")
    options = ("-q", "-p", "no:cacheprovider", "--record", str(record))
    with subprocess.Popen(
        [*environment, sys.executable, "-m", "pytest", *tests, *options],
        cwd=tree,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            log = process.communicate(timeout=_TESTS_S)[0]
        except subprocess.TimeoutExpired:
            # With whatever the tests have started: it would keep the pipe open.
            os.killpg(process.pid, 9)
            return _Run(1, list(tests), [], {}, f"no end within {_TESTS_S:.0f} s")
    try:
        document = json.loads(record.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return _Run(process.returncode or 2, [], [], {}, log)
    failed = [one for one in document["failed"] if "::" in one]
    uncollected = [one for one in document["failed"] if "::" not in one]
    return _Run(process.returncode, failed, uncollected, document["skipped"], log)


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
