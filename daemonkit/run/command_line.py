# SPDX-License-Identifier: Apache-2.0
"""A daemon's command line: `--config FILE [--check-config [--user NAME]]`, `--help` and `--version`."""

import datetime as dt
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

import msgspec

from daemonkit import logs
from daemonkit.config.binding import ConfigError
from daemonkit.config.logging_config import apply_logging
from daemonkit.run.start_check import FileProblem, Severity, directories_problems, unique

EXIT_UNUSABLE = 2

T = TypeVar("T")

_log = logs.get(__name__)


class Arguments(msgspec.Struct, frozen=True):
    """What a daemon is started with; everything else is in its configuration.

    `user` is whose permissions a check examines; empty: those of the caller.
    """

    config: Path
    is_check: bool
    user: str = ""


def parse_arguments(name: str, argv: Sequence[str]) -> Arguments:
    """Parse `argv`, which is without the program's name.

    Raises `SystemExit`: 2 after an explanation on stderr, 0 after the version or the help.
    """
    if len(argv) == 2 and argv[0] == "--config" and argv[1] and not argv[1].startswith("-"):
        return Arguments(Path(argv[1]), is_check=False)
    return _parse_all(name, argv)


def _parse_all(name: str, argv: Sequence[str]) -> Arguments:
    # Only here: argparse takes 0.7 MB of a process.
    from daemonkit.run.command_parser import command_parser

    parser = command_parser(name)
    parsed = parser.parse_args(argv)
    if parsed.user and not parsed.check_config:
        parser.error("--user goes with --check-config")
    return Arguments(parsed.config, parsed.check_config, parsed.user)


def _no_problems(_: object, __: float) -> Iterable[FileProblem]:
    return ()


def load_or_exit(
    arguments: Arguments,
    load: Callable[[Path], T],
    problems_of: Callable[[T, float], Iterable[FileProblem]] = _no_problems,
) -> T:
    """Return what `load` makes of the file, for a daemon that starts. It logs as the file says from now on.

    `problems_of` examines the files that the configuration names; it gets the time now, in seconds since
    1970.
    On `ConfigError`, and for a FATAL problem, all errors go to stderr and the exit code is 2. A start logs
    other problems and goes on. With `--check-config` the exit code is 2 for any error, the directories' too,
    else 0. Raises `SystemExit` then.
    """
    if arguments.user:
        _switch_user(arguments.user)
    try:
        config = load(arguments.config)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(EXIT_UNUSABLE) from None
    problems = list(problems_of(config, dt.datetime.now(dt.UTC).timestamp()))
    if arguments.is_check:
        known = {each.key for each in problems}
        problems += (each for each in directories_problems(config) if each.key not in known)
        _report(arguments.config, unique(problems))
    elif any(each.severity is Severity.FATAL for each in problems):
        _write(arguments.config, unique(problems))
        raise SystemExit(EXIT_UNUSABLE)
    apply_logging(config)
    for each in unique(problems):
        _log.warning(
            "starting, though a file of the configuration has a problem",
            key=each.key,
            file=each.path,
            reason=each.message,
            remedy=each.remedy,
        )
    return config


def _report(config: Path, problems: Iterable[FileProblem]) -> NoReturn:
    """End a check."""
    found = list(problems)
    _write(config, found)
    if any(each.severity is not Severity.WARNING for each in found):
        raise SystemExit(EXIT_UNUSABLE)
    sys.stderr.write(f"{config}: ok\n")
    raise SystemExit(0)


def _write(config: Path, problems: Iterable[FileProblem]) -> None:
    sys.stderr.write("".join(f"{config}: {each}\n" for each in problems))


def _switch_user(name: str) -> None:
    """Take the user, the group and the groups of `name`. Raises `SystemExit`."""
    import pwd

    try:
        user = pwd.getpwnam(name)
        os.initgroups(name, user.pw_gid)
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    except KeyError:
        sys.stderr.write(f"--user: unknown user {name!r}\n")
        raise SystemExit(EXIT_UNUSABLE) from None
    except OSError as error:
        sys.stderr.write(f"--user: cannot become {name}: {error.strerror}; run the check as root\n")
        raise SystemExit(EXIT_UNUSABLE) from None
