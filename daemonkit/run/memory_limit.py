# SPDX-License-Identifier: Apache-2.0
"""How much memory the kernel leaves a process: the smallest limit of its cgroup and of those above.

Of version 2 the file is `memory.max`, of version 1 `memory.limit_in_bytes` (Documentation/admin-guide of
Linux: cgroup-v2.rst, "Memory Interface Files"; cgroup-v1/memory.rst). A container that has a cgroup namespace
of its own sees its cgroup as the root.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

# Version 1 writes the largest number of pages for "no limit". No machine has so much.
_NO_LIMIT_BYTES = 1 << 60
# Of /proc/self/cgroup and of a file with one number.
_MAX_BYTES = 64 << 10


class MemoryLimit(msgspec.Struct, frozen=True):
    """`path` is the file that has it."""

    size_bytes: int
    path: Path


def find(
    proc: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")
) -> MemoryLimit | None:
    """The limit, or None: there is none, or it cannot be read."""
    found = [each for path in _files(_read(proc), mounted) if (each := _limit(path)) is not None]
    return min(found, key=lambda each: each.size_bytes, default=None)


def _files(memberships: str, mounted: Path) -> Iterator[Path]:
    """Where limits may stand, by lines `ID:CONTROLLERS:PATH`. With both versions one of them has memory."""
    for line in memberships.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            root, name = mounted, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = mounted / "memory", "memory.limit_in_bytes"
        else:
            continue
        inside = PurePosixPath(path.lstrip("/"))
        if ".." in inside.parts:
            # A cgroup outside of the namespace: what is mounted does not show it.
            continue
        for each in (inside, *inside.parents):
            yield root / each / name


def _limit(path: Path) -> MemoryLimit | None:
    text = _read(path).strip()
    if not (text.isascii() and text.isdigit()) or int(text) >= _NO_LIMIT_BYTES:
        return None
    return MemoryLimit(int(text), path)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
