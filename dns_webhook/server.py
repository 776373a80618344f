# SPDX-License-Identifier: Apache-2.0
"""The HTTPS server for reviews and probes, with a limit for everything.

A renewed certificate is in a new TLS context, for connections from then on: a context that has
connections must not be changed.
"""

import logging
import ssl
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from daemonkit.admission import client_hello
from daemonkit.status.server import Readiness
from daemonkit.tls import contexts
from daemonkit.tls.openssl import Message, inspect
from dns_webhook.body_limits import BodyLimits, BodyTooLargeError, EvictedError
from dns_webhook.connections import Connections

PATH = "/mutate"
# For a kubelet's probes, which reach no unix socket and no loopback.
LIVE, READY = "/livez", "/readyz"
# The apiserver's own limit for a request (generic apiserver, MaxRequestBodyBytes); a review has one
# object in it, and etcd takes half of that.
MAX_BODY_BYTES = 3 << 20
# API servers send a review at once; a decision takes microseconds.
READ_S = 5.0
MAX_IN_FLIGHT = 64
# Of all that are being read; a review has some 10 KB. This keeps the process below the memory limit of
# packaging/webhook/deployment.yaml, which has the measured figures.
MAX_BODIES_BYTES = 24 << 20
MAX_CONNECTIONS = 128
# client-go, and so an API server, retries after 429 or 5xx with this header, within the timeout of the
# registration (client-go, rest/with_retry.go).
_RETRY_LATER = {"Retry-After": "1"}
# Longer than a Go client keeps an idle connection (90 s), so that no connection ends during a review.
_IDLE_S = 120.0
# A refused body is read for so long. Otherwise a reset would overtake the response.
_LINGER_S = 2.0
_BUFFER_BYTES = 64 << 10  # of each connection, twice
# API servers and kubelets send ten headers at most; a trace's is the longest.
_MAX_HEADERS, _MAX_HEADER_BYTES = 32, 4 << 10
_STOP_S = 2.0


def _is_own_error(record: logging.LogRecord) -> bool:
    """Errors of clients are not logged: anyone on the network can cause them."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, ConnectionError | HttpProcessingError | web.RequestPayloadError)


_http_log = logging.getLogger(f"{__name__}.http")
_http_log.addFilter(_is_own_error)

ReviewHandler = Callable[[bytes], web.Response]
"""Returns the response to a body; runs on the event loop and must not block."""


class WebhookServer:
    def __init__(
        self,
        handle: ReviewHandler,
        readiness: Callable[[], Readiness],
        *,
        read_s: float = READ_S,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_bodies_bytes: int = MAX_BODIES_BYTES,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._handle = handle
        self._readiness = readiness
        self._read_s = read_s
        self._bodies = BodyLimits(max_in_flight, MAX_BODY_BYTES, max_bodies_bytes, read_s)
        self._max_connections = max_connections
        self._connections: Connections | None = None
        self._context: ssl.SSLContext | None = None
        self._runner: web.AppRunner | None = None

    async def start(self, address: str, port: int, certificate: Path, key: Path | None = None) -> int:
        """Listen; returns the port. Without `key`, `certificate` has it too. Raises OSError and TlsError."""
        self.show(certificate, key)
        app = web.Application()
        app.router.add_post(PATH, self._answer)
        app.router.add_get(LIVE, self._live)
        app.router.add_get(READY, self._ready)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            logger=_http_log,
            shutdown_timeout=_STOP_S,
            keepalive_timeout=_IDLE_S,
            lingering_time=_LINGER_S,
            read_bufsize=_BUFFER_BYTES,
            max_headers=_MAX_HEADERS,
            max_field_size=_MAX_HEADER_BYTES,
            max_line_size=_MAX_HEADER_BYTES,
            # API servers do not compress reviews; a compressed body could exceed the limits.
            auto_decompress=False,
        )
        await self._runner.setup()
        if self._runner.server is None:
            raise RuntimeError("aiohttp did not set up a server")
        self._connections = Connections(self._runner.server, self._current_context, self._max_connections)
        return self._connections.start(address, port)

    def show(self, certificate: Path, key: Path | None = None) -> None:
        """Use this certificate for connections from now on. Raises TlsError."""
        context = contexts.anonymous_server_context(certificate, key or certificate)
        inspect(context, {Message.CLIENT_HELLO: client_hello.may_read})
        self._context = context

    async def stop(self) -> None:
        if self._connections is not None:
            await self._connections.stop()
        if self._runner is not None:
            await self._runner.cleanup()

    def _current_context(self) -> ssl.SSLContext:
        if self._context is None:
            raise AssertionError("connections are accepted before there is a certificate")
        return self._context

    async def _live(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _: web.Request) -> web.Response:
        found = self._readiness()
        # Everybody can reach this port: the reasons are on the status page only.
        return web.Response(text="ok\n") if found.is_ready else _refusal(503, "not ready")

    async def _answer(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            return _refusal(415, "expected application/json")
        too_large = _refusal(413, f"a review of more than {MAX_BODY_BYTES} bytes")
        if (request.content_length or 0) > MAX_BODY_BYTES:
            return too_large
        try:
            body = await self._bodies.read(request.content)
        except EvictedError:
            return _refusal(503, "too many reviews at once", _RETRY_LATER)
        except TimeoutError:
            return _refusal(408, f"the review did not come within {self._read_s:g} s")
        except BodyTooLargeError:
            return too_large
        answer = self._handle(body)
        if self._connections is not None and answer.status == HTTPStatus.OK:
            self._connections.mark_used(request.protocol)
        return answer


def _refusal(status: int, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers=headers)
