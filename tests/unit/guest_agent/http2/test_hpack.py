# SPDX-License-Identifier: Apache-2.0
"""Header blocks, written by hand (RFC 7541)."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.http2 import Http2Error
from guest_agent.http2.hpack import read_headers


def field(name: str, value: str, first: int = 0) -> bytes:
    return bytes((first, len(name))) + name.encode() + bytes((len(value),)) + value.encode()


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # an index of 0
        b"\xff",  # a number that is cut
        b"\xff\xff\xff\xff\xff\x01",  # and one that is too large
        b"\x3e",  # a table
        b"\0\5name",
        b"\0\4name\5valu",
        b"\0",
        b"\x7f\x3f\1v",  # by a name of a table
    ],
)
def test_invalid_headers_are_errors(block: bytes) -> None:
    with pytest.raises(Http2Error):
        read_headers(block)


def test_literal_headers_are_read() -> None:
    long = "v" * 300
    block = b"\x20\x88\x10\4name\x7f\xad\1" + long.encode() + field("other", "value", 0x40)
    assert read_headers(block) == {":status": "200", "name": long, "other": "value"}


@given(st.binary(max_size=60))
def test_any_headers_are_read_or_an_error(block: bytes) -> None:
    with contextlib.suppress(Http2Error):
        read_headers(block)
