# SPDX-License-Identifier: Apache-2.0
"""Which session of the kubelet is resumed, and until when: with real TLS, in memory."""

import datetime as dt
import ssl
from functools import cache

import pytest

from daemonkit.tls.client_session import ClientSession
from daemonkit.tls.contexts import TlsError, verified_chain
from devkit.pki import Authority
from tenancy import x509
from vnagent.upstream import session as upstream_session
from vnagent.upstream.session import REFUSED_S, VERIFIED_S, UpstreamSession

NAME = "node-1"
# The loop's clock.
NOW_S = 100.0
# The certificates are real, and OpenSSL uses the machine's clock: they are valid for more than a day.
WALL_S = dt.datetime.now(dt.UTC).timestamp()


@cache
def authority() -> Authority:
    return Authority.create("kubelet-serving")


def server_context(*, expires_in_s: float = 86_400.0, tickets: int = 1) -> ssl.SSLContext:
    expires_at = dt.datetime.fromtimestamp(WALL_S + expires_in_s, dt.UTC)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue(NAME, sans_dns=[NAME], usages=("server",), not_after=expires_at).load_into(context)
    context.num_tickets = tickets
    return context


def client_context() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority().cert_pem.decode())


def connected(
    server: ssl.SSLContext, client: ssl.SSLContext, session: ClientSession | None = None
) -> ssl.SSLObject:
    """The client's side of a connection on which the server has sent something."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=NAME)
    if session is not None:
        session.offer(ours)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(2):
        for each in (ours, theirs):
            try:
                each.do_handshake()
            except ssl.SSLWantReadError:
                continue
    theirs.write(b"HTTP/1.1 101 Switching Protocols")
    assert ours.read()
    return ours


def test_a_session_is_resumed_until_its_validity_ends() -> None:
    server, client, kept = server_context(), client_context(), UpstreamSession(lambda: WALL_S)
    assert kept.current(NOW_S) is None
    kept.keep(connected(server, client), NOW_S, NOW_S)
    session = kept.current(NOW_S + VERIFIED_S - 1)
    assert session is not None
    assert connected(server, client, session).session_reused
    assert kept.current(NOW_S + VERIFIED_S) is None


def test_validity_counts_from_the_verification() -> None:
    """A connection may have stood for long before it became a stream."""
    server, client, kept = server_context(), client_context(), UpstreamSession(lambda: WALL_S)
    kept.keep(connected(server, client), NOW_S - VERIFIED_S, NOW_S)
    assert kept.current(NOW_S) is None
    kept.keep(connected(server, client), NOW_S - VERIFIED_S + 1, NOW_S)
    assert kept.current(NOW_S + 0.5) is not None
    assert kept.current(NOW_S + 1) is None


def test_the_session_of_a_resumed_connection_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the chain would never be verified again. Nor where OpenSSL calls the former chain verified."""
    server, client, kept = server_context(), client_context(), UpstreamSession(lambda: WALL_S)
    first = connected(server, client)
    chain = verified_chain(first)
    monkeypatch.setattr(upstream_session, "verified_chain", lambda _: chain)
    kept.keep(first, NOW_S, NOW_S)
    later_s = NOW_S + VERIFIED_S
    kept.keep(connected(server, client, ClientSession.of(first)), later_s, later_s)
    assert kept.current(later_s) is None
    kept.keep(connected(server, client), later_s, later_s)
    assert kept.current(later_s) is not None


@pytest.mark.parametrize("what", ["leaf", "authority"])
def test_a_session_ends_with_the_first_expiry_in_its_chain(what: str) -> None:
    leaf_expires_in_s = 86_400.0 if what == "leaf" else 400 * 86_400.0
    authority_expires_in_s = authority().certificate.not_valid_after_utc.timestamp() - WALL_S
    assert (leaf_expires_in_s < authority_expires_in_s) is (what == "leaf")
    left_s = 60.0
    wall_s = WALL_S + min(leaf_expires_in_s, authority_expires_in_s) - left_s
    kept = UpstreamSession(lambda: wall_s)
    kept.keep(connected(server_context(expires_in_s=leaf_expires_in_s), client_context()), NOW_S, NOW_S)
    # A certificate's time is in whole seconds.
    assert kept.current(NOW_S + left_s - 2) is not None
    assert kept.current(NOW_S + left_s) is None


