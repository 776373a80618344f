# SPDX-License-Identifier: Apache-2.0
"""A tenant's side: the requests of its kube-apiserver to `node:10550`, with a certificate of its own.

It uses plain sockets, so that the demo compares and shows the bytes of the wire.
"""

import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from devkit.pki import Leaf

TIMEOUT_S = 10.0
# These differ between any two answers; equal answers agree in all else.
_OWN_TO_ONE_ANSWER = frozenset({"x-request-id", "date"})
_READ_BYTES = 65536


class RefusedError(Exception):
    """The connection was refused in the TLS handshake, or cut; the text has the reason."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """One answer as it came, the body without its chunking."""

    status_line: str
    fields: tuple[tuple[str, str], ...]
    body: bytes = b""

    @property
    def status(self) -> int:
        return int(self.status_line.split(" ")[1])

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def field(self, name: str) -> str:
        return next((value for key, value in self.fields if key.lower() == name.lower()), "")

    @property
    def comparable(self) -> bytes:
        """The answer without its id and time."""
        kept = (f"{key}: {value}" for key, value in self.fields if key.lower() not in _OWN_TO_ONE_ANSWER)
        return "\r\n".join((self.status_line, *kept, "", "")).encode() + self.body


@dataclass(frozen=True, slots=True)
class TenantClient:
    """A client with or without a certificate."""

    name: str
    port: int
    serving_ca_file: Path
    leaf: Leaf | None

    def get(self, path: str) -> HttpAnswer:
        """Ask for a path and read the whole answer. Raises RefusedError."""
        with self.open("GET", path) as conversation:
            return conversation.whole()

    def upgrade(self, path: str) -> "StreamedAnswer":
        """Ask for a stream as kubectl does through its apiserver. Raises RefusedError."""
        is_forward = path.startswith("/portForward/")
        protocol = "portforward.k8s.io" if is_forward else "v4.channel.k8s.io"
        return self.open(
            "POST",
            path,
            {
                "Connection": "Upgrade",
                "Upgrade": "SPDY/3.1",
                "X-Stream-Protocol-Version": protocol,
                "Content-Length": "0",
            },
        )

    def open(self, method: str, path: str, fields: Mapping[str, str] | None = None) -> "StreamedAnswer":
        """Send a request on a new connection and read the head of its answer. Raises RefusedError."""
        context = ssl.create_default_context(cafile=str(self.serving_ca_file))
        if self.leaf is not None:
            self.leaf.load_into(context)
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            "User-Agent: Go-http-client/1.1",
        ]
        lines += [f"{name}: {value}" for name, value in (fields or {}).items()]
        raw = socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S)
        try:
            tls = context.wrap_socket(raw, server_hostname="127.0.0.1")
        except (ssl.SSLError, OSError) as error:
            raw.close()
            raise RefusedError(_reason(error)) from None
        try:
            tls.sendall("\r\n".join([*lines, "", ""]).encode())
            return StreamedAnswer(tls)
        except (ssl.SSLError, OSError) as error:
            tls.close()
            # With TLS 1.3 a server's verdict on the client's certificate comes after the handshake.
            raise RefusedError(_reason(error)) from None
        except BaseException:
            tls.close()
            raise


class StreamedAnswer:
    """One connection with one request on it, for answers that go on and for streams."""

    def __init__(self, tls: ssl.SSLSocket) -> None:
        self._tls = tls
        self._ahead = b""
        head = self._until(b"\r\n\r\n").decode("latin-1")
        status_line, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
        fields = tuple((name, value.strip()) for name, _, value in (line.partition(":") for line in lines))
        self.head = HttpAnswer(status_line, fields)

    def __enter__(self) -> "StreamedAnswer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._tls.close()

    def whole(self) -> HttpAnswer:
        """The answer with its body, which has to end. Raises RefusedError."""
        if self.head.field("Transfer-Encoding").lower() == "chunked":
            body = b"".join(self.chunks())
        else:
            body = self._exactly(int(self.head.field("Content-Length") or "0"))
        return HttpAnswer(self.head.status_line, self.head.fields, body)

    def chunks(self) -> Iterator[bytes]:
        """The chunks of the body as they come."""
        while size := int(self._until(b"\r\n").strip(), 16):
            yield self._exactly(size)
            self._until(b"\r\n")
        self._until(b"\r\n")

    def send(self, data: bytes) -> None:
        self._tls.sendall(data)

    def until(self, mark: bytes) -> str:
        """The bytes of the stream up to and with `mark`. Raises RefusedError if it ends before."""
        return self._until(mark).decode("utf-8", "replace")

    def is_cut(self, wait_s: float) -> bool:
        """Whether the other end closes or resets the stream within `wait_s`."""
        self._tls.settimeout(wait_s)
        try:
            while self._tls.recv(_READ_BYTES):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
        finally:
            self._tls.settimeout(TIMEOUT_S)
        return True

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._ahead:
            self._more()
        found, _, self._ahead = self._ahead.partition(mark)
        return found + mark

    def _exactly(self, count: int) -> bytes:
        while len(self._ahead) < count:
            self._more()
        found, self._ahead = self._ahead[:count], self._ahead[count:]
        return found

    def _more(self) -> None:
        try:
            data = self._tls.recv(_READ_BYTES)
        except OSError as error:
            raise RefusedError(_reason(error)) from None
        if not data:
            raise RefusedError("the connection was closed")
        self._ahead += data


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "TLS failure").lower().replace("_", " ")
    return error.strerror or str(error) or type(error).__name__
