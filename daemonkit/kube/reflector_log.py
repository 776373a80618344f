# SPDX-License-Identifier: Apache-2.0
"""What a reflector logs: that it fails and works again, and objects that are too large."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import ClassVar, Protocol

from daemonkit import logs
from daemonkit.kube.freshness import Failure
from daemonkit.kube.reflector_policy import (
    Action,
    Garbage,
    Outcome,
    Progress,
    Refused,
    Regressed,
    Step,
    Unreachable,
)
from daemonkit.kube.resources import Resource
from daemonkit.kube.store import DecodeFailed
from daemonkit.remedies import Cause, cause_of_status
from daemonkit.token_bucket import TokenBucket

# A server chooses its message; it is in the log and on /readyz.
MAX_REASON_CHARACTERS = 300
# At most BURST lines about large objects at once, and then one each INTERVAL_S: tenants cannot fill the log.
BURST = 10
INTERVAL_S = 30.0

_log = logs.get(__name__)


def failure_of(outcome: Outcome, at: float) -> Failure | None:
    """What has failed; None for an outcome that is expected. `at` is of the reflector's clock."""
    match outcome:
        case Refused(status):
            reason = f"{status.code} {status.reason}: {status.message}"
            return Failure(reason, at, status.code, cause_of_status(status.code), outcome.server)
        case Regressed(known, offered):
            reason = f"the server offers version {offered}, which is older than {known}"
            return Failure(reason, at)
        case Garbage(reason):
            return Failure(reason, at, cause=Cause.MALFORMED)
        case Unreachable(reason, cause, server):
            return Failure(reason, at, cause=cause, server=server)
        case _:
            return None


class FailureLog:
    """One line when a reflector begins to fail or fails otherwise, and one when it works again.

    A resource may fail for days: one whose definition was deleted is listed every 30 s.
    """

    changes: ClassVar[int] = 0
    """How often any reflector of the process has failed, or worked again.

    While it is the same, so is `current` of each: who looks at thousands each second need not look again.
    """

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._logged: tuple[Action, str] | None = None
        self.current: Failure | None = None
        """What has failed since the server last proved that the objects are current."""

    def failed(self, step: Step, failure: Failure, *, version: str, following: Progress) -> None:
        """Note a failure of now; it began with the first since the last success."""
        reason = failure.message[:MAX_REASON_CHARACTERS]
        since = failure.since if self.current is None else self.current.since
        self.current = replace(failure, message=reason, since=since)
        FailureLog.changes += 1
        is_new = self._logged is None or self._logged[1] != reason
        self._logged = step.action, reason
        (_log.warning if is_new else _log.debug)(
            "list or watch failed, trying again",
            resource=self._resource,
            action=step.action,
            version=version,
            server=failure.server,
            reason=reason,
            failures=following.failures,
            next=following.step.action,
            delay_s=round(following.step.delay_s, 3),
        )

    def succeeded(self, action: Action) -> None:
        """A list, an event or a bookmark has proved that the objects are current."""
        if self.current is not None:
            self.current = None
            FailureLog.changes += 1
        # Where watches fail, the lists between them succeed.
        if self._logged is not None and (action is Action.WATCH or self._logged[0] is Action.LIST):
            _log.info("list and watch work again", resource=self._resource, reason=self._logged[1])
            self._logged = None


class HasFailure(Protocol):
    """The part of a `Reflector` by which its failure is found."""

    @property
    def failure(self) -> Failure | None: ...


class FirstFailure:
    """The failure of the first of some reflectors that fails, looked for only after any has changed."""

    def __init__(self, reflectors: Collection[HasFailure]) -> None:
        self._reflectors = reflectors
        self._changes = -1
        self._found: Failure | None = None

    @property
    def current(self) -> Failure | None:
        """None if none fails."""
        if self._changes != FailureLog.changes:
            failures = (each.failure for each in self._reflectors)
            self._found = next((each for each in failures if each is not None), None)
            self._changes = FailureLog.changes
        return self._found


class OversizedObjectLog:
    """One line for each object that became too large, within a budget."""

    def __init__(self, resource: Resource, clock: Callable[[], float]) -> None:
        self._resource = str(resource)
        self._clock = clock
        self._bucket = TokenBucket(BURST, 1 / INTERVAL_S, BURST, clock())

    def log(self, changes: Iterable[object]) -> None:
        for change in changes:
            if not (isinstance(change, DecodeFailed) and change.is_too_large):
                continue
            if self._bucket.try_acquire(self._clock()):
                _log.warning(
                    "an object is too large and is left out",
                    resource=self._resource,
                    object="/".join(filter(None, change.key)),
                    reason=change.reason,
                )
