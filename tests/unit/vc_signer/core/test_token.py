# SPDX-License-Identifier: Apache-2.0
"""Segments and signatures of tokens, against cryptography."""

import pytest
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from hypothesis import given
from hypothesis import strategies as st

from vc_signer.core import token
from vc_signer.core.token import SignatureError

NUMBERS = st.integers(1, (1 << 256) - 1)


def test_the_header_is_what_the_api_server_takes() -> None:
    assert token.header_segment("k_1") == b"eyJhbGciOiJFUzI1NiIsImtpZCI6ImtfMSIsInR5cCI6IkpXVCJ9"
    assert token.signing_input(b"h", b"c") == b"h.c"


@pytest.mark.parametrize(
    ("data", "text"), [(b"", b""), (b"\xfb\xff", b"-_8"), (b"abc", b"YWJj"), (b"a", b"YQ")]
)
def test_segments_have_no_padding(data: bytes, text: bytes) -> None:
    assert token.encode_segment(data) == text


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (b"e30", True),
        (b"-_8", True),
        (b"", False),
        (b"e30=", False),
        (b"a.b0", False),
        (b"abcde", False),
        (b"ab+/", False),
        (b"ab\n", False),
    ],
)
def test_claims_are_a_segment(text: bytes, is_one: bool) -> None:
    assert token.is_segment(text) is is_one


@given(NUMBERS, NUMBERS)
def test_signatures_are_converted(r: int, s: int) -> None:
    der = encode_dss_signature(r, s)
    raw = token.raw_signature(der)
    assert raw == r.to_bytes(32) + s.to_bytes(32)
    assert token.der_signature(raw) == der
    assert decode_dss_signature(token.der_signature(raw)) == (r, s)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"0",
        b"0\x05\x02\x01\x01",
        b"1\x00",
        b"0\x03\x02\x01\x01",
        b"0\x81\x80" + bytes(128),
        encode_dss_signature(1 << 256, 1),
        encode_dss_signature(1, 1 << 300),
    ],
)
def test_other_signatures_are_errors(bad: bytes) -> None:
    with pytest.raises(SignatureError):
        token.raw_signature(bad)
