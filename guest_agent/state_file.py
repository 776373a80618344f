# SPDX-License-Identifier: Apache-2.0
"""Saves generation and digest of the ruleset applied last.

The file is in /run: it must not outlive the kernel that has the rules. Without it only the
generation is lost, because the rules and their marker are in the kernel.
"""

import os
from pathlib import Path

from guest_agent.reconciler import AppliedRuleset

_VERSION = "1"
_MAX_BYTES = 200


def read(path: Path) -> AppliedRuleset | None:
    """The saved state; None if there is none, or it is unusable."""
    try:
        with path.open() as file:
            words = file.read(_MAX_BYTES).split()
    except (OSError, UnicodeDecodeError):
        return None
    if len(words) != 3 or words[0] != _VERSION or not words[1].isascii() or not words[1].isdigit():
        return None
    if len(words[2]) != 64 or set(words[2]) - set("0123456789abcdef"):
        return None
    return AppliedRuleset(int(words[1]), words[2])


def write(path: Path, applied: AppliedRuleset) -> None:
    """Replace the file. Raises `OSError`; the old file then stays.

    Not synced: a crash of the kernel loses the file together with the rules.
    """
    new = path.with_name(f".{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, f"{_VERSION} {applied.generation} {applied.digest}\n".encode())
    finally:
        os.close(descriptor)
    new.replace(path)
