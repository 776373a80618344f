# SPDX-License-Identifier: Apache-2.0
"""Attacks on the handshakes of a daemon: expensive chains, silent connections, half handshakes.

Tests count the daemon's work; `python -m tests.bench.handshakes` measures the effect on a neighbour.
"""

import contextlib
import math
import os
import resource
import socket
import ssl
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from devkit.pki import Authority, Leaf, certificate_builder, common_name, new_key
from vnagent.core.client_chain import MAX_CERTIFICATES

_AnyKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def slow_key(bits: int = 3072) -> rsa.RSAPrivateKey:
    """An RSA key with a public exponent nearly as long as its modulus. Verifying a signature takes 6
    ms. OpenSSL takes such exponents up to 3072 bits (OPENSSL_RSA_SMALL_MODULUS_BITS)."""
    numbers = _primes(bits).private_numbers()
    p, q = numbers.p, numbers.q
    order = math.lcm(p - 1, q - 1)
    exponent = (1 << (bits - 1)) - 1
    while math.gcd(exponent, order) != 1 or exponent >= p * q:
        exponent -= 2
    secret = pow(exponent, -1, order)
    return rsa.RSAPrivateNumbers(
        p, q, secret, secret % (p - 1), secret % (q - 1), numbers.iqmp, rsa.RSAPublicNumbers(exponent, p * q)
    ).private_key(unsafe_skip_rsa_key_validation=True)


@cache
def _primes(bits: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def chain_of(
    authority: Authority,
    leaf_key: ec.EllipticCurvePrivateKey,
    keys: Sequence[_AnyKey],
    names: int = 0,
    excluded: int = 0,
) -> bytes:
    """PEM: a client's leaf, and an intermediate for each of `keys`, up to the one that `authority` signed.
    The leaf has so many `names`, and the intermediate above it excludes so many others."""
    issuer, signer = authority.certificate.subject, authority.key
    signing: _AnyKey = signer
    pem: list[bytes] = []
    for number, key in enumerate(keys):
        name = common_name(f"i{number}")
        certificate = certificate_builder(name, issuer, key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        if names and number == len(keys) - 1:
            others = [x509.DNSName(f"xx{each}") for each in range(excluded)]
            certificate = certificate.add_extension(x509.NameConstraints(None, others), critical=True)
        pem.append(certificate.sign(signing, hashes.SHA256()).public_bytes(Encoding.PEM))
        issuer, signing = name, key
    leaf = certificate_builder(common_name("client"), issuer, leaf_key)
    if names:
        own = x509.SubjectAlternativeName([x509.DNSName(f"yy{each}.example.org") for each in range(names)])
        leaf = leaf.add_extension(own, critical=False)
    pem.append(leaf.sign(signing, hashes.SHA256()).public_bytes(Encoding.PEM))
    return b"".join(reversed(pem))


def slow_chain(authority: Authority, leaf_key: ec.EllipticCurvePrivateKey, count: int) -> bytes:
    key = slow_key()
    return chain_of(authority, leaf_key, [key] * count)


def costly_chain(authority: Authority, leaf_key: ec.EllipticCurvePrivateKey) -> bytes:
    """The most that is checked: as many certificates as are taken, of P-521, and names that the intermediate
    above the leaf excludes, to be compared with each of the leaf's. Some 8 KiB and 4 ms."""
    keys = [ec.generate_private_key(ec.SECP521R1()) for _ in range(MAX_CERTIFICATES - 1)]
    return chain_of(authority, leaf_key, keys, names=300, excluded=33)


def crafted_chain(leaf: Leaf, count: int) -> bytes:
    """PEM: a client's leaf and `count` unsigned certificates, with keys on a curve made for the attack.

    p is c * 2**642 + 1, so that OpenSSL takes 0.15 s for a square root (Tonelli-Shanks), and each certificate
    has two points to decompress: the generator and the key."""
    prime, x, y = 12979 * 2**642 + 1, 1, 3
    numbers = {"a": b"\0", "b": ((y * y - x**3) % prime).to_bytes(82)}
    point = b"\2" + x.to_bytes(82)
    curve = _der(0x30, _der(4, numbers["a"]), _der(4, numbers["b"]))
    field = _der(0x30, _der(6, bytes.fromhex("2a8648ce3d0101")), _der(2, prime.to_bytes(83)))
    parameters = _der(0x30, _der(2, b"\1"), field, curve, _der(4, point), _der(2, b"\7"))
    algorithm = _der(0x30, _der(6, bytes.fromhex("2a8648ce3d0201")), parameters)
    key = _der(0x30, algorithm, _der(3, b"\0", point))
    signature = _der(0x30, _der(6, bytes.fromhex("2a8648ce3d040302")))
    times = _der(0x30, _der(0x17, b"200101000000Z"), _der(0x17, b"490101000000Z"))
    name = _der(0x30)
    body = _der(0x30, _der(0xA0, _der(2, b"\2")), _der(2, b"\1"), signature, name, times, name, key)
    whole = ssl.DER_cert_to_PEM_cert(_der(0x30, body, signature, _der(3, b"\0\0"))).encode()
    return leaf.cert_pem + whole * count


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    width = (size.bit_length() + 7) // 8
    head = bytes([size]) if size < 0x80 else bytes([0x80 | width]) + size.to_bytes(width)
    return bytes([tag]) + head + content


def quick_chain(authority: Authority, leaf_key: ec.EllipticCurvePrivateKey, count: int) -> bytes:
    key = new_key()
    return chain_of(authority, leaf_key, [key] * count)


def chain_bytes(pem: bytes) -> int:
    return sum(len(each.public_bytes(Encoding.DER)) for each in x509.load_pem_x509_certificates(pem))


def client_context(serving: Authority, chain_pem: bytes, leaf: Leaf) -> ssl.SSLContext:
    """TLS of a client that shows this chain with the key of `leaf`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=serving.cert_pem.decode())
    context.set_ciphers("DEFAULT:@SECLEVEL=0")  # or OpenSSL parses the bytes under test
    descriptor = os.memfd_create("chain", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(chain_pem + leaf.key_pem)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    return context


@cache
def client_hello() -> bytes:
    """The first flight of a client of TLS 1.3, which will never send a second one."""
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="node-1").do_handshake()
    return outgoing.read()


def dial(port: int, source: str) -> socket.socket:
    """A connection from one of loopback's addresses."""
    sock = socket.socket()
    sock.settimeout(10.0)
    try:
        sock.bind((source, 0))
        sock.connect(("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    return sock


@contextlib.contextmanager
def crowd(port: int, sources: Iterable[str], first: bytes = b"") -> Iterator[list[socket.socket]]:
    """A connection from each of `sources`, which sends `first` and then nothing."""
    raise_descriptor_limit()
    with contextlib.ExitStack() as stack:
        opened = []
        for source in sources:
            sock = stack.enter_context(contextlib.closing(dial(port, source)))
            if first:
                with contextlib.suppress(OSError):  # it may have been evicted already
                    sock.sendall(first)
            opened.append(sock)
        yield opened


def last_flight(sock: socket.socket, context: ssl.SSLContext, name: str) -> bytes:
    """Go through a handshake up to the flight with the chain, which is returned and not sent."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name)
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            sock.sendall(outgoing.read())
            data = sock.recv(65536)
            if not data:
                raise ConnectionResetError("the daemon hung up") from None
            incoming.write(data)
        else:
            return outgoing.read()


def is_closed(sock: socket.socket) -> bool:
    """Whether the daemon has ended a connection from which everything was read."""
    sock.setblocking(False)
    try:
        while sock.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
