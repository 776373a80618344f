# SPDX-License-Identifier: Apache-2.0
"""What becomes of calls to a server, on virtual time."""

import asyncio

import pytest

from daemonkit.protobuf import BadMessage, decode, encode
from daemonkit.tasks import Tasks
from kata_bridge.ttrpc import server
from kata_bridge.ttrpc.frame import REQUEST, Frame
from kata_bridge.ttrpc.messages import Request, Response
from kata_bridge.ttrpc.server import Serving
from kata_bridge.ttrpc.status import Code, TtrpcError


class World:
    """A server of a few methods, and what it sent."""

    def __init__(self, *, longest_s: float | None = None) -> None:
        self.sent: list[Frame] = []
        self.tasks = Tasks("test")
        self.serving = Serving(self._answer, self.sent.append, self.tasks, longest_s=longest_s)

    async def _answer(self, service: str, method: str, payload: bytes) -> bytes:
        match method:
            case "echo":
                return payload
            case "sleep":
                await asyncio.sleep(float(payload))
                return b"slept"
            case "refuse":
                raise TtrpcError(Code.FAILED_PRECONDITION, payload.decode())
            case "misread":
                raise BadMessage("Pod.name: cut short")
            case "fail":
                raise ValueError("of the server's own")
        raise TtrpcError(Code.UNIMPLEMENTED, f"{service} has no {method}")

    def asks(self, stream_id: int, method: str, payload: bytes = b"", timeout_s: float = 0) -> None:
        data = encode(Request("trial", method, payload, int(timeout_s * 1e9)))
        frame = Frame(stream_id, REQUEST, data)
        self.serving.receive(frame.header() + frame.data)

    def got(self) -> list[tuple[int, bytes | str]]:
        return [(frame.stream_id, _read(frame)) for frame in self.sent]


def _read(frame: Frame) -> bytes | str:
    response = decode(Response, frame.data)
    return (
        response.payload
        if response.status is None
        else str(TtrpcError(response.status.code, response.status.message))
    )


@pytest.mark.asyncio
async def test_each_call_is_answered_when_it_is_done() -> None:
    world = World()
    world.asks(1, "sleep", b"2")
    world.asks(3, "echo", b"hello")
    world.asks(5, "sleep", b"1")
    await asyncio.sleep(3)
    assert world.got() == [(3, b"hello"), (5, b"slept"), (1, b"slept")]


@pytest.mark.asyncio
async def test_refusals() -> None:
    world = World()
    world.asks(1, "refuse", b"not yet")
    world.asks(3, "misread")
    world.asks(5, "unheard")
    await asyncio.sleep(1)
    assert world.got() == [
        (1, "FAILED_PRECONDITION: not yet"),
        (3, "INVALID_ARGUMENT: Pod.name: cut short"),
        (5, "UNIMPLEMENTED: trial has no unheard"),
    ]


@pytest.mark.asyncio
async def test_a_fault_of_the_server_is_answered_and_logged(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.asks(1, "fail")
    await asyncio.sleep(1)
    assert world.got() == [(1, "INTERNAL: failed; the log of the server says why")]
    assert "of the server's own" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked_s", "longest_s", "ends_s"), [(2, None, 2), (0, 0.5, 0.5), (2, 0.5, 0.5), (0.25, 0.5, 0.25)]
)
@pytest.mark.asyncio
async def test_deadlines(asked_s: float, longest_s: float | None, ends_s: float) -> None:
    world = World(longest_s=longest_s)
    world.asks(1, "sleep", b"100", asked_s)
    await asyncio.sleep(ends_s - 0.01)
    assert world.got() == []
    await asyncio.sleep(0.02)
    assert world.got() == [(1, "DEADLINE_EXCEEDED: timeout")]


@pytest.mark.asyncio
async def test_as_many_run_as_there_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_RUNNING", 2)
    world = World()
    world.asks(1, "sleep", b"1")
    world.asks(3, "sleep", b"1")
    world.asks(5, "echo")
    assert world.got() == [(5, "RESOURCE_EXHAUSTED: too many calls at once")]
    await asyncio.sleep(2)
    world.asks(7, "echo")
    await asyncio.sleep(1)
    assert world.got()[1:] == [(1, b"slept"), (3, b"slept"), (7, b"")]


@pytest.mark.asyncio
async def test_what_is_under_way_at_the_end_is_refused() -> None:
    world = World()
    world.asks(1, "sleep", b"100")
    await asyncio.sleep(1)
    assert await world.tasks.close(1) == ()
    assert world.got() == [(1, f"FAILED_PRECONDITION: {server.ENDING}")]
