# SPDX-License-Identifier: Apache-2.0
"""What a stand-in kubelet was asked and what it answers: scripted, or as a real one would.

The plain answers follow the kubelet's (pkg/kubelet/server/server.go): the endpoints, the status
codes, and the error texts of a pod or container that is not there.
"""

import base64
import enum
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

from daemonkit.testing.kubelet_pods import READ_AT, StandInPod, page_for

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


class Ending(enum.Enum):
    """What becomes of the connection after a reply, or after a tunnel's first bytes."""

    KEEP = "keep"
    CLOSE = "close"
    ABORT = "abort"  # FIN without close_notify
    RESET = "reset"
    SILENT = "silent"  # the reply never ends, and nothing more comes


class Tunnel(enum.Enum):
    """What the far end of a stream does with the bytes it gets."""

    ECHO = "echo"
    SINK = "sink"
    STALL = "stall"  # reads nothing at all


@dataclass(frozen=True, slots=True)
class Reply:
    """One scripted answer. `raw` replaces head and body by these exact bytes."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    is_chunked: bool = False
    trailers: tuple[tuple[str, str], ...] = ()
    raw: bytes | None = None
    delay_s: float = 0.0
    body_bytes: int | None = None  # so many bytes of the body are sent, whatever the head says
    repeat_every_s: float | None = None  # the body again and again, until the peer leaves
    ending: Ending = Ending.KEEP
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

    `after` holds every byte that the peer sent behind this request, `sent` what went back in a
    tunnel. Times are of `time.monotonic()`.
    """

    connection: int
    head: bytes
    method: str = ""
    target: str = ""
    version: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    is_malformed: bool = False
    started_s: float = 0.0
    ended_s: float | None = None
    status: int | None = None
    after: Digest = field(default_factory=Digest)
    sent: Digest = field(default_factory=Digest)

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


def switching(exchange: Exchange, tunnel: Tunnel, first_bytes: bytes = b"") -> Reply:
    """The 101 that a kubelet answers to this upgrade, with the first protocol that it knows."""
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
    headers += [(name, p) for p in offered if p in STREAM_PROTOCOLS][:1]
    return Reply(101, tuple(headers), tunnel=tunnel, first_bytes=first_bytes)


def text(status: int, body: str) -> Reply:
    return Reply(status, (("Content-Type", TEXT),), body.encode())


def plausible(
    exchange: Exchange,
    pods: Sequence[StandInPod],
    logs: Mapping[tuple[str, str, str], Sequence[str]],
    node_name: str,
) -> Reply:
    """What a healthy kubelet that runs `pods` answers to one request."""
    segments = [unquote(segment) for segment in exchange.path.split("/")[1:]]
    match segments:
        case ["containerLogs", namespace, name, container]:
            return _logs(exchange, pods, logs, (namespace, name, container))
        case ["exec" | "attach" as verb, namespace, name, container]:
            return _stream(exchange, pods, (namespace, name, container, None), verb)
        case ["exec" | "attach" as verb, namespace, name, uid, container]:
            return _stream(exchange, pods, (namespace, name, container, uid), verb)
        case ["portForward", namespace, name]:
            return _stream(exchange, pods, (namespace, name, None, None), "portForward")
        case ["portForward", namespace, name, uid]:
            return _stream(exchange, pods, (namespace, name, None, uid), "portForward")
    page = page_for(exchange.path, pods, node_name)
    if page is None:
        return text(404, "404 page not found\n")
    return Reply(200, (("Content-Type", page[0]),), page[1])


def _find(pods: Sequence[StandInPod], namespace: str, name: str) -> StandInPod | None:
    return next((p for p in pods if (p.namespace, p.name) == (namespace, name)), None)


def _logs(
    exchange: Exchange,
    pods: Sequence[StandInPod],
    logs: Mapping[tuple[str, str, str], Sequence[str]],
    key: tuple[str, str, str],
) -> Reply:
    if exchange.method not in ("GET", "HEAD"):
        return Reply(405, (("Allow", "GET"), ("Content-Type", TEXT)), b"405: Method Not Allowed")
    pod = _find(pods, key[0], key[1])
    if pod is None:
        return text(404, f'pod "{key[1]}" does not exist\n')
    if key[2] not in pod.every_container:
        return text(404, f'container "{key[2]}" not found in pod "{key[1]}"\n')
    options = dict(exchange.query)
    if options.get("previous") in ("true", "1"):
        missing = f'previous terminated container "{key[2]}" in pod "{key[1]}" not found'
        return text(400, missing)
    lines = [f"{'/'.join(key)} {pod.marker}", *logs.get(key, ())]
    if options.get("timestamps") in ("true", "1"):
        lines = [f"{READ_AT} {line}" for line in lines]
    if "tailLines" in options:
        wanted = int(options["tailLines"])
        lines = lines[-wanted:] if wanted else []
    body = "".join(f"{line}\n" for line in lines).encode()
    if "limitBytes" in options:
        body = body[: int(options["limitBytes"])]
    follows = key if options.get("follow") in ("true", "1") else None
    return Reply(200, (("Content-Type", "text/plain"),), body, is_chunked=True, follows=follows)


def _stream(
    exchange: Exchange,
    pods: Sequence[StandInPod],
    wanted: tuple[str, str, str | None, str | None],
    verb: str,
) -> Reply:
    namespace, name, container, uid = wanted
    pod = _find(pods, namespace, name)
    # Only portForward compares the uid (reference 1.2); the others ignore it.
    if pod is None or (verb == "portForward" and uid not in (None, pod.uid)):
        return text(404, "pod does not exist")
    if container is not None and container not in pod.running_containers:
        return text(404, f"container not found ({container})")
    if not exchange.is_upgrade:
        return text(400, "Upgrade request required")
    streams = {"input", "output", "error"} & {key for key, value in exchange.query if value in ("1", "true")}
    if verb != "portForward" and not streams:
        return text(400, "you must specify at least 1 of stdin, stdout, stderr")
    if verb == "portForward":
        return switching(exchange, Tunnel.ECHO)
    commands = " ".join(value for key, value in exchange.query if key == "command")
    greeting = f"{verb} {namespace}/{name}/{container} {pod.marker} {commands}".rstrip() + "\n"
    return switching(exchange, Tunnel.ECHO, greeting.encode())
