# SPDX-License-Identifier: Apache-2.0
"""What the runtime hears of handlers that are quick, slow, wrong or say no; on virtual time."""

import asyncio

import pytest

from daemonkit.protobuf import BadMessage, decode, encode
from daemonkit.tasks import Tasks
from kata_bridge.nri.dispatch import HANDLER_S, Dispatch, Hold
from kata_bridge.nri.events import GATE, SANDBOXES, Event
from kata_bridge.nri.messages import (
    PLUGIN,
    ConfigureRequest,
    ConfigureResponse,
    Container,
    ContainerAdjustment,
    CreateContainerRequest,
    CreateContainerResponse,
    Mount,
    PodRequest,
    PodSandbox,
    StateChangeEvent,
    SynchronizeRequest,
    SynchronizeResponse,
    ValidateContainerAdjustmentRequest,
    ValidateContainerAdjustmentResponse,
)
from kata_bridge.nri.session import Session, Snapshot
from kata_bridge.ttrpc.status import TtrpcError

POD = PodSandbox(id="p", name="web", uid="u", namespace="default")
CONTAINER = Container(id="c", pod_sandbox_id="p", name="nginx")
DNS = ContainerAdjustment(mounts=(Mount("/etc/resolv.conf", "bind", "/run/ours", ("ro",)),))


