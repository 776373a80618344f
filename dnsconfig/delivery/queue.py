# SPDX-License-Identifier: Apache-2.0
"""Which resolver each pod has of kata-bridge, which one it is to have, and when to submit that.

One request at a time for each pod, however it is named: of two at once kata-bridge might serve the
older one last. After the response the newest resolver follows. The number of requests is bounded.
What kata-bridge has acknowledged in this session is not submitted again. A new session may be with a
restarted kata-bridge without any resolver, so it begins with all of them.
"""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bridge_api.messages import GuestResult, ResultCode
from daemonkit.backoff import backoff_s
from dnsconfig.retention.desired import DesiredResolver

# kata-bridge takes 64 calls at once from all its callers.
MAX_IN_FLIGHT = 16
RETRY_FIRST_S = 0.5
RETRY_MAX_S = 30.0

# kata-bridge has the resolver and delivers it: also to a guest that does not answer now, and to one
# without a channel for changes, whose file is mounted.
_ACCEPTED = frozenset(
    {
        ResultCode.APPLIED,
        ResultCode.UNCHANGED,
        ResultCode.NOT_INJECTABLE,
        ResultCode.SUPERSEDED,
    }
)


@dataclass(frozen=True, slots=True, order=True)
class ResolverTarget:
    """A pod as it is named to kata-bridge: by its guest, or without one by its UID."""

    guest: str = ""
    pod_uid: str = ""

    @property
    def pod(self) -> str:
        """The same for all targets of a pod; a guest without a known pod stands for itself."""
        return self.pod_uid or self.guest


@dataclass(frozen=True, slots=True)
class ResolverPush:
    """One request to kata-bridge."""

    number: int
    target: ResolverTarget
    desired: DesiredResolver
    changed_at: float


class DeliveryState(enum.Enum):
    """Values of a metric's label."""

    APPLIED = "applied"
    PENDING = "pending"
    FAILING = "failing"


@dataclass(slots=True)
class DeliveryStatus:
    """One target; `applied` is what kata-bridge has acknowledged in this session.

    A target that `is_forgotten` remains until the response to its request in flight.
    """

    target: ResolverTarget
    desired: DesiredResolver
    changed_at: float
    applied: DesiredResolver | None = None
    in_flight: ResolverPush | None = None
    problem: str = ""
    failures: int = 0
    retry_at: float | None = None
    is_forgotten: bool = False

    @property
    def state(self) -> DeliveryState:
        if self.applied == self.desired:
            return DeliveryState.APPLIED
        return DeliveryState.FAILING if self.problem else DeliveryState.PENDING


@dataclass(slots=True)
class ResolverDelivery:
    """Times are of one monotonic clock."""

    statuses: dict[ResolverTarget, DeliveryStatus] = field(default_factory=dict)
    is_connected: bool = False
    has_synced: bool = False
    _number: int = 0

    def set_desired(self, desired: Mapping[ResolverTarget, DesiredResolver], now: float) -> None:
        """Replace all desired resolvers. Targets that are missing are forgotten, not withdrawn."""
        for target in self.statuses.keys() - desired.keys():
            self.statuses[target].is_forgotten = True
        self._drop_forgotten()
        for target, value in desired.items():
            status = self.statuses.get(target)
            if status is None:
                self.statuses[target] = DeliveryStatus(target, value, now)
                continue
            status.is_forgotten = False
            if status.desired != value:
                status.desired, status.changed_at = value, now
                status.problem, status.failures, status.retry_at = "", 0, None

    def take_due(self, now: float) -> Iterator[ResolverPush]:
        """The requests to make now; each is in flight until `on_result` or `on_failure`."""
        if not self.is_connected:
            return
        busy = self._busy()
        for status in self.statuses.values():
            if len(busy) >= MAX_IN_FLIGHT:
                return
            pod = status.target.pod
            is_due = status.retry_at is None or status.retry_at <= now
            is_due = is_due and not status.is_forgotten and pod not in busy
            # Until all guests are reported, a pod named by its UID may turn out to be a guest.
            is_due = is_due and (self.has_synced or bool(status.target.guest))
            if is_due and status.applied != status.desired:
                self._number += 1
                push = ResolverPush(self._number, status.target, status.desired, status.changed_at)
                status.in_flight = push
                busy.add(pod)
                yield push

    def next_retry_at(self) -> float | None:
        """When the next target is due again after a failure."""
        if not self.is_connected:
            return None
        busy = self._busy()
        return min(
            (
                status.retry_at
                for status in self.statuses.values()
                if status.retry_at is not None and status.target.pod not in busy
            ),
            default=None,
        )

    def on_connected(self) -> None:
        """A session with kata-bridge began. Pods without a guest wait for `on_synced`."""
        self.is_connected = True

    def on_synced(self) -> None:
        """kata-bridge has reported all its guests."""
        self.is_connected = self.has_synced = True

    def on_disconnect(self) -> None:
        """The session ended: requests in flight get no response, and nothing counts as applied."""
        self.is_connected = self.has_synced = False
        for status in self.statuses.values():
            status.applied = status.in_flight = status.retry_at = None
            status.problem, status.failures = "", 0
        self._drop_forgotten()

    def on_result(self, push: ResolverPush, result: GuestResult, now: float) -> bool:
        """Record a result; returns whether kata-bridge accepted the resolver."""
        status = self._finished(push)
        if status is None:
            return False
        if result.code in _ACCEPTED:
            status.applied = push.desired
            status.failures, status.retry_at = 0, None
            is_limited = result.code is ResultCode.NOT_INJECTABLE
            status.problem = result.message if is_limited else ""
            return True
        self._fail(status, result.message or result.code.name.lower(), now)
        return False

    def on_failure(self, push: ResolverPush, message: str, now: float) -> None:
        """The request ended without a response."""
        status = self._finished(push)
        if status is not None:
            self._fail(status, message, now)

    def _busy(self) -> set[str]:
        """The pods with a request in flight, by whichever target."""
        return {each.target.pod for each in self.statuses.values() if each.in_flight is not None}

    def _drop_forgotten(self) -> None:
        for target, status in list(self.statuses.items()):
            if status.is_forgotten and status.in_flight is None:
                del self.statuses[target]

    def _finished(self, push: ResolverPush) -> DeliveryStatus | None:
        status = self.statuses.get(push.target)
        if status is None or status.in_flight is not push:
            return None  # of an earlier session, or of a target that was forgotten meanwhile
        status.in_flight = None
        if status.is_forgotten:
            del self.statuses[push.target]
            return None
        return status

    def _fail(self, status: DeliveryStatus, message: str, now: float) -> None:
        status.failures += 1
        status.problem = message
        status.retry_at = now + backoff_s(status.failures, first_s=RETRY_FIRST_S, longest_s=RETRY_MAX_S)
