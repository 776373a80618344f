# SPDX-License-Identifier: Apache-2.0
"""Counts the objects that are too large, as a metric. It imports no module of watches, as vn-agent has the
metric also where it watches no super cluster."""

import weakref
from collections.abc import Mapping
from typing import Any, Protocol

from daemonkit.metrics import Registry


class Spoiled(Protocol):
    """The part of a `store.Spoiled` that is counted."""

    @property
    def is_too_large(self) -> bool: ...


class Follower(Protocol):
    """The part of a `Reflector` that is counted."""

    @property
    def resource(self) -> object: ...
    @property
    def spoiled(self) -> Mapping[Any, Spoiled]: ...


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
