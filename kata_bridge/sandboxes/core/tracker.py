# SPDX-License-Identifier: Apache-2.0
"""Which sandboxes live on this node, from what several sources report.

NRI reports a sandbox first, and its end at once. A list of the CRI says which of several sandboxes of a
pod is the current one, and repairs what NRI missed. From a source that is away nothing is concluded.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kata_bridge.sandboxes.core.sandbox import (
    CONFIG_HASH,
    Appeared,
    Change,
    Sandbox,
    Seen,
    Vanished,
    sandbox_of,
)

# containerd calls NRI's RunPodSandbox before the sandbox is in its own store (2.4.2): for so long a
# list, or another Synchronize, that does not have it proves nothing.
GRACE_S = 30.0
# Sandboxes that were stopped stay in lists until the kubelet's garbage collection.
MAX_STOPPED = 10_000


@dataclass(slots=True)
class _Known:
    seen: Seen
    seen_at_s: float
    order: int
    was_listed: bool = False


class Sandboxes:
    """The picture, and what each piece of news changes in it.

    Of several living sandboxes of one pod only the newest is in the picture: the kubelet starts
    another one when it holds the first for lost, and the pod's containers go into that.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._stopped: dict[str, None] = {}
        self._placed: dict[str, Sandbox] = {}
        self._current: dict[str, Sandbox] = {}
        self._order = 0

    @property
    def current(self) -> Mapping[str, Sandbox]:
        """All sandboxes of the picture by id."""
        return self._current

    def knows(self, sandbox: str) -> bool:
        """Whether the id was told of before, so that its details need not be asked for."""
        return sandbox in self._known or sandbox in self._stopped

    # ---- NRI

    def ran(self, seen: Seen, now_s: float) -> tuple[Change, ...]:
        """RunPodSandbox."""
        self._stopped.pop(seen.id, None)
        self._see(seen, now_s)
        return self._changes()

    def stopped(self, sandbox: str) -> tuple[Change, ...]:
        """StopPodSandbox or RemovePodSandbox: it does not come back, whatever a list still says."""
        self._known.pop(sandbox, None)
        self._stopped[sandbox] = None
        while len(self._stopped) > MAX_STOPPED:
            del self._stopped[next(iter(self._stopped))]
        return self._changes()

    def synchronized(self, all_seen: Iterable[Seen], now_s: float) -> tuple[Change, ...]:
        """Synchronize: every sandbox of the runtime, the dead ones too."""
        listed = {seen.id: seen for seen in all_seen}
        for seen in listed.values():
            if not seen.is_alive:
                self._drop(seen.id)
            elif seen.id not in self._stopped:
                self._see(seen, now_s)
        self._drop_missing(listed, now_s)
        return self._changes()

    # ---- CRI

    def listed(self, all_seen: Iterable[Seen], begun_s: float, now_s: float) -> tuple[Change, ...]:
        """A whole list, asked for at `begun_s`."""
        listed = {seen.id: seen for seen in all_seen}
        for seen in listed.values():
            if seen.id in self._stopped:
                continue
            if seen.is_alive:
                self._see(seen, now_s).was_listed = True
            elif not self._is_new(seen.id, begun_s):
                self._drop(seen.id)
        self._drop_missing(listed, begun_s)
        for sandbox in [each for each in self._stopped if each not in listed]:
            del self._stopped[sandbox]
        return self._changes()

    # ---- files

    def placed(self, sandboxes: Mapping[str, Sandbox]) -> tuple[Change, ...]:
        """The static source: all that its directory describes, by id."""
        self._placed = dict(sandboxes)
        return self._changes()

    # ----

    def _see(self, seen: Seen, now_s: float) -> _Known:
        known = self._known.get(seen.id)
        if known is None:
            self._order += 1
            known = self._known[seen.id] = _Known(seen, now_s, self._order)
        else:
            old = known.seen
            # Lists have neither, and NRI has no attempt: what one said the other does not unsay.
            known.seen = replace(
                seen,
                ips=seen.ips or old.ips,
                netns=seen.netns or old.netns,
                is_host_network=seen.is_host_network or old.is_host_network,
                attempt=old.attempt if seen.attempt is None else seen.attempt,
                created_at_ns=seen.created_at_ns or old.created_at_ns,
            )
        return known

    def _is_new(self, sandbox: str, at_s: float) -> bool:
        known = self._known.get(sandbox)
        return known is not None and not known.was_listed and at_s - known.seen_at_s < GRACE_S

    def _drop_missing(self, listed: Mapping[str, Seen], at_s: float) -> None:
        for sandbox in list(self._known):
            if sandbox not in listed and not self._is_new(sandbox, at_s):
                self._drop(sandbox)

    def _drop(self, sandbox: str) -> None:
        self._known.pop(sandbox, None)

    def _changes(self) -> tuple[Change, ...]:
        newest: dict[str, _Known] = {}
        for known in self._known.values():
            uid = known.seen.uid or known.seen.annotations.get(CONFIG_HASH) or known.seen.id
            other = newest.get(uid)
            if other is None or _rank(known) > _rank(other):
                newest[uid] = known
        current = {known.seen.id: sandbox_of(known.seen) for known in newest.values()} | self._placed
        changes: list[Change] = [Vanished(old) for old in self._current if old not in current]
        changes += (
            Appeared(sandbox) for sandbox in current.values() if self._current.get(sandbox.id) != sandbox
        )
        self._current = current
        return tuple(changes)


def _rank(known: _Known) -> tuple[float, int, int]:
    """Newer is greater. One whose attempt nobody told yet was just run, so it is the newest."""
    attempt = known.seen.attempt
    return (float("inf") if attempt is None else attempt, known.seen.created_at_ns, known.order)
