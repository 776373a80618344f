# SPDX-License-Identifier: Apache-2.0
"""The TLS session of a verified connection to the kubelet, by which the next ones skip its certificates.

A stream takes a kubelet connection that nobody else uses afterwards, so each exec dials one. The check of the
kubelet's chain and our own signature were a quarter of the CPU that an exec took (docs/decisions/0023).
"""

import ssl
from collections.abc import Callable

from daemonkit.tls import TlsError, verified_chain
from tenancy import x509

# How long connections resume before the kubelet's certificates are verified anew. `ssl` copies a session
# with its certificates: to keep one takes 0.2 ms.
VERIFIED_S = 600.0
# How long none is kept after the kubelet did not resume one. It was restarted, and resumes the next one; or
# it never does, and one for each exec would be kept in vain.
REFUSED_S = 10.0


class KubeletSession:
    """A session of TLS 1.3 (RFC 8446, 2.2), from a connection whose handshake verified the kubelet's chain.

    Where the kubelet does not know it any more, as it was restarted, the handshake of the same connection
    becomes a whole one. A session that came with a resumed connection is not kept: it would put the next
    verification off, again and again.
    """

    __slots__ = ("_asks_again_at_s", "_session", "_wall_clock")

    def __init__(self, wall_clock: Callable[[], float]) -> None:
        """`wall_clock`: by which certificates expire."""
        self._wall_clock = wall_clock
        self._session: ssl.SSLSession | None = None
        self._asks_again_at_s = 0.0

    def current(self, now_s: float) -> ssl.SSLSession | None:
        """What a connection that is dialled now (by the loop's clock) resumes; None for a whole handshake."""
        return self._session if now_s < self._asks_again_at_s else None

    def keep(self, tls: ssl.SSLObject, now_s: float) -> None:
        """Keep the session of a connection on which the kubelet has answered, if there is none or its time is
        over, for VERIFIED_S or until a certificate of the kubelet's chain expires."""
        if now_s < self._asks_again_at_s or tls.session_reused:
            return
        # Also where there is none to keep: to find that out takes as long.
        self._session, self._asks_again_at_s = None, now_s + VERIFIED_S
        session = tls.session
        if session is None or not session.has_ticket or tls.version() != "TLSv1.3":
            return
        try:
            expires_at = min(x509.validity(der)[1] for der in verified_chain(tls))
        except (TlsError, x509.CertificateError):
            return
        self._session = session
        self._asks_again_at_s = now_s + min(VERIFIED_S, expires_at - self._wall_clock())

    def refuse(self, now_s: float) -> None:
        """The kubelet did not resume it, or a handshake with it failed."""
        self._session, self._asks_again_at_s = None, now_s + REFUSED_S
