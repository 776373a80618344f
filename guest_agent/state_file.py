# SPDX-License-Identifier: Apache-2.0
"""What the agent remembers of its last ruleset while it is not running.

A file in /run: it must not outlive the kernel that has the rules. Losing it costs nothing but the
generation's number, since the rules and their marker are in the kernel.
"""

import os
from pathlib import Path

from guest_agent.reconciler import Remembered

_VERSION = "1"
_MAX_BYTES = 200


def read(path: Path) -> Remembered | None:
    """What was remembered; None if there is nothing that can be used."""
    try:
        with path.open() as file:
            words = file.read(_MAX_BYTES).split()
    except (OSError, UnicodeDecodeError):
        return None
    if len(words) != 3 or words[0] != _VERSION or not words[1].isascii() or not words[1].isdigit():
        return None
    if len(words[2]) != 64 or set(words[2]) - set("0123456789abcdef"):
        return None
    return Remembered(int(words[1]), words[2])


def write(path: Path, remembered: Remembered) -> None:
    """Replace the file. Raises `OSError`; the old one is untouched then.

    Not synced: what a crash of the kernel takes away, it takes together with the rules.
    """
    new = path.with_name(f".{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, f"{_VERSION} {remembered.generation} {remembered.digest}\n".encode())
    finally:
        os.close(descriptor)
    new.replace(path)
