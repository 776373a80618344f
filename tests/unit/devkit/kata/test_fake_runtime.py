# SPDX-License-Identifier: Apache-2.0
"""The fake has the real multiplexer's fault, so a plugin that would hang fails its test."""

import pytest

from devkit.kata.fake_runtime import HeaderBuffer
from kata_bridge.nri.mux import multiplexed
from kata_bridge.ttrpc.frame import RESPONSE, Frame


def in_one(connection: int, frame: Frame) -> bytes:
    """The header and the data of a message in one frame, as one would write it."""
    payload = frame.header() + frame.data
    return connection.to_bytes(4, "big") + len(payload).to_bytes(4, "big") + payload


@pytest.mark.parametrize("step", [1, 7, 4096, 10_000_000])
def test_a_separate_header_is_always_read(step: int) -> None:
    mux = b"".join(
        multiplexed(connection, Frame(stream_id, RESPONSE, bytes(size)))
        for connection, stream_id, size in [(1, 1, 0), (1, 3, 5), (2, 1, 300_000), (1, 5, 4087), (2, 3, 4096)]
    )
    if step == 1:
        mux = mux[:5000]
    buffer = HeaderBuffer()
    assert all(buffer.try_read(mux[at : at + step]) for at in range(0, len(mux), step))


@pytest.mark.parametrize(("size", "is_taken"), [(0, True), (4086, True), (4087, False), (300_000, False)])
def test_one_frame_is_read_up_to_4096_bytes(size: int, is_taken: bool) -> None:
    buffer = HeaderBuffer()
    assert buffer.try_read(multiplexed(1, Frame(1, RESPONSE, bytes(10_000))))
    assert buffer.try_read(in_one(1, Frame(3, RESPONSE, bytes(size)))) is is_taken
