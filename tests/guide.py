# SPDX-License-Identifier: Apache-2.0
"""Commands of documents: blocks of `sh` after lines `<!-- KIND: NAME -->`, which rings run as they stand.

    python3 tests/guide.py 'KIND: NAME' DIRECTORY [OLD=NEW...]

runs a block of the README in a directory, with other names and addresses; its exit code is that of the block.
The lab's machines have Python's standard library alone.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# In the order in which a reader of the README, or of docs/operate.md, comes to them.
STEPS = ("authorities", "bundle", "cluster", "packages", "node", "start", "ask", "tenant", "network")
TENANT_STEPS = ("install", "create")
OPERATE_STEPS = ("renew", "register", "upgrade", "remove")
Steps = Mapping[str, str]
_BLOCK = re.compile(r"^<!-- ([a-z]+): ([a-z]+) -->\n```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class MissingStepError(Exception):
    """A document lacks a step, or has another one."""


class StepError(Exception):
    """A step failed; the text has what it printed."""


def read(document: str, kind: str, expected: Sequence[str]) -> Steps:
    """All blocks of a kind in a document of this repository, by name.

    Raises MissingStepError unless they are those that are expected, in this order.
    """
    found = _blocks(document)
    names = [name for kinds, name in found if kinds == kind]
    if names != list(expected):
        raise MissingStepError(f"{document} has {names}, expected {list(expected)}")
    return {name: found[kind, name] for name in names}


def run(
    commands: str,
    directory: Path,
    environment: Mapping[str, str] | None = None,
    *,
    show: Callable[[str], object] = str,
) -> str:
    """Run a step in a directory, each line of its output passed to `show`; what it printed.

    Raises StepError.
    """
    for line in commands.splitlines():
        show(f"+ {line}\n")
    with subprocess.Popen(
        ["/bin/sh", "-ec", commands],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as shell:
        assert shell.stdout is not None
        printed = []
        for line in shell.stdout:
            printed.append(line)
            show(line)
    if shell.returncode != 0:
        raise StepError(f"exit {shell.returncode}: {commands}{''.join(printed)}")
    return "".join(printed)


def replaced(commands: str, changes: Sequence[tuple[str, str]]) -> str:
    """A step with other names: each text of `changes` that stands there, in one pass. Raises StepError."""
    new = dict(changes)
    for old in new:
        if old not in commands:
            raise StepError(f"{old!r} is not in the step: {commands}")
    if not new:
        return commands
    longest_first = sorted(new, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), lambda found: new[found[0]], commands)


def _blocks(document: str) -> dict[tuple[str, str], str]:
    found = _BLOCK.findall((ROOT / document).read_text(encoding="utf-8"))
    return {(kind, name): commands for kind, name, commands in found}


def main(argv: Sequence[str]) -> int:
    """Run a block of the README."""
    title, directory, *changes = argv
    kind, _, name = title.partition(": ")
    commands = _blocks("README.md").get((kind, name))
    if commands is None:
        sys.stderr.write(f"README.md has no block {title}\n")
        return 1

    def show(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    pairs = [(old, new) for old, _, new in (each.partition("=") for each in changes)]
    try:
        run(replaced(commands, pairs), Path(directory), show=show)
    except StepError as error:
        sys.stderr.write(f"README.md, block {title}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
