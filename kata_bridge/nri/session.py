# SPDX-License-Identifier: Apache-2.0
"""A plugin's registration with a runtime: the events it subscribes to, and what is there already.

One session is one connection.
"""

from dataclasses import dataclass

from kata_bridge.nri.events import SINCE_0_10, Event, mask, supports_since_0_10
from kata_bridge.nri.messages import (
    ConfigureRequest,
    ConfigureResponse,
    Container,
    PodSandbox,
    SynchronizeRequest,
    SynchronizeResponse,
)
from kata_bridge.ttrpc.status import Code, TtrpcError

# Of pods and containers together. A node has some hundreds.
MAX_OBJECTS = 100_000


@dataclass(frozen=True, slots=True)
class NriSnapshot:
    """All sandboxes, also dead ones, and all containers that have not exited."""

    pods: tuple[PodSandbox, ...]
    containers: tuple[Container, ...]


class Session:
    """One registration for `events`.

    `is_reduced`: the runtime dropped the last connection after a subscription to `SINCE_0_10`, so this one
    leaves those out. The next connection tries them again: the drop may have been a restart, and without
    these events the start gate has a gap.
    """

    def __init__(self, events: frozenset[Event], *, is_reduced: bool = False) -> None:
        self._desired = events
        self._is_reduced = is_reduced
        self._pods: list[PodSandbox] = []
        self._containers: list[Container] = []
        self.events: frozenset[Event] = frozenset()
        self.runtime = ""
        self.is_synchronized = False

    def was_refused(self) -> bool:
        """Whether the events `SINCE_0_10` are the likely reason why the connection was lost."""
        return bool(self.events & SINCE_0_10) and not self.is_synchronized

    def configure(self, request: ConfigureRequest) -> ConfigureResponse:
        """Subscribe to the events that are desired and supported."""
        is_supported = supports_since_0_10(request.runtime_name, request.runtime_version, request.NRI_version)
        self.events = self._desired if is_supported and not self._is_reduced else self._desired - SINCE_0_10
        self.runtime = f"{request.runtime_name} {request.runtime_version}"
        return ConfigureResponse(mask(self.events))

    def synchronize(self, request: SynchronizeRequest) -> tuple[SynchronizeResponse, NriSnapshot | None]:
        """Gather what is there; returns the snapshot with the last part.

        Raises `TtrpcError` for more objects than any node has.
        """
        self._pods += request.pods
        self._containers += request.containers
        if len(self._pods) + len(self._containers) > MAX_OBJECTS:
            self._pods, self._containers = [], []
            raise TtrpcError(Code.RESOURCE_EXHAUSTED, f"more than {MAX_OBJECTS} pods and containers")
        if request.more:
            return SynchronizeResponse(more=True), None
        snapshot = NriSnapshot(tuple(self._pods), tuple(self._containers))
        self._pods, self._containers = [], []
        self.is_synchronized = True
        return SynchronizeResponse(), snapshot
