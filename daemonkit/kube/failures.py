# SPDX-License-Identifier: Apache-2.0
"""What a reflector reports of its failures: one line when one begins or changes, one when it is over.

A resource may fail for days, as one whose definition was deleted does, and is asked for every 30 s.
"""

from daemonkit import logs
from daemonkit.kube.freshness import Failure
from daemonkit.kube.reflector_policy import Action, Progress, Step

# A server chooses its message; it is in the log and on /readyz.
MAX_REASON_CHARACTERS = 300

_log = logs.get(__name__)


class Failures:
    """Those of one reflector."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._logged: tuple[Action, str] | None = None
        self.current: Failure | None = None
        """What failed since the server last proved that we are up to date."""

    def failed(
        self, step: Step, reason: str, code: int, now: float, *, version: str, following: Progress
    ) -> None:
        """Keep why `step` failed, and log it where that is new."""
        reason = reason[:MAX_REASON_CHARACTERS]
        self.current = Failure(reason, now if self.current is None else self.current.since, code)
        is_new = self._logged is None or self._logged[1] != reason
        self._logged = step.action, reason
        (_log.warning if is_new else _log.debug)(
            "list or watch failed",
            resource=self._resource,
            action=step.action,
            version=version,
            reason=reason,
            failures=following.failures,
            next=following.step.action,
            delay_s=round(following.step.delay_s, 3),
        )

    def proved(self, action: Action) -> None:
        """A list, or something that a watch brought, has proved that we are up to date."""
        self.current = None
        # Where watches fail, the lists between them succeed: nothing is over by that.
        if self._logged is not None and (action is Action.WATCH or self._logged[0] is Action.LIST):
            _log.info("list and watch work again", resource=self._resource, reason=self._logged[1])
            self._logged = None
