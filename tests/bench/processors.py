# SPDX-License-Identifier: Apache-2.0
"""A processor of its own for one node of the ring, as each machine of a real cluster has its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.k8s.ring import cgroups
from tests.k8s.syncer.node import SuperNode


@contextmanager
def set_apart(node: SuperNode, others: list[SuperNode]) -> Iterator[None]:
    """Within, the last processor is this node's: its daemons', its pods', and nothing else's of the ring.

    All else is this process, its descendants, and the pods of the other nodes.
    """
    *rest, own = sorted(os.sched_getaffinity(0))
    _place(node, others, {own}, set(rest))
    try:
        yield
    finally:
        _place(node, others, {*rest, own}, {*rest, own})


def _place(node: SuperNode, others: list[SuperNode], own: set[int], rest: set[int]) -> None:
    """Groups first: what enters a group gets the group's processors."""
    for each, processors in ((node, own), *((other, rest) for other in others)):
        cgroups.set_processors(each.node.group, processors)
    network = Path(node.node.namespace.path).stat()
    for pid in _descendants(os.getpid()):
        try:
            found = Path(f"/proc/{pid}/ns/net").stat()
            is_pod = any(f"/{each.node.group}/" in _group(pid) for each in (node, *others))
            if not is_pod:
                _set(pid, own if os.path.samestat(found, network) else rest)
        except (FileNotFoundError, ProcessLookupError):
            continue  # It has ended.


def _set(pid: int, processors: set[int]) -> None:
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), processors)


def _group(pid: int) -> str:
    return Path(f"/proc/{pid}/cgroup").read_text()


def _descendants(root: int) -> list[int]:
    """The process itself, and all that it or its children started."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue  # It has ended.
        children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found
