# SPDX-License-Identifier: Apache-2.0
"""Where a response body ends (RFC 9112, 6 and 7.1), found without copying the body.

A reader is fed the received bytes and returns how many of them are body and go to the client unchanged.
Chunked bodies are relayed in the sender's own chunks, each validated before it is
passed on: plain hexadecimal sizes, exact line ends, no extensions. Trailers are dropped.
"""

import re
from typing import NamedTuple, Protocol

from vnagent.core.head import ResponseHead

_SIZE_LINE = re.compile(rb"([0-9a-fA-F]{1,8})\r\n")
_SIZE_START = re.compile(rb"[0-9a-fA-F]{1,8}(?:\r)?|")
_LONGEST_SIZE_LINE = 10
# A kubelet sends no trailers; a proxy may add some.
_MAX_TRAILER_BYTES = 4096


class FramingError(Exception):
    """The body is not framed as its head declares; the connection cannot be used any more."""


class Fed(NamedTuple):
    """`take` bytes go to the client; at `is_end`, `surplus` bytes came after the body."""

    take: int
    is_end: bool
    surplus: int


class Body(Protocol):
    """A reader of one body. `is_chunked` is the framing of the taken bytes."""

    is_chunked: bool

    def feed(self, data: memoryview) -> Fed: ...

    def end_of_stream(self) -> bool:
        """Whether the connection may end here with the body complete."""


def body_of(head: ResponseHead) -> Body:
    """Choose the reader for a response to GET or POST that is not 1xx, 204 or 304."""
    if head.is_chunked:
        return ChunkedBody()
    if head.content_length is not None:
        return LengthBody(head.content_length)
    return UntilCloseBody()


class LengthBody:
    __slots__ = ("_remaining",)
    is_chunked = False

    def __init__(self, length: int) -> None:
        self._remaining = length

    def feed(self, data: memoryview) -> Fed:
        size = len(data)
        if size < self._remaining:
            self._remaining -= size
            return Fed(size, False, 0)
        take, self._remaining = self._remaining, 0
        return Fed(take, True, size - take)

    def end_of_stream(self) -> bool:
        return self._remaining == 0


class UntilCloseBody:
    __slots__ = ()
    is_chunked = False

    def feed(self, data: memoryview) -> Fed:
        return Fed(len(data), False, 0)

    def end_of_stream(self) -> bool:
        return True


class ChunkedBody:
    """Scans chunk by chunk. `Fed.take` never includes the blank line after the last chunk: the relay
    writes that line at `is_end`, so that trailers and truncated bodies cannot pass."""

    __slots__ = ("_data_left", "_is_in_trailer", "_partial", "_trailer")
    is_chunked = True

    def __init__(self) -> None:
        self._data_left = 0  # bytes of the current chunk still to come, its line end included
        self._partial = b""  # a size line or line end that was cut by the read
        self._is_in_trailer = False
        self._trailer = b""

    def feed(self, data: memoryview) -> Fed:
        if self._is_in_trailer:
            return self._feed_trailer(data, 0)
        size = len(data)
        at = 0
        if not self._data_left and not self._partial:
            # Complete chunks, as most are, take one step each.
            match = _SIZE_LINE.match(data)
            while match is not None:
                length, start = int(match[1], 16), match.end()
                end = start + length
                if not length:
                    if bytes(data[start : start + 3]) == b"\r\n":
                        return Fed(start, True, 0)
                    break
                if bytes(data[end : end + 2]) != b"\r\n":
                    break
                at = end + 2
                match = _SIZE_LINE.match(data, at)
        while at < size:
            if self._data_left > 2:
                step = min(self._data_left - 2, size - at)
                self._data_left -= step
                at += step
            elif self._data_left:
                # The line end behind the chunk, possibly cut in two.
                expected = 0x0D if self._data_left == 2 else 0x0A
                if data[at] != expected:
                    raise FramingError("chunk longer than its size")
                self._data_left -= 1
                at += 1
            else:
                at, is_last = self._read_size(data, at)
                if is_last:
                    self._is_in_trailer = True
                    return self._feed_trailer(data, at)
        return Fed(at, False, 0)

    def _read_size(self, data: memoryview, at: int) -> tuple[int, bool]:
        """Read one size line, or its available part: return its end, and whether the size was 0."""
        if not self._partial:
            whole = _SIZE_LINE.match(data, at)
            if whole is not None:
                length = int(whole[1], 16)
                self._data_left = length + 2 if length else 0
                return whole.end(), length == 0
        line = self._partial + bytes(data[at : at + _LONGEST_SIZE_LINE - len(self._partial)])
        match = _SIZE_LINE.match(line)
        if match is None:
            if len(line) >= _LONGEST_SIZE_LINE or _SIZE_START.fullmatch(line) is None:
                raise FramingError("malformed chunk size")
            self._partial = line
            return len(data), False
        used = match.end() - len(self._partial)
        self._partial = b""
        length = int(match[1], 16)
        if length:
            self._data_left = length + 2
        return at + used, length == 0

    def _feed_trailer(self, data: memoryview, at: int) -> Fed:
        before = len(self._trailer)
        # The limit counts from the trailer's begin, however it is divided.
        self._trailer += bytes(data[at : at + _MAX_TRAILER_BYTES - before])
        found = self._trailer.find(b"\r\n\r\n")
        end = 2 if self._trailer.startswith(b"\r\n") else found + 4 if found >= 0 else 0
        if end:
            return Fed(at, True, len(data) - at - (end - before))
        if len(self._trailer) >= _MAX_TRAILER_BYTES:
            raise FramingError("trailer too long")
        return Fed(at, False, 0)

    def end_of_stream(self) -> bool:
        return False


class Unchunker:
    """Takes the bytes that a ChunkedBody has passed, in any pieces, and returns the data of the chunks."""

    __slots__ = ("_data_left", "_line", "_line_end_left")

    def __init__(self) -> None:
        self._data_left = 0
        self._line_end_left = 0  # of the line end behind a chunk
        self._line = b""  # the available part of a size line

    def feed(self, data: memoryview) -> list[memoryview]:
        found: list[memoryview] = []
        at, size = 0, len(data)
        while at < size:
            if self._data_left:
                step = min(self._data_left, size - at)
                found.append(data[at : at + step])
                self._data_left -= step
                at += step
            elif self._line_end_left:
                step = min(self._line_end_left, size - at)
                self._line_end_left -= step
                at += step
            else:
                line = self._line + bytes(data[at : at + _LONGEST_SIZE_LINE - len(self._line)])
                end = line.find(b"\n") + 1
                if not end:
                    self._line = line
                    break
                at += end - len(self._line)
                self._line = b""
                self._data_left = int(line[:end], 16)
                self._line_end_left = 2
        return found
