# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 as a client of an API server needs it: one request out, one reply in. Pure (RFC 9112).

Strict where leniency would let two readers see two replies: a reply with two lengths, or one that no
grammar has, is refused. Nothing is decoded but chunks; there are no trailers, no redirects, no cookies.

What brings no body is bounded in number, as bytes are: each interim reply, field and chunk takes its time,
however short it is.
"""

import re
from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec

MAX_HEAD_BYTES = 64 << 10
# Servers send a dozen. Names that are alike are joined, so that their time would grow as a square.
MAX_FIELDS = 256
# As Go's client (net/http: max1xxResponses). API servers send none, as no request of ours expects one.
MAX_INTERIM_REPLIES = 5
# A chunk's size line: the size, and unused extensions.
_MAX_LINE_BYTES = 4 << 10
# Each write of an API server is a chunk: an event, or 2 KB and more of a list. What a proxy on the way makes
# of it is larger still. A chunk takes as long as 10 KB of body.
FREE_CHUNKS = 4_096
MIN_CHUNK_BYTES = 32
_FEW_CHUNKS = 16
# Of size lines beyond their sizes: as much as there is body.
_FREE_LINE_BYTES = 64 << 10

_TARGET = re.compile(r"[!-~]++")
_STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [\t -~\x80-\xff]*)?")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*+([\t -~\x80-\xff]*+)")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")


class HttpError(ValueError):
    """Bytes that are not an HTTP/1.1 reply."""


class CutReplyError(HttpError):
    """The connection ended within the reply."""


class Head(msgspec.Struct, frozen=True):
    """Status and header fields of a reply; names in lower case, repeated ones joined by commas."""

    status: int
    fields: Mapping[str, str]


def field_lines(fields: Mapping[str, str]) -> str:
    """Header fields as they stand in a request: of many requests they are the same."""
    return "".join(f"{name}: {value}\r\n" for name, value in fields.items())


def request(method: str, target: str, params: Mapping[str, str], fields: str, body: bytes | None) -> bytes:
    """The bytes of a request, with the lines of `field_lines`. Check untrusted values first: lines are not
    quoted.

    Raises ValueError for a target that would end its line: what follows would be a request of its own.
    """
    if not _TARGET.fullmatch(target):
        raise ValueError("the target of a request is not printable ASCII without spaces")
    query = f"?{_query(params)}" if params else ""
    head = f"{method} {target}{query} HTTP/1.1\r\n{fields}"
    if body is None:
        return f"{head}\r\n".encode("ascii")
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode("ascii") + body


def _query(params: Mapping[str, str]) -> str:
    """As `urlencode`, which takes long for names and values that have nothing to quote, as most have not."""
    return "&".join(
        f"{name}={value}" if (text := name + value).isalnum() and text.isascii() else urlencode({name: value})
        for name, value in params.items()
    )


class Reply:
    """Takes the bytes of one reply, however they are divided.

    `head` is None until it is complete. `is_complete` once the last byte of the body was fed; then
    `is_reusable` is whether another request may follow on the connection.
    """

    def __init__(self) -> None:
        self.head: Head | None = None
        self.is_complete = False
        self.is_reusable = False
        self._pending = bytearray()
        self._left: int | None = None  # of the body or the chunk; None: until the end
        self._is_chunked = False
        self._is_last = False
        self._is_at_end_of_chunk = False
        self._searched = 0  # of `_pending`, no end of a head is in there
        self._interim_replies = 0
        self._chunk_count = 0
        self._chunked_bytes = 0
        self._line_bytes = 0
        self.has_few_chunks = True
        """Whether what was fed last took little time."""

    def feed(self, data: bytes) -> list[bytes]:
        """The part of the body in `data`, if there is one. Raises HttpError.

        `data` is to be of some KiB: what it takes grows with its bytes.
        """
        if self.is_complete:
            if data:
                raise HttpError("bytes after the reply")
            return []
        if self.head is None:
            self._pending += data
            data = self._take_head()
            if self.head is None:
                return []
        if self._is_chunked:
            return self._chunks(data)
        return self._plain(data)

    def end(self) -> None:
        """The connection ended. Raises CutReplyError when the reply is not whole."""
        if not self.is_complete:
            if self.head is None or self._is_chunked or self._left is not None:
                raise CutReplyError("the connection ended within the reply")
            self.is_complete = True

    # ---- head

    def _take_head(self) -> bytes:
        """Read the head if it is there; the bytes after it. Informational replies are skipped."""
        while self.head is None:
            end = self._pending.find(b"\r\n\r\n", self._searched)
            # The limit is the same for a head that comes in one piece.
            if (len(self._pending) if end < 0 else end + 4) > MAX_HEAD_BYTES:
                raise HttpError("the head of the reply is too large")
            if end < 0:
                self._searched = max(0, len(self._pending) - 3)
                return b""
            lines = self._pending[:end].decode("latin-1").split("\r\n")
            del self._pending[: end + 4]
            self._searched = 0
            self._read_head(lines)
        rest, self._pending = bytes(self._pending), bytearray()
        return rest

    def _read_head(self, lines: list[str]) -> None:
        status_line = _STATUS_LINE.fullmatch(lines[0])
        if status_line is None:
            raise HttpError("no HTTP/1.1 reply")
        if len(lines) > MAX_FIELDS:
            raise HttpError(f"a head of more than {MAX_FIELDS} lines")
        fields: dict[str, str] = {}
        for line in lines[1:]:
            field = _FIELD.fullmatch(line)
            if field is None:
                raise HttpError("a malformed header field")
            name, value = field[1].lower(), field[2].strip(" \t")
            fields[name] = f"{fields[name]}, {value}" if name in fields else value
        status = int(status_line[2])
        if status == 101:
            raise HttpError("another protocol than was asked for")
        if status < 200:
            self._interim_replies += 1
            if self._interim_replies > MAX_INTERIM_REPLIES:
                raise HttpError(f"more than {MAX_INTERIM_REPLIES} interim replies")
            return
        self._frame(status, fields, is_old=status_line[1] == "0")
        self.head = Head(status, fields)

    def _frame(self, status: int, fields: Mapping[str, str], *, is_old: bool) -> None:
        """How the body ends (RFC 9112, 6.3)."""
        options = fields.get("connection", "").lower().split(",")
        self.is_reusable = not is_old and "close" not in map(str.strip, options)
        length, coding = fields.get("content-length"), fields.get("transfer-encoding")
        if coding is not None and (length is not None or coding.lower() != "chunked" or is_old):
            raise HttpError("a transfer coding that is not plainly chunked")
        # Also where it does not end the body: a reply with a malformed one is refused whole (RFC 9112, 6.3).
        if length is not None and not (length.isascii() and length.isdigit() and len(length) <= 15):
            raise HttpError("a malformed Content-Length")
        if status in (204, 304):
            self._left, self.is_complete = 0, True
        elif coding is not None:
            self._is_chunked, self._left = True, 0
        elif length is not None:
            self._left = int(length)
            self.is_complete = self._left == 0
        else:
            self.is_reusable = False

    # ---- body

    def _plain(self, data: bytes) -> list[bytes]:
        if self._left is not None:
            if len(data) > self._left:
                raise HttpError("bytes after the reply")
            self._left -= len(data)
            self.is_complete = self._left == 0
        return [data] if data else []

    def _chunks(self, data: bytes) -> list[bytes]:
        found: list[bytes] = []
        at = 0
        while at < len(data):
            if self._left:
                part = data[at : at + self._left]
                at += len(part)
                self._left -= len(part)
                self._chunked_bytes += len(part)
                found.append(part)
                if not self._left:
                    if data.startswith(b"\r\n", at):  # most chunks come as a whole
                        at += 2
                    else:
                        self._is_at_end_of_chunk = True
                continue
            line, at = self._line(data, at)
            if line is None:
                break
            if self._is_at_end_of_chunk:
                if line:
                    raise HttpError("a chunk that is longer than its size line")
                self._is_at_end_of_chunk = False
                if self._is_last:
                    self.is_complete = True
                    if at < len(data):
                        raise HttpError("bytes after the reply")
                    break
                continue
            size = _SIZE.fullmatch(line)
            if size is None:
                raise HttpError("a malformed chunk")
            self._left = int(size[1], 16)
            self._count_chunk(len(line))
            # The last chunk is followed by the empty line that ends the (absent) trailers.
            self._is_last = self._is_at_end_of_chunk = not self._left
        self.has_few_chunks = len(found) <= _FEW_CHUNKS
        # As one: the caller has work to do for each part.
        return found if len(found) < 2 else [b"".join(found)]

    def _count_chunk(self, line_bytes: int) -> None:
        self._chunk_count += 1
        if self._chunk_count > FREE_CHUNKS + self._chunked_bytes // MIN_CHUNK_BYTES:
            raise HttpError(f"{self._chunk_count} chunks for {self._chunked_bytes} bytes")
        self._line_bytes += line_bytes
        if self._line_bytes > _FREE_LINE_BYTES + self._chunked_bytes:
            raise HttpError("chunk extensions of more bytes than the chunks")

    def _line(self, data: bytes, at: int) -> tuple[bytes | None, int]:
        """The line that begins in `_pending` and goes on at `at`; None until it is whole."""
        end = data.find(b"\n", at)
        if end < 0:
            self._pending += data[at:]
            if len(self._pending) > _MAX_LINE_BYTES:
                raise HttpError("a chunk's size without an end")
            return None, len(data)
        line = data[at : end + 1]
        if self._pending:
            line = bytes(self._pending) + line
            self._pending = bytearray()
        if not line.endswith(b"\r\n") or len(line) > _MAX_LINE_BYTES:
            raise HttpError("a malformed chunk")
        return line[:-2], end + 1
