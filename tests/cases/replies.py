# SPDX-License-Identifier: Apache-2.0
"""Parses HTTP/1.1 replies strictly, as the agent's output must be correct."""

from dataclasses import dataclass


class BadReplyError(Exception):
    """The bytes are not an HTTP/1.1 reply."""


@dataclass(frozen=True, slots=True)
class ReceivedReply:
    """One reply. `body` is decoded as far as received; `length_bytes` is its length on the wire.

    A body without a length is complete when the caller has seen the end of the connection.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    length_bytes: int
    is_complete: bool
    ends_with_connection: bool = False

    @property
    def has_length(self) -> bool:
        return bool(self.values("Content-Length"))

    def values(self, header: str) -> list[str]:
        return [value for name, value in self.headers if name.lower() == header.lower()]


def parse_reply(data: bytes, method: str, *, is_ended: bool = False) -> ReceivedReply | None:
    """The first final reply in `data` (1xx but 101 are skipped); None while its head is incomplete."""
    offset = 0
    while True:
        end = data.find(b"\r\n\r\n", offset)
        if end < 0:
            if data[offset:] and not b"HTTP/1.1 ".startswith(data[offset : offset + 9]):
                raise BadReplyError(f"not a reply: {data[offset : offset + 60]!r}")
            return None
        status, headers = _parse_head(data[offset:end])
        offset = end + 4
        if status >= 200 or status == 101:
            break
    body, used, is_complete, is_open = _parse_body(data[offset:], method, status, headers, is_ended)
    return ReceivedReply(status, headers, body, offset + used, is_complete, is_open)


def _parse_head(head: bytes) -> tuple[int, tuple[tuple[str, str], ...]]:
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ", 2)
    if len(parts) < 2 or parts[0] != "HTTP/1.1" or not parts[1].isdigit() or len(parts[1]) != 3:
        raise BadReplyError(f"not a status line: {lines[0][:80]!r}")
    headers = []
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or any(c in line for c in "\r\n\0"):
            raise BadReplyError(f"not a header line: {line[:80]!r}")
        headers.append((name, value.strip()))
    return int(parts[1]), tuple(headers)


def _parse_body(
    data: bytes,
    method: str,
    status: int,
    headers: tuple[tuple[str, str], ...],
    is_ended: bool,
) -> tuple[bytes, int, bool, bool]:
    """Body, its length on the wire, whether it is complete, whether the connection ends it."""
    if method == "HEAD" or status in (101, 204, 304):
        return b"", 0, True, False
    lengths = [value for name, value in headers if name.lower() == "content-length"]
    codings = [value for name, value in headers if name.lower() == "transfer-encoding"]
    if codings:
        if lengths or codings != ["chunked"]:
            raise BadReplyError(f"two framings or an unknown one: {lengths} {codings}")
        return (*_parse_chunks(data), False)
    if lengths:
        if len(lengths) > 1 or not (lengths[0].isascii() and lengths[0].isdigit()):
            raise BadReplyError(f"length {lengths}")
        expected = int(lengths[0])
        return data[:expected], min(expected, len(data)), len(data) >= expected, False
    return data, len(data), is_ended, True


def _parse_chunks(data: bytes) -> tuple[bytes, int, bool]:
    body, offset = bytearray(), 0
    while True:
        end = data.find(b"\r\n", offset)
        if end < 0:
            return bytes(body), len(data), False
        line = data[offset:end]
        try:
            size = int(line, 16)
        except ValueError:
            raise BadReplyError(f"chunk size {line[:40]!r}") from None
        offset = end + 2
        if size == 0:
            last = data[offset : offset + 2]
            if len(last) < 2:
                return bytes(body), len(data), False
            if last != b"\r\n":
                raise BadReplyError(f"trailers: {data[offset : offset + 40]!r}")
            return bytes(body), offset + 2, True
        body += data[offset : offset + size]
        if len(data) < offset + size + 2:
            return bytes(body), len(data), False
        if data[offset + size : offset + size + 2] != b"\r\n":
            raise BadReplyError("a chunk does not end with CRLF")
        offset += size + 2
