# SPDX-License-Identifier: Apache-2.0
"""The requests of a fake kubelet, and the replies that a test can set."""

import base64
import enum
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qsl

TEXT = "text/plain; charset=utf-8"
STREAM_PROTOCOLS = (
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
    "portforward.k8s.io",
    "SPDY/3.1+portforward.k8s.io",
)
_WEBSOCKET_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
_KEPT_BYTES = 256 * 1024


class ReplyEnd(enum.Enum):
    """What becomes of the connection after a reply, or after a tunnel's first bytes."""

    KEEP = "keep"
    CLOSE = "close"
    ABORT = "abort"  # FIN without close_notify
    RESET = "reset"
    SILENT = "silent"  # the reply stays unfinished, without more bytes


class Tunnel(enum.Enum):
    """How the far end of a stream handles bytes."""

    ECHO = "echo"
    SINK = "sink"
    STALL = "stall"  # reads nothing at all


@dataclass(frozen=True, slots=True)
class FakeReply:
    """One scripted answer. `raw` replaces head and body by these exact bytes."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    is_chunked: bool = False
    trailers: tuple[tuple[str, str], ...] = ()
    raw: bytes | None = None
    delay_s: float = 0.0
    body_bytes: int | None = None  # bytes of the body that are sent; the head counts the whole body
    repeat_every_s: float | None = None  # repeats the body until the peer leaves
    ending: ReplyEnd = ReplyEnd.KEEP
    tunnel: Tunnel | None = None
    first_bytes: bytes = b""  # in a tunnel, sent before anything is read
    answer: Callable[[bytes], bytes] | None = None  # in a tunnel, what comes back for each read
    follows: tuple[str, str, str] | None = None  # namespace, pod, container whose log goes on


class Digest:
    """A running record of bytes: how many, their hash, and the first 256 KiB themselves."""

    __slots__ = ("_sha256", "count", "head")

    def __init__(self) -> None:
        self.count = 0
        self.head = bytearray()
        self._sha256 = hashlib.sha256()

    def add(self, data: bytes | bytearray) -> None:
        self.count += len(data)
        self._sha256.update(data)
        if len(self.head) < _KEPT_BYTES:
            self.head += data[: _KEPT_BYTES - len(self.head)]

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()


@dataclass(slots=True)
class Exchange:
    """One request as it arrived, and what happened on its connection afterwards.

    `after` holds every byte that the peer sent behind this request, `sent` the bytes that went back in a
    tunnel. `answered_bytes` counts the bytes of `after` whose answers are complete in `sent`; answers to
    later bytes may still follow. Times are of `time.monotonic()`.
    """

    connection: int
    head: bytes
    method: str = ""
    target: str = ""
    version: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    is_malformed: bool = False
    peer: str = ""  # common name of the client's certificate
    ended_s: float | None = None
    status: int | None = None
    after: Digest = field(default_factory=Digest)
    sent: Digest = field(default_factory=Digest)
    answered_bytes: int = 0

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> list[tuple[str, str]]:
        """Decoded parameters in order, as Go's net/url reads them."""
        return parse_qsl(self.target.partition("?")[2], keep_blank_values=True)

    def values(self, header: str) -> list[str]:
        """The values of a header, one per line, in order."""
        return [value for name, value in self.headers if name.lower() == header.lower()]

    @property
    def is_upgrade(self) -> bool:
        tokens = ",".join(self.values("Connection")).lower().split(",")
        return "upgrade" in [token.strip() for token in tokens] and bool(self.values("Upgrade"))


def parse_head(head: bytes, exchange: Exchange) -> None:
    """Fill `exchange` from the bytes of one head, or mark it malformed (RFC 9112, 2 to 5)."""
    lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    parts = lines[0].split(" ")
    headers = []
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or "\n" in line or "\r" in line:
            exchange.is_malformed = True
        headers.append((name, value.strip(" \t")))
    exchange.headers = tuple(headers)
    if len(parts) != 3 or not parts[1].startswith("/") or parts[2] not in ("HTTP/1.1", "HTTP/1.0"):
        exchange.is_malformed = True
    exchange.method, exchange.target, exchange.version = (*parts, "", "", "")[:3]


def switching(
    exchange: Exchange,
    tunnel: Tunnel,
    first_bytes: bytes = b"",
    *,
    known: Sequence[str] | None = None,
) -> FakeReply:
    """The 101 that a kubelet answers to this upgrade, with the first protocol of `known`."""
    token = exchange.values("Upgrade")[0] if exchange.values("Upgrade") else "SPDY/3.1"
    headers = [("Connection", "Upgrade"), ("Upgrade", token)]
    if token.lower() == "websocket":
        name = "Sec-WebSocket-Protocol"
        key = "".join(exchange.values("Sec-WebSocket-Key"))
        # RFC 6455, 4.2.2 fixes SHA-1 for the accept value.
        digest = hashlib.sha1((key + _WEBSOCKET_GUID).encode(), usedforsecurity=False).digest()
        headers.append(("Sec-WebSocket-Accept", base64.b64encode(digest).decode()))
    else:
        name = "X-Stream-Protocol-Version"
    offered = [p.strip() for line in exchange.values(name) for p in line.split(",")]
    headers += [(name, p) for p in offered if p in (known or STREAM_PROTOCOLS)][:1]
    return FakeReply(101, tuple(headers), tunnel=tunnel, first_bytes=first_bytes)


def text(status: int, body: str, *headers: tuple[str, str]) -> FakeReply:
    return FakeReply(status, (("Content-Type", TEXT), *headers), body.encode())


def chunk(data: bytes) -> bytes:
    """One chunk (RFC 9112, 7.1); nothing for nothing, as an empty chunk is the last one."""
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


def render_head(reply: FakeReply, length_bytes: int | None) -> bytes:
    """The head of `reply`; without a length it is chunked. Headers that are given stay as they are."""
    try:
        phrase = HTTPStatus(reply.status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {reply.status} {phrase}"]
    lines += [f"{name}: {value}" for name, value in reply.headers]
    given = {name.lower() for name, _ in reply.headers}
    if reply.status >= 200 and not given & {"content-length", "transfer-encoding"}:
        lines.append(
            "Transfer-Encoding: chunked" if length_bytes is None else f"Content-Length: {length_bytes}"
        )
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
