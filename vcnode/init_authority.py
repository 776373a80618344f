# SPDX-License-Identifier: Apache-2.0
"""Authorities that issue the certificates of nodes: read, created, and used."""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from daemonkit.tls.issuing import authority_usage, certificate_builder
from vcnode.core import node_certificates
from vcnode.core.init_plan import CertificateSpec
from vcnode.core.node_certificates import KeyPair
from vcnode.terminal import ToolError

SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

_MIN_RSA_BITS = 2048
# A machine whose clock is somewhat behind must accept what another one just issued.
_BACKDATED = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Authority:
    """`chain` has the authority first, then what its file has above it."""

    chain: tuple[x509.Certificate, ...]
    key: SigningKey = field(repr=False)

    @property
    def certificate(self) -> x509.Certificate:
        return self.chain[0]

    def issue(self, spec: CertificateSpec, life: dt.timedelta, now: dt.datetime) -> KeyPair:
        """A certificate of a new P-256 key; it ends no later than its authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        authority = self.certificate
        usage = node_certificates.usage_of(spec)
        builder = (
            certificate_builder(
                _subject(spec.common_name, spec.organization),
                authority.subject,
                key,
                max(now - _BACKDATED, authority.not_valid_before_utc),
                min(now + life, authority.not_valid_after_utc),
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_LEAF_USAGE, critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(_authority_identifier(authority), critical=False)
        )
        names = [
            *map(x509.DNSName, spec.dns_names),
            *(x509.IPAddress(ipaddress.ip_address(address)) for address in spec.addresses),
        ]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        issued = builder.sign(self.key, hashes.SHA256())
        # Verifiers have the roots alone.
        above = [each for each in self.chain if each.subject != each.issuer]
        pem = b"".join(each.public_bytes(Encoding.PEM) for each in (issued, *above))
        return KeyPair(pem, _key_pem(key))


def load(
    certificate_pem: bytes, key_pem: bytes, specs: Sequence[CertificateSpec], now: dt.datetime
) -> Authority:
    """An authority that can issue `specs`. Raises ToolError with all that is wrong with it."""
    chain = tuple(node_certificates.certificates(certificate_pem))
    problems = list(node_certificates.authority_problems(chain, key_pem, specs, now))
    key = node_certificates.private_key(key_pem)
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        problems.append("its key is neither ECDSA nor RSA")
    elif isinstance(key, rsa.RSAPrivateKey) and key.key_size < _MIN_RSA_BITS:
        problems.append(f"its RSA key has {key.key_size} bits, fewer than {_MIN_RSA_BITS}")
    if problems:
        raise ToolError("; ".join(problems))
    return Authority(chain, key)


def create(
    name: str, usages: Sequence[x509.ObjectIdentifier], *, life: dt.timedelta, now: dt.datetime
) -> KeyPair:
    """A new authority for these extended key usages (RFC 5280, 4.2.1.12), and no other ones."""
    key = ec.generate_private_key(ec.SECP256R1())
    # With the date, verifiers that compare subjects distinguish two authorities.
    subject = _subject(f"{name} {now:%Y-%m-%dT%H:%M:%SZ}", None)
    certificate = (
        certificate_builder(subject, subject, key, now - _BACKDATED, now + life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(authority_usage(crl_sign=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(certificate.public_bytes(Encoding.PEM), _key_pem(key))


_LEAF_USAGE = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


def _subject(common_name: str, organization: str | None) -> x509.Name:
    # RFC 5280 has 64 characters at most, fewer than the name of a node may have. Neither Go nor OpenSSL holds
    # to it, and kubelets' own certificates have such names too.
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name, _validate=False)]
    if organization is not None:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _authority_identifier(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    """As the authority names its own key (RFC 5280, 4.2.1.1), which need not be the key's hash."""
    try:
        own = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        public: object = authority.public_key()
        assert isinstance(public, ec.EllipticCurvePublicKey | rsa.RSAPublicKey)  # noqa: S101 - `load` checked it
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(public)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
