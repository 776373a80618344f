# SPDX-License-Identifier: Apache-2.0
"""Makes authorities, certificates, keys, and the Secrets that hold them. Writes nothing anywhere.

`cryptography` is imported where it is used: it is 8 MB of the operator's memory, which needs it for some
seconds of a tenant's life.
"""

import base64
import datetime as dt
import hashlib
import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from tenancy import keys
from tenant_operator.model import names
from tenant_operator.model.objects import Object
from tenant_operator.pki.catalog import AuthoritySpec, CertificateUsage, LeafSpec, SecretForm
from tenant_operator.pki.facts import data_digest, digest_of

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

_DAY_S = 86400
# A machine whose clock is somewhat behind accepts what was just issued.
_BACKDATED_S = 3600
# Of an authority's key: tells its generations apart in names. Two of one tenant differ but once in 2**32.
_NAME_DIGITS = 8
_ENCRYPTION_KEY_BYTES = 32
MAX_CHAIN = 4
"""Certificates that lead from an authority to earlier ones. What has loaded one before these restarts."""


@dataclass(frozen=True, slots=True)
class IssuedPair:
    """A certificate with its chain behind it, and its key: both PEM.

    `chain_pem`, of an authority: certificates that servers, and clients of etcd, show behind their own, for
    those who trust the authority before this one.
    """

    certificate_pem: bytes
    key_pem: bytes = field(repr=False)
    chain_pem: bytes = b""


def new_authority(spec: AuthoritySpec, now: float) -> IssuedPair:
    """A new self-signed authority, of a new P-256 key."""
    key = _new_key()
    name = f"{spec.secret} {_key_identifier(key).hex()[:_NAME_DIGITS]}"
    certificate = _sign_authority(spec, name, key.public_key(), None, key, now, now + spec.days * _DAY_S)
    return IssuedPair(_pem(certificate), _key_pem(key))


def certify_authority(spec: AuthoritySpec, new: IssuedPair, old: IssuedPair, now: float) -> bytes:
    """A certificate (PEM) of the new authority's name and key, signed by the old one, to its end.

    Who shows it behind its own certificate is accepted by those who have loaded the old authority: by the
    pods of a tenant, and by the members of etcd, which read theirs once.
    """
    from cryptography import x509

    issuer = x509.load_pem_x509_certificate(old.certificate_pem)
    subject = x509.load_pem_x509_certificate(new.certificate_pem)
    key = _load_key(new.key_pem).public_key()
    end = min(issuer.not_valid_after_utc, subject.not_valid_after_utc).timestamp()
    name = _common_name(subject)
    return _pem(_sign_authority(spec, name, key, issuer, _load_key(old.key_pem), now, end))


def issue_pair(spec: LeafSpec, authority: IssuedPair, now: float) -> IssuedPair:
    """A certificate of a new P-256 key, as the spec has it. It ends no later than its authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    from daemonkit.tls.issuing import certificate_builder

    key = _new_key()
    issuer = x509.load_pem_x509_certificate(authority.certificate_pem)
    # Kubernetes takes groups from the organizations, the user from the common name.
    subject = x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in spec.organizations),
            x509.NameAttribute(NameOID.COMMON_NAME, spec.common_name),
        ]
    )
    begin = max(_time(now - _BACKDATED_S), issuer.not_valid_before_utc)
    end = min(_time(now + spec.days * _DAY_S), issuer.not_valid_after_utc)
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        certificate_builder(subject, issuer.subject, key, begin, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_leaf_usage(), critical=True)
        .add_extension(_extended(spec.usages), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
        )
    )
    alternatives = [
        *map(x509.DNSName, spec.dns),
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in spec.ips),
    ]
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    pem = _pem(builder.sign(_load_key(authority.key_pem), hashes.SHA256()))
    # Who verifies clients by the cluster's authority reads its bundle again; etcd does not.
    is_chained = CertificateUsage.SERVER in spec.usages or spec.authority == names.ETCD_CA
    return IssuedPair(pem + (authority.chain_pem if is_chained else b""), _key_pem(key))


def kubeconfig_of(
    server: str, ca_bundle_pem: bytes, pair: IssuedPair | None, namespace: str = "default"
) -> bytes:
    """A kubeconfig, as JSON, which is YAML. Without a pair it names the files beside it (SecretForm)."""
    if pair is None:
        trusted: Object = {"certificate-authority": "ca.crt"}
        user: Object = {"client-certificate": "tls.crt", "client-key": "tls.key"}
    else:
        trusted = {"certificate-authority-data": _base64(ca_bundle_pem)}
        user = {
            "client-certificate-data": _base64(pair.certificate_pem),
            "client-key-data": _base64(pair.key_pem),
        }
    name = "vcnode"
    value = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server} | trusted}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
        "current-context": name,
    }
    return msgspec.json.encode(value)


def signing_pair(data: Mapping[str, bytes]) -> IssuedPair:
    """The authority in a Secret's data, as it signs now. Raises KeyError."""
    return IssuedPair(data["tls.crt"], data["tls.key"], data.get("chain.crt", b""))


