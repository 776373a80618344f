# SPDX-License-Identifier: Apache-2.0
"""Both ends of a connection, by the bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.protobuf import decode, encode
from kata_bridge.ttrpc.connection import (
    CallResult,
    ClientConnection,
    IncomingCall,
    ServerConnection,
    refusal,
    response_frame,
)
from kata_bridge.ttrpc.frame import (
    DATA,
    MAX_DATA_BYTES,
    REMOTE_CLOSED,
    REMOTE_OPEN,
    REQUEST,
    RESPONSE,
    Frame,
)
from kata_bridge.ttrpc.messages import KeyValue, Request, Response, RpcStatus
from kata_bridge.ttrpc.status import Code, TtrpcError

# SetIPTables, IPv4, "*nat\nCOMMIT\n", within 5 s, stream 1.
SET_IPTABLES = bytes.fromhex(
    "000000360000000101000a11677270632e4167656e7453657276696365120b53657449505461626c6573"
    "1a0e120c2a6e61740a434f4d4d49540a2080e497d012"
)
PAYLOAD = bytes.fromhex("120c2a6e61740a434f4d4d49540a")
OK = bytes.fromhex("000000020000000102000a00")
BOOM = bytes.fromhex("0000000a0000000102000a08080d1204626f6f6d")


def wire(frame: Frame) -> bytes:
    return frame.header() + frame.data


def outcomes(results: list[CallResult]) -> list[tuple[int, bytes | str]]:
    return [
        (each.stream_id, each.outcome if isinstance(each.outcome, bytes) else str(each.outcome))
        for each in results
    ]


def test_bytes_of_a_call() -> None:
    client = ClientConnection()
    assert wire(client.call("grpc.AgentService", "SetIPTables", PAYLOAD, 5)) == SET_IPTABLES
    assert outcomes(client.receive(OK)) == [(1, b"")]
    assert ServerConnection().receive(SET_IPTABLES) == [
        IncomingCall(1, "grpc.AgentService", "SetIPTables", PAYLOAD, 5.0)
    ]


def test_bytes_of_a_refusal() -> None:
    client = ClientConnection()
    client.call("s", "m", b"", 1)
    assert outcomes(client.receive(BOOM)) == [(1, "INTERNAL: boom")]
    assert wire(refusal(1, Code.INTERNAL, "boom")) == BOOM


def test_metadata_is_sent_with_a_call() -> None:
    frame = ClientConnection().call("s", "m", b"", 1, (KeyValue("containerd-namespace-ttrpc", "k8s.io"),))
    assert decode(Request, frame.data).metadata == (KeyValue("containerd-namespace-ttrpc", "k8s.io"),)


def test_tiny_deadline_stays_a_deadline() -> None:
    frame = ClientConnection().call("s", "m", b"", 1e-12)
    assert decode(Request, frame.data).timeout_nano == 1


def test_ids_are_odd_and_responses_come_in_any_order() -> None:
    client = ClientConnection()
    assert [client.call("s", "m", b"", 1).stream_id for _ in range(3)] == [1, 3, 5]
    stream = (
        wire(response_frame(5, b"five")) + wire(response_frame(1, b"one")) + wire(response_frame(3, b"three"))
    )
    assert outcomes(client.receive(stream)) == [(5, b"five"), (1, b"one"), (3, b"three")]


def test_late_unknown_and_repeated_responses_are_dropped() -> None:
    client = ClientConnection()
    client.forget(client.call("s", "m", b"", 1).stream_id)
    client.call("s", "m", b"", 1)
    stream = b"".join(wire(response_frame(stream_id, b"x")) for stream_id in (1, 2, 7, 3, 3))
    assert outcomes(client.receive(stream)) == [(3, b"x")]


def test_other_frames_of_a_stream_are_not_its_response() -> None:
    client = ClientConnection()
    client.call("s", "m", b"", 1)
    stream = wire(Frame(1, DATA, b"x")) + wire(Frame(1, REQUEST, b"x")) + wire(Frame(1, 9, b"x"))
    assert client.receive(stream) == []
    # Flags of a response are ignored.
    assert outcomes(client.receive(wire(Frame(1, RESPONSE, b"", REMOTE_CLOSED)))) == [(1, b"")]


@pytest.mark.parametrize(
    ("response", "outcome"),
    [
        (Response(), b""),
        (Response(payload=b"p"), b"p"),
        (Response(RpcStatus(), b"p"), b"p"),
        (Response(RpcStatus(Code.OK, "fine"), b"p"), b"p"),
        (Response(RpcStatus(Code(99), "odd"), b"p"), "UNKNOWN_99: odd"),
        (Response(RpcStatus(Code.UNIMPLEMENTED, "SetIPTables method")), "UNIMPLEMENTED: SetIPTables method"),
    ],
)
def test_success_and_error_statuses(response: Response, outcome: bytes | str) -> None:
    client = ClientConnection()
    client.call("s", "m", b"", 1)
    assert outcomes(client.receive(wire(Frame(1, RESPONSE, encode(response))))) == [(1, outcome)]


def test_invalid_response_fails_its_call() -> None:
    client = ClientConnection()
    client.call("s", "m", b"", 1)
    client.call("s", "m", b"", 1)
    size = MAX_DATA_BYTES + 1
    assert outcomes(client.receive(size.to_bytes(4, "big") + bytes.fromhex("000000030200"))) == [
        (3, f"RESOURCE_EXHAUSTED: the response has {size} bytes")
    ]
    assert client.receive(bytes(size)) == []
    assert outcomes(client.receive(wire(Frame(1, RESPONSE, b"\x0a\x05")))) == [
        (1, "INTERNAL: the response cannot be read: Response.status: cut short")
    ]


def test_oversized_call_is_not_sent() -> None:
    client = ClientConnection()
    with pytest.raises(TtrpcError) as raised:
        client.call("s", "m", bytes(MAX_DATA_BYTES), 1)
    assert raised.value.code is Code.RESOURCE_EXHAUSTED
    assert client.call("s", "m", b"", 1).stream_id == 1


def test_stream_ids_can_run_out() -> None:
    client = ClientConnection()
    client._next_id = (1 << 32) - 1  # noqa: SLF001 - two thousand million calls take too long
    client.call("s", "m", b"", 1)
    with pytest.raises(TtrpcError, match="no more stream ids"):
        client.call("s", "m", b"", 1)


def request(stream_id: int, data: bytes | None = None, flags: int = 0) -> bytes:
    return wire(Frame(stream_id, REQUEST, encode(Request("s", "m", b"p")) if data is None else data, flags))


def refused(frame: IncomingCall | Frame) -> tuple[int, Code, str]:
    assert isinstance(frame, Frame)
    status = decode(Response, frame.data).status
    assert status is not None
    return (frame.stream_id, status.code, status.message)


def test_server_demands_rising_ids() -> None:
    first, second, even, lower, same, higher = ServerConnection().receive(
        request(1) + request(5) + request(6) + request(3) + request(5) + request(7)
    )
    assert [first, second, higher] == [IncomingCall(id_, "s", "m", b"p", None) for id_ in (1, 5, 7)]
    assert refused(even) == (6, Code.INVALID_ARGUMENT, "a client's stream ids must be odd")
    assert refused(lower) == (3, Code.INVALID_ARGUMENT, "stream ids must rise")
    assert refused(same) == (5, Code.INVALID_ARGUMENT, "stream ids must rise")


def test_server_refuses_invalid_calls() -> None:
    server = ServerConnection()
    (damaged,) = server.receive(request(1, b"\x0a\x05"))
    assert refused(damaged) == (
        1,
        Code.INVALID_ARGUMENT,
        "the call cannot be read: Request.service: cut short",
    )
    (stream,) = server.receive(request(3, flags=REMOTE_OPEN))
    assert refused(stream) == (3, Code.UNIMPLEMENTED, "streaming calls are not supported")
    size = MAX_DATA_BYTES + 1
    (large,) = server.receive(size.to_bytes(4, "big") + bytes.fromhex("000000050100"))
    assert refused(large) == (5, Code.RESOURCE_EXHAUSTED, f"the call has {size} bytes")
    # The connection lives on. REMOTE_CLOSED is legal: a unary call is complete.
    assert server.receive(bytes(size) + request(7, flags=REMOTE_CLOSED)) == [
        IncomingCall(7, "s", "m", b"p", None)
    ]


def test_server_ignores_other_frames() -> None:
    stream = wire(Frame(1, DATA, b"x")) + wire(Frame(3, RESPONSE, b"")) + wire(Frame(5, 77, b""))
    assert ServerConnection().receive(stream) == []


@pytest.mark.parametrize(("nanoseconds", "seconds"), [(0, None), (-5, None), (1_500_000_000, 1.5)])
def test_deadline_of_a_call(nanoseconds: int, seconds: float | None) -> None:
    (call,) = ServerConnection().receive(request(1, encode(Request("s", "m", timeout_nano=nanoseconds))))
    assert isinstance(call, IncomingCall)
    assert call.timeout_s == seconds


def test_oversized_response_and_message() -> None:
    assert refused(response_frame(1, bytes(MAX_DATA_BYTES)))[:2] == (1, Code.RESOURCE_EXHAUSTED)
    assert len(refusal(1, Code.INTERNAL, "x" * MAX_DATA_BYTES * 2).data) < 1 << 20


@given(st.lists(st.binary(max_size=40)))
def test_random_bytes_break_neither_end(pieces: list[bytes]) -> None:
    client, server = ClientConnection(), ServerConnection()
    client.call("s", "m", b"", 1)
    for piece in pieces:
        client.receive(piece)
        server.receive(piece)
