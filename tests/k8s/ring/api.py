# SPDX-License-Identifier: Apache-2.0
"""HTTPS from inside a network namespace: a small Kubernetes client, and raw exchanges."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from devkit.pki import Leaf
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.processes import RingError

JsonObject = dict[str, Any]

_MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class TlsEndpoint:
    """A TLS server, the namespace that dials it, and the client's certificate."""

    namespace: NetworkNamespace
    address: str
    port: int
    authority_pem: bytes
    leaf: Leaf | None
    # The name in its certificate, where that is not the address.
    server_name: str = ""

    def context(self) -> ssl.SSLContext:
        """A context that verifies the server and presents the client's certificate."""
        context = ssl.create_default_context(cadata=self.authority_pem.decode())
        if self.leaf is not None:
            self.leaf.load_into(context)
        return context

    def dial(self, *, timeout_s: float = 20.0) -> ssl.SSLSocket:
        """A TLS connection.

        Raises:
            OSError: no connection, or the handshake failed.
        """
        # Wrapped before it is connected: of a connection that was reset, wrap_socket loses the descriptor.
        made = self.context().wrap_socket(
            self.namespace.socket(socket.AF_INET, socket.SOCK_STREAM),
            server_hostname=self.server_name or self.address,
        )
        try:
            made.settimeout(timeout_s)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.connect((self.address, self.port))
        except OSError:
            made.close()
            raise
        return made

    def exchange(self, head: bytes, *, timeout_s: float = 20.0) -> bytes:
        """Send bytes as they are and return every byte of the one reply to them."""
        with self.dial(timeout_s=timeout_s) as connection:
            connection.sendall(head)
            reply = bytearray()
            while not _is_whole(reply):
                chunk = connection.recv(65536)
                if not chunk:
                    break
                reply += chunk
        return bytes(reply)

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        timeout_s: float = 20.0,
    ) -> HttpResponse:
        """One request on a connection of its own, the body read to its end."""
        connection = http.client.HTTPConnection(self.address, self.port, timeout=timeout_s)
        connection.sock = self.dial(timeout_s=timeout_s)
        try:
            connection.request(method, path, body, {"Connection": "close", **(headers or {})})
            response = connection.getresponse()
            return HttpResponse(
                response.status,
                {name.lower(): value for name, value in response.getheaders()},
                b"" if response.status == http.HTTPStatus.SWITCHING_PROTOCOLS else response.read(),
            )
        finally:
            connection.close()


def _is_whole(reply: bytearray) -> bool:
    """Whether a reply is complete, by the length or coding of its head."""
    head, blank, body = bytes(reply).partition(b"\r\n\r\n")
    if not blank:
        return False
    length = re.search(rb"(?im)^content-length: (\d+)\r?$", head)
    if length is not None:
        return len(body) >= int(length.group(1))
    is_chunked = re.search(rb"(?im)^transfer-encoding: chunked\r?$", head) is not None
    return is_chunked and body.endswith(b"0\r\n\r\n")


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response: status, headers by lower-case name, whole body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> JsonObject:
        value: JsonObject = json.loads(self.body)
        return value


@dataclass(frozen=True, slots=True)
class KubernetesApi:
    """A small client of a kube-apiserver: get, create, patch, delete; `headers` go with each."""

    endpoint: TlsEndpoint
    headers: Mapping[str, str] = field(default_factory=dict)

    def get(self, path: str) -> JsonObject:
        """Read an object or a list."""
        return self._call("GET", path, None, {})

    def create(self, path: str, value: JsonObject, *, may_exist: bool = False) -> JsonObject:
        """Create an object. `may_exist` returns {} when it is there already."""
        return self._call("POST", path, value, {}, accept=(409,) if may_exist else ())

    def patch(self, path: str, value: JsonObject, *, kind: str = _MERGE_PATCH) -> JsonObject:
        """Patch an object, by default with a JSON merge patch."""
        return self._call("PATCH", path, value, {"Content-Type": kind})

    def put(self, path: str, value: JsonObject) -> JsonObject:
        return self._call("PUT", path, value, {})

    def delete(self, path: str, *, grace_s: int = 0) -> None:
        """Delete an object; a missing one is no error."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": grace_s}
        self._call("DELETE", path, options, {}, accept=(404,))

    def is_ready(self) -> bool:
        """Whether it responds and all its checks pass."""
        try:
            return self.endpoint.request("GET", "/readyz", timeout_s=5).status == http.HTTPStatus.OK
        except OSError:
            return False

    def _call(
        self,
        method: str,
        path: str,
        value: JsonObject | None,
        headers: dict[str, str],
        accept: tuple[int, ...] = (),
    ) -> JsonObject:
        body = None if value is None else json.dumps(value).encode()
        reply = self.endpoint.request(
            method, path, body=body, headers={"Content-Type": "application/json", **self.headers, **headers}
        )
        if reply.status in accept:
            return {}
        if reply.status >= http.HTTPStatus.BAD_REQUEST:
            raise RingError(f"{method} {path}: {reply.status} {reply.text[:1000]}")
        return reply.json()
