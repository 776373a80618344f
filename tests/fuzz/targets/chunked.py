# SPDX-License-Identifier: Apache-2.0
"""Chunked bodies from a kubelet: fed in any pieces they give the same bytes, and h11 reads the same data."""

import h11

from tests.fuzz.invariants import same_however_divided
from tests.fuzz.target import FuzzTarget
from vnagent.core.framing import ChunkedBody, FramingError, Unchunker

_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
# Counted by the pieces that the reader may keep: a size line or a trailer.
_END = b"0\r\n"


def _read(pieces: list[bytes]) -> tuple[bytes, str, bytes]:
    """The bytes that are passed on until the end or the error, how it ends, and what follows the body."""
    body = ChunkedBody()
    passed = bytearray()
    for number, piece in enumerate(pieces):
        try:
            take, is_end, surplus = body.feed(memoryview(piece))
        except FramingError:
            # How much of the last piece had passed depends on the piece.
            return b"", "refused", b""
        assert 0 <= take <= len(piece)
        passed += piece[:take]
        if is_end:
            assert 0 <= surplus <= len(piece) - take
            behind = piece[len(piece) - surplus :] + b"".join(pieces[number + 1 :])
            return bytes(passed), "ended", behind
    return bytes(passed), "open", b""


def check(data: bytes) -> None:
    passed, result, behind = same_however_divided(data, _read)
    if result == "refused":
        return
    assert data.startswith(passed)
    found = same_however_divided(passed, _data)
    client = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
    client.send(h11.EndOfMessage())
    # The trailer of a peer is not passed on: the relay ends the body itself.
    sent = passed + (b"\r\n" + behind if result == "ended" else b"")
    client.receive_data(_HEAD + sent)
    assert isinstance(client.next_event(), h11.Response)
    theirs = bytearray()
    while isinstance(event := client.next_event(), h11.Data):
        theirs += event.data
    assert bytes(theirs) == found
    if result == "ended":
        assert isinstance(event, h11.EndOfMessage)
        assert client.trailing_data[0] == behind
    else:
        assert event is h11.NEED_DATA


def _data(pieces: list[bytes]) -> bytes:
    reader = Unchunker()
    return b"".join(bytes(part) for piece in pieces for part in reader.feed(memoryview(piece)))


TARGET = FuzzTarget(
    check,
    seeds=(
        b"5\r\nhello\r\n0\r\n\r\n",
        b"1\r\na\r\n0010\r\n0123456789abcdef\r\n0\r\nTrailer: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"fF\r\n" + bytes(255) + b"\r\n3\r\n\r\n\r\r\n0000\r\n\r\n",
        b"7fffffff\r\nabc",
    ),
    tokens=(
        *(
            b"\r\n",
            b"\r",
            b"\n",
            b"0\r\n\r\n",
            b"1\r\n",
            b"A\r\n",
            b"00000000\r\n",
            b"000000000\r\n",
            b"ffffffff\r\n",
        ),
        *(b";x=y", b"0x", b"+1", b" ", b"\t", b"\x00", b"a: b\r\n", b"\r\n\r\n", b"1_0"),
    ),
)
