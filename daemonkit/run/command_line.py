# SPDX-License-Identifier: Apache-2.0
"""What a daemon is started with, in full: help, version, and what is wrong with it.

`run.parse_arguments` comes here only for what is not the usual start: argparse, with all that it
brings (gettext; shutil for the width of a terminal, and so three compressors), is 0.7 MB of a process
for as long as it lives.
"""

import argparse
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn


def parse(name: str, argv: Sequence[str]) -> tuple[Path, bool]:
    """The configuration's path and whether it is only to be checked.

    Raises `SystemExit`: 2 after an explanation on stderr, 0 after the version or the help.
    """
    parser = argparse.ArgumentParser(prog=name, allow_abbrev=False)
    parser.add_argument("--config", type=Path, required=True, metavar="FILE")
    parser.add_argument(
        "--check-config",
        action="store_true",
        help="say all that is wrong with the configuration, exit 2 if anything is, and start nothing",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parsed = parser.parse_args(argv)
    return parsed.config, parsed.check_config


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        print(parser.prog, metadata.version("vcnode"))  # noqa: T201 - asked for, and it is all
        parser.exit()
