# SPDX-License-Identifier: Apache-2.0
"""The TLS session of a verified connection to an API server, which the next connections resume.

vc-syncer has a watch for each kind of each tenant, on a connection of its own, and dials them all at a start.
Three quarters of what a handshake takes are to verify the server's chain and to prove who the client is. What
the chain proved holds for the session (RFC 8446, 2.2), so it ends when the proof does: docs/decisions/0023.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable

from daemonkit.tls.client_session import ClientSession, clear_errors
from daemonkit.tls.contexts import TlsError, verified_chain
from tenancy import x509

# How long connections resume after a handshake that verified the server.
VERIFIED_S = 600.0
# How long none is offered after one failed, and twice as long each time up to VERIFIED_S, until one worked.
REFUSED_S = 10.0
# How long a connection waits for the first one, whose session it would resume: servers may answer late.
FIRST_S = 0.25


class Resumption:
    """Of one server and one set of credentials. `clock` is the loop's; certificates expire by `wall_clock`.

    Dial with what `session` returns, and then call `answered` or `failed`.
    """

    def __init__(
        self,
        clock: Callable[[], float] = lambda: asyncio.get_running_loop().time(),
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        self._context: ssl.SSLContext | None = None
        self._session: ClientSession | None = None
        self._ends_at_s = 0.0
        self._refused_s = REFUSED_S
        self._refused_until_s = 0.0
        self._is_client_known = False  # by this session: it has carried out a request on a resumed connection
        self._first: asyncio.Event | None = None  # while a connection is made whose session others wait for

    async def session(self, context: ssl.SSLContext) -> ClientSession | None:
        """What a new connection of this context resumes; None for a full handshake.

        Of several that are made while none is known one goes ahead.
        """
        if context is not self._context:
            # Other credentials, or another authority: nothing is verified by it yet. After each 401 it is so.
            self._end_first()
            self._context, self._session, self._ends_at_s = context, None, self._refused_until_s
            self._is_client_known = False
        if self._clock() >= self._ends_at_s:
            self._session = None
            first = self._first
            if first is None:
                self._first = asyncio.Event()
                return None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIRST_S):
                    await first.wait()
        return self._session if context is self._context else None

    def has_lost_client(self, status: int) -> bool:
        """Whether such an answer on a resumed connection may mean that the server knows no client by the
        session.

        401 does. So does 403 where anonymous requests are allowed: they lack the right. A server that has
        carried out a request on a resumed connection knows clients by the session, and its 403 is about a
        right of the client's.
        """
        return status == 401 or (status == 403 and not self._is_client_known)

    def answered(
        self, tls: ssl.SSLObject, offered: ClientSession | None, verified_at_s: float, status: int = 200
    ) -> None:
        """The server has answered on a new connection, whose handshake ended at `verified_at_s`.

        The session of a resumed one is not kept: it would put the next verification off for good.
        """
        if tls.context is not self._context:
            return
        if tls.session_reused:
            self._refused_s = REFUSED_S
            self._is_client_known = self._is_client_known or 200 <= status < 300
        elif self._clock() >= self._ends_at_s or (offered is not None and offered is self._session):
            self._keep(tls, verified_at_s)
        self._end_first()

    def failed(self, offered: ClientSession | None) -> None:
        """A connection was not made, or its first answer may be due to what it resumed."""
        if offered is None:
            self._end_first()
        elif offered is self._session:
            # Only the first report counts: many may have offered it.
            self._session, self._refused_until_s = None, self._clock() + self._refused_s
            self._ends_at_s = self._refused_until_s
            self._refused_s = min(2 * self._refused_s, VERIFIED_S)

    def _keep(self, tls: ssl.SSLObject, verified_at_s: float) -> None:
        self._session, self._ends_at_s = None, verified_at_s + VERIFIED_S
        self._is_client_known = False
        # A server of TLS 1.2 need not have a key of its own for each connection.
        if tls.version() != "TLSv1.3":
            return
        try:
            # Of the whole chain. `getpeercert` has the first alone, and fails if a name in it is no UTF-8.
            expires_at = min(x509.validity(der)[1] for der in verified_chain(tls))
        except (TlsError, x509.CertificateError, ssl.SSLError, MemoryError):
            return
        self._ends_at_s = min(self._ends_at_s, self._clock() + expires_at - self._wall_clock())
        try:
            self._session = ClientSession.of(tls)
        except MemoryError:
            clear_errors()

    def _end_first(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            first.set()
