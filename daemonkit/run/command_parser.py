# SPDX-License-Identifier: Apache-2.0
"""What a daemon's command line has, for argparse.

A module of its own, loaded where a start needs more than `--config`: argparse and what it imports (gettext,
shutil, three compressors) take 0.7 MB of a process.
"""

import argparse
from pathlib import Path
from typing import Any, NoReturn

from daemonkit.version import VERSION


class _Version(argparse.Action):
    """Prints the program and its version, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        print(parser.prog, VERSION)  # noqa: T201 - this is what was asked for
        parser.exit()


def command_parser(name: str) -> argparse.ArgumentParser:
    """The options of the daemon `name`; its man page and completions are made from them."""
    parser = argparse.ArgumentParser(prog=name, allow_abbrev=False)
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="the daemon's configuration"
    )
    parser.add_argument(
        "--check-config",
        action="store_true",
        help="print every error of the configuration and of the files that it names, exit 2 if there is any,"
        " and start nothing",
    )
    parser.add_argument(
        "--user",
        default="",
        metavar="NAME",
        help="with --check-config: check as this user; root only",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    return parser
