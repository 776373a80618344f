# SPDX-License-Identifier: Apache-2.0
"""Facts of certificates, as `cryptography` has them, and what is kept of a Secret."""

import hashlib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tenancy import keys
from tenant_operator.pki import facts, issuing
from tests.unit.tenant_operator.pki import control_planes

AUTHORITIES, LEAVES = control_planes.issue_all(control_planes.control_plane())


@pytest.mark.parametrize("secret", [*LEAVES, *AUTHORITIES])
def test_facts_are_those_of_the_certificate(secret: str) -> None:
    pem = {**LEAVES, **AUTHORITIES}[secret].certificate_pem
    read = x509.load_pem_x509_certificate(pem)
    spki = read.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    found = facts.facts_of(pem)
    assert found == facts.facts_of(read.public_bytes(Encoding.DER))
    assert found == facts.CertificateFacts(
        read.not_valid_before_utc.timestamp(),
        read.not_valid_after_utc.timestamp(),
        hashlib.sha256(spki).hexdigest(),
        read.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest.hex(),
        _authority(read),
        _names(read),
    )


def _authority(certificate: x509.Certificate) -> str:
    try:
        value = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    except x509.ExtensionNotFound:
        return ""
    return (value.key_identifier or b"").hex()


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        value = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(each.value) for each in value)


def test_a_leaf_is_matched_to_its_authority() -> None:
    leaf = facts.facts_of(LEAVES["front-proxy-client"].certificate_pem)
    found = {name: facts.facts_of(pair.certificate_pem) for name, pair in AUTHORITIES.items()}
    assert [name for name, each in found.items() if leaf.is_signed_by(each)] == ["front-proxy-ca"]
    assert not leaf.is_signed_by(facts.CertificateFacts(0, 0, "", ""))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "expected exactly one element"),
        (b"-----BEGIN CERTIFICATE-----\n", "a certificate is not closed"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cut off within a header"),
        (b"-----BEGIN CERTIFICATE-----\nA!AA\n-----END CERTIFICATE-----\n", "base64"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "cut off"),
        (b"\x30\x03\x02\x01\x01", "not a body, an algorithm and a signature"),
    ],
)
def test_what_is_no_certificate_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        facts.facts_of(text)


def test_of_a_secret_no_key_is_kept() -> None:
    data = issuing.authority_data(AUTHORITIES["etcd-ca"])
    digests = {key: facts.digest_of(value) for key, value in data.items()}
    found = facts.secret_facts(
        {keys.DATA_DIGEST: facts.data_digest(digests)},
        digests,
        {"tls.crt": data["tls.crt"], "next.crt": b"damaged"},
    )
    assert found.is_as_written
    assert found.certificate == facts.facts_of(data["tls.crt"])
    assert found.certificates["next.crt"] is None
    assert "PRIVATE" not in repr(found)


def test_an_edit_by_hand_is_seen() -> None:
    digests = {"tls.crt": facts.digest_of(b"a"), "tls.key": facts.digest_of(b"b")}
    annotations = {keys.DATA_DIGEST: facts.data_digest(digests)}
    for edited in (
        digests | {"tls.key": facts.digest_of(b"c")},
        digests | {"more": facts.digest_of(b"c")},
        {"tls.crt": digests["tls.crt"]},
        {},
    ):
        assert not facts.SecretFacts(annotations, edited).is_as_written
    assert not facts.SecretFacts({}, digests).is_as_written


def test_a_bundle_has_each_authority_once() -> None:
    """It is the same before and after the next authority begins to sign."""
    first, second = (AUTHORITIES[name].certificate_pem for name in ("etcd-ca", "cluster-ca"))
    found = facts.bundle_of([first, second, b"", first.strip()])
    assert found in (first + second, second + first)
    assert found == facts.bundle_of([second, first])
