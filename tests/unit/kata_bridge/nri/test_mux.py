# SPDX-License-Identifier: Apache-2.0
"""The multiplexer's frames, by the bytes and cut anywhere."""

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.protobuf import encode
from kata_bridge.nri.messages import RUNTIME, RegisterPluginRequest
from kata_bridge.nri.mux import MAX_PAYLOAD_BYTES, BadTrunkError, Demultiplexer, multiplexed
from kata_bridge.ttrpc.frame import REQUEST, RESPONSE, Frame
from kata_bridge.ttrpc.messages import Request

# RegisterPlugin of plugin "vpc", index "50", as the real runtime took it.
REGISTER = bytes.fromhex(
    "000000020000000a00000039000000010100"
    "00000002000000390a1c6e72692e706b672e6170692e7631616c706861312e52756e74696d65"
    "120e5265676973746572506c7567696e1a090a0376706312023530"
)


def test_a_registration_is_encoded_byte_for_byte() -> None:
    request = Request(RUNTIME, "RegisterPlugin", encode(RegisterPluginRequest("vpc", "50")))
    assert multiplexed(2, Frame(1, REQUEST, encode(request))) == REGISTER


def test_a_frame_without_data_is_only_its_header() -> None:
    assert multiplexed(1, Frame(3, RESPONSE, b"")).hex() == "000000010000000a" + "00000000000000030200"


def test_demultiplexed_streams_are_whole() -> None:
    pieces = Demultiplexer().feed(REGISTER)
    assert [connection for connection, _ in pieces] == [2, 2]
    assert [len(piece) for _, piece in pieces] == [10, 57]


def joined(pieces: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    return [
        (connection, b"".join(piece for _, piece in group))
        for connection, group in groupby(pieces, key=lambda piece: piece[0])
    ]


@given(
    st.lists(st.tuples(st.integers(1, 4), st.binary(min_size=1, max_size=30)), max_size=6),
    st.lists(st.integers(1, 20)),
)
def test_any_segmentation_gives_the_same_streams(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    trunk = b"".join(c.to_bytes(4, "big") + len(p).to_bytes(4, "big") + p for c, p in frames)
    demultiplexer = Demultiplexer()
    seen: list[tuple[int, bytes]] = []
    for cut in [*cuts, len(trunk) + 1]:
        seen += demultiplexer.feed(trunk[:cut])
        trunk = trunk[cut:]
    assert joined(seen) == joined(frames)


def test_an_invalid_frame_ends_the_trunk() -> None:
    whole = (1).to_bytes(4, "big") + MAX_PAYLOAD_BYTES.to_bytes(4, "big")
    assert Demultiplexer().feed(whole) == []
    with pytest.raises(BadTrunkError, match="connection 1, 4194315 bytes"):
        Demultiplexer().feed((1).to_bytes(4, "big") + (MAX_PAYLOAD_BYTES + 1).to_bytes(4, "big"))
    with pytest.raises(BadTrunkError, match="connection 0"):
        Demultiplexer().feed(bytes(8))


@given(st.lists(st.binary(max_size=40)))
def test_random_bytes_are_streams_or_a_trunk_error(pieces: list[bytes]) -> None:
    demultiplexer = Demultiplexer()
    payload_bytes = 0
    for piece in pieces:
        try:
            payload_bytes += sum(len(part) for _, part in demultiplexer.feed(piece))
        except BadTrunkError:
            break
    assert payload_bytes <= sum(map(len, pieces))
