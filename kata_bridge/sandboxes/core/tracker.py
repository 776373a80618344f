# SPDX-License-Identifier: Apache-2.0
"""Which sandboxes live on this node, from what several sources report.

NRI reports a sandbox first, and its end at once. A list of the CRI shows which of several sandboxes of a pod
is the current one, and repairs what NRI missed. An unreachable source changes nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kata_bridge.sandboxes.core.sandbox import (
    CONFIG_HASH,
    Appeared,
    Sandbox,
    SandboxChange,
    SandboxObservation,
    Vanished,
    sandbox_of,
)

# containerd calls NRI's RunPodSandbox before the sandbox is in its own store (2.4.2): for so long, its
# absence from a list or from another Synchronize proves nothing.
GRACE_S = 30.0
# Stopped sandboxes stay in lists until the kubelet's garbage collection.
MAX_STOPPED = 10_000


@dataclass(slots=True)
class _Tracked:
    observation: SandboxObservation
    first_seen_s: float
    order: int
    was_listed: bool = False


class SandboxTracker:
    """The current sandboxes; each report returns what it changed.

    Of several living sandboxes of one pod only the newest is current: the kubelet starts another one when it
    takes the first for lost, and starts the pod's containers in that.
    """

    def __init__(self) -> None:
        self._tracked: dict[str, _Tracked] = {}
        self._stopped: dict[str, None] = {}
        self._static: dict[str, Sandbox] = {}
        self._current: dict[str, Sandbox] = {}
        self._order = 0

    @property
    def current(self) -> Mapping[str, Sandbox]:
        """The current sandboxes by id."""
        return self._current

    def is_known(self, sandbox: str) -> bool:
        """Whether the id was reported before, so that its details are known."""
        return sandbox in self._tracked or sandbox in self._stopped

    # ---- NRI

    def started(self, observation: SandboxObservation, now_s: float) -> tuple[SandboxChange, ...]:
        """RunPodSandbox."""
        self._stopped.pop(observation.id, None)
        self._track(observation, now_s)
        return self._changes()

    def stopped(self, sandbox: str) -> tuple[SandboxChange, ...]:
        """StopPodSandbox or RemovePodSandbox: it stays stopped, even if a later list has it."""
        self._tracked.pop(sandbox, None)
        self._stopped[sandbox] = None
        while len(self._stopped) > MAX_STOPPED:
            del self._stopped[next(iter(self._stopped))]
        return self._changes()

    def synchronized(
        self, observations: Iterable[SandboxObservation], now_s: float
    ) -> tuple[SandboxChange, ...]:
        """Synchronize: every sandbox of the runtime, also the dead ones."""
        listed = {each.id: each for each in observations}
        for observation in listed.values():
            if not observation.is_alive:
                self._drop(observation.id)
            elif observation.id not in self._stopped:
                self._track(observation, now_s)
        self._drop_missing(listed, now_s)
        return self._changes()

    # ---- CRI

    def listed(
        self, observations: Iterable[SandboxObservation], begun_s: float, now_s: float
    ) -> tuple[SandboxChange, ...]:
        """A complete list, requested at `begun_s`."""
        listed = {each.id: each for each in observations}
        for observation in listed.values():
            if observation.id in self._stopped:
                continue
            if observation.is_alive:
                self._track(observation, now_s).was_listed = True
            elif not self._is_new(observation.id, begun_s):
                self._drop(observation.id)
        self._drop_missing(listed, begun_s)
        for sandbox in [each for each in self._stopped if each not in listed]:
            del self._stopped[sandbox]
        return self._changes()

    # ---- files

    def set_static(self, sandboxes: Mapping[str, Sandbox]) -> tuple[SandboxChange, ...]:
        """All sandboxes that the static source describes, by id."""
        self._static = dict(sandboxes)
        return self._changes()

    # ----

    def _track(self, observation: SandboxObservation, now_s: float) -> _Tracked:
        tracked = self._tracked.get(observation.id)
        if tracked is None:
            self._order += 1
            tracked = self._tracked[observation.id] = _Tracked(observation, now_s, self._order)
        else:
            old = tracked.observation
            # A list lacks addresses and namespaces, and NRI lacks the attempt: keep what the other reported.
            tracked.observation = replace(
                observation,
                ips=observation.ips or old.ips,
                netns=observation.netns or old.netns,
                is_host_network=observation.is_host_network or old.is_host_network,
                attempt=old.attempt if observation.attempt is None else observation.attempt,
                created_at_ns=observation.created_at_ns or old.created_at_ns,
            )
        return tracked

    def _is_new(self, sandbox: str, at_s: float) -> bool:
        tracked = self._tracked.get(sandbox)
        return tracked is not None and not tracked.was_listed and at_s - tracked.first_seen_s < GRACE_S

    def _drop_missing(self, listed: Mapping[str, SandboxObservation], at_s: float) -> None:
        for sandbox in list(self._tracked):
            if sandbox not in listed and not self._is_new(sandbox, at_s):
                self._drop(sandbox)

    def _drop(self, sandbox: str) -> None:
        self._tracked.pop(sandbox, None)

    def _changes(self) -> tuple[SandboxChange, ...]:
        newest: dict[str, _Tracked] = {}
        for tracked in self._tracked.values():
            observation = tracked.observation
            uid = observation.uid or observation.annotations.get(CONFIG_HASH) or observation.id
            other = newest.get(uid)
            if other is None or _rank(tracked) > _rank(other):
                newest[uid] = tracked
        observations = (tracked.observation for tracked in newest.values())
        current = {each.id: sandbox_of(each) for each in observations} | self._static
        changes: list[SandboxChange] = [Vanished(old) for old in self._current if old not in current]
        changes += (
            Appeared(sandbox) for sandbox in current.values() if self._current.get(sandbox.id) != sandbox
        )
        self._current = current
        return tuple(changes)


def _rank(tracked: _Tracked) -> tuple[float, int, int]:
    """Newer is greater. A sandbox without an attempt was just started, so it is the newest."""
    attempt = tracked.observation.attempt
    return (
        float("inf") if attempt is None else attempt,
        tracked.observation.created_at_ns,
        tracked.order,
    )
