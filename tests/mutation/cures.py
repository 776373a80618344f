# SPDX-License-Identifier: Apache-2.0
r"""Reads the lists of cures, and judges a test run without one of them.

Each entry removes the lines of one cure and lists the tests that must fail then. Each package has a list of
its own, that of `vnagent/core/limits.py` is `tests/mutation/cures/vnagent.core.toml`:

    # What would happen without the cure, where its name does not say it.
    [[cure]]
    name = "short-and-unique"          # `make mutants ARGS=short-and-unique` runs this one
    file = "package/module.py"
    remove = '''                       # whole lines with their indentation, which occur exactly once in the
        if size > LIMIT:               # file; a literal string ('''), in which a backslash is a backslash
            return
    '''
    replace = '''...'''                # the lines of the mutant, optional
    tests = [                          # EACH must fail on the mutant: a test, a test with one set of
        "tests/unit/x/test_y.py::test_z",  # parameters, or a file in which one test must fail
    ]

The mutant must be importable: otherwise it proves nothing and is reported as BROKEN. Use `replace` where
removing the lines would leave a name undefined or a block empty.
"""

import tomllib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath
from typing import Any

_KEYS = frozenset({"name", "file", "remove", "replace", "tests"})


class CureError(Exception):
    """The list, or an entry of it, is not usable."""


@dataclass(frozen=True, slots=True)
class Cure:
    """`remove` stands in `file` once; with `replace` in its place each of `tests` has to fail."""

    name: str
    file: str
    remove: str
    replace: str
    tests: tuple[str, ...]


class Verdict(Enum):
    """What came of a mutant."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    # One of its tests was skipped, as this machine lacks what it needs: that shows nothing either.
    LEFT_OUT = "LEFT OUT"
    # Its tests were not run, or could not be imported: that shows nothing.
    BROKEN = "BROKEN"


def parse(lists: Mapping[str, str]) -> tuple[Cure, ...]:
    """Read the lists, texts by package. Raises CureError, which names the entry."""
    cures = tuple(cure for package, text in sorted(lists.items()) for cure in _parse_list(package, text))
    twice = sorted(name for name, count in Counter(cure.name for cure in cures).items() if count > 1)
    if twice:
        raise CureError(f"two cures are called {twice[0]!r}")
    return cures


def _parse_list(package: str, text: str) -> tuple[Cure, ...]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise CureError(f"{package}: {problem}") from problem
    if document.keys() - {"cure"}:
        raise CureError(f"{package}: unknown keys {sorted(document.keys() - {'cure'})}")
    cures = tuple(_cure(number, raw) for number, raw in enumerate(document.get("cure", []), 1))
    for cure in cures:
        home = ".".join(PurePosixPath(cure.file).parent.parts)
        if home != package:
            raise CureError(f"{cure.name}: its place is the list of {home}, not of {package}")
    return cures


def _cure(number: int, raw: dict[str, Any]) -> Cure:
    name = str(raw.get("name", f"number {number}"))
    if raw.keys() - _KEYS:
        raise CureError(f"{name}: unknown keys {sorted(raw.keys() - _KEYS)}")
    missing = _KEYS - raw.keys() - {"replace"}
    if missing:
        raise CureError(f"{name}: without {sorted(missing)}")
    tests = raw["tests"]
    if not isinstance(tests, list) or not tests or not raw["remove"].strip():
        raise CureError(f"{name}: needs lines to remove and at least one test")
    return Cure(name, raw["file"], raw["remove"], raw.get("replace", ""), tuple(tests))


def without(cure: Cure, source: str) -> str:
    """The file's text without the cure. Raises CureError unless its lines stand there exactly once."""
    count = source.count(cure.remove)
    if count != 1:
        raise CureError(f"{cure.name}: its lines stand {count} times in {cure.file}, not once")
    # What is removed are whole lines: a part of one could become other code by accident.
    begin = source.index(cure.remove)
    if (begin and source[begin - 1] != "\n") or not cure.remove.endswith("\n"):
        raise CureError(f"{cure.name}: give whole lines of {cure.file}, indentation included")
    mutant = source.replace(cure.remove, cure.replace)
    if mutant == source:
        raise CureError(f"{cure.name}: replaces its lines by themselves")
    return mutant


def verdict(
    cure: Cure, code: int, failed: Collection[str], uncollected: Collection[str], skipped: Collection[str]
) -> Verdict:
    """By pytest's exit code, the tests that failed or were skipped, and the files without their tests."""
    if code not in (0, 1) or uncollected:
        return Verdict.BROKEN
    unnoticed = blind(cure, failed)
    if not unnoticed:
        return Verdict.KILLED
    return Verdict.LEFT_OUT if any(_among(test, skipped) for test in unnoticed) else Verdict.SURVIVED


def blind(cure: Cure, failed: Collection[str]) -> Sequence[str]:
    """Those of the cure's tests that did not notice; of a file or a set of parameters one is enough."""
    return [test for test in cure.tests if not _among(test, failed)]


def left_out(cure: Cure, failed: Collection[str], skipped: Mapping[str, str]) -> Sequence[str]:
    """Of those that did not notice which were skipped, each with its reason."""
    return [
        f"{one}: {reason}"
        for test in blind(cure, failed)
        for one, reason in skipped.items()
        if _among(test, [one])
    ]


def _among(test: str, found: Collection[str]) -> bool:
    """Whether a test, one of its sets of parameters or one of a file's tests is there."""
    return any(one == test or one.startswith((f"{test}::", f"{test}[")) for one in found)
