# SPDX-License-Identifier: Apache-2.0
"""The TLS session of a verified connection to the server upstream; the next connections resume it.

A stream keeps its kubelet connection, so each exec dials one. The check of the
kubelet's chain and vn-agent's signature were a quarter of an exec's CPU (docs/decisions/0023).
"""

import ssl
from collections.abc import Callable

from daemonkit.tls.client_session import ClientSession
from daemonkit.tls.contexts import TlsError, verified_chain
from tenancy import x509

# How long connections resume after the kubelet's certificates were verified.
VERIFIED_S = 600.0
# How long none is kept after one failed. A restarted kubelet resumes the next one. One that
# never does, or breaks such connections off, doubles the time, up to VERIFIED_S.
REFUSED_S = 10.0


class UpstreamSession:
    """A session of TLS 1.3 (RFC 8446, 2.2), from a connection whose handshake verified the kubelet's chain.

    If the kubelet has forgotten it in a restart, the same connection does a full handshake. A session of a
    resumed connection is not kept: it would postpone the next verification for ever.
    """

    __slots__ = (
        "_asks_again_at_s",
        "_failed_resumptions",
        "_is_confirmed",
        "_refused_s",
        "_session",
        "_wall_clock",
    )

    def __init__(self, wall_clock: Callable[[], float]) -> None:
        """Certificates expire by `wall_clock`."""
        self._wall_clock = wall_clock
        self._session: ClientSession | None = None
        self._asks_again_at_s = 0.0
        self._refused_s = REFUSED_S
        self._is_confirmed = False
        self._failed_resumptions = 0

    def current(self, now_s: float) -> ClientSession | None:
        """The session for a connection dialled at `now_s` of the loop's clock; None for a full handshake."""
        return self._session if now_s < self._asks_again_at_s else None

    def keep(self, tls: ssl.SSLObject, verified_at_s: float, now_s: float) -> None:
        """Keep the session of a connection on which the kubelet has answered, unless one is valid.

        It is valid for VERIFIED_S from the end of its handshake, `verified_at_s` of the loop's clock, or
        until a certificate of the kubelet's chain expires. Raises MemoryError and ssl.SSLError without memory
        to copy session and chain; none is kept then.
        """
        ends_at_s = verified_at_s + VERIFIED_S
        if now_s < self._asks_again_at_s or ends_at_s <= now_s or tls.session_reused:
            return
        self._session = None
        session = ClientSession.of(tls) if tls.version() == "TLSv1.3" else None
        if session is None:
            return
        try:
            expires_at = min(x509.validity(der)[1] for der in verified_chain(tls))
        except (TlsError, x509.CertificateError):
            return
        self._session, self._is_confirmed = session, False
        self._asks_again_at_s = min(ends_at_s, now_s + expires_at - self._wall_clock())

    def confirm(self, offered: ClientSession) -> None:
        """The kubelet answered on a connection that offered it."""
        if offered is self._session:
            self._is_confirmed, self._failed_resumptions, self._refused_s = True, 0, REFUSED_S

    def resumption_failed(self, offered: ClientSession, now_s: float) -> None:
        """The kubelet did not answer on a connection that resumed it. The request may be the cause: a
        confirmed session is refused at the second time in a row."""
        if offered is self._session:
            self._failed_resumptions += 1
            if self._failed_resumptions > self._is_confirmed:
                self.refuse(offered, now_s)

    def refuse(self, offered: ClientSession, now_s: float) -> None:
        """The kubelet did not resume it, or a handshake that offered it failed. Only the first report counts,
        as many connections may have offered it."""
        if offered is self._session:
            self._session, self._asks_again_at_s = None, now_s + self._refused_s
            self._refused_s = min(2 * self._refused_s, VERIFIED_S)
