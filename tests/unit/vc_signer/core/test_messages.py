# SPDX-License-Identifier: Apache-2.0
"""The signer's messages as bytes; tests/functional has them from the protobuf library."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vc_signer.core import messages
from vc_signer.core.messages import MessageError


@pytest.mark.parametrize(
    ("request_bytes", "claims"),
    [
        (b"", b""),
        (b"\x0a\x03abc", b"abc"),
        (b"\x0a\x03abc\x0a\x01d", b"d"),  # the last one counts
        (b"\x08\x96\x01\x11" + bytes(8) + b"\x1d" + bytes(4) + b"\x12\x01x\x0a\x01c", b"c"),  # unknown fields
        (b"\x0a\x80\x01" + b"y" * 128, b"y" * 128),
    ],
)
def test_claims_are_read(request_bytes: bytes, claims: bytes) -> None:
    assert messages.claims_of(request_bytes) == claims


@pytest.mark.parametrize(
    "bad", [b"\x0a", b"\x0a\x02a", b"\x0b", b"\x09\0", b"\xff" * 11, b"\x0a" + b"\xff" * 10]
)
def test_other_requests_are_errors(bad: bytes) -> None:
    with pytest.raises(MessageError):
        messages.claims_of(bad)


@given(st.binary(max_size=60))
def test_any_request_is_read_or_an_error(data: bytes) -> None:
    with contextlib.suppress(MessageError):
        assert len(messages.claims_of(data)) <= len(data)


def test_responses_are_written() -> None:
    assert messages.sign_response(b"h", b"si") == b"\x0a\x01h\x12\x02si"
    assert messages.metadata_response(86_400) == b"\x08\x80\xa3\x05"
    keys = messages.fetch_keys_response([("k1", b"D"), ("k2", b"E")], 300 * 10**9 + 7, 5)
    assert keys == (
        b"\x0a\x07\x0a\x02k1\x12\x01D"
        b"\x0a\x07\x0a\x02k2\x12\x01E"
        b"\x12\x05\x08\xac\x02\x10\x07"  # 300 s and 7 ns
        b"\x18\x05"
    )
