# SPDX-License-Identifier: Apache-2.0
import datetime as dt
import hashlib
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from devkit.pki import Authority, common_name, new_key, self_signed


def test_a_leaf_is_signed_and_has_the_given_names() -> None:
    authority = Authority.create("tenant-a")
    leaf = authority.issue(
        "kube-apiserver",
        sans_dns=["node-1"],
        sans_ip=["127.0.0.1"],
        uris=["spiffe://example/ns/a"],
        organization="system:masters",
        usages=("client",),
    )
    certificate = x509.load_der_x509_certificate(leaf.der)
    certificate.verify_directly_issued_by(authority.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["node-1"]
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["spiffe://example/ns/a"]
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [usage.dotted_string for usage in usages] == ["1.3.6.1.5.5.7.3.2"]
    assert certificate.subject.rfc4514_string() == "CN=kube-apiserver,O=system:masters"
    spki = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert leaf.spki_sha256 == hashlib.sha256(spki).hexdigest()


def test_a_renewal_with_the_same_key_keeps_the_pin() -> None:
    authority = Authority.create("tenant-a")
    first = authority.issue("client")
    second = authority.issue("client", key=first.key)
    assert first.spki_sha256 == second.spki_sha256
    assert first.der != second.der


@pytest.mark.parametrize("names", [("a\0b",), ("a\nb",), ("a", "b"), ()])
def test_hostile_subjects_stay_unchanged(names: tuple[str, ...]) -> None:
    leaf = Authority.create("tenant-a").issue("ignored", subject=common_name(*names))
    subject = x509.load_der_x509_certificate(leaf.der).subject
    assert tuple(a.value for a in subject.get_attributes_for_oid(NameOID.COMMON_NAME)) == names


@pytest.mark.parametrize("has_key_identifier", [True, False])
def test_key_identifiers_can_be_left_out(has_key_identifier: bool) -> None:
    authority = Authority.create("tenant-a", has_key_identifier=has_key_identifier)
    leaf = x509.load_der_x509_certificate(authority.issue("client").der)
    named = [e for e in leaf.extensions if isinstance(e.value, x509.AuthorityKeyIdentifier)]
    assert bool(named) == has_key_identifier


def test_validity_is_as_given() -> None:
    end = dt.datetime(2021, 1, 2, tzinfo=dt.UTC)
    leaf = Authority.create("tenant-a").issue("late", not_before=end - dt.timedelta(days=1), not_after=end)
    assert x509.load_der_x509_certificate(leaf.der).not_valid_after_utc == end


def test_a_self_signed_leaf_is_its_own_issuer() -> None:
    key = new_key()
    leaf = self_signed("alone", key=key)
    certificate = x509.load_der_x509_certificate(leaf.der)
    certificate.verify_directly_issued_by(certificate)


def test_files_are_complete_and_keys_private(tmp_path: Path) -> None:
    leaf = Authority.create("tenant-a").issue("client")
    certificate, key = leaf.write(tmp_path / "new", "client")
    leaf.write(tmp_path / "new", "client")
    assert certificate.read_bytes() == leaf.cert_pem
    assert key.read_bytes() == leaf.key_pem
    assert key.stat().st_mode & 0o777 == 0o600
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["client.crt", "client.key"]