class Recorder:
    """A handler that writes down what it is told, takes `delay_s` for it, and fails on demand."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.delay_s = 0.0
        self.error: Exception | None = None
        self.creation: ContainerAdjustment | Hold = DNS
        self.validation: Hold | None = None

    async def _tell(self, *what: object) -> None:
        self.told.append(what)
        await asyncio.sleep(self.delay_s)
        if self.error is not None:
            raise self.error
        self.told.append("done")

    async def synchronize(self, snapshot: Snapshot) -> None:
        await self._tell("synchronize", snapshot)

    async def run_pod_sandbox(self, pod: PodSandbox) -> None:
        await self._tell("run", pod)

    async def stop_pod_sandbox(self, pod: PodSandbox) -> None:
        await self._tell("stop", pod)

    async def remove_pod_sandbox(self, pod: PodSandbox) -> None:
        await self._tell("remove", pod)

    async def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment | Hold:
        await self._tell("create", pod, container)
        return self.creation

    async def validate(
        self, pod: PodSandbox, container: Container, adjustment: ContainerAdjustment
    ) -> Hold | None:
        await self._tell("validate", pod, container, adjustment)
        return self.validation


class World:
    def __init__(self) -> None:
        self.handler = Recorder()
        self.session = Session(SANDBOXES | GATE)
        self.synchronized = 0
        self.dispatch = Dispatch(self.handler, self.session, Tasks("test"), self._synchronized)

    def _synchronized(self) -> None:
        self.synchronized += 1

    async def asks(self, method: str, request: object = None) -> bytes:
        return await self.dispatch.answer(PLUGIN, method, b"" if request is None else encode(request))


@pytest.mark.parametrize(
    ("method", "event", "told"),
    [
        ("RunPodSandbox", Event.RUN_POD_SANDBOX, "run"),
        ("StopPodSandbox", Event.STOP_POD_SANDBOX, "stop"),
        ("RemovePodSandbox", Event.REMOVE_POD_SANDBOX, "remove"),
    ],
)
@pytest.mark.asyncio
async def test_events_in_both_dialects(method: str, event: Event, told: str) -> None:
    world = World()
    assert await world.asks(method, PodRequest(POD)) == b""
    assert await world.asks("StateChange", StateChangeEvent(event, POD)) == b""
    assert world.handler.told == [(told, POD), "done"] * 2


@pytest.mark.asyncio
async def test_events_that_nobody_asked_for_are_fine() -> None:
    world = World()
    for event in (Event.START_CONTAINER, Event.UNKNOWN, Event(77)):
        assert await world.asks("StateChange", StateChangeEvent(event, POD)) == b""
    assert await world.asks("RunPodSandbox", PodRequest()) == b""
    assert await world.asks("Shutdown") == b""
    assert world.handler.told == []


@pytest.mark.asyncio
async def test_what_is_not_served() -> None:
    world = World()
    with pytest.raises(TtrpcError, match="UNIMPLEMENTED: no method StartContainer"):
        await world.asks("StartContainer")
    with pytest.raises(TtrpcError, match="UNIMPLEMENTED: no service other"):
        await world.dispatch.answer("other", "RunPodSandbox", b"")
    with pytest.raises(BadMessage, match=r"PodRequest\.pod: cut short"):
        await world.dispatch.answer(PLUGIN, "RunPodSandbox", b"\x0a\x05")


@pytest.mark.asyncio
async def test_registration() -> None:
    world = World()
    configured = await world.asks("Configure", ConfigureRequest("containerd", "2.4.2", NRI_version="v0.12.3"))
    assert decode(ConfigureResponse, configured).events == 0x200F
    part = SynchronizeRequest((POD,), (), True)
    assert decode(SynchronizeResponse, await world.asks("Synchronize", part)).more
    assert (world.handler.told, world.synchronized) == ([], 0)
    last = SynchronizeRequest((), (CONTAINER,))
    assert not decode(SynchronizeResponse, await world.asks("Synchronize", last)).more
    assert world.handler.told == [("synchronize", Snapshot((POD,), (CONTAINER,))), "done"]
    assert world.synchronized == 1


@pytest.mark.parametrize("method", ["RunPodSandbox", "StopPodSandbox", "RemovePodSandbox"])
@pytest.mark.asyncio
async def test_a_slow_handler_of_an_event_is_ended_and_the_answer_is_yes(method: str) -> None:
    world = World()
    world.handler.delay_s = 60
    assert await world.asks(method, PodRequest(POD)) == b""
    assert asyncio.get_running_loop().time() == HANDLER_S
    await asyncio.sleep(100)
    assert "done" not in world.handler.told


@pytest.mark.asyncio
async def test_a_handler_of_an_event_that_fails_is_logged_and_the_answer_is_yes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = World()
    world.handler.error = ValueError("handler's own fault")
    assert await world.asks("RunPodSandbox", PodRequest(POD)) == b""
    assert "handler's own fault" in capsys.readouterr().err


@pytest.mark.asyncio
async def test_a_caller_that_gives_up_ends_the_handler() -> None:
    world = World()
    world.handler.delay_s = 60
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await world.asks("RunPodSandbox", PodRequest(POD))
    await asyncio.sleep(100)
    assert world.handler.told == [("run", POD)]


@pytest.mark.asyncio
async def test_creation() -> None:
    world = World()
    request = CreateContainerRequest(POD, CONTAINER)
    assert decode(CreateContainerResponse, await world.asks("CreateContainer", request)).adjust == DNS
    assert world.handler.told == [("create", POD, CONTAINER), "done"]
    world.handler.creation = Hold("Services are not ready in this pod: its guest does not answer yet")
    with pytest.raises(TtrpcError) as raised:
        await world.asks("CreateContainer", request)
    assert raised.value.message == "Services are not ready in this pod: its guest does not answer yet"


@pytest.mark.asyncio
async def test_a_container_on_which_nobody_decided_is_held_back() -> None:
    world = World()
    world.handler.delay_s = 60
    with pytest.raises(TtrpcError, match=r"FAILED_PRECONDITION: nobody decided within 0\.5 s"):
        await world.asks("CreateContainer", CreateContainerRequest(POD, CONTAINER))
    answered = await world.asks("ValidateContainerAdjustment", ValidateContainerAdjustmentRequest(POD))
    response = decode(ValidateContainerAdjustmentResponse, answered)
    assert (response.reject, response.reason[:27]) == (True, "nobody decided within 0.5 s")
    assert asyncio.get_running_loop().time() == 2 * HANDLER_S


@pytest.mark.asyncio
async def test_validation() -> None:
    world = World()
    request = ValidateContainerAdjustmentRequest(POD, CONTAINER, DNS)
    assert await world.asks("ValidateContainerAdjustment", request) == b""
    assert world.handler.told == [("validate", POD, CONTAINER, DNS), "done"]
    world.handler.validation = Hold("its /etc/resolv.conf is not ours")
    answered = await world.asks("ValidateContainerAdjustment", request)
    assert decode(ValidateContainerAdjustmentResponse, answered) == ValidateContainerAdjustmentResponse(
        True, "its /etc/resolv.conf is not ours"
    )
