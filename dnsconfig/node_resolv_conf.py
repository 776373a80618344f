# SPDX-License-Identifier: Apache-2.0
"""Reads the node's own resolv.conf, also while it changes."""

from collections.abc import Callable
from pathlib import Path

from daemonkit import logs
from daemonkit.files.watched import Watched
from dnsconfig.resolve.decision import NodeDns, node_dns_of
from dnsconfig.resolve.node_resolver import server_problem
from dnsconfig.resolve.waiting import PodWaiting, WaitReason

# Some programs truncate the file and write it in steps: a change counts when it has not changed again.
SETTLE_S = 1.0

_log = logs.get(__name__)


class NodeResolvConf:
    """The newest content that is usable and has settled.

    Unusable content replaces no usable one, and content that `--check-config` would complain about none that
    is sound: a bad edit takes no resolver from running pods. `problem` has the reason until the file is
    repaired. Without a path, the kubelet has no such file either. `needs_servers`: the servers are used.
    """

    def __init__(
        self,
        path: Path | None,
        node_ips: tuple[str, ...],
        clock: Callable[[], float],
        *,
        needs_servers: bool = True,
    ) -> None:
        self._needs_servers = needs_servers
        self._path = path
        self._ips = node_ips
        self._clock = clock
        self._watched = Watched.files([] if path is None else [path])
        self._newest: NodeDns | None = None
        self._newest_at = 0.0
        self.problem = ""
        self.node = node_dns_of(None, node_ips)
        if path is not None:
            self.node = self._read(path)

    def poll(self) -> bool:
        """Read the file if it has changed; returns whether `node` is another one now. Blocks shortly."""
        path = self._path
        if path is None:
            return False
        if self._watched.poll():
            self._newest, self._newest_at = self._read(path), self._clock()
        return self._adopt_newest()

    def _adopt_newest(self) -> bool:
        newest = self._newest
        if newest is None:
            return False
        is_usable = not isinstance(self.node.resolver, PodWaiting)
        if is_usable and self._problem_of(newest) and not self._problem_of(self.node):
            return False
        if isinstance(newest.resolver, PodWaiting) and is_usable:
            return False
        if is_usable and self._clock() - self._newest_at < SETTLE_S:
            return False
        self._newest = None
        has_changed = newest != self.node
        self.node = newest
        if has_changed:
            _log.info("node's resolv.conf changed", file=self._path)
        return has_changed

    def _read(self, path: Path) -> NodeDns:
        found = read_node_dns(self._watched, path, self._ips)
        problem = self._problem_of(found)
        if problem and problem != self.problem:
            _log.warning("node's resolv.conf is not usable in pods; repair it", file=path, reason=problem)
        self.problem = problem
        return found

    def _problem_of(self, found: NodeDns) -> str:
        """What is wrong with the content; "" for sound one."""
        if isinstance(found.resolver, PodWaiting):
            return found.resolver.message
        problem = server_problem(found.resolver) if self._needs_servers else ""
        return f"{self._path}: {problem}" if problem else ""


def read_node_dns(watched: Watched, path: Path, ips: tuple[str, ...]) -> NodeDns:
    """The content of the node's file now; a `PodWaiting` in it has the reason why it cannot be used."""
    content = watched.snapshot().get(path)
    if content is None:
        problem = watched.problems.get(path, "it does not exist")
        message = f"{path} cannot be used: {problem}"
        return NodeDns(PodWaiting(WaitReason.NODE_RESOLVER_INVALID, message), ips)
    return node_dns_of(content.decode("utf-8", "surrogateescape"), ips, str(path))
