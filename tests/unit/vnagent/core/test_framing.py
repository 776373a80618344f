# SPDX-License-Identifier: Apache-2.0
"""Body framing: tables of RFC 9112, 6 and 7.1, and any body in any pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vnagent.core.framing import (
    Body,
    ChunkedBody,
    Fed,
    FramingError,
    LengthBody,
    UntilCloseBody,
    body_of,
)
from vnagent.core.head import Fields, ResponseHead

NO_FIELDS = Fields((), {})


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (ResponseHead(200, NO_FIELDS, None, True), ChunkedBody),
        (ResponseHead(200, NO_FIELDS, 0, False), LengthBody),
        (ResponseHead(200, NO_FIELDS, 7, False), LengthBody),
        (ResponseHead(200, NO_FIELDS, None, False), UntilCloseBody),
    ],
)
def test_the_reader_for_each_head(head: ResponseHead, kind: type[Body]) -> None:
    assert type(body_of(head)) is kind


def feed(body: Body, *pieces: bytes) -> tuple[bytes, Fed]:
    """The taken bytes of all pieces, and the last result."""
    taken, fed = b"", Fed(0, False, 0)
    for piece in pieces:
        assert not fed.is_end, "fed behind the end"
        fed = body.feed(memoryview(piece))
        taken += piece[: fed.take]
    return taken, fed


@pytest.mark.parametrize(
    ("length", "pieces", "taken", "last"),
    [
        (0, [b""], b"", Fed(0, True, 0)),
        (0, [b"x"], b"", Fed(0, True, 1)),
        (3, [b"ab"], b"ab", Fed(2, False, 0)),
        (3, [b"abc"], b"abc", Fed(3, True, 0)),
        (3, [b"a", b"bc"], b"abc", Fed(2, True, 0)),
        (3, [b"ab", b"cHTTP/1.1"], b"abc", Fed(1, True, 8)),
    ],
)
def test_a_body_of_known_length(length: int, pieces: list[bytes], taken: bytes, last: Fed) -> None:
    assert feed(LengthBody(length), *pieces) == (taken, last)


def test_bodies_that_may_end_with_the_connection() -> None:
    empty, half, chunked = LengthBody(0), LengthBody(2), ChunkedBody()
    half.feed(memoryview(b"a"))
    chunked.feed(memoryview(b"1\r\na\r\n"))
    ends = [body.end_of_stream() for body in (empty, half, chunked, UntilCloseBody())]
    assert ends == [True, False, False, True]
    half.feed(memoryview(b"b"))
    assert half.end_of_stream()


def test_a_body_until_close() -> None:
    assert feed(UntilCloseBody(), b"abc", b"d") == (b"abcd", Fed(1, False, 0))


@pytest.mark.parametrize(
    ("pieces", "taken", "last"),
    [
        ([b"0\r\n\r\n"], b"0\r\n", Fed(3, True, 0)),
        ([b"3\r\nabc\r\n0\r\n\r\n"], b"3\r\nabc\r\n0\r\n", Fed(11, True, 0)),
        ([b"3\r\nabc\r\n0\r\n\r\nHTTP/1.1 200 OK"], b"3\r\nabc\r\n0\r\n", Fed(11, True, 15)),
        ([b"a\r\n0123456789\r\n", b"0\r\n\r\n"], b"a\r\n0123456789\r\n0\r\n", Fed(3, True, 0)),
        ([b"6\r\n01234", b"5\r", b"\n0", b"\r", b"\n\r", b"\n"], b"6\r\n012345\r\n0\r\n", Fed(0, True, 0)),
        ([b"0000000", b"3\r\nabc\r\n"], b"00000003\r\nabc\r\n", Fed(8, False, 0)),
        ([b"00000000\r\n\r\n"], b"00000000\r\n", Fed(10, True, 0)),
        # Trailers are dropped, whole or cut, and what follows them is surplus.
        ([b"0\r\nX-Sum: 1\r\n\r\n"], b"0\r\n", Fed(3, True, 0)),
        ([b"0\r\nX-Su", b"m: 1\r\nY: 2\r\n", b"\r\nrest"], b"0\r\n", Fed(0, True, 4)),
        ([b"0\r\nX: 1\r\n\r", b"\n"], b"0\r\n", Fed(0, True, 0)),
    ],
)  # fmt: skip
def test_a_chunked_body(pieces: list[bytes], taken: bytes, last: Fed) -> None:
    assert feed(ChunkedBody(), *pieces) == (taken, last)


@pytest.mark.parametrize(
    "pieces",
    [
        [b"\r\n"],
        [b"g\r\n"],
        [b" 1\r\na\r\n"],
        [b"1 \r\na\r\n"],
        [b"+1\r\na\r\n"],
        [b"0x1\r\na\r\n"],
        [b"1;ext=1\r\na\r\n"],
        [b"1", b";ext\r\na\r\n"],
        [b"1\na\r\n"],
        [b"1\r", b"Xa\r\n"],
        [b"1\ra\r\n"],
        [b"000000001\r\na\r\n"],
        [b"123456789"],
        [b"3\r\nabcd\r\n"],
        [b"3\r\nabc\n"],
        [b"3\r\nabc\r", b"0\r\n"],
        [b"-1\r\n"],
        [b"0\r\n" + b"X: 1\r\n" * 700],
        [b"0\r\n", *[b"X: 1\r\n"] * 700],
    ],
)
def test_malformed_chunked_bodies(pieces: list[bytes]) -> None:
    with pytest.raises(FramingError):
        feed(ChunkedBody(), *pieces)


@pytest.mark.parametrize("size", [1, 7, 4096, 5000])
@pytest.mark.parametrize("excess", [0, 1])
def test_the_limit_of_a_trailer_is_the_same_in_any_pieces(size: int, excess: int) -> None:
    """Divided, a trailer of up to twice the limit once passed (found by `make fuzz TARGETS=chunked`)."""
    trailer = b"X: " + b"1" * (4096 - 7 + excess) + b"\r\n\r\n"
    body = ChunkedBody()
    pieces = [b"0\r\n", *(trailer[at : at + size] for at in range(0, len(trailer), size))]
    if excess:
        with pytest.raises(FramingError):
            feed(body, *pieces)
    else:
        assert feed(body, *pieces)[1].is_end


_CHUNKS = st.lists(st.binary(min_size=1, max_size=40), max_size=6)
_TRAILERS = st.lists(st.sampled_from([b"X: 1\r\n", b"Y:\r\n", b"Z: \xe9\r\n"]), max_size=3).map(b"".join)


@given(_CHUNKS, _TRAILERS, st.binary(max_size=20), st.lists(st.integers(1, 9), max_size=60), st.booleans())
def test_any_chunked_body_in_any_pieces(
    chunks: list[bytes], trailers: bytes, surplus: bytes, sizes: list[int], is_padded: bool
) -> None:
    form = b"%08X\r\n" if is_padded else b"%x\r\n"
    to_last_size = b"".join(form % len(chunk) + chunk + b"\r\n" for chunk in chunks) + form % 0
    whole = to_last_size + trailers + b"\r\n"
    data = whole + surplus
    body, taken, at = ChunkedBody(), b"", 0
    for size in [*sizes, len(data)]:
        piece = data[at : at + size]
        at += len(piece)
        fed = body.feed(memoryview(piece))
        taken += piece[: fed.take]
        assert fed.is_end == (at >= len(whole))
        if fed.is_end:
            assert fed.surplus == at - len(whole)
            break
        assert fed.surplus == 0
        assert not body.end_of_stream()
    # The chunks as the sender cut them. The relay writes the blank line.
    assert taken == to_last_size


@given(st.lists(st.binary(max_size=12) | st.sampled_from([b"1\r\na\r\n", b"0\r\n", b"\r\n"]), max_size=12))
def test_arbitrary_bytes_are_counted_or_refused(pieces: list[bytes]) -> None:
    body = ChunkedBody()
    for piece in pieces:
        try:
            fed = body.feed(memoryview(piece))
        except FramingError:
            return
        assert 0 <= fed.take + fed.surplus <= len(piece)
        if fed.is_end:
            return


@given(st.integers(0, 50), st.lists(st.binary(max_size=20), max_size=10))
def test_any_body_of_known_length_in_any_pieces(length: int, pieces: list[bytes]) -> None:
    body, taken, at = LengthBody(length), b"", 0
    for piece in pieces:
        fed = body.feed(memoryview(piece))
        at += len(piece)
        taken += piece[: fed.take]
        assert fed == Fed(fed.take, at >= length, max(0, at - length))
        if fed.is_end:
            break
    assert taken == b"".join(pieces)[:length]
