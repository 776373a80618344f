# SPDX-License-Identifier: Apache-2.0
"""The heads of HTTP/1.1 messages (RFC 9112), parsed strictly and never repaired.

Everything that is lenient in another parser is an error here, because a proxy that reads a head
differently from the server behind it is how requests are smuggled: bare CR or LF, line folding, a
blank before the colon, control characters, a version other than 1.1, a repeated Host or
Content-Length, a length that is not plain digits. A head that passes goes on as values; the bytes
themselves never travel upstream.
"""

import re
from typing import NamedTuple

# The longest honest head has a shell command of 128 KiB (the kernel's MAX_ARG_STRLEN). The kubelet
# stops at 1 MiB (Go's DefaultMaxHeaderBytes).
MAX_HEAD_BYTES = 192 * 1024
MAX_FIELDS = 100
# Members of a list, over all its lines: clients send six at most. Each costs a step, and 180 KB of commas in
# one head blocked the loop for 130 ms.
MAX_LIST_MEMBERS = 100
END_OF_HEAD = b"\r\n\r\n"

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
# RFC 9110, 5.5: field values are visible characters, blanks and obs-text. Possessive quantifiers keep
# the match linear, whatever the input.
_FIELDS = re.compile(rb"(?:\r\n" + _TOKEN + rb":[\t\x20-\x7e\x80-\xff]*+)*+")
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]++) HTTP/1\.1")
_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9])(?: [\t\x20-\x7e\x80-\xff]*+)?")
_INVALID = re.compile(rb"(?<!\r)\n|\r(?=[^\n])|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\A\r\n")
_DIGITS = re.compile(rb"[0-9]{1,15}")
# Two of these would let two readers pick different ones.
_SINGLETONS = (
    b"host", b"content-length", b"transfer-encoding", b"upgrade", b"expect", b"content-type",
    b"content-encoding", b"sec-websocket-key", b"sec-websocket-version", b"sec-websocket-accept",
)  # fmt: skip


# The lists that are split.
_LISTS = (b"connection", b"sec-websocket-protocol", b"x-stream-protocol-version")


