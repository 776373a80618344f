# SPDX-License-Identifier: Apache-2.0
"""Header blocks of the examples of RFC 7541, appendix C, and of the library hpack."""

import contextlib

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.http2 import Http2Error
from vc_signer.http2.header_block import TABLE_BYTES, HeaderDecoder

GET = {":method": "GET", ":scheme": "http", ":path": "/", ":authority": "www.example.com"}
SECURE = {
    ":method": "GET",
    ":scheme": "https",
    ":path": "/index.html",
    ":authority": "www.example.com",
    "custom-key": "custom-value",
}
FIELDS = st.lists(st.tuples(st.text("abc-:xyz", min_size=1, max_size=20), st.text(max_size=40)), max_size=8)


@pytest.mark.parametrize(
    "blocks",
    [
        pytest.param(
            [
                "828684410f7777772e6578616d706c652e636f6d",
                "828684be58086e6f2d6361636865",
                "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
            ],
            id="C.3",
        ),
        pytest.param(
            [
                "828684418cf1e3c2e5f23a6ba0ab90f4ff",
                "828684be5886a8eb10649cbf",
                "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
            ],
            id="C.4, in Huffman's code",
        ),
    ],
)
def test_examples_of_the_specification(blocks: list[str]) -> None:
    decoder = HeaderDecoder()
    found = [decoder.decode(bytes.fromhex(each)) for each in blocks]
    assert found == [GET, GET | {"cache-control": "no-cache"}, SECURE]


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("80", "does not exist"),  # an index of 0
        ("be", "does not exist"),  # the first entry of an empty table
        ("7f00", "does not exist"),
        ("ff", "cut short"),
        ("ffffffffff01", "too large"),
        ("00", "cut short"),
        ("00056e616d65", "cut short"),
        ("00046e616d650576616c75", "cut short"),
        ("8820", "within headers"),
        ("3fe21f", "larger than we allow"),  # 4097
        ("0084ffffffff00", "its own end"),
        ("0083fffe", "cut short"),
        ("0082f8ff00", "within a character"),  # padding of eight bits
        ("00810000", "within a character"),  # and of zeros
    ],
)
def test_invalid_headers_are_errors(block: str, why: str) -> None:
    with pytest.raises(Http2Error, match=why):
        HeaderDecoder().decode(bytes.fromhex(block))


def test_headers_have_limits() -> None:
    with pytest.raises(Http2Error, match="too long"):
        HeaderDecoder().decode(b"\x82" * 101)
    decoder = HeaderDecoder()
    decoder.decode(b"\x40\x01a\x7f\x91\x0f" + b"v" * (0x7F + 0x11 + (0x0F << 7)))
    with pytest.raises(Http2Error, match="too long"):
        decoder.decode(b"\xbe" * 20)


def test_the_table_forgets_the_oldest() -> None:
    """An entry counts 32 bytes more than its texts, and one that is too large empties the table."""
    decoder, value = HeaderDecoder(), b"v" * 100
    for name in range(40):
        decoder.decode(b"\x40\x02%02d\x64%s" % (name, value))
    kept = TABLE_BYTES // (2 + 100 + 32)
    assert decoder.decode(bytes((0x80 | 61 + kept,))) == {str(40 - kept): "v" * 100}
    with pytest.raises(Http2Error):
        decoder.decode(bytes((0x80 | 62 + kept,)))
    decoder.decode(b"\x40\x01a\x7f\xa1\x1f" + b"v" * (0x7F + 0x21 + (0x1F << 7)))
    with pytest.raises(Http2Error):
        decoder.decode(b"\xbe")


def test_a_client_may_make_the_table_smaller() -> None:
    decoder = HeaderDecoder()
    decoder.decode(b"\x40\x01a\x01b")
    assert decoder.decode(b"\xbe") == {"a": "b"}
    decoder.decode(b"\x20\x3f\xe1\x1f")
    with pytest.raises(Http2Error):
        decoder.decode(b"\xbe")


@given(st.lists(st.tuples(FIELDS, st.booleans()), max_size=6))
def test_what_hpack_writes_is_read(blocks: list[tuple[list[tuple[str, str]], bool]]) -> None:
    encoder, decoder = hpack.Encoder(), HeaderDecoder()
    for fields, is_coded in blocks:
        block = encoder.encode([(name.encode(), value.encode()) for name, value in fields], huffman=is_coded)
        expected = {name: value.encode().decode("latin-1") for name, value in fields}
        assert decoder.decode(block) == expected


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_any_headers_are_read_or_an_error(blocks: list[bytes]) -> None:
    decoder = HeaderDecoder()
    with contextlib.suppress(Http2Error):
        for each in blocks:
            decoder.decode(each)
