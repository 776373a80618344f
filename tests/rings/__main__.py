# SPDX-License-Identifier: Apache-2.0
"""Runs rings as CI does: `make test REQUIRE_RINGS=1` calls it instead of pytest.

    python -m tests.rings pytest RING [--drawn-seed=OPTION] -- TEST... PYTEST-OPTION...
    python -m tests.rings command NAME -- COMMAND...
    python -m tests.rings report NAME...

`pytest` fails for skips that `skips.py` does not list. Tests that failed run once more, in a process of
their own: those that pass then are FLAKY, are printed with both logs, and fail nothing. With
`--drawn-seed` it draws a seed, prints it and hands it to both runs, so that the second one is not given
other data. `report` prints the figures of all that ran since `build/rings` was emptied, ends with a line
`N passed, N failed`, and fails for a NAME that did not run. Logs and figures are in `build/rings`.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import dropwhile
from pathlib import Path
from typing import Any

from tests.rings.results import Flaky, RingResult, of_command, report, result, to_rerun

DIRECTORY = Path("build/rings")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rings")
    commands = parser.add_subparsers(dest="command", required=True)
    of_pytest = commands.add_parser("pytest")
    of_pytest.add_argument("name")
    of_pytest.add_argument("--drawn-seed", metavar="OPTION")
    of_pytest.add_argument("arguments", nargs="+")
    program = commands.add_parser("command")
    program.add_argument("name")
    program.add_argument("arguments", nargs="+")
    commands.add_parser("report").add_argument("names", nargs="*")
    chosen = parser.parse_args(argv)
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    match chosen.command:
        case "pytest":
            return _run_pytest(DIRECTORY, chosen.name, chosen.arguments, chosen.drawn_seed)
        case "command":
            return _run_command(DIRECTORY, chosen.name, chosen.arguments)
        case _:
            return _report(DIRECTORY, chosen.names)


def _run_pytest(directory: Path, name: str, arguments: Sequence[str], seed_option: str | None) -> int:
    begin = time.monotonic()
    arguments = list(arguments)
    if seed_option is not None and seed_option not in arguments:
        arguments += [seed_option, str(random.randrange(1_000_000))]  # noqa: S311 - test data, no secret
        _print_line(f"{name}: {' '.join(arguments[-2:])}: the same options run it again")
    first_record = directory / f"{name}.first.json"
    code = _pytest(directory / f"{name}.log", first_record, arguments)
    first = _read(first_record)
    second, again = None, to_rerun(first) if first and code == 1 else ()
    if again:
        _print_line(f"{name}: {len(again)} tests failed and run once more: {', '.join(again)}")
        options = dropwhile(lambda one: not one.startswith("-"), arguments)
        second_record = directory / f"{name}.second.json"
        _pytest(directory / f"{name}.again.log", second_record, [*again, *options, "--record-output"])
        second = _read(second_record)
    if first is None:
        made = RingResult(name, time.monotonic() - begin, failed=(f"{name}: pytest ended with {code}",))
    else:
        made = result(name, time.monotonic() - begin, first, second)
    if code not in (0, 1) and not made.failed:
        made = RingResult(name, made.seconds, made.passed, (f"{name}: pytest ended with {code}",))
    _keep(directory, made)
    for flaky in made.flaky:
        _print_line(f"{name}: FLAKY {flaky.test}; both logs are in the report at the end")
    return 1 if made.failed else 0


def _pytest(log: Path, record: Path, arguments: Sequence[str]) -> int:
    record.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", *arguments, "--require-run", "--record", str(record)]
    return _stream(command, log)[0]


def _run_command(directory: Path, name: str, command: Sequence[str]) -> int:
    begin = time.monotonic()
    code, output = _stream(command, directory / f"{name}.log")
    _keep(directory, of_command(name, time.monotonic() - begin, code, output))
    return code


def _stream(command: Sequence[str], log: Path) -> tuple[int, str]:
    """Run it; what it prints goes to stdout as it comes, and to `log`."""
    lines = []
    with (
        log.open("w", encoding="utf-8") as file,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process,
    ):
        for line in process.stdout or ():
            lines.append(line)
            file.write(line)
            sys.stdout.write(line)
            sys.stdout.flush()
    return process.returncode, "".join(lines)


def _keep(directory: Path, made: RingResult) -> None:
    document = {"at": time.time(), **asdict(made)}
    (directory / f"{made.name}.json").write_text(json.dumps(document), encoding="utf-8")


def _report(directory: Path, expected: Sequence[str]) -> int:
    paths = [path for path in directory.glob("*.json") if not path.stem.endswith((".first", ".second"))]
    documents = sorted((json.loads(path.read_text(encoding="utf-8")) for path in paths), key=_at)
    text, is_well = report([_result(document) for document in documents], expected)
    sys.stdout.write(f"{text}\n")
    return 0 if is_well else 1


def _at(document: Mapping[str, Any]) -> float:
    at: float = document["at"]
    return at


def _result(document: Mapping[str, Any]) -> RingResult:
    return RingResult(
        document["name"],
        document["seconds"],
        document["passed"],
        tuple(document["failed"]),
        tuple(Flaky(**one) for one in document["flaky"]),
        document["skipped"],
        tuple((test, took_s) for test, took_s in document["slowest"]),
        document["log"],
    )


def _read(path: Path) -> dict[str, Any] | None:
    """A run's record; None where pytest did not come to its end."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return found


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
