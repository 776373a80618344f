# SPDX-License-Identifier: Apache-2.0
"""Which chains OpenSSL may parse. The messages are those of OpenSSL's client."""

import contextlib
import functools
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.tls.openssl import Message, inspect, take_resume
from devkit.pki import Authority, certificate_builder, common_name
from tests.functional.vnagent.attacks import slow_key
from vnagent.core import client_chain
from vnagent.core.client_chain import MAX_CERTIFICATES, MAX_PASSED, ChainError, accept, check, take_digest

_AnyKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey


@functools.cache
def authority() -> Authority:
    return Authority.create("tenant")


def der_of(key: _AnyKey) -> bytes:
    """A certificate of this key, by the authority."""
    builder = certificate_builder(
        common_name("leaf"), authority().certificate.subject, cast(rsa.RSAPrivateKey, key)
    )
    return builder.sign(authority().key, hashes.SHA256()).public_bytes(Encoding.DER)


@functools.cache
def leaf() -> bytes:
    return der_of(ec.generate_private_key(ec.SECP256R1()))


def message(certificates: list[bytes], context: bytes = b"", extensions: bytes = b"") -> bytes:
    """RFC 8446, 4.4.2."""
    entries = b"".join(
        len(each).to_bytes(3) + each + len(extensions).to_bytes(2) + extensions for each in certificates
    )
    body = bytes([len(context)]) + context + len(entries).to_bytes(3) + entries
    return b"\x0b" + len(body).to_bytes(3) + body


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(lambda: ec.generate_private_key(ec.SECP256R1()), id="P-256"),
        pytest.param(lambda: ec.generate_private_key(ec.SECP384R1()), id="P-384"),
        pytest.param(lambda: ec.generate_private_key(ec.SECP521R1()), id="P-521"),
        pytest.param(lambda: rsa.generate_private_key(65537, 2048), id="RSA-2048"),
        pytest.param(lambda: rsa.generate_private_key(3, 3072), id="RSA-3072 with 3"),
        pytest.param(ed25519.Ed25519PrivateKey.generate, id="Ed25519"),
        pytest.param(ed448.Ed448PrivateKey.generate, id="Ed448"),
    ],
)
def test_common_keys_are_accepted(key: Callable[[], _AnyKey]) -> None:
    check(message([der_of(key()), leaf()]))


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(lambda: slow_key(2048), id="a long exponent"),
        pytest.param(lambda: ec.generate_private_key(ec.BrainpoolP512R1()), id="Brainpool"),
        pytest.param(lambda: ec.generate_private_key(ec.SECP256K1()), id="secp256k1"),
    ],
)
@pytest.mark.parametrize("index", [0, 1])
def test_slow_keys_are_refused(key: Callable[[], _AnyKey], index: int) -> None:
    chain = [leaf()]
    chain.insert(index, der_of(key()))
    with pytest.raises(ChainError, match="slow"):
        check(message(chain))


def test_a_large_modulus_is_refused() -> None:
    """Of 16 384 bits. To make such a key takes minutes, so its numbers are no key's."""

    def of_bits(bits: int) -> bytes:
        numbers = rsa.RSAPublicNumbers(65537, (1 << (bits - 1)) + 1)
        return der_of(cast(rsa.RSAPrivateKey, SimpleNamespace(public_key=numbers.public_key)))

    assert accept(message([of_bits(8192)]))
    with pytest.raises(ChainError, match="slow"):
        check(message([of_bits(16384)]))


def with_names(names: int, constraints: int) -> bytes:
    """One certificate that has so many names and constrains so many."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = certificate_builder(common_name("ca"), authority().certificate.subject, key)
    if names:
        own = x509.SubjectAlternativeName([x509.DNSName(f"y{each}") for each in range(names)])
        builder = builder.add_extension(own, critical=False)
    if constraints:
        half = [x509.DNSName(f"x{each}") for each in range(constraints // 2)]
        builder = builder.add_extension(x509.NameConstraints(half, half), critical=True)
    return builder.sign(authority().key, hashes.SHA256()).public_bytes(Encoding.DER)


def test_name_comparisons_are_bounded() -> None:
    """However they are spread over the chain; OpenSSL's own bound is for each certificate."""
    assert accept(message([with_names(1000, 0), with_names(0, 10)]))
    assert accept(message([with_names(3000, 0)]))
    assert not accept(message([with_names(1000, 0), with_names(0, 12)]))
    assert not accept(message([with_names(1001, 0), with_names(0, 4), with_names(0, 6)]))


def with_name(name: bytes) -> bytes:
    """One certificate with this GeneralName."""
    key = ec.generate_private_key(ec.SECP256R1())
    value = b"\x30" + len(name).to_bytes(1) + name
    extension = x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.17"), value)
    builder = certificate_builder(common_name("leaf"), authority().certificate.subject, key)
    builder = builder.add_extension(extension, critical=False)
    return builder.sign(authority().key, hashes.SHA256()).public_bytes(Encoding.DER)


