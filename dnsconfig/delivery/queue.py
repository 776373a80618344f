# SPDX-License-Identifier: Apache-2.0
"""Which pod has what of kata-bridge, what it is to have, and when to send that. Pure.

One request at a time for each pod, however it is named: two at once could be served in either order,
and the older text would stay. The newest text when that has been answered, a bounded number in all.
Nothing is sent that the bridge has acknowledged in this connection; a new connection may be to a
bridge that was restarted and knows nothing, so everything is sent again.
"""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bridge_api.messages import GuestResult, ResultCode
from daemonkit.backoff import backoff_s
from dnsconfig.retention.desired import Wanted

# kata-bridge takes 64 calls at once from all its callers.
MAX_IN_FLIGHT = 16
RETRY_FIRST_S = 0.5
RETRY_MAX_S = 30.0

# The bridge has it, and sees to what is left of it: a file mounted into a guest that has no channel
# for changes, and a guest that does not answer, get it by what the bridge keeps.
_TAKEN = frozenset(
    {
        ResultCode.APPLIED,
        ResultCode.UNCHANGED,
        ResultCode.NOT_INJECTABLE,
        ResultCode.SUPERSEDED,
    }
)


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """A pod as kata-bridge finds it: by its guest, or where there is none (yet) by its UID."""

    guest: str = ""
    pod_uid: str = ""

    @property
    def pod(self) -> str:
        """Which pod it is, however it is named; a guest of which no pod is known is one by itself."""
        return self.pod_uid or self.guest


@dataclass(frozen=True, slots=True)
class Push:
    number: int
    target: Target
    wanted: Wanted
    changed_at: float

    @property
    def text(self) -> str:
        return self.wanted.text

    @property
    def waits(self) -> str:
        return self.wanted.waits


class State(enum.Enum):
    """Where a target is; values of a metric's label."""

    CURRENT = "current"
    BEHIND = "behind"
    FAILING = "failing"


@dataclass(slots=True)
class Standing:
    """One target. `has` is what the bridge has acknowledged in this connection.

    One that `is_forgotten` is here only until what is in flight for it has been answered.
    """

    target: Target
    wanted: Wanted
    changed_at: float
    has: Wanted | None = None
    in_flight: Push | None = None
    problem: str = ""
    failures: int = 0
    retry_at: float | None = None
    is_forgotten: bool = False

    @property
    def state(self) -> State:
        if self.has == self.wanted:
            return State.CURRENT
        return State.FAILING if self.problem else State.BEHIND


@dataclass(slots=True)
class Delivery:
    """Times are of one monotonic clock."""

    standings: dict[Target, Standing] = field(default_factory=dict)
    is_connected: bool = False
    is_synced: bool = False
    _number: int = 0

    def want(self, wanted: Mapping[Target, Wanted], now: float) -> None:
        """From now on exactly these targets are to have these values.

        A target that is not among them any more is forgotten; who wants it withdrawn says so first.
        """
        for target in self.standings.keys() - wanted.keys():
            self.standings[target].is_forgotten = True
        self._drop_forgotten()
        for target, value in wanted.items():
            standing = self.standings.get(target)
            if standing is None:
                self.standings[target] = Standing(target, value, now)
                continue
            standing.is_forgotten = False
            if standing.wanted != value:
                standing.wanted, standing.changed_at = value, now
                standing.problem, standing.failures, standing.retry_at = "", 0, None

    def due(self, now: float) -> Iterator[Push]:
        """What to send now; each is in flight until it is answered or has failed."""
        if not self.is_connected:
            return
        busy = self._busy()
        for standing in self.standings.values():
            if len(busy) >= MAX_IN_FLIGHT:
                return
            pod = standing.target.pod
            is_due = standing.retry_at is None or standing.retry_at <= now
            is_due = is_due and not standing.is_forgotten and pod not in busy
            # The guest of a pod may be among those that are still to be told of.
            is_due = is_due and (self.is_synced or bool(standing.target.guest))
            if is_due and standing.has != standing.wanted:
                self._number += 1
                push = Push(self._number, standing.target, standing.wanted, standing.changed_at)
                standing.in_flight = push
                busy.add(pod)
                yield push

    def _busy(self) -> set[str]:
        """The pods for which a request is in flight, by whichever target: one each."""
        return {each.target.pod for each in self.standings.values() if each.in_flight is not None}

    def next_at(self) -> float | None:
        """When the next target is due again after a failure."""
        if not self.is_connected:
            return None
        busy = self._busy()
        return min(
            (
                standing.retry_at
                for standing in self.standings.values()
                if standing.retry_at is not None and standing.target.pod not in busy
            ),
            default=None,
        )

    def connected(self) -> None:
        """The bridge is there. Pods without a guest wait until it has told of all its guests."""
        self.is_connected = True

    def synced(self) -> None:
        """The bridge has told of all its guests."""
        self.is_connected = self.is_synced = True

    def lost(self) -> None:
        """The connection ended: what is in flight will not be answered, and nothing is known."""
        self.is_connected = self.is_synced = False
        for standing in self.standings.values():
            standing.has = standing.in_flight = standing.retry_at = None
            standing.problem, standing.failures = "", 0
        self._drop_forgotten()

    def _drop_forgotten(self) -> None:
        over = [t for t, each in self.standings.items() if each.is_forgotten and each.in_flight is None]
        for target in over:
            del self.standings[target]

    def answered(self, push: Push, result: GuestResult, now: float) -> bool:
        """Take an answer in; whether the pod has what was sent."""
        standing = self._ended(push)
        if standing is None:
            return False
        if result.code in _TAKEN:
            standing.has = push.wanted
            standing.failures, standing.retry_at = 0, None
            is_less = result.code is ResultCode.NOT_INJECTABLE
            standing.problem = result.message if is_less else ""
            return True
        self._fail(standing, result.message or result.code.name.lower(), now)
        return False

    def failed(self, push: Push, reason: str, now: float) -> None:
        """The request ended without an answer."""
        standing = self._ended(push)
        if standing is not None:
            self._fail(standing, reason, now)

    def _ended(self, push: Push) -> Standing | None:
        standing = self.standings.get(push.target)
        if standing is None or standing.in_flight is not push:
            return None  # of a target that came and went, or of another connection
        standing.in_flight = None
        if standing.is_forgotten:
            del self.standings[push.target]
            return None
        return standing

    def _fail(self, standing: Standing, reason: str, now: float) -> None:
        standing.failures += 1
        standing.problem = reason
        standing.retry_at = now + backoff_s(standing.failures, first_s=RETRY_FIRST_S, longest_s=RETRY_MAX_S)
