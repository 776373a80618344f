# SPDX-License-Identifier: Apache-2.0
"""Control groups for the ring's node, versions 1 and 2, made before it and removed after it."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from tests.k8s.ring.processes import wait_for

_ROOT = Path("/sys/fs/cgroup")


def create(name: str) -> None:
    """Make group `name` in every hierarchy.

    A new cpuset group of version 1 has no processors and no memory, and takes no process until it
    is given some: the root's are copied.
    """
    for hierarchy in _hierarchies():
        group = hierarchy / name
        group.mkdir()
        for knob in ("cpuset.cpus", "cpuset.mems"):
            if (group / knob).exists() and (hierarchy / knob).exists():
                (group / knob).write_text((hierarchy / knob).read_text())


def remove(name: str) -> None:
    """Remove group `name` and all below it, once the last of its processes has ended.

    Raises:
        RingError: a process stays in one of the groups.
    """
    for hierarchy in _hierarchies():
        group = hierarchy / name
        if not group.is_dir():
            continue
        below = [p.parent for p in group.rglob("cgroup.procs")]
        for directory in sorted(below, key=lambda p: len(p.parts), reverse=True):
            wait_for(f"{directory} empty", partial(_try_rmdir, directory), timeout_s=10)


def set_processors(name: str, processors: set[int]) -> None:
    """Let group `name`, and all below it, run on these processors alone."""
    wanted = ",".join(map(str, sorted(processors)))
    for hierarchy in _hierarchies():
        files = sorted((hierarchy / name).rglob("cpuset.cpus"), key=lambda path: len(path.parts))
        # A group has no processor that the one above it has not: the union is valid meanwhile.
        union = ",".join(map(str, range(os.cpu_count() or 1)))
        for file in files:
            file.write_text(union)
        for file in reversed(files):
            file.write_text(wanted)


def _hierarchies() -> list[Path]:
    if (_ROOT / "cgroup.controllers").exists():
        return [_ROOT]
    return [p for p in _ROOT.iterdir() if not p.is_symlink() and (p / "cgroup.procs").exists()]


def _try_rmdir(directory: Path) -> bool:
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
