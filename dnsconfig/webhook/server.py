# SPDX-License-Identifier: Apache-2.0
"""Where API servers ask: HTTPS, one path, and a bound to everything.

A new certificate goes to the next connection: the context that listens hands every handshake to the
context of the moment, as one that has connections must not be changed.
"""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from daemonkit import tls
from daemonkit.status import Readiness

PATH = "/mutate"
# For a kubelet's probes, which reach no unix socket and no loopback.
LIVE, READY = "/livez", "/readyz"
# The apiserver's own limit for a request (generic apiserver, MaxRequestBodyBytes); a review has one
# object in it, and etcd takes half of that.
MAX_BODY_BYTES = 3 << 20
# A decision takes microseconds: who has not sent all of its review by then sends nothing useful.
READ_S = 5.0
MAX_IN_FLIGHT = 64
_STOP_S = 2.0

Judge = Callable[[bytes], web.Response]
"""A body to its answer, on the loop, without waiting."""


class WebhookServer:
    def __init__(
        self,
        judge: Judge,
        readiness: Callable[[], Readiness],
        *,
        read_s: float = READ_S,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self._judge = judge
        self._readiness = readiness
        self._read_s = read_s
        self._max_in_flight = max_in_flight
        self._in_flight = 0
        self._context: ssl.SSLContext | None = None
        self._runner: web.AppRunner | None = None

    async def start(self, address: str, port: int, certificate: Path) -> int:
        """Listen; returns the port. `certificate` has its key behind it. Raises OSError and TlsError."""
        listening = tls.anonymous_server_context(certificate, certificate)
        self.show(certificate)
        listening.sni_callback = self._hand_over
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_post(PATH, self._answer)
        app.router.add_get(LIVE, self._live)
        app.router.add_get(READY, self._ready)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=_STOP_S)
        await self._runner.setup()
        await web.TCPSite(self._runner, address, port, ssl_context=listening).start()
        bound: int = self._runner.addresses[0][1]
        return bound

    def show(self, certificate: Path) -> None:
        """Show this certificate from the next connection on. Raises TlsError."""
        self._context = tls.anonymous_server_context(certificate, certificate)

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _hand_over(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _: object) -> None:
        if self._context is not None:
            connection.context = self._context

    async def _live(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _: web.Request) -> web.Response:
        found = self._readiness()
        # One word for everybody who reaches the port; the reasons are on the status page.
        return web.Response(text="ok\n") if found.is_ready else _refusal(503, "not ready")

    async def _answer(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            return _refusal(415, "expected application/json")
        if self._in_flight >= self._max_in_flight:
            return _refusal(503, "too many reviews at once")
        self._in_flight += 1
        try:
            async with asyncio.timeout(self._read_s):
                body = await request.read()
        except TimeoutError:
            return _refusal(408, f"the review did not come within {self._read_s:g} s")
        except web.HTTPRequestEntityTooLarge:
            return _refusal(413, f"a review of more than {MAX_BODY_BYTES} bytes")
        finally:
            self._in_flight -= 1
        return self._judge(body)


def _refusal(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")
