# SPDX-License-Identifier: Apache-2.0
"""The node's own resolv.conf, as it changes under us."""

from collections.abc import Callable
from pathlib import Path

from daemonkit import logs
from daemonkit.files.watched import Watched
from dnsconfig.resolve.decision import Node, node_of
from dnsconfig.resolve.waiting import Cause, Waits

# Some programs truncate the file and write it in steps: a change counts when it has stayed the same.
SETTLE_S = 1.0

_log = logs.get(__name__)


class NodeFile:
    """What counts of the file: the newest content that can be used and has settled.

    A content that cannot be used replaces none that could: what running pods resolve by is not taken
    from them by an editor. Without a path the kubelet is given no file, and there is nothing to read.
    """

    def __init__(self, path: Path | None, node_ips: tuple[str, ...], clock: Callable[[], float]) -> None:
        self._path = path
        self._ips = node_ips
        self._clock = clock
        self._watched = Watched.files([] if path is None else [path])
        self._newest: Node | None = None
        self._newest_at = 0.0
        self.problem = ""
        self.node = node_of(None, node_ips)
        if path is not None:
            self.node = self._read(path)

    def poll(self) -> bool:
        """Look at the file; whether what counts is different now. Blocks for a read of a small file."""
        path = self._path
        if path is None:
            return False
        if self._watched.poll():
            self._newest, self._newest_at = self._read(path), self._clock()
        return self._take_over()

    def _take_over(self) -> bool:
        newest = self._newest
        if newest is None:
            return False
        had_one = not isinstance(self.node.resolver, Waits)
        if isinstance(newest.resolver, Waits) and had_one:
            return False
        if had_one and self._clock() - self._newest_at < SETTLE_S:
            return False
        self._newest = None
        is_other = newest != self.node
        self.node = newest
        if is_other:
            _log.info("the node's resolver has changed", file=self._path)
        return is_other

    def _read(self, path: Path) -> Node:
        content = self._watched.snapshot().get(path)
        if content is None:
            reason = self._watched.problems.get(path, "it does not exist")
            found = Node(Waits(Cause.NODE, f"{path} cannot be used: {reason}"), self._ips)
        else:
            found = node_of(content.decode("utf-8", "replace"), self._ips, str(path))
        problem = found.resolver.reason if isinstance(found.resolver, Waits) else ""
        if problem and problem != self.problem:
            _log.warning("the node's resolver cannot be read", file=path, reason=problem)
        self.problem = problem
        return found
