# SPDX-License-Identifier: Apache-2.0
"""What a daemon logs of objects that are too large."""

from collections.abc import Callable, Iterable

from daemonkit import logs
from daemonkit.kube.resources import Resource
from daemonkit.kube.store import DecodeFailed
from daemonkit.token_bucket import TokenBucket

# The log gets at most BURST lines at once, and then one each INTERVAL_S: tenants cannot fill it.
BURST = 10
INTERVAL_S = 30.0

_log = logs.get(__name__)


class Warnings:
    """One line for each object that became too large, as long as there are few."""

    def __init__(self, resource: Resource, clock: Callable[[], float]) -> None:
        self._resource = str(resource)
        self._clock = clock
        self._bucket: TokenBucket | None = None

    def log(self, changes: Iterable[object]) -> None:
        for change in changes:
            if isinstance(change, DecodeFailed) and change.is_too_large and self._take():
                _log.warning(
                    "an object is too large and is left out",
                    resource=self._resource,
                    object="/".join(filter(None, change.key)),
                    reason=change.reason,
                )

    def _take(self) -> bool:
        now = self._clock()
        if self._bucket is None:
            self._bucket = TokenBucket(BURST, 1 / INTERVAL_S, BURST, now)
        return self._bucket.try_acquire(now)
