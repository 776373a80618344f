# SPDX-License-Identifier: Apache-2.0
"""The runtime's calls, brought to a handler and answered in time.

All calls of all plugins run under one lock of the runtime: what a handler takes, every other pod of
the node waits. And a plugin that is too slow is thrown out, which lets through what it wanted to
hold. Hence the rules here: an event about a sandbox is answered well after `HANDLER_S` at the
latest, whatever became of it, and a container on which nobody has decided by then is refused.
Nothing of a request is logged: it holds the environment of containers.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Protocol, TypeVar

from daemonkit import logs
from daemonkit.protobuf import decode, encode
from daemonkit.tasks import Tasks
from kata_bridge.nri.events import Event
from kata_bridge.nri.messages import (
    PLUGIN,
    ConfigureRequest,
    Container,
    ContainerAdjustment,
    CreateContainerRequest,
    CreateContainerResponse,
    Empty,
    PodRequest,
    PodSandbox,
    StateChangeEvent,
    SynchronizeRequest,
    ValidateContainerAdjustmentRequest,
    ValidateContainerAdjustmentResponse,
)
from kata_bridge.nri.session import Session, Snapshot
from kata_bridge.ttrpc.status import Code, TtrpcError

# A quarter of the runtime's default of 2 s for a request.
HANDLER_S = 0.5

_POD_EVENTS = {
    "RunPodSandbox": Event.RUN_POD_SANDBOX,
    "StopPodSandbox": Event.STOP_POD_SANDBOX,
    "RemovePodSandbox": Event.REMOVE_POD_SANDBOX,
}

T = TypeVar("T")

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Hold:
    """This container may not be created now; the kubelet tries again. The pod's author reads `reason`."""

    reason: str


class Handler(Protocol):
    """Whoever wants to know. Each of these begins work, and waits for nothing."""

    async def synchronize(self, snapshot: Snapshot) -> None:
        """What is there, at each connection anew; what happened in between is in it too."""

    async def run_pod_sandbox(self, pod: PodSandbox) -> Hold | None:
        """It has its network, and if it is a virtual machine that runs; no container exists yet.

        CRI does not know it before this has been answered. A `Hold` tears it down, and the kubelet
        makes another one some seconds later.
        """

    async def stop_pod_sandbox(self, pod: PodSandbox) -> None:
        """Its network is about to go."""

    async def remove_pod_sandbox(self, pod: PodSandbox) -> None:
        """It is no more. Comes late, with the kubelet's garbage collection, or not at all."""

    async def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment | Hold:
        """Adjust a container or hold it back; only asked if the plugin wants that event."""

    async def validate(
        self, pod: PodSandbox, container: Container, adjustment: ContainerAdjustment
    ) -> Hold | None:
        """Look at what all plugins made of a container; only asked if the plugin wants that event."""


class Dispatch:
    """Answers the calls of one session; `on_synchronized` is called when it is complete.

    What handlers do is a task of `tasks`, which logs how it fails.
    """

    def __init__(
        self, handler: Handler, session: Session, tasks: Tasks, on_synchronized: Callable[[], None]
    ) -> None:
        self._handler = handler
        self._session = session
        self._tasks = tasks
        self._on_synchronized = on_synchronized

    async def answer(self, service: str, method: str, payload: bytes) -> bytes:
        """Serve one call: what a ttrpc server is made of. Raises `StatusError`, `BadMessage`."""
        if service != PLUGIN:
            raise TtrpcError(Code.UNIMPLEMENTED, f"no service {service}")
        return encode(await self._answer(method, payload))

    async def _answer(self, method: str, payload: bytes) -> object:
        match method:
            case "Configure":
                return self._session.configure(decode(ConfigureRequest, payload))
            case "Synchronize":
                response, snapshot = self._session.synchronize(decode(SynchronizeRequest, payload))
                if snapshot is not None:
                    self._on_synchronized()
                    await self._tell(self._handler.synchronize(snapshot), "synchronize")
                return response
            case "RunPodSandbox" | "StopPodSandbox" | "RemovePodSandbox":
                await self._pod_event(_POD_EVENTS[method], decode(PodRequest, payload).pod)
            case "StateChange":
                change = decode(StateChangeEvent, payload)
                await self._pod_event(change.event, change.pod)
            case "CreateContainer":
                return await self._create(decode(CreateContainerRequest, payload))
            case "ValidateContainerAdjustment":
                return await self._validate(decode(ValidateContainerAdjustmentRequest, payload))
            case "Shutdown":
                _log.info("the runtime shuts down")
            case _:
                # Of an event that has a call of its own a runtime makes a StateChange then.
                raise TtrpcError(Code.UNIMPLEMENTED, f"no method {method}")
        return Empty()

    async def _pod_event(self, event: Event, pod: PodSandbox | None) -> None:
        if pod is None:
            return
        match event:
            case Event.RUN_POD_SANDBOX:
                hold = await self._tell(self._handler.run_pod_sandbox(pod), "run")
                if hold is not None:
                    raise TtrpcError(Code.FAILED_PRECONDITION, hold.reason)
            case Event.STOP_POD_SANDBOX:
                await self._tell(self._handler.stop_pod_sandbox(pod), "stop")
            case Event.REMOVE_POD_SANDBOX:
                await self._tell(self._handler.remove_pod_sandbox(pod), "remove")

    async def _tell(self, work: Coroutine[object, object, T], name: str) -> T | None:
        """Let the handler know, and return what it answers in time.

        How else that ends is its own affair: an error would tear the sandbox down.
        """
        task = self._tasks.spawn(work, name)
        try:
            await asyncio.wait({task}, timeout=HANDLER_S)
        finally:
            is_late = task.cancel()
        if is_late:
            _log.error("the handler of an event was too slow and is ended", handler=name, limit_s=HANDLER_S)
            return None
        return task.result() if task.done() and not task.cancelled() and task.exception() is None else None

    async def _create(self, request: CreateContainerRequest) -> CreateContainerResponse:
        pod, container = request.pod or PodSandbox(), request.container or Container()
        outcome: ContainerAdjustment | Hold
        try:
            async with asyncio.timeout(HANDLER_S):
                outcome = await self._handler.create_container(pod, container)
        except TimeoutError:
            outcome = Hold(f"nobody decided within {HANDLER_S} s whether this container may be created")
        if isinstance(outcome, Hold):
            # Not DEADLINE_EXCEEDED, ever: to a runtime that is a plugin to throw out.
            raise TtrpcError(Code.FAILED_PRECONDITION, outcome.reason)
        return CreateContainerResponse(outcome)

    async def _validate(
        self, request: ValidateContainerAdjustmentRequest
    ) -> ValidateContainerAdjustmentResponse:
        pod, container = request.pod or PodSandbox(), request.container or Container()
        hold: Hold | None
        try:
            async with asyncio.timeout(HANDLER_S):
                hold = await self._handler.validate(pod, container, request.adjust or ContainerAdjustment())
        except TimeoutError:
            hold = Hold(f"nobody decided within {HANDLER_S} s whether this container is as it must be")
        return ValidateContainerAdjustmentResponse(hold is not None, hold.reason if hold is not None else "")
