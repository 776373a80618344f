# SPDX-License-Identifier: Apache-2.0
"""Offers for a tenant, with real certificates."""

import datetime as dt
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from devkit.pki import Authority, Leaf, common_name, new_key, self_signed
from vcnode.core import certificates
from vcnode.terminal import ToolError

NOW = dt.datetime(2027, 3, 1, 12, tzinfo=dt.UTC)
BEFORE, AFTER = NOW - dt.timedelta(days=100), NOW + dt.timedelta(days=100)
ROOT = Authority.create("kubernetes", not_before=BEFORE, not_after=AFTER)


def leaf(authority: Authority = ROOT, **more: Any) -> Leaf:
    given: dict[str, Any] = {"usages": ("client",), "not_before": BEFORE, "not_after": AFTER}
    return authority.issue("apiserver", **(given | more))


def intermediate(root: Authority) -> Authority:
    key = new_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(common_name("intermediate"))
        .issuer_name(root.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEFORE)
        .not_valid_after(AFTER)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    return Authority(builder.sign(root.key, hashes.SHA256()), key, has_key_identifier=False)


def problem(ca_pem: bytes, client_pem: bytes, now: dt.datetime = NOW) -> str:
    with pytest.raises(ToolError) as caught:
        certificates.check(ca_pem, client_pem, now)
    return str(caught.value)


def test_client_of_its_authority_is_offered_without_its_key() -> None:
    client = leaf()
    offer = certificates.check(ROOT.cert_pem, client.key_pem + client.cert_pem, NOW)
    assert offer.authorities == (ROOT.der,)
    assert offer.spki == client.spki_sha256
    assert offer.subject == "CN=apiserver"
    assert offer.expires == AFTER
    assert offer.warnings == ()


def test_client_may_also_be_a_server_or_have_no_usage() -> None:
    for usages in (("client", "server"), ()):
        assert certificates.check(ROOT.cert_pem, leaf(usages=usages).cert_pem, NOW).spki


def test_intermediate_is_sent_with_client_or_authority() -> None:
    middle = intermediate(ROOT)
    client = leaf(middle)
    assert certificates.check(ROOT.cert_pem, client.cert_pem + middle.cert_pem, NOW).authorities == (
        ROOT.der,
    )
    both = certificates.check(middle.cert_pem + ROOT.cert_pem, client.cert_pem, NOW)
    assert both.authorities == (middle.der, ROOT.der)


def test_intermediate_alone_is_not_a_trust_anchor() -> None:
    middle = intermediate(ROOT)
    assert problem(middle.cert_pem, leaf(middle).cert_pem) == (
        "authority: the chain stops at CN=intermediate, which is not self-signed; give its root as well"
    )


def test_other_authority_of_the_same_name_is_refused() -> None:
    other = Authority.create("kubernetes", not_before=BEFORE, not_after=AFTER)
    assert problem(other.cert_pem, leaf().cert_pem) == (
        "client certificate: not issued by this authority (its issuer is CN=kubernetes)"
    )


@pytest.mark.parametrize(
    ("client", "now", "expected"),
    [
        (leaf(usages=("server",)), NOW, "extended key usage does not allow client authentication"),
        (leaf(not_after=NOW - dt.timedelta(days=1)), NOW, "client certificate: expired on 2027-02-28"),
        (leaf(not_before=NOW + dt.timedelta(hours=2)), NOW, "not valid before 2027-03-01 14:00 UTC"),
        (leaf(), AFTER + dt.timedelta(days=1), "authority CN=kubernetes: expired on"),
        (self_signed("apiserver"), NOW, "not issued by this authority"),
    ],
)
def test_certificate_that_openssl_would_refuse_is_refused(
    client: Leaf, now: dt.datetime, expected: str
) -> None:
    assert expected in problem(ROOT.cert_pem, client.cert_pem, now)


def test_all_problems_are_reported_at_once() -> None:
    stale = leaf(usages=("server",), not_after=NOW - dt.timedelta(days=1))
    assert problem(ROOT.cert_pem, stale.cert_pem).count("; ") == 1


def test_authority_is_not_a_client() -> None:
    assert "it is the authority itself" in problem(ROOT.cert_pem, ROOT.cert_pem)
    assert "it is an authority, not a client" in problem(ROOT.cert_pem, intermediate(ROOT).cert_pem)


@pytest.mark.parametrize(
    ("ca_pem", "client_pem", "expected"),
    [
        (b"", leaf().cert_pem, "authority: no certificate in it"),
        (leaf().key_pem, leaf().cert_pem, "authority: line 1: a private key"),
        (leaf().cert_pem, leaf().cert_pem, "authority: certificate 1 is not an authority"),
        (ROOT.cert_pem, b"", "client certificate: the file has no readable PEM certificate"),
        (ROOT.cert_pem, leaf().key_pem, "client certificate: the file has no readable PEM certificate"),
        (ROOT.cert_pem, b"\xff" * 20, "client certificate: the file has no readable PEM certificate"),
    ],
)
def test_files_with_other_content_are_refused(ca_pem: bytes, client_pem: bytes, expected: str) -> None:
    assert expected in problem(ca_pem, client_pem)


def test_system_masters_and_near_expiry_give_warnings() -> None:
    offer = certificates.check(
        ROOT.cert_pem,
        leaf(organization="system:masters", not_after=NOW + dt.timedelta(days=3)).cert_pem,
        NOW,
    )
    assert "system:masters" in offer.warnings[0]
    assert offer.warnings[1] == "the certificate expires on 2027-03-04 (in 3 days)"


def test_subject_is_one_short_line() -> None:
    client = leaf(subject=common_name("a\n# b\x1b", "c" * 60, "d" * 60))
    text = certificates.check(ROOT.cert_pem, client.cert_pem, NOW).subject
    assert text.isprintable()
    assert len(text) == 120


def test_authority_is_described() -> None:
    described = certificates.describe(ROOT.certificate.public_bytes(Encoding.DER))
    assert (described.subject, described.expires) == ("CN=kubernetes", AFTER)
    assert len(described.spki) == 64
