# SPDX-License-Identifier: Apache-2.0
"""Which messages of a client are inspected, and when OpenSSL calls Python at all."""

import contextlib
import ssl
import sys
from dataclasses import dataclass, field
from functools import cache
from types import FrameType, SimpleNamespace

import pytest

from daemonkit.admission import client_hello
from daemonkit.tls import openssl
from daemonkit.tls.openssl import Message, inspect, take_resume
from devkit.pki import Authority
from tests.cases import client_hello as case


@cache
def authority() -> Authority:
    return Authority.create("tenant")


@cache
def client_context() -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority().cert_pem.decode())
    authority().issue("apiserver").load_into(context)
    return context


@dataclass
class Inspected:
    """A server that inspects its clients, and the inspected bytes."""

    kinds: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.context.num_tickets = 0
        authority().issue("node-1", sans_dns=["node-1"]).load_into(self.context)
        self.context.load_verify_locations(cadata=authority().cert_pem.decode())
        inspect(self.context, {Message.CLIENT_HELLO: self.hello, Message.CERTIFICATE: self.chain})

    def hello(self, message: bytes) -> bool:
        self.kinds.append(message[0])
        return client_hello.may_read(message)

    def chain(self, message: bytes) -> bool:
        self.kinds.append(message[0])
        return True


class ServerSide:
    """The server's side of one connection, which resumes its inspection."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.resume = take_resume()  # what an earlier test has left

    def step(self, data: bytes) -> bytes:
        """Its reply to `data`. Raises ssl.SSLError."""
        self.incoming.write(data)
        if self.resume is not None:
            self.resume()
        try:
            with contextlib.suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
        finally:
            self.resume = take_resume()
        return self.outgoing.read()


class TlsClient:
    """The client's side: a flight for each reply."""

    def __init__(self) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = client_context().wrap_bio(self._incoming, self._outgoing, server_hostname="node-1")

    def step(self, server_bytes: bytes = b"") -> bytes:
        self._incoming.write(server_bytes)
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self._outgoing.read()


HELLO, CERTIFICATE = int(Message.CLIENT_HELLO), int(Message.CERTIFICATE)


def test_connections_of_one_thread_are_inspected_separately() -> None:
    server = Inspected()
    pairs = [(TlsClient(), ServerSide(server.context)) for _ in range(3)]
    flights = [client.step(side.step(client.step())) for client, side in pairs]
    assert server.kinds == [HELLO] * 3
    for (_, side), flight in zip(pairs, flights, strict=True):
        side.step(flight)
    assert server.kinds == [HELLO] * 3 + [CERTIFICATE] * 3


def test_a_chain_in_pieces_is_inspected() -> None:
    server, client = Inspected(), TlsClient()
    side = ServerSide(server.context)
    hello = client.step()
    server_bytes = b"".join(side.step(hello[at : at + 1]) for at in range(len(hello)))
    flight = client.step(server_bytes)
    for at in range(len(flight)):
        side.step(flight[at : at + 1])
    assert server.kinds == [HELLO, CERTIFICATE]
    assert side.tls.getpeercert(binary_form=True)


def test_python_is_called_for_the_hello_and_the_chain_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call for each record and message were 31 of a handshake, and one for each record behind it."""
    server, client = Inspected(), TlsClient()
    side = ServerSide(server.context)
    calls = 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_name == "on_message"

    sys.setprofile(count)
    try:
        flight = client.step(side.step(client.step()))
        assert 2 <= calls <= 6
        calls = 0
        side.step(flight)
        assert 1 <= calls <= 6
        calls = 0
        client.tls.write(b"record")
        side.incoming.write(client._outgoing.read())  # noqa: SLF001 - as `step` is of the handshake
        assert side.tls.read() == b"record"
        assert calls == 0
    finally:
        sys.setprofile(None)
    assert openssl.take_resume() is None


def retried_hello() -> bytes:
    """With a key of a group that the server does not accept, it requests a second hello."""
    algorithms = case.numbers(case.ALGORITHMS, [case.ECDSA_P256])
    return case.hello(case.numbers(case.GROUPS, [0x7777, case.P256]), case.share(0x7777, b"x"), algorithms)


def test_a_second_hello_sent_with_the_first_is_inspected() -> None:
    """Before the server's request for it, which anyone can predict."""
    server = Inspected()
    side = ServerSide(server.context)
    side.incoming.write(case.record(retried_hello()))
    with pytest.raises(ssl.SSLError):
        side.step(case.record(case.many_algorithms()))
    assert server.kinds == [HELLO] * 2
    assert side.outgoing.read().endswith(case.DECODE_ERROR)


def test_an_inspection_pauses_only_if_it_can_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    monkeypatch.setattr(openssl, "functools", SimpleNamespace(partial=fail))
    server, client = Inspected(), TlsClient()
    side = ServerSide(server.context)
    side.step(client.step(side.step(client.step())))
    assert (server.kinds, len(unraisable)) == ([HELLO, CERTIFICATE], 1)


# A Certificate message with one that is none.
CHAIN = b"\x0b" + case.vector(3, b"\0" + case.vector(3, case.vector(3, bytes(1000)) + b"\0\0"))


@pytest.mark.parametrize(
    ("flight", "reason"),
    [
        pytest.param(case.record(case.plain()) + case.record(CHAIN), "BAD_RECORD_TYPE", id="its-own-record"),
        pytest.param(case.record(case.plain() + CHAIN), "NOT_ON_RECORD_BOUNDARY", id="the-hellos-record"),
    ],
)
def test_a_chain_sent_with_the_hello_is_refused(flight: bytes, reason: str) -> None:
    """It would come while the inspection pauses. OpenSSL takes an encrypted one alone (RFC 8446, 5.1)."""
    side = ServerSide(Inspected().context)
    with pytest.raises(ssl.SSLError) as caught:
        side.step(flight)
    assert caught.value.reason == reason
