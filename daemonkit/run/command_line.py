# SPDX-License-Identifier: Apache-2.0
"""A daemon's command line: `--config FILE [--check-config]`, `--help` and `--version`."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from daemonkit.config.binding import ConfigError
from daemonkit.files import directories
from daemonkit.files.directories import HasDirectories

EXIT_UNUSABLE = 2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a daemon is started with; everything else is in its configuration."""

    config: Path
    is_check: bool


def parse_arguments(name: str, argv: Sequence[str]) -> Arguments:
    """Parse `argv`, which is without the program's name.

    Raises `SystemExit`: 2 after an explanation on stderr, 0 after the version or the help.
    """
    if len(argv) == 2 and argv[0] == "--config" and argv[1] and not argv[1].startswith("-"):
        return Arguments(Path(argv[1]), is_check=False)
    return _parse_all(name, argv)


def _parse_all(name: str, argv: Sequence[str]) -> Arguments:
    # Only here: these and what they import (gettext, shutil, three compressors) take 0.7 MB of a process.
    import argparse
    from importlib import metadata

    class Version(argparse.Action):
        def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
            print(parser.prog, metadata.version("vcnode"))  # noqa: T201 - this is what was asked for
            parser.exit()

    parser = argparse.ArgumentParser(prog=name, allow_abbrev=False)
    parser.add_argument("--config", type=Path, required=True, metavar="FILE")
    parser.add_argument(
        "--check-config",
        action="store_true",
        help="print every error of the configuration, exit 2 if it has any, and start nothing",
    )
    parser.add_argument("--version", action=Version, nargs=0, help="print the version and exit")
    parsed = parser.parse_args(argv)
    return Arguments(parsed.config, parsed.check_config)


def _no_problems(_: object) -> Iterable[str]:
    return ()


def load_or_exit(
    arguments: Arguments, load: Callable[[Path], T], problems_of: Callable[[T], Iterable[str]] = _no_problems
) -> T:
    """Return what `load` makes of the file, for a daemon that starts.

    On `ConfigError` all its errors go to stderr and the exit code is 2. With `--check-config` a good file
    ends in exit code 0, or 2 if the start would fail at one of its directories, or for one of `problems_of`.
    Raises `SystemExit` then.
    """
    try:
        config = load(arguments.config)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(EXIT_UNUSABLE) from None
    if arguments.is_check:
        if problems := [*problems_of(config), *_directory_problems(config)]:
            sys.stderr.write("".join(f"{arguments.config}: {each}\n" for each in problems))
            raise SystemExit(EXIT_UNUSABLE)
        sys.stderr.write(f"{arguments.config}: ok\n")
        raise SystemExit(0)
    return config


def _directory_problems(config: object) -> list[str]:
    if not isinstance(config, HasDirectories):
        return []
    found = (directories.problem(path) for path in config.directories())
    return list(dict.fromkeys(filter(None, found)))
