# SPDX-License-Identifier: Apache-2.0
"""Readable ClientHellos: those of real libraries, and OpenSSL's replies to others."""

import contextlib
import ssl
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.admission.client_hello import (
    MAX_BYTES,
    MAX_EXTENSIONS,
    MAX_LIST_BYTES,
    HelloError,
    extensions,
    may_read,
)
from daemonkit.tls import ssl_layout
from daemonkit.tls.openssl import Message, inspect
from devkit.pki import Authority
from tests.cases import client_hello as case

HEADER_BYTES = 5  # of a record


def openssl_hello(ciphers: str) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers(ciphers)
    context.set_alpn_protocols(["h2", "http/1.1"])
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="node-1").do_handshake()
    return outgoing.read()[HEADER_BYTES:]


@pytest.mark.parametrize("ciphers", ["DEFAULT", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"])
def test_openssls_own_hellos_are_read(ciphers: str) -> None:
    assert may_read(openssl_hello(ciphers))


def test_a_hello_with_post_quantum_keys_is_read() -> None:
    """More than Go, browsers or OpenSSL 3.5 send: X25519MLKEM768, SecP384R1MLKEM1024, and their halves."""
    shares = [(0x11EC, 1216), (0x11ED, 1665), (29, 32), (24, 97), (23, 65)]
    content = b"".join(group.to_bytes(2) + case.vector(2, bytes(size)) for group, size in shares)
    algorithms = range(0x0901, 0x0901 + 40)
    whole = case.hello(
        case.numbers(case.GROUPS, [group for group, _ in shares]),
        case.numbers(case.ALGORITHMS, algorithms),
        case.numbers(case.CERTIFICATE_ALGORITHMS, algorithms),
        case.extension(case.STATUS_REQUEST, b"\1\0\0\0\0"),
        case.extension(case.KEY_SHARE, case.vector(2, content)),
        ciphers=60,
    )
    assert 3_000 < len(whole) < MAX_BYTES / 2
    assert may_read(whole)


@pytest.mark.parametrize("kind", [5, 10, 13, 47, 50])
def test_each_list_has_a_bound(kind: int) -> None:
    assert may_read(case.hello(case.extension(kind, bytes(MAX_LIST_BYTES))))
    assert not may_read(case.hello(case.extension(kind, bytes(MAX_LIST_BYTES + 1))))
    assert not may_read(case.hello(case.extension(0, b""), case.extension(kind, bytes(MAX_LIST_BYTES + 1))))


def test_the_size_has_a_bound() -> None:
    size = MAX_BYTES - len(case.plain(case.extension(case.PADDING, b"")))
    assert may_read(case.plain(case.extension(case.PADDING, bytes(size))))
    assert not may_read(case.plain(case.extension(case.PADDING, bytes(size + 1))))


def test_the_number_of_extensions_has_a_bound() -> None:
    """1 800 that have no meaning took 1.9 ms of a server."""
    others = [case.extension(0x5000 + number, b"") for number in range(MAX_EXTENSIONS)]
    assert may_read(case.hello(*others[1:]))  # with supported_versions
    assert not may_read(case.hello(*others))


def test_a_hello_without_extensions_is_left_to_openssl() -> None:
    body = b"\3\3" + bytes(32) + b"\0" + b"\0\2\x13\1" + b"\1\0"
    assert may_read(b"\1" + case.vector(3, body))
    assert not may_read(b"\1" + case.vector(3, body + b"\0"))


def test_extensions_are_found_at_their_offsets() -> None:
    whole = case.hello(case.extension(7, b"seven"), case.extension(8, b""))
    found = [(kind, whole[at : at + size]) for kind, at, size in extensions(whole)]
    assert found == [(43, b"\2\3\4"), (7, b"seven"), (8, b"")]


@given(st.binary(max_size=100))
def test_arbitrary_bytes_raise_hello_error_only(data: bytes) -> None:
    may_read(data)


def test_a_truncated_hello_is_refused() -> None:
    whole = case.plain()
    # Its extensions begin behind 45 bytes; one that ends there would have none.
    for size in set(range(len(whole))) - {45}:
        with pytest.raises(HelloError):
            list(extensions(whole[:size]))


def server_replies(*hellos: bytes) -> list[bytes]:
    """The replies of a server that inspects hellos."""
    serving = Authority.create("serving").issue("node-1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_into(context)
    inspect(context, {Message.CLIENT_HELLO: may_read})
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=True)
    found = []
    for each in hellos:
        incoming.write(case.record(each))
        with contextlib.suppress(ssl.SSLError):
            tls.do_handshake()
        found.append(outgoing.read())
    return found


SERVER_HELLO = b"\x16\3\3"


def test_a_refused_hello_gets_the_decode_error_alert() -> None:
    assert server_replies(case.plain())[0].startswith(SERVER_HELLO)
    slow = [case.many_algorithms(), case.many_authorities(), case.many_responders()]
    assert [server_replies(each) for each in slow] == [[case.DECODE_ERROR]] * len(slow)


def test_the_second_hello_of_a_client_is_inspected() -> None:
    """The server requests another one, with a key of an accepted group (RFC 8446, 4.1.4)."""
    algorithms = case.numbers(case.ALGORITHMS, [case.ECDSA_P256])
    first = case.hello(case.numbers(case.GROUPS, [0x7777, case.P256]), case.share(0x7777, b"x"), algorithms)
    retry, second_reply = server_replies(first, case.many_algorithms())
    assert retry.startswith(SERVER_HELLO)
    assert second_reply == case.DECODE_ERROR


def test_without_libssl_nothing_is_inspected_and_one_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ssl_layout, "_ssl", SimpleNamespace(__file__="/nonexistent.so"))
    for _ in range(2):
        inspect(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), {Message.CLIENT_HELLO: may_read})
    (line,) = capsys.readouterr().err.splitlines()
    assert "WARNING" in line
    assert "/nonexistent.so" in line
