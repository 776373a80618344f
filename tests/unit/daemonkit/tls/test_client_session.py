# SPDX-License-Identifier: Apache-2.0
"""How a session is taken from a connection and offered by others: with real TLS, in memory."""

import _ssl
import contextlib
import ctypes
import ssl
from functools import cache
from types import SimpleNamespace
from typing import cast

import pytest

from daemonkit.tls import client_session
from daemonkit.tls.client_session import ClientSession
from daemonkit.tls.ssl_layout import connection_address
from devkit.pki import Authority


@cache
def authority() -> Authority:
    return Authority.create("kubelet-serving")


def client_context() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority().cert_pem.decode())


@cache
def client() -> ssl.SSLContext:
    return client_context()


@cache
def server() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue("node-1", sans_dns=["node-1"]).load_into(context)
    return context


def fresh(context: ssl.SSLContext | None = None, name: str = "node-1") -> ssl.SSLObject:
    """A client's connection before its handshake."""
    return (context or client()).wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=name)


def dialled(session: ClientSession | None = None, *, has_read: bool = True) -> ssl.SSLObject:
    """A client's connection behind its handshake, which offers `session`. With `has_read` it has the
    server's new one."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client().wrap_bio(to_client, to_server, server_hostname="node-1")
    theirs = server().wrap_bio(to_server, to_client, server_side=True)
    if session is not None:
        session.offer(ours)
    for _ in range(2):
        for each in (ours, theirs):
            with contextlib.suppress(ssl.SSLWantReadError):
                each.do_handshake()
    if has_read:
        theirs.write(b"answer")
        assert ours.read() == b"answer"
    return ours


def session_of(tls: ssl.SSLObject) -> ClientSession:
    session = ClientSession.of(tls)
    assert session is not None
    return session


def peer_certificate_at(tls: ssl.SSLObject) -> int:
    """Where OpenSSL has the certificate of the connection's peer. Takes a reference."""
    get = ctypes.PyDLL(_ssl.__file__).SSL_get1_peer_certificate
    get.argtypes, get.restype = [ctypes.c_void_p], ctypes.c_void_p
    at: int = get(connection_address(tls))
    return at


def test_resumed_connections_share_the_peers_certificate() -> None:
    session = session_of(dialled())
    resumed = [dialled(session), dialled(session)]
    assert [tls.session_reused for tls in resumed] == [True, True]
    assert len({peer_certificate_at(tls) for tls in resumed}) == 1


def test_a_dropped_connection_leaves_its_session_usable() -> None:
    """OpenSSL marks the session of a connection that ends without a good-bye: it is not offered again."""
    first = dialled()
    session = session_of(first)
    del first
    dropped = dialled(session, has_read=False)
    assert dropped.session_reused
    del dropped
    assert dialled(session).session_reused


def test_a_resumed_connection_outlives_the_session() -> None:
    tls = dialled(session_of(dialled()))
    assert tls.session_reused
    assert tls.getpeercert() == dialled().getpeercert()
    assert dialled(session_of(tls)).session_reused


def test_without_a_ticket_there_is_no_session() -> None:
    assert ClientSession.of(fresh()) is None
    assert ClientSession.of(dialled(has_read=False)) is None


def test_a_session_is_offered_to_the_verified_server_only() -> None:
    """By the same authorities, and by name. OpenSSL resumes it under any name, and verifies nothing then."""
    session = session_of(dialled())
    with pytest.raises(ValueError, match="context"):
        session.offer(fresh(client_context()))
    with pytest.raises(ValueError, match="name"):
        session.offer(fresh(name="node-2"))


@pytest.mark.parametrize("file", [None, "/nonexistent.so"])
def test_without_libssl_there_are_no_sessions(file: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = dialled()
    client_session._calls.cache_clear()  # noqa: SLF001 - what other tests have found
    monkeypatch.delattr(_ssl, "__file__") if file is None else monkeypatch.setattr(_ssl, "__file__", file)
    try:
        assert ClientSession.of(tls) is None
    finally:
        client_session._calls.cache_clear()  # noqa: SLF001
    monkeypatch.undo()
    assert ClientSession.of(tls) is not None


@pytest.mark.parametrize("is_short", [True, False], ids=["shorter", "of-other-fields"])
def test_with_another_layout_there_are_no_sessions(is_short: bool) -> None:
    # Behind a tuple's length, which is its last own field, its items look like the SSL and the context.
    other = ("connection", client()) if is_short else {}
    tls = cast(ssl.SSLObject, SimpleNamespace(_sslobj=other, context=client()))
    assert connection_address(tls) is None  # to go on with another would crash
    assert ClientSession.of(tls) is None


def test_without_a_connection_no_session_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(dialled())
    monkeypatch.setattr(client_session, "connection_address", lambda _: None)
    with pytest.raises(ValueError, match="context"):
        session.offer(fresh())


class CountedCalls:
    """Calls libssl, or fails as libssl does without memory. `sessions`: the copies that are not freed."""

    def __init__(self) -> None:
        calls = client_session._calls()  # noqa: SLF001 - the test counts it
        assert calls is not None
        self._calls = calls
        self.session_of, self.is_resumable = calls.session_of, calls.is_resumable
        self.can_copy = self.can_set = True
        self.is_conversion = False  # of an argument, which has no memory
        self.sessions: list[int | None] = []
        self.cleared_count = 0

    def copy(self, session: int) -> int | None:
        copy = self._calls.copy(session) if self.can_copy else self.no_memory()
        self.sessions += [copy] if copy else []
        return copy

    def set_session(self, connection: int, session: int) -> int:
        return self._calls.set_session(connection, session) if self.can_set else self.no_memory()

    def no_memory(self) -> int:
        """What a call returns or raises then."""
        if self.is_conversion:
            raise ctypes.ArgumentError("argument 1: MemoryError: ")
        return 0

    def free(self, session: int) -> None:
        self.sessions.remove(session)
        self._calls.free(session)

    def clear_errors(self) -> None:
        self.cleared_count += 1


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> CountedCalls:
    counted = CountedCalls()
    monkeypatch.setattr(client_session, "_calls", lambda: counted)
    return counted


def test_copies_of_a_session_are_freed(calls: CountedCalls) -> None:
    session = session_of(dialled())
    assert len(calls.sessions) == 1
    dialled(session)
    assert len(calls.sessions) == 1
    del session
    assert not calls.sessions


@pytest.mark.parametrize("is_conversion", [False, True], ids=["openssl", "ctypes"])
@pytest.mark.parametrize("lacking", ["can_copy", "can_set"])
def test_copies_are_freed_where_memory_is_short(
    lacking: str, is_conversion: bool, calls: CountedCalls
) -> None:
    """Nor an error, which `ssl` would raise for another connection."""
    session = session_of(dialled())
    setattr(calls, lacking, False)
    calls.is_conversion = is_conversion
    with pytest.raises(MemoryError):
        session.offer(fresh())
    assert (len(calls.sessions), calls.cleared_count) == (1, 1)


@pytest.mark.parametrize("is_conversion", [False, True], ids=["openssl", "ctypes"])
def test_without_memory_no_session_is_taken(is_conversion: bool, calls: CountedCalls) -> None:
    tls = dialled()
    calls.can_copy, calls.is_conversion = False, is_conversion
    with pytest.raises(MemoryError):
        ClientSession.of(tls)
    assert calls.cleared_count == 1
