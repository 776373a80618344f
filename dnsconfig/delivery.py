# SPDX-License-Identifier: Apache-2.0
"""Which pod has what of kata-bridge, what it is to have, and when to send that. Pure.

One request at a time for each target, the newest text when that has been answered, a bounded number
in all. Nothing is sent that the bridge has acknowledged in this connection; a new connection may be
to a bridge that was restarted and knows nothing, so everything is sent again.
"""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from daemonkit.backoff import backoff_s
from dnsconfig.core.network import Origin
from kata_bridge.api.messages import GuestResult, ResultCode

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


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a pod is to have: a text, a reason to wait, or both. Neither: it is withdrawn.

    `origin` has the servers in the text that the API server can give to another Service one day; a
    text that `is_bare` is what was left when they went.
    """

    text: str = ""
    waits: str = ""
    origin: Origin | None = None
    is_bare: bool = False


WITHDRAWN = Wanted()


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

    One that `is_forgotten` is here only until what is in flight for it has been answered: two
    requests for one pod at once could be served in either order.
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
        in_flight = sum(standing.in_flight is not None for standing in self.standings.values())
        for standing in self.standings.values():
            if in_flight >= MAX_IN_FLIGHT:
                return
            is_due = standing.retry_at is None or standing.retry_at <= now
            is_due = is_due and not standing.is_forgotten
            if standing.in_flight is None and standing.has != standing.wanted and is_due:
                self._number += 1
                push = Push(self._number, standing.target, standing.wanted, standing.changed_at)
                standing.in_flight = push
                in_flight += 1
                yield push

    def next_at(self) -> float | None:
        """When the next target is due again after a failure."""
        if not self.is_connected:
            return None
        return min(
            (
                standing.retry_at
                for standing in self.standings.values()
                if standing.retry_at is not None and standing.in_flight is None
            ),
            default=None,
        )

    def connected(self) -> None:
        self.is_connected = True

    def lost(self) -> None:
        """The connection ended: what is in flight will not be answered, and nothing is known."""
        self.is_connected = False
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
