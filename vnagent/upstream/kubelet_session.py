# SPDX-License-Identifier: Apache-2.0
"""The TLS session of a verified connection to the kubelet, by which the next ones skip its certificates.

A stream takes a kubelet connection that nobody else uses afterwards, so each exec dials one. The check of the
kubelet's chain and our own signature were a quarter of the CPU that an exec took (docs/decisions/0023).
"""

import ssl
from collections.abc import Callable

from daemonkit.tls.client_session import ClientSession
from daemonkit.tls.contexts import TlsError, verified_chain
from tenancy import x509

# How long connections resume after the kubelet's certificates were verified.
VERIFIED_S = 600.0
# How long none is kept after one was of no use. The kubelet was restarted, and resumes the next one; or it
# never does, or breaks such connections off: then twice as long each time, up to VERIFIED_S.
REFUSED_S = 10.0


class KubeletSession:
    """A session of TLS 1.3 (RFC 8446, 2.2), from a connection whose handshake verified the kubelet's chain.

    Where the kubelet does not know it any more, as it was restarted, the handshake of the same connection
    becomes a whole one. A session that came with a resumed connection is not kept: it would put the next
    verification off, again and again.
    """

    __slots__ = ("_asks_again_at_s", "_doubts", "_is_confirmed", "_refused_s", "_session", "_wall_clock")

    def __init__(self, wall_clock: Callable[[], float]) -> None:
        """`wall_clock`: by which certificates expire."""
        self._wall_clock = wall_clock
        self._session: ClientSession | None = None
        self._asks_again_at_s = 0.0
        self._refused_s = REFUSED_S
        self._is_confirmed = False
        self._doubts = 0

    def current(self, now_s: float) -> ClientSession | None:
        """What a connection that is dialled now (by the loop's clock) resumes; None for a whole handshake."""
        return self._session if now_s < self._asks_again_at_s else None

    def keep(self, tls: ssl.SSLObject, verified_at_s: float, now_s: float) -> None:
        """Keep the session of a connection on which the kubelet has answered, if there is none or its time is
        over, for VERIFIED_S from its handshake or until a certificate of the kubelet's chain expires.

        `verified_at_s`: when the handshake ended, by the loop's clock. Raises MemoryError
        and ssl.SSLError where there is no memory to copy session and chain; none is kept then.
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
        """The kubelet has answered on a connection that offered it."""
        if offered is self._session:
            self._is_confirmed, self._doubts, self._refused_s = True, 0, REFUSED_S

    def doubt(self, offered: ClientSession, now_s: float) -> None:
        """The kubelet did not answer on a connection that resumes it. That may be the request's doing: a
        session by which others were answered is refused at the second time in a row."""
        if offered is self._session:
            self._doubts += 1
            if self._doubts > self._is_confirmed:
                self.refuse(offered, now_s)

    def refuse(self, offered: ClientSession, now_s: float) -> None:
        """The kubelet did not resume it, or a handshake that offered it failed. Does nothing where it was
        given up already, as many connections may have offered it."""
        if offered is self._session:
            self._session, self._asks_again_at_s = None, now_s + self._refused_s
            self._refused_s = min(2 * self._refused_s, VERIFIED_S)
