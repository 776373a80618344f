# SPDX-License-Identifier: Apache-2.0
"""The metric of objects that are too large. It imports no module of watches: vn-agent has the metric also
where it watches no super cluster."""

import weakref
from collections.abc import Mapping
from typing import Any, Protocol

from daemonkit.metrics import Registry


class DecodeFailed(Protocol):
    """The part of a `store.DecodeFailed` that is counted."""

    @property
    def is_too_large(self) -> bool: ...


class TrackedReflector(Protocol):
    """The part of a `Reflector` that is counted."""

    @property
    def resource(self) -> object: ...
    @property
    def decode_failures(self) -> Mapping[Any, DecodeFailed]: ...


# Of the process, as the event loop's tasks are: reflectors come and go with tenants.
_reflectors: "weakref.WeakSet[Any]" = weakref.WeakSet()


def track(reflector: TrackedReflector) -> None:
    """Count its oversized objects while it exists."""
    _reflectors.add(reflector)


def add_metric(registry: Registry) -> None:
    """Add `vcnode_process_oversized_objects{kind}`, for all reflectors of the process."""

    def count() -> dict[tuple[str, ...], float]:
        found: dict[tuple[str, ...], float] = {}
        for each in tuple(_reflectors):
            labels = (str(each.resource),)
            number = sum(failure.is_too_large for failure in each.decode_failures.values())
            found[labels] = found.get(labels, 0.0) + number
        return found

    registry.gauge_function(
        "vcnode_process_oversized_objects", "Objects that are too large and are left out.", count, ("kind",)
    )
