# SPDX-License-Identifier: Apache-2.0
"""The real pool of kubelet connections over fake transports; the test plays the kubelet."""

import ssl
from typing import cast

from daemonkit.tls.client_session import ClientSession
from vnagent.core.head import ResponseHead
from vnagent.core.upstream_request import UpstreamRequests
from vnagent.transport.poll_groups import PollGroup
from vnagent.transport.poller import SocketPoller
from vnagent.transport.tls_connection import TlsConnection
from vnagent.upstream.pool import UpstreamAddress, UpstreamConnection, UpstreamPool
from vnagent.upstream.session import UpstreamSession

ADDRESS = UpstreamAddress("127.0.0.1", 10250, "node-1")
GET, POST = b"GET /pods HTTP/1.1\r\n\r\n", b"POST /exec HTTP/1.1\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class FakeTransport:
    """Records writes; the test plays the kubelet.

    TlsConnection passes its contract too: tests/functional/vnagent/upstream/test_transport_contract.py.
    """

    def __init__(self, poller: SocketPoller) -> None:
        self.usage = None
        self.group = poller.shared
        self.deadline: float | None = None
        self.written = b""
        self.is_open = True
        self.is_paused = False
        self.tls: ResumedTls | None = None

    def join(self, group: PollGroup) -> None:
        self.group = group

    def write(self, data: bytes) -> None:
        if self.is_open:
            self.written += data

    def flush(self) -> None:
        pass

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def abort(self) -> None:
        self.is_open = False


class FakeSession(UpstreamSession):
    """Records each call, and when the chain of a kept session was verified.

    It has no state that could differ from the real one's: it never offers a session.
    """

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.events: list[str] = []
        self.verified_at_s: float | None = None

    def keep(self, tls: ssl.SSLObject, verified_at_s: float, now_s: float) -> None:
        self.events.append("keep")
        self.verified_at_s = verified_at_s

    def confirm(self, offered: ClientSession) -> None:
        self.events.append("confirm")

    def resumption_failed(self, offered: ClientSession, now_s: float) -> None:
        self.events.append("resumption_failed")

    def refuse(self, offered: ClientSession, now_s: float) -> None:
        self.events.append("refuse")


class ResumedTls:
    """The TLS of a connection that resumed a session."""

    session_reused = True


class PoolOverFakeTransports(UpstreamPool):
    """The real pool, but that it dials fake transports."""

    def __init__(self, poller: SocketPoller) -> None:
        super().__init__(poller, ADDRESS, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        self.dialled: list[FakeTransport] = []
        self.dialled_hosts: list[str] = []
        self.connections: list[UpstreamConnection] = []
        self.may_resume = True  # the last one
        self._session = self.session = FakeSession()

    def replace(self, address: UpstreamAddress, context: ssl.SSLContext, requests: UpstreamRequests) -> None:
        super().replace(address, context, requests)
        self._session = self.session

    def dial(self, connection: UpstreamConnection, *, may_resume: bool = True) -> None:
        self.dialled_hosts.append(self.take_host(connection))
        transport = FakeTransport(self.poller)
        self.dialled.append(transport)
        self.connections.append(connection)
        self.may_resume = may_resume
        connection.transport = cast(TlsConnection, transport)


class ResponseRecorder:
    """A response handler that records its calls."""

    def __init__(self) -> None:
        self.heads: list[ResponseHead] = []
        self.body = b""
        self.events: list[str] = []
        self.takes_over: UpstreamConnection | None = None
        self.early = b""

    def on_response(self, head: ResponseHead) -> None:
        self.heads.append(head)
        self.events.append(str(head.status))
        if self.takes_over is not None:
            _, self.early = self.takes_over.take_transport()

    def on_body(self, data: memoryview) -> None:
        self.body += bytes(data)

    def on_batch_end(self) -> None:
        pass

    def on_response_end(self) -> None:
        self.events.append("end")

    def on_failure(self, reason: str) -> None:
        self.events.append(reason)


def start_request(
    pool: PoolOverFakeTransports,
    request: bytes = GET,
    *,
    is_upgrade: bool = False,
    timeout_s: float | None = 5.0,
) -> tuple[ResponseRecorder, UpstreamConnection, FakeTransport]:
    """Send one request on an established connection."""
    response = ResponseRecorder()
    known = len(pool.dialled)
    connection = pool.acquire(response, request, timeout_s=timeout_s, is_upgrade=is_upgrade)
    if len(pool.dialled) > known:
        connection.on_handshake()
    return response, connection, cast(FakeTransport, connection.transport)


def feed(connection: UpstreamConnection, *pieces: bytes) -> None:
    for piece in pieces:
        connection.on_data(memoryview(piece))
    connection.on_batch_end()
