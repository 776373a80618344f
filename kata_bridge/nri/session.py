# SPDX-License-Identifier: Apache-2.0
"""What a plugin agrees with a runtime when it registers: which events, and what is there already.

Pure; one session is one connection.
"""

from dataclasses import dataclass

from kata_bridge.nri.events import NEWER, Event, has_newer, mask
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
class Snapshot:
    """All sandboxes, dead ones among them, and all containers that have not exited."""

    pods: tuple[PodSandbox, ...]
    containers: tuple[Container, ...]


class Session:
    """One registration that wants `events`.

    `is_reduced`: the runtime dropped the last connection when it was asked for newer events, so
    this one does not ask. It holds for one connection: what looked like a refusal may have been a
    restart, and to do without these events for good would open a gate that should be shut.
    """

    def __init__(self, events: frozenset[Event], *, is_reduced: bool = False) -> None:
        self._wanted = events
        self._is_reduced = is_reduced
        self._pods: list[PodSandbox] = []
        self._containers: list[Container] = []
        self.events: frozenset[Event] = frozenset()
        self.runtime = ""
        self.is_synchronized = False

    def was_refused(self) -> bool:
        """Whether, once the connection is lost, the newer events are the likely reason."""
        return bool(self.events & NEWER) and not self.is_synchronized

    def configure(self, request: ConfigureRequest) -> ConfigureResponse:
        """Subscribe to what is wanted and the runtime can be asked for."""
        has = has_newer(request.runtime_name, request.runtime_version, request.NRI_version)
        self.events = self._wanted if has and not self._is_reduced else self._wanted - NEWER
        self.runtime = f"{request.runtime_name} {request.runtime_version}"
        return ConfigureResponse(mask(self.events))

    def synchronize(self, request: SynchronizeRequest) -> tuple[SynchronizeResponse, Snapshot | None]:
        """Gather what is there; the snapshot comes with the last part.

        Raises `StatusError` for more than any node has.
        """
        self._pods += request.pods
        self._containers += request.containers
        if len(self._pods) + len(self._containers) > MAX_OBJECTS:
            self._pods, self._containers = [], []
            raise TtrpcError(Code.RESOURCE_EXHAUSTED, f"more than {MAX_OBJECTS} pods and containers")
        if request.more:
            return SynchronizeResponse(more=True), None
        snapshot = Snapshot(tuple(self._pods), tuple(self._containers))
        self._pods, self._containers = [], []
        self.is_synchronized = True
        return SynchronizeResponse(), snapshot