def test_utf8_mailboxes_are_refused() -> None:
    """OpenSSL decodes the Punycode of a constraint for each of them: 18 ms for a chain of 10 KB, and 43 ms
    with the 64 constraints that a registered authority may have."""
    other = b"\x06\x08\x2b\x06\x01\x05\x05\x07\x08%c\xa0\x05\x0c\x03a@b"
    assert accept(message([leaf(), with_name(b"\xa0\x11" + other % 8)]))
    assert accept(message([leaf(), with_name(b"\x81\x03a@b")]))
    with pytest.raises(ChainError, match="mailbox"):
        check(message([leaf(), with_name(b"\xa0\x11" + other % 9)]))


def test_constructed_names_are_refused() -> None:
    """OpenSSL takes BER here, a string of strings, between which an identifier may be divided."""
    strict = b"\x06\x03\x55\x1d\x11\x04"
    whole = with_name(b"\x82\x01a")
    assert whole.count(strict) == 1
    with pytest.raises(ChainError, match="extension"):
        check(message([whole.replace(strict, strict[:-1] + b"\x24")]))


def with_points(kind: bytes) -> bytes:
    """One certificate with a distribution point of this form."""
    key = ec.generate_private_key(ec.SECP256R1())
    point = b"\x30\x06\x30\x04\xa0\x02" + kind + b"\x00"
    extension = x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.31"), point)
    builder = certificate_builder(common_name("ca"), authority().certificate.subject, key)
    builder = builder.add_extension(extension, critical=False)
    return builder.sign(authority().key, hashes.SHA256()).public_bytes(Encoding.DER)


def test_relative_distribution_points_are_refused() -> None:
    """OpenSSL copies the issuer's name for each of them: 0.4 s and 132 MB for an unsigned chain."""
    assert accept(message([with_points(b"\xa0")]))
    with pytest.raises(ChainError, match="relative"):
        check(message([with_points(b"\xa1")]))


def test_constraints_without_certificates_are_accepted() -> None:
    assert accept(message([], context=b"\x55\x1d\x1e"))


def test_the_number_of_certificates_is_bounded() -> None:
    assert accept(message([leaf()] * MAX_CERTIFICATES))
    assert not accept(message([leaf()] * (MAX_CERTIFICATES + 1)))


def test_a_chain_that_passed_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """To walk through it with each exec of an apiserver took 5 % of the exec's CPU."""
    walked: list[bytes] = []

    def count(message: bytes) -> None:
        walked.append(message)
        check(message)

    monkeypatch.setattr(client_chain, "_passed", set())
    monkeypatch.setattr(client_chain, "check", count)
    slow, quick = message([der_of(slow_key())]), message([leaf()])
    for _ in range(2):
        assert accept(quick)
        assert not accept(slow)
    assert walked == [quick, slow, slow]


def test_a_digest_is_taken_once_in_its_handshakes_thread() -> None:
    take_digest()
    assert accept(message([leaf()]))
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(take_digest).result() == b""
    first = take_digest()
    assert (len(first), take_digest()) == (32, b"")
    assert accept(message([leaf()]))  # known by now
    assert not accept(message([der_of(slow_key())]))
    assert take_digest() == first
    assert accept(message([leaf()] * 2))
    assert take_digest() not in {first, b""}


def test_few_digests_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: set[bytes] = set()
    monkeypatch.setattr(client_chain, "_passed", passed)
    for number in range(MAX_PASSED + 10):
        assert accept(message([leaf()], context=number.to_bytes(2)))
    assert len(passed) == 10


def test_an_empty_chain_is_left_to_openssl() -> None:
    assert accept(message([]))


def test_context_and_extensions_are_skipped() -> None:
    assert accept(message([leaf()] * 2, b"context", b"\0\x05\0\1x"))


@given(st.binary(max_size=64))
def test_arbitrary_bytes_raise_chain_error_only(data: bytes) -> None:
    with contextlib.suppress(ChainError):
        check(data)


@given(st.data())
def test_damaged_chains_raise_chain_error_only(data: st.DataObject) -> None:
    whole = message([leaf()])
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ChainError):
        check(bytes(damaged))
    with pytest.raises(ChainError):
        check(whole[:at])


def test_openssls_message_is_accepted() -> None:
    """The message as the server's side of a handshake has it."""
    seen: list[bytes] = []
    serving, client = authority().issue("node-1", sans_dns=["node-1"]), authority().issue("me")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_into(server)
    server.load_verify_locations(cadata=authority().der)
    server.verify_mode = ssl.CERT_REQUIRED

    def may_read_seen(message: bytes) -> bool:
        seen.append(message)
        return accept(message)

    inspect(server, {Message.CERTIFICATE: may_read_seen})
    peer = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    peer.load_verify_locations(cadata=authority().der)
    client.load_into(peer)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = server.wrap_bio(to_server, to_client, server_side=True)
    far = peer.wrap_bio(to_client, to_server, server_hostname="node-1")
    for side in (far, near, far, near):
        resume = take_resume()
        if resume is not None:
            resume()
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert seen == [
        message([client.der, authority().der])
    ]  # OpenSSL's client also sends its trusted certificates
    assert near.getpeercert(binary_form=True) == client.der