def can_sign(data: Mapping[str, bytes]) -> bool:
    """Whether the key in an authority's Secret is that of its certificate."""
    from cryptography import x509

    try:
        pair = signing_pair(data)
        certificate = x509.load_pem_x509_certificate(pair.certificate_pem)
        return _load_key(pair.key_pem).public_key() == certificate.public_key()
    except (KeyError, ValueError):
        return False


def authority_data(pair: IssuedPair) -> Mapping[str, bytes]:
    """The data of an authority's Secret."""
    return {"tls.crt": pair.certificate_pem, "tls.key": pair.key_pem}


def leaf_data(spec: LeafSpec, pair: IssuedPair, ca_bundle_pem: bytes) -> Mapping[str, bytes]:
    """The data of a leaf's Secret, in its form."""
    data = {"tls.crt": pair.certificate_pem, "tls.key": pair.key_pem}
    if spec.form is SecretForm.PAIR:
        return data
    is_whole = spec.form is SecretForm.KUBECONFIG
    data["ca.crt"] = ca_bundle_pem
    data[spec.kubeconfig_key] = kubeconfig_of(spec.server, ca_bundle_pem, pair if is_whole else None)
    return data


def secret_of(
    namespace: str,
    name: str,
    data: Mapping[str, bytes],
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
) -> Object:
    """The manifest of a Secret. It has the digest of its data, by which an edit by hand is seen."""
    digest = data_digest({key: digest_of(value) for key, value in data.items()})
    # The API server wants these two in a Secret of the type, which it keeps for its life.
    kind = "kubernetes.io/tls" if {"tls.crt", "tls.key"} <= data.keys() else "Opaque"
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels),
            "annotations": dict(annotations) | {keys.DATA_DIGEST: digest},
        },
        "type": kind,
        "data": {key: _base64(value) for key, value in data.items()},
    }


def service_account_key() -> IssuedPair:
    """A P-256 key that signs service account tokens (ES256): its public part, and itself, as PEM."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = _new_key()
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return IssuedPair(public, _key_pem(key))


def key_id(public_pem: bytes) -> str:
    """A key's `kid` as kube-apiserver makes it: the SHA-256 of its SubjectPublicKeyInfo."""
    der = base64.b64decode(b"".join(public_pem.splitlines()[1:-1]))
    return base64.urlsafe_b64encode(hashlib.sha256(der).digest()).rstrip(b"=").decode("ascii")


def encryption_key() -> str:
    """A key of encryption at rest, in base64 as an EncryptionConfiguration has it."""
    return _base64(secrets.token_bytes(_ENCRYPTION_KEY_BYTES))


def _new_key() -> "ec.EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _load_key(pem: bytes) -> "ec.EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is not an EC key")
    return key


def _sign_authority(
    spec: AuthoritySpec,
    name: str,
    key: "ec.EllipticCurvePublicKey",
    issuer: "x509.Certificate | None",
    signing_key: "ec.EllipticCurvePrivateKey",
    now: float,
    end: float,
) -> "x509.Certificate":
    """An authority's certificate: its own without `issuer`."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    from daemonkit.tls.issuing import authority_usage

    organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, spec.organization)
    subject = x509.Name([organization, x509.NameAttribute(NameOID.COMMON_NAME, name)])
    own = x509.SubjectKeyIdentifier.from_public_key(key)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_time(now - _BACKDATED_S))
        .not_valid_after(_time(end))
        .add_extension(
            x509.BasicConstraints(ca=True, path_length=MAX_CHAIN if spec.signs_below else 0),
            critical=True,
        )
        .add_extension(authority_usage(crl_sign=True), critical=True)
        .add_extension(_extended(spec.usages), critical=False)
        .add_extension(own, critical=False)
    )
    if issuer is not None:
        above = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(above), critical=False
        )
    return builder.sign(signing_key, hashes.SHA256())


def _leaf_usage() -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
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


def _extended(usages: tuple[CertificateUsage, ...]) -> "x509.ExtendedKeyUsage":
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    oids = {
        CertificateUsage.SERVER: ExtendedKeyUsageOID.SERVER_AUTH,
        CertificateUsage.CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH,
    }
    return x509.ExtendedKeyUsage([oids[each] for each in usages])


def _key_identifier(key: "ec.EllipticCurvePrivateKey") -> bytes:
    from cryptography import x509

    return x509.SubjectKeyIdentifier.from_public_key(key.public_key()).digest


def _common_name(certificate: "x509.Certificate") -> str:
    from cryptography.x509.oid import NameOID

    return str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def _pem(certificate: "x509.Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: "ec.EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _time(seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(int(seconds), dt.UTC)