def usable_at(kept: UpstreamSession, now_s: float) -> ClientSession | None:
    """The session that is offered after a stream that began now with a full handshake."""
    kept.keep(connected(server_context(), client_context()), now_s, now_s)
    return kept.current(now_s)


def session_of(kept: UpstreamSession, now_s: float) -> ClientSession:
    session = usable_at(kept, now_s)
    assert session is not None
    return session


def refused_for_s(kept: UpstreamSession, now_s: float, *, is_confirmed: bool = False) -> float:
    """How long none is kept after the session of `now_s` was refused."""
    session = session_of(kept, now_s)
    if is_confirmed:
        kept.confirm(session)
    kept.refuse(session, now_s)
    at_s = now_s
    while usable_at(kept, at_s) is None:
        at_s += REFUSED_S
    return at_s - now_s


def test_after_a_refusal_another_session_is_kept_later() -> None:
    kept = UpstreamSession(lambda: WALL_S)
    assert refused_for_s(kept, NOW_S) == REFUSED_S
    assert refused_for_s(kept, NOW_S + 2 * VERIFIED_S) == 2 * REFUSED_S
    assert refused_for_s(kept, NOW_S + 4 * VERIFIED_S, is_confirmed=True) == REFUSED_S


def test_a_confirmed_session_is_refused_at_the_second_doubt() -> None:
    kept = UpstreamSession(lambda: WALL_S)
    session = session_of(kept, NOW_S)
    for _ in range(2):
        kept.confirm(session)
        kept.resumption_failed(session, NOW_S)
        assert kept.current(NOW_S) is session
    kept.resumption_failed(session, NOW_S)
    assert kept.current(NOW_S) is None
    session = session_of(kept, NOW_S + REFUSED_S)
    kept.resumption_failed(session, NOW_S + REFUSED_S)
    assert kept.current(NOW_S + REFUSED_S) is None


def test_reports_on_an_old_session_do_not_affect_the_new_one() -> None:
    kept = UpstreamSession(lambda: WALL_S)
    first = session_of(kept, NOW_S)
    kept.refuse(first, NOW_S)
    now_s = NOW_S + REFUSED_S
    second = session_of(kept, now_s)
    kept.refuse(first, now_s)
    kept.resumption_failed(first, now_s)
    kept.confirm(first)
    assert kept.current(now_s) is second
    kept.resumption_failed(second, now_s)
    assert kept.current(now_s) is None
    assert usable_at(kept, now_s + REFUSED_S) is None


def test_a_chain_with_unreadable_validity_keeps_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def validity(_: bytes) -> tuple[float, float]:
        raise x509.CertificateError("not a certificate")

    monkeypatch.setattr(x509, "validity", validity)
    kept = UpstreamSession(lambda: WALL_S)
    kept.keep(connected(server_context(), client_context()), NOW_S, NOW_S)
    assert kept.current(NOW_S) is None


def test_a_session_is_refused_once_by_many_connections() -> None:
    kept = UpstreamSession(lambda: WALL_S)
    session = session_of(kept, NOW_S)
    for _ in range(8):
        kept.refuse(session, NOW_S)
    assert usable_at(kept, NOW_S + REFUSED_S) is not None


def test_a_kubelet_that_never_resumes_is_tried_less_often() -> None:
    kept, now_s, tried_at_s = UpstreamSession(lambda: WALL_S), NOW_S, []
    while now_s < NOW_S + 6 * VERIFIED_S:
        session = usable_at(kept, now_s)
        if session is not None:
            tried_at_s.append(now_s)
            kept.refuse(session, now_s)
        now_s += VERIFIED_S / 2
    assert tried_at_s[-1] - tried_at_s[-2] == VERIFIED_S


def test_a_session_with_an_unreadable_chain_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: ssl.SSLObject) -> list[bytes]:
        raise TlsError("no chain")

    monkeypatch.setattr(upstream_session, "verified_chain", fail)
    assert usable_at(UpstreamSession(lambda: WALL_S), NOW_S) is None


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_without_tls_1_3_tickets_no_session_is_kept(version: ssl.TLSVersion) -> None:
    server, client, kept = server_context(tickets=0), client_context(), UpstreamSession(lambda: WALL_S)
    server.maximum_version = version
    kept.keep(connected(server, client), NOW_S, NOW_S)
    assert kept.current(NOW_S) is None
    kept.keep(connected(server_context(), client), NOW_S, NOW_S)
    assert kept.current(NOW_S) is not None
