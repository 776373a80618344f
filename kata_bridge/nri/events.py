# SPDX-License-Identifier: Apache-2.0
"""NRI's events, and which of them a runtime supports."""

import re
from collections.abc import Iterable

from daemonkit.protobuf import OpenEnum


class Event(OpenEnum):
    UNKNOWN = 0
    RUN_POD_SANDBOX = 1
    STOP_POD_SANDBOX = 2
    REMOVE_POD_SANDBOX = 3
    CREATE_CONTAINER = 4
    POST_CREATE_CONTAINER = 5
    START_CONTAINER = 6
    POST_START_CONTAINER = 7
    UPDATE_CONTAINER = 8
    POST_UPDATE_CONTAINER = 9
    STOP_CONTAINER = 10
    REMOVE_CONTAINER = 11
    UPDATE_POD_SANDBOX = 12
    POST_UPDATE_POD_SANDBOX = 13
    VALIDATE_CONTAINER_ADJUSTMENT = 14


# What discovery needs: the life cycle of sandboxes.
SANDBOXES = frozenset({Event.RUN_POD_SANDBOX, Event.STOP_POD_SANDBOX, Event.REMOVE_POD_SANDBOX})

# The start gate needs both: without the second, the container of a plugin that times out or dies starts.
GATE = frozenset({Event.CREATE_CONTAINER, Event.VALIDATE_CONTAINER_ADJUSTMENT})

# Since NRI 0.10. A runtime closes the connection of a plugin that subscribes to an unsupported event.
SINCE_0_10 = frozenset(
    {Event.UPDATE_POD_SANDBOX, Event.POST_UPDATE_POD_SANDBOX, Event.VALIDATE_CONTAINER_ADJUSTMENT}
)

# The first releases with NRI 0.10. Those with NRI 0.12 or newer report its version.
_FIRST_WITH_0_10 = {"containerd": (2, 2), "cri-o": (1, 34)}


def mask(events: Iterable[Event]) -> int:
    """The bit mask that subscribes to `events`, at least one: mask 0 subscribes to all."""
    bits = sum(1 << event - 1 for event in set(events))
    if bits == 0:
        raise ValueError("a plugin must subscribe to at least one event: the mask 0 means all")
    return bits


def supports_since_0_10(runtime_name: str, runtime_version: str, nri_version: str) -> bool:
    """Whether this runtime supports the events `SINCE_0_10`."""
    if nri_version:
        return True
    first = _FIRST_WITH_0_10.get(runtime_name.lower())
    match = re.match(r"v?(\d{1,6})\.(\d{1,6})", runtime_version)
    return first is not None and match is not None and (int(match[1]), int(match[2])) >= first