class HeadError(Exception):
    """A head that is refused; `status` is the answer to its sender."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


# The three values below are tuples, not dataclasses: one of each is made for every request, and a
# frozen dataclass costs four times as much to build.
class Fields(NamedTuple):
    """Header fields: `lines` in order with lower-case names, `last` for fields that occur once."""

    lines: tuple[tuple[bytes, bytes], ...]
    last: dict[bytes, bytes]

    def get(self, name: bytes) -> bytes | None:
        return self.last.get(name)

    def all(self, name: bytes) -> tuple[bytes, ...]:
        """Every line of a field, in the order of arrival."""
        return tuple(value for key, value in self.lines if key == name)

    def has_token(self, name: bytes, token: bytes) -> bool:
        """Whether a comma-separated list field has the token, compared without case (RFC 9110, 5.6.1)."""
        return any(
            part.strip(b" \t").lower() == token for value in self.all(name) for part in value.split(b",")
        )


class RequestHead(NamedTuple):
    """`block` is the raw bytes of the fields, by which the next head of a connection is compared."""

    method: str
    target: str
    fields: Fields
    content_length: int
    has_transfer_coding: bool
    wants_close: bool = False
    block: bytes = b""

    @property
    def has_head_only(self) -> bool:
        """Whether it has neither body nor upgrade."""
        return not (self.content_length or self.has_transfer_coding or b"upgrade" in self.fields.last)


class ResponseHead(NamedTuple):
    """`content_length` is None where the field is missing; `is_chunked` is the exact coding;
    `is_last`: the connection closes behind this response."""

    status: int
    fields: Fields
    content_length: int | None
    is_chunked: bool
    is_last: bool = False


def find_head(buffer: bytes | bytearray, scanned: int = 0) -> int:
    """Find the end of the first head in `buffer`: its length, or -1 if more bytes are needed.

    `scanned` is the length of the buffer when it was last asked about: a head that comes a byte at
    a time must not be read anew for each, or one tenant could hold the loop. Raises HeadError when
    no further byte can make it right: it is too long, or it already has a character that no head
    may have (a bare LF would otherwise wait for its end until the deadline).
    """
    end = buffer.find(END_OF_HEAD, max(0, scanned - 3), MAX_HEAD_BYTES + len(END_OF_HEAD))
    if end >= 0:
        return end
    if len(buffer) >= MAX_HEAD_BYTES + len(END_OF_HEAD):
        raise HeadError(431, "head-too-large")
    if _INVALID.search(buffer, max(0, scanned - 1)):
        raise HeadError(400, "malformed-head")
    return -1


def parse_request_head(head: bytes, previous: RequestHead | None = None) -> RequestHead:
    """Read a request head without its closing blank line. Raises HeadError(400 | 417 | 431).

    `previous` is the last head of the same connection: a client sends the same fields with every
    request, and what has been read and checked once, byte for byte, need not be read again.
    """
    line_end = head.find(b"\r\n")
    if line_end < 0:
        line_end = len(head)
    match = _REQUEST_LINE.fullmatch(head, 0, line_end)
    if match is None:
        raise HeadError(400, "malformed-request-line")
    method, target = str(match[1], "ascii"), str(match[2], "ascii")
    block = head[line_end:]
    if previous is not None and block == previous.block:
        _, _, fields, length, has_coding, wants_close, block = previous
        return RequestHead(method, target, fields, length, has_coding, wants_close, block)
    fields = _parse_fields(block)
    last = fields.last
    if not last.get(b"host"):
        raise HeadError(400, "no-host")
    if b"expect" in last:
        raise HeadError(417, "expectation")
    length = _content_length(last) or 0
    has_coding = b"transfer-encoding" in last
    return RequestHead(method, target, fields, length, has_coding, _wants_close(fields), block)


def parse_response_head(head: bytes) -> ResponseHead:
    """Read a response head without its closing blank line. Raises HeadError(502)."""
    line_end = head.find(b"\r\n")
    line = head if line_end < 0 else head[:line_end]
    match = _STATUS_LINE.fullmatch(line)
    if match is None:
        raise HeadError(502, "malformed-status-line")
    try:
        fields = _parse_fields(head[len(line) :])
        length = _content_length(fields.last)
    except HeadError as error:
        raise HeadError(502, error.reason) from None
    coding = fields.last.get(b"transfer-encoding")
    if coding is not None and (length is not None or coding.lower() != b"chunked"):
        # RFC 9112, 6.3: both at once is an attack or a broken peer.
        raise HeadError(502, "ambiguous-framing")
    return ResponseHead(int(match[1]), fields, length, coding is not None, _wants_close(fields))


def _wants_close(fields: Fields) -> bool:
    return b"connection" in fields.last and fields.has_token(b"connection", b"close")


def _parse_fields(block: bytes) -> Fields:
    """Read what follows the first line, from its line end on."""
    if _FIELDS.fullmatch(block) is None:
        raise HeadError(400, "malformed-field")
    raw = block[2:].split(b"\r\n") if block else []
    if len(raw) > MAX_FIELDS:
        raise HeadError(431, "too-many-fields")
    lines = []
    for line in raw:
        name, _, value = line.partition(b":")
        lines.append((name.lower(), value.strip(b" \t")))
    last = dict(lines)
    for name in _LISTS:
        if name in last and sum(v.count(b",") for key, v in lines if key == name) >= MAX_LIST_MEMBERS:
            raise HeadError(431, "too-many-list-members")
    if len(last) != len(lines):
        names = [name for name, _ in lines]
        for name in _SINGLETONS:
            if names.count(name) > 1:
                raise HeadError(400, "repeated-field")
    return Fields(tuple(lines), last)


def _content_length(last: dict[bytes, bytes]) -> int | None:
    """RFC 9112, 6.3: digits alone; a list, a sign or an underscore (which int() would take) is refused."""
    value = last.get(b"content-length")
    if value is None:
        return None
    if _DIGITS.fullmatch(value) is None:
        raise HeadError(400, "malformed-length")
    return int(value)
