# SPDX-License-Identifier: Apache-2.0
"""`vcnode demo`: a program of its own beside this package in a clone; a node lacks it."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from vcnode.terminal import ToolError

VERB = "demo"

_CLONE = Path(__file__).resolve().parents[1]
_PACKAGE = "vcnode_demo"


def add_to(verbs: Any) -> None:
    """List the verb where it can run; its arguments are the demo's own."""
    if _has_demo(_CLONE):
        verbs.add_parser(VERB, help="see it work: fake cluster, real daemons, two tenants")


def execute(words: Sequence[str]) -> NoReturn:
    """Become the demo. Raises ToolError in an installed tree."""
    command = demo_command(_CLONE, words)
    os.chdir(_CLONE)  # so that Python finds the demo of this clone
    os.execv(command[0], command)  # noqa: S606 - our own interpreter


def demo_command(clone: Path, words: Sequence[str]) -> list[str]:
    """The demo's command line. Raises ToolError without a demo in `clone`."""
    if not _has_demo(clone):
        raise ToolError("vcnode demo runs from a clone only: clone the repository and run `make demo` there")
    # Unbuffered: each step is seen at once, in a pipe as well.
    return [sys.executable, "-u", "-m", _PACKAGE, *words]


def _has_demo(clone: Path) -> bool:
    return (clone / _PACKAGE / "__main__.py").is_file()
