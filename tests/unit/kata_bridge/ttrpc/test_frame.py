# SPDX-License-Identifier: Apache-2.0
"""Frames are cut from a stream the same however it arrives."""

from hypothesis import given
from hypothesis import strategies as st

from kata_bridge.ttrpc.frame import (
    DATA,
    MAX_DATA_BYTES,
    REQUEST,
    RESPONSE,
    Frame,
    FrameReader,
    OversizedFrame,
)

# From the layout of the protocol: an OK with an empty status, and INTERNAL "boom".
OK = bytes.fromhex("000000020000000102000a00")
BOOM = bytes.fromhex("0000000a0000000102000a08080d1204626f6f6d")


def test_known_frames_are_encoded_and_decoded() -> None:
    frames = [Frame(1, RESPONSE, b"\x0a\x00"), Frame(1, RESPONSE, BOOM[10:])]
    assert FrameReader().feed(OK + BOOM) == frames
    assert b"".join(frame.header() + frame.data for frame in frames) == OK + BOOM


def test_frame_with_flags_and_largest_id() -> None:
    frame = Frame((1 << 32) - 1, DATA, b"", 0x05)
    assert frame.header().hex() == "00000000ffffffff0305"
    assert FrameReader().feed(frame.header()) == [frame]


def test_largest_frame_is_read() -> None:
    frame = Frame(3, REQUEST, bytes(MAX_DATA_BYTES))
    reader = FrameReader()
    assert reader.feed(frame.header() + frame.data[:-1]) == []
    assert reader.feed(b"\x00") == [frame]


def test_oversized_frame_is_reported_at_once_and_skipped() -> None:
    size = MAX_DATA_BYTES + 1
    reader = FrameReader()
    assert reader.feed(size.to_bytes(4, "big") + bytes.fromhex("000000050100")) == [
        OversizedFrame(5, REQUEST, size)
    ]
    for _ in range(4):
        assert reader.feed(bytes(1 << 20)) == []
    assert reader.feed(b"\x00" + OK) == FrameReader().feed(OK)


@given(
    st.lists(
        st.builds(
            Frame,
            st.integers(0, (1 << 32) - 1),
            st.integers(0, 255),
            st.binary(max_size=50),
            st.integers(0, 255),
        ),
        max_size=6,
    ),
    st.lists(st.integers(1, 30)),
)
def test_any_split_gives_the_same_frames(frames: list[Frame], cuts: list[int]) -> None:
    stream = b"".join(frame.header() + frame.data for frame in frames)
    reader = FrameReader()
    seen: list[Frame | OversizedFrame] = []
    for cut in [*cuts, len(stream) + 1]:
        seen += reader.feed(stream[:cut])
        stream = stream[cut:]
    assert seen == frames


@given(st.lists(st.binary(max_size=40)))
def test_random_bytes_are_bounded_frames(pieces: list[bytes]) -> None:
    reader = FrameReader()
    decoded_bytes = 0
    for piece in pieces:
        for frame in reader.feed(piece):
            decoded_bytes += 10 + (len(frame.data) if isinstance(frame, Frame) else 0)
    assert decoded_bytes <= sum(map(len, pieces))
