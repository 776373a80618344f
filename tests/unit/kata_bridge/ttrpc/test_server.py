# SPDX-License-Identifier: Apache-2.0
"""Server calls and how they end, on virtual time."""

import asyncio

import pytest

from daemonkit.protobuf import BadMessage, decode, encode
from daemonkit.tasks import Tasks
from kata_bridge.ttrpc import server
from kata_bridge.ttrpc.frame import REQUEST, Frame
from kata_bridge.ttrpc.messages import Request, Response
from kata_bridge.ttrpc.server import ServerCalls
from kata_bridge.ttrpc.status import Code, TtrpcError


class FakeServerCalls:
    """A server of a few methods, and its sent frames."""

    def __init__(self, *, longest_s: float | None = None) -> None:
        self.sent: list[Frame] = []
        self.tasks = Tasks("test")
        self.serving = ServerCalls(self._answer, self.sent.append, self.tasks, longest_s=longest_s)

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

    def call(self, stream_id: int, method: str, payload: bytes = b"", timeout_s: float = 0) -> None:
        data = encode(Request("trial", method, payload, int(timeout_s * 1e9)))
        frame = Frame(stream_id, REQUEST, data)
        self.serving.receive(frame.header() + frame.data)

    def responses(self) -> list[tuple[int, bytes | str]]:
        return [(frame.stream_id, _read(frame)) for frame in self.sent]


def _read(frame: Frame) -> bytes | str:
    response = decode(Response, frame.data)
    return (
        response.payload
        if response.status is None
        else str(TtrpcError(response.status.code, response.status.message))
    )


@pytest.mark.asyncio
async def test_each_call_gets_its_response_when_done() -> None:
    server_calls = FakeServerCalls()
    server_calls.call(1, "sleep", b"2")
    server_calls.call(3, "echo", b"hello")
    server_calls.call(5, "sleep", b"1")
    await asyncio.sleep(3)
    assert server_calls.responses() == [(3, b"hello"), (5, b"slept"), (1, b"slept")]


@pytest.mark.asyncio
async def test_errors_of_the_handler_are_returned() -> None:
    server_calls = FakeServerCalls()
    server_calls.call(1, "refuse", b"not yet")
    server_calls.call(3, "misread")
    server_calls.call(5, "unknown")
    await asyncio.sleep(1)
    assert server_calls.responses() == [
        (1, "FAILED_PRECONDITION: not yet"),
        (3, "INVALID_ARGUMENT: Pod.name: cut short"),
        (5, "UNIMPLEMENTED: trial has no unknown"),
    ]


@pytest.mark.asyncio
async def test_bug_of_the_handler_is_logged_with_a_response(capsys: pytest.CaptureFixture[str]) -> None:
    server_calls = FakeServerCalls()
    server_calls.call(1, "fail")
    await asyncio.sleep(1)
    assert server_calls.responses() == [(1, "INTERNAL: internal error; see the log of the server")]
    assert "of the server's own" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("requested_s", "longest_s", "ends_s"), [(2, None, 2), (0, 0.5, 0.5), (2, 0.5, 0.5), (0.25, 0.5, 0.25)]
)
@pytest.mark.asyncio
async def test_deadlines(requested_s: float, longest_s: float | None, ends_s: float) -> None:
    server_calls = FakeServerCalls(longest_s=longest_s)
    server_calls.call(1, "sleep", b"100", requested_s)
    await asyncio.sleep(ends_s - 0.01)
    assert server_calls.responses() == []
    await asyncio.sleep(0.02)
    assert server_calls.responses() == [(1, "DEADLINE_EXCEEDED: timeout")]


@pytest.mark.asyncio
async def test_calls_in_flight_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_RUNNING", 2)
    server_calls = FakeServerCalls()
    server_calls.call(1, "sleep", b"1")
    server_calls.call(3, "sleep", b"1")
    server_calls.call(5, "echo")
    assert server_calls.responses() == [(5, "RESOURCE_EXHAUSTED: 2 calls are in flight, which is the limit")]
    await asyncio.sleep(2)
    server_calls.call(7, "echo")
    await asyncio.sleep(1)
    assert server_calls.responses()[1:] == [(1, b"slept"), (3, b"slept"), (7, b"")]


@pytest.mark.asyncio
async def test_calls_in_flight_at_the_end_are_refused() -> None:
    server_calls = FakeServerCalls()
    server_calls.call(1, "sleep", b"100")
    await asyncio.sleep(1)
    assert await server_calls.tasks.close(1) == ()
    assert server_calls.responses() == [(1, f"FAILED_PRECONDITION: {server.ENDING}")]
