# SPDX-License-Identifier: Apache-2.0
"""Responses to the runtime for fast, slow, failing and denying handlers, on virtual time."""

import asyncio

import pytest

from daemonkit.protobuf import BadMessage, decode, encode
from daemonkit.tasks import Tasks
from kata_bridge.nri.dispatch import HANDLER_S, Deny, Dispatch
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
from kata_bridge.nri.session import NriSnapshot, Session
from kata_bridge.ttrpc.status import TtrpcError

POD = PodSandbox(id="p", name="web", uid="u", namespace="default")
CONTAINER = Container(id="c", pod_sandbox_id="p", name="nginx")
DNS = ContainerAdjustment(mounts=(Mount("/etc/resolv.conf", "bind", "/run/ours", ("ro",)),))


class RecordingHandler:
    """A handler that records its calls, takes `delay_s` for each, and fails on demand."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.delay_s = 0.0
        self.error: Exception | None = None
        self.creation: ContainerAdjustment | Deny = DNS
        self.validation: Deny | None = None

    async def _call(self, *what: object) -> None:
        self.calls.append(what)
        await asyncio.sleep(self.delay_s)
        if self.error is not None:
            raise self.error
        self.calls.append("done")

    async def synchronize(self, snapshot: NriSnapshot) -> None:
        await self._call("synchronize", snapshot)

    async def run_pod_sandbox(self, pod: PodSandbox) -> None:
        await self._call("run", pod)

    async def stop_pod_sandbox(self, pod: PodSandbox) -> None:
        await self._call("stop", pod)

    async def remove_pod_sandbox(self, pod: PodSandbox) -> None:
        await self._call("remove", pod)

    async def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment | Deny:
        await self._call("create", pod, container)
        return self.creation

    async def validate(
        self, pod: PodSandbox, container: Container, adjustment: ContainerAdjustment
    ) -> Deny | None:
        await self._call("validate", pod, container, adjustment)
        return self.validation


class Setup:
    def __init__(self) -> None:
        self.handler = RecordingHandler()
        self.session = Session(SANDBOXES | GATE)
        self.synchronized = 0
        self.dispatch = Dispatch(self.handler, self.session, Tasks("test"), self._synchronized)

    def _synchronized(self) -> None:
        self.synchronized += 1

    async def call(self, method: str, request: object = None) -> bytes:
        return await self.dispatch.answer(PLUGIN, method, b"" if request is None else encode(request))


@pytest.mark.parametrize(
    ("method", "event", "call"),
    [
        ("RunPodSandbox", Event.RUN_POD_SANDBOX, "run"),
        ("StopPodSandbox", Event.STOP_POD_SANDBOX, "stop"),
        ("RemovePodSandbox", Event.REMOVE_POD_SANDBOX, "remove"),
    ],
)
@pytest.mark.asyncio
async def test_pod_events_come_as_calls_or_state_changes(method: str, event: Event, call: str) -> None:
    setup = Setup()
    assert await setup.call(method, PodRequest(POD)) == b""
    assert await setup.call("StateChange", StateChangeEvent(event, POD)) == b""
    assert setup.handler.calls == [(call, POD), "done"] * 2


@pytest.mark.asyncio
async def test_unsubscribed_events_are_ignored() -> None:
    setup = Setup()
    for event in (Event.START_CONTAINER, Event.UNKNOWN, Event(77)):
        assert await setup.call("StateChange", StateChangeEvent(event, POD)) == b""
    assert await setup.call("RunPodSandbox", PodRequest()) == b""
    assert await setup.call("Shutdown") == b""
    assert setup.handler.calls == []


@pytest.mark.asyncio
async def test_unknown_methods_are_unimplemented() -> None:
    setup = Setup()
    with pytest.raises(TtrpcError, match="UNIMPLEMENTED: no method StartContainer"):
        await setup.call("StartContainer")
    with pytest.raises(TtrpcError, match="UNIMPLEMENTED: no service other"):
        await setup.dispatch.answer("other", "RunPodSandbox", b"")
    with pytest.raises(BadMessage, match=r"PodRequest\.pod: cut short"):
        await setup.dispatch.answer(PLUGIN, "RunPodSandbox", b"\x0a\x05")


@pytest.mark.asyncio
async def test_synchronize_in_parts_calls_the_handler_once() -> None:
    setup = Setup()
    configured = await setup.call("Configure", ConfigureRequest("containerd", "2.4.2", NRI_version="v0.12.3"))
    assert decode(ConfigureResponse, configured).events == 0x200F
    part = SynchronizeRequest((POD,), (), True)
    assert decode(SynchronizeResponse, await setup.call("Synchronize", part)).more
    assert (setup.handler.calls, setup.synchronized) == ([], 0)
    last = SynchronizeRequest((), (CONTAINER,))
    assert not decode(SynchronizeResponse, await setup.call("Synchronize", last)).more
    assert setup.handler.calls == [("synchronize", NriSnapshot((POD,), (CONTAINER,))), "done"]
    assert setup.synchronized == 1


@pytest.mark.parametrize("method", ["RunPodSandbox", "StopPodSandbox", "RemovePodSandbox"])
@pytest.mark.asyncio
async def test_a_slow_event_handler_is_cancelled_with_a_response(method: str) -> None:
    setup = Setup()
    setup.handler.delay_s = 60
    assert await setup.call(method, PodRequest(POD)) == b""
    assert asyncio.get_running_loop().time() == HANDLER_S
    await asyncio.sleep(100)
    assert "done" not in setup.handler.calls


@pytest.mark.asyncio
async def test_a_failed_event_handler_is_logged_with_a_response(
    capsys: pytest.CaptureFixture[str],
) -> None:
    setup = Setup()
    setup.handler.error = ValueError("handler's own fault")
    assert await setup.call("RunPodSandbox", PodRequest(POD)) == b""
    assert "handler's own fault" in capsys.readouterr().err


@pytest.mark.asyncio
async def test_a_cancelled_call_cancels_the_handler() -> None:
    setup = Setup()
    setup.handler.delay_s = 60
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await setup.call("RunPodSandbox", PodRequest(POD))
    await asyncio.sleep(100)
    assert setup.handler.calls == [("run", POD)]


@pytest.mark.asyncio
async def test_creation_returns_the_adjustment_or_the_denial() -> None:
    setup = Setup()
    request = CreateContainerRequest(POD, CONTAINER)
    assert decode(CreateContainerResponse, await setup.call("CreateContainer", request)).adjust == DNS
    assert setup.handler.calls == [("create", POD, CONTAINER), "done"]
    setup.handler.creation = Deny("Services are not ready in this pod: its guest does not answer yet")
    with pytest.raises(TtrpcError) as raised:
        await setup.call("CreateContainer", request)
    assert raised.value.message == "Services are not ready in this pod: its guest does not answer yet"


@pytest.mark.asyncio
async def test_a_container_without_decision_is_denied() -> None:
    setup = Setup()
    setup.handler.delay_s = 60
    with pytest.raises(TtrpcError, match=r"FAILED_PRECONDITION: no decision within 0\.5 s"):
        await setup.call("CreateContainer", CreateContainerRequest(POD, CONTAINER))
    payload = await setup.call("ValidateContainerAdjustment", ValidateContainerAdjustmentRequest(POD))
    response = decode(ValidateContainerAdjustmentResponse, payload)
    assert (response.reject, response.reason[:24]) == (True, "no decision within 0.5 s")
    assert asyncio.get_running_loop().time() == 2 * HANDLER_S


@pytest.mark.asyncio
async def test_validation_returns_the_denial() -> None:
    setup = Setup()
    request = ValidateContainerAdjustmentRequest(POD, CONTAINER, DNS)
    assert await setup.call("ValidateContainerAdjustment", request) == b""
    assert setup.handler.calls == [("validate", POD, CONTAINER, DNS), "done"]
    setup.handler.validation = Deny("its /etc/resolv.conf is not ours")
    payload = await setup.call("ValidateContainerAdjustment", request)
    assert decode(ValidateContainerAdjustmentResponse, payload) == ValidateContainerAdjustmentResponse(
        True, "its /etc/resolv.conf is not ours"
    )
