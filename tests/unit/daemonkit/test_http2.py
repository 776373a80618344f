# SPDX-License-Identifier: Apache-2.0
"""Frames, however the network cuts them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.http2 import (
    DATA,
    END_STREAM,
    FRAME_HEAD,
    MAX_FRAME_BYTES,
    PING,
    FrameReader,
    Http2Error,
    frame,
)

FRAMES = [(PING, 0, 0, b"12345678"), (DATA, END_STREAM, 3, b""), (DATA, 0, 1, bytes(MAX_FRAME_BYTES))]
SENT = b"".join(frame(*each) for each in FRAMES)


@given(st.lists(st.integers(0, len(SENT)), max_size=8))
def test_frames_are_whole_wherever_they_are_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(SENT)]
    reader = FrameReader()
    found: list[tuple[int, int, int, bytes]] = []
    for start, end in itertools.pairwise(places):
        found += reader.feed(SENT[start:end])
    assert found == FRAMES
    assert not reader.is_incomplete


def test_the_rest_of_a_frame_is_waited_for() -> None:
    reader = FrameReader()
    assert list(reader.feed(SENT[:5])) == []
    assert reader.is_incomplete
    assert list(reader.feed(SENT[5:17])) == FRAMES[:1]
    assert not reader.is_incomplete


def test_a_frame_that_is_too_large_is_refused_by_its_head() -> None:
    """Nothing of it is kept."""
    head = FRAME_HEAD.pack((MAX_FRAME_BYTES + 1) << 8 | DATA, 0, 1)
    with pytest.raises(Http2Error, match="a frame of 16385 bytes"):
        list(FrameReader().feed(head))


def test_the_bit_that_is_reserved_is_no_part_of_a_stream() -> None:
    assert list(FrameReader().feed(frame(PING, 0, 1 << 31 | 7, b""))) == [(PING, 0, 7, b"")]
