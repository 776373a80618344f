# SPDX-License-Identifier: Apache-2.0
"""Passes the runtime's calls to a handler and answers in time.

The runtime calls all plugins under one lock, so every other pod of the node waits for a handler. It drops a
plugin that is too slow, and then starts the containers that the plugin wanted to deny. Hence two rules: an
event about a sandbox is answered with success after `HANDLER_S` at the latest, however the handler ends; and
a container without a decision by then is denied.
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
from kata_bridge.nri.session import NriSnapshot, Session
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
class Deny:
    """This container may not be created now; the kubelet tries again. The pod's author reads `message`."""

    message: str


class Handler(Protocol):
    """Handles the runtime's calls. Each method starts work and does not wait for it."""

    async def synchronize(self, snapshot: NriSnapshot) -> None:
        """All that is there: called once for each connection."""

    async def run_pod_sandbox(self, pod: PodSandbox) -> Deny | None:
        """The sandbox has its network, and its virtual machine runs if it is one; no container exists yet.

        The CRI lists it only after the answer. A `Deny` tears it down, and the kubelet makes another one some
        seconds later.
        """

    async def stop_pod_sandbox(self, pod: PodSandbox) -> None:
        """Its network is about to be removed."""

    async def remove_pod_sandbox(self, pod: PodSandbox) -> None:
        """It was removed. Comes late, with the kubelet's garbage collection, or not at all."""

    async def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment | Deny:
        """Adjust or deny a container; called only if the plugin subscribes to that event."""

    async def validate(
        self, pod: PodSandbox, container: Container, adjustment: ContainerAdjustment
    ) -> Deny | None:
        """Check what all plugins made of a container; called only if the plugin subscribes to that event."""


class Dispatch:
    """Answers the calls of one session; `on_synchronized` is called when that is complete.

    Handlers run as tasks of `tasks`, which logs their failures.
    """

    def __init__(
        self, handler: Handler, session: Session, tasks: Tasks, on_synchronized: Callable[[], None]
    ) -> None:
        self._handler = handler
        self._session = session
        self._tasks = tasks
        self._on_synchronized = on_synchronized

    async def answer(self, service: str, method: str, payload: bytes) -> bytes:
        """Serve one call of ttrpc. Raises `TtrpcError`, `BadMessage`."""
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
                    await self._run(self._handler.synchronize(snapshot), "synchronize")
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
                # A runtime then sends a StateChange in place of an event with a call of its own.
                raise TtrpcError(Code.UNIMPLEMENTED, f"no method {method}")
        return Empty()

    async def _pod_event(self, event: Event, pod: PodSandbox | None) -> None:
        if pod is None:
            return
        match event:
            case Event.RUN_POD_SANDBOX:
                deny = await self._run(self._handler.run_pod_sandbox(pod), "run")
                if deny is not None:
                    raise TtrpcError(Code.FAILED_PRECONDITION, deny.message)
            case Event.STOP_POD_SANDBOX:
                await self._run(self._handler.stop_pod_sandbox(pod), "stop")
            case Event.REMOVE_POD_SANDBOX:
                await self._run(self._handler.remove_pod_sandbox(pod), "remove")

    async def _run(self, work: Coroutine[object, object, T], name: str) -> T | None:
        """Run the handler, and return its answer if that comes in time.

        Its failure is not passed on: an error would tear the sandbox down.
        """
        task = self._tasks.spawn(work, name)
        try:
            await asyncio.wait({task}, timeout=HANDLER_S)
        finally:
            is_late = task.cancel()
        if is_late:
            _log.error(
                "cancelled the handler of an NRI event, it was too slow", handler=name, limit_s=HANDLER_S
            )
            return None
        return task.result() if task.done() and not task.cancelled() and task.exception() is None else None

    async def _create(self, request: CreateContainerRequest) -> CreateContainerResponse:
        pod, container = request.pod or PodSandbox(), request.container or Container()
        outcome: ContainerAdjustment | Deny
        try:
            async with asyncio.timeout(HANDLER_S):
                outcome = await self._handler.create_container(pod, container)
        except TimeoutError:
            outcome = Deny(f"no decision within {HANDLER_S} s whether this container may start")
        if isinstance(outcome, Deny):
            # Never DEADLINE_EXCEEDED: a runtime drops a plugin that answers so.
            raise TtrpcError(Code.FAILED_PRECONDITION, outcome.message)
        return CreateContainerResponse(outcome)

    async def _validate(
        self, request: ValidateContainerAdjustmentRequest
    ) -> ValidateContainerAdjustmentResponse:
        pod, container = request.pod or PodSandbox(), request.container or Container()
        deny: Deny | None
        try:
            async with asyncio.timeout(HANDLER_S):
                deny = await self._handler.validate(pod, container, request.adjust or ContainerAdjustment())
        except TimeoutError:
            deny = Deny(f"no decision within {HANDLER_S} s whether this container was adjusted as it must be")
        return ValidateContainerAdjustmentResponse(deny is not None, deny.message if deny is not None else "")
