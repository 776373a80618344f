# SPDX-License-Identifier: Apache-2.0
"""What a daemon shows of objects that are too large: a metric, and a line in its log."""

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from daemonkit import logs
from daemonkit.bucket import Bucket
from daemonkit.kube.resources import Key, Resource
from daemonkit.kube.store import Spoiled
from daemonkit.metrics import Registry

# So many lines at once, and then one each so often: whoever writes such objects does not fill a log.
BURST = 10
INTERVAL_S = 30.0

_log = logs.get(__name__)


class Follower(Protocol):
    """The part of a `Reflector` that is counted."""

    @property
    def resource(self) -> Resource: ...
    @property
    def spoiled(self) -> Mapping[Key, Spoiled]: ...


# Of the process, as the event loop's tasks are: reflectors come and go with tenants.
_followers: "weakref.WeakSet[Any]" = weakref.WeakSet()


def follow(follower: Follower) -> None:
    """Count what this one has, as long as it is in use."""
    _followers.add(follower)


def add_metric(registry: Registry) -> None:
    """Add `vcnode_objects_too_large`, by kind: of all reflectors of the process."""

    def count() -> dict[tuple[str, ...], float]:
        found: dict[tuple[str, ...], float] = {}
        for each in tuple(_followers):
            labels = (str(each.resource),)
            number = sum(spoiled.is_too_large for spoiled in each.spoiled.values())
            found[labels] = found.get(labels, 0.0) + number
        return found

    registry.gauge_function(
        "vcnode_objects_too_large", "Objects that are too large and are left out.", count, ("kind",)
    )


class Warnings:
    """One line for each object that became too large, as long as there are few."""

    def __init__(self, resource: Resource, clock: Callable[[], float]) -> None:
        self._resource = str(resource)
        self._clock = clock
        self._bucket: Bucket | None = None

    def log(self, changes: Iterable[object]) -> None:
        for change in changes:
            if isinstance(change, Spoiled) and change.is_too_large and self._take():
                _log.warning(
                    "an object is too large and is left out",
                    resource=self._resource,
                    object="/".join(filter(None, change.key)),
                    reason=change.reason,
                )

    def _take(self) -> bool:
        now = self._clock()
        if self._bucket is None:
            self._bucket = Bucket(BURST, 1 / INTERVAL_S, BURST, now)
        return self._bucket.take(now)
