# SPDX-License-Identifier: Apache-2.0
"""NRI's events, and which of them a runtime can be asked for. Pure."""

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


# The life of sandboxes: what discovery needs.
SANDBOXES = frozenset({Event.RUN_POD_SANDBOX, Event.STOP_POD_SANDBOX, Event.REMOVE_POD_SANDBOX})

# A gate needs both: without the second, a plugin that times out or dies lets the container through.
GATE = frozenset({Event.CREATE_CONTAINER, Event.VALIDATE_CONTAINER_ADJUSTMENT})

# Since NRI 0.10. A runtime closes the connection of a plugin that asks for an event it has not.
NEWER = frozenset(
    {Event.UPDATE_POD_SANDBOX, Event.POST_UPDATE_POD_SANDBOX, Event.VALIDATE_CONTAINER_ADJUSTMENT}
)

# The first releases with NRI 0.10. Those with 0.12 say the version of NRI itself.
_FIRST_WITH_NEWER = {"containerd": (2, 2), "cri-o": (1, 34)}


def mask(events: Iterable[Event]) -> int:
    """The bits that subscribe to `events`. Never none: 0 would mean all."""
    bits = sum(1 << event - 1 for event in set(events))
    if bits == 0:
        raise ValueError("a plugin without events would get them all")
    return bits


def has_newer(runtime_name: str, runtime_version: str, nri_version: str) -> bool:
    """Whether the runtime that so introduces itself knows the `NEWER` events."""
    if nri_version:
        return True
    first = _FIRST_WITH_NEWER.get(runtime_name.lower())
    match = re.match(r"v?(\d{1,6})\.(\d{1,6})", runtime_version)
    return first is not None and match is not None and (int(match[1]), int(match[2])) >= first
