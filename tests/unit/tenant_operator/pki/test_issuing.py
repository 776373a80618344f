# SPDX-License-Identifier: Apache-2.0
"""What authorities, certificates, kubeconfigs and Secrets are made of."""

import base64
import json

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from tenancy import keys
from tenant_operator.pki import catalog, facts, issuing
from tenant_operator.pki.catalog import CertificateUsage
from tests.unit.tenant_operator.pki import control_planes
from tests.unit.tenant_operator.pki.control_planes import DAY, NOW, accepts

PLANE = control_planes.control_plane()
AUTHORITIES, LEAVES = control_planes.issue_all(PLANE)
SPECS = {spec.secret: spec for spec in control_planes.specs(PLANE)}
CLUSTER = next(spec for spec in catalog.authorities(PLANE) if spec.secret == "cluster-ca")


def certificate(pair: issuing.IssuedPair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate_pem)


@pytest.mark.parametrize("secret", AUTHORITIES)
def test_an_authority(secret: str) -> None:
    found = certificate(AUTHORITIES[secret])
    own = facts.facts_of(AUTHORITIES[secret].certificate_pem)
    assert found.subject.rfc4514_string() == f"CN={secret} {own.key_id[:8]},O=tenants-70b001-acme"
    assert found.issuer == found.subject
    assert (own.not_before, own.not_after) == (NOW - 3600, NOW + 3650 * DAY)
    constraints = found.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert constraints == x509.BasicConstraints(
        ca=True, path_length=issuing.MAX_CHAIN if secret in ("cluster-ca", "etcd-ca") else 0
    )
    assert isinstance(found.public_key(), ec.EllipticCurvePublicKey)
    found.verify_directly_issued_by(found)


@pytest.mark.parametrize("secret", LEAVES)
def test_a_leaf(secret: str) -> None:
    spec, found = SPECS[secret], certificate(LEAVES[secret])
    own = facts.facts_of(LEAVES[secret].certificate_pem)
    organizations = "".join(f",O={each}" for each in spec.organizations)
    assert found.subject.rfc4514_string() == f"CN={spec.common_name}{organizations}"
    assert (own.not_before, own.not_after) == (NOW - 3600, NOW + spec.days * DAY)
    assert own.names == (*spec.dns, *spec.ips)
    oids = {
        CertificateUsage.SERVER: ExtendedKeyUsageOID.SERVER_AUTH,
        CertificateUsage.CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH,
    }
    usage = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [oids[each] for each in spec.usages]
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    found.verify_directly_issued_by(certificate(AUTHORITIES[spec.authority]))


def test_a_leaf_ends_with_its_authority() -> None:
    late = NOW + 3649 * DAY
    pair = issuing.issue_pair(SPECS["apiserver-serving"], AUTHORITIES["cluster-ca"], late)
    assert facts.facts_of(pair.certificate_pem).not_after == NOW + 3650 * DAY


def test_clients_of_the_old_authority_accept_new_servers() -> None:
    """Pods have loaded their authority once, and a rotation restarts none of them."""
    old = AUTHORITIES["cluster-ca"]
    new = issuing.new_authority(CLUSTER, NOW + 10)
    chain = issuing.certify_authority(CLUSTER, new, old, NOW + 10)
    signing = issuing.IssuedPair(new.certificate_pem, new.key_pem, chain)
    server = issuing.issue_pair(SPECS["apiserver-serving"], signing, NOW + 10)
    client = issuing.issue_pair(SPECS["admin-kubeconfig"], signing, NOW + 10)
    assert server.certificate_pem.count(b"BEGIN") == 2
    assert client.certificate_pem.count(b"BEGIN") == 1
    assert accepts(old.certificate_pem, CertificateUsage.SERVER, server)
    assert accepts(new.certificate_pem, CertificateUsage.SERVER, server)
    assert accepts(new.certificate_pem, CertificateUsage.CLIENT, client)
    assert not accepts(old.certificate_pem, CertificateUsage.CLIENT, client)
    alone = issuing.issue_pair(SPECS["apiserver-serving"], new, NOW + 10)
    assert not accepts(old.certificate_pem, CertificateUsage.SERVER, alone)


def test_a_kubeconfig_with_all_in_it() -> None:
    pair = LEAVES["admin-kubeconfig"]
    bundle = AUTHORITIES["cluster-ca"].certificate_pem
    text = issuing.kubeconfig_of("https://10.96.3.7:6443", bundle, pair, "default")
    assert text == issuing.kubeconfig_of("https://10.96.3.7:6443", bundle, pair, "default")
    assert yaml.safe_load(text) == {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "vcnode",
                "cluster": {
                    "server": "https://10.96.3.7:6443",
                    "certificate-authority-data": base64.b64encode(bundle).decode(),
                },
            }
        ],
        "users": [
            {
                "name": "vcnode",
                "user": {
                    "client-certificate-data": base64.b64encode(pair.certificate_pem).decode(),
                    "client-key-data": base64.b64encode(pair.key_pem).decode(),
                },
            }
        ],
        "contexts": [
            {"name": "vcnode", "context": {"cluster": "vcnode", "user": "vcnode", "namespace": "default"}}
        ],
        "current-context": "vcnode",
    }


def test_a_kubeconfig_that_names_files() -> None:
    """client-go looks again at files; a renewal changes them and leaves the kubeconfig as it is."""
    spec = SPECS["controller-manager-client"]
    bundle = AUTHORITIES["cluster-ca"].certificate_pem
    data = issuing.leaf_data(spec, LEAVES[spec.secret], bundle)
    renewed = issuing.leaf_data(spec, issuing.issue_pair(spec, AUTHORITIES["cluster-ca"], NOW), bundle)
    assert sorted(data) == ["ca.crt", "kubeconfig", "tls.crt", "tls.key"]
    assert data["kubeconfig"] == renewed["kubeconfig"]
    assert data["tls.crt"] != renewed["tls.crt"]
    value = json.loads(data["kubeconfig"])
    assert value["clusters"][0]["cluster"] == {"server": spec.server, "certificate-authority": "ca.crt"}
    assert value["users"][0]["user"] == {"client-certificate": "tls.crt", "client-key": "tls.key"}


def test_a_secret_has_the_digest_of_its_data() -> None:
    pair = issuing.IssuedPair(b"certificate", b"key")
    found = issuing.secret_of("ns", "etcd-ca", issuing.authority_data(pair), {"a": "b"}, {"c": "d"})
    digest = facts.data_digest(
        {"tls.crt": facts.digest_of(b"certificate"), "tls.key": facts.digest_of(b"key")}
    )
    assert found == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "etcd-ca",
            "namespace": "ns",
            "labels": {"a": "b"},
            "annotations": {"c": "d", keys.DATA_DIGEST: digest},
        },
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": "Y2VydGlmaWNhdGU=", "tls.key": "a2V5"},
    }


def test_a_printed_pair_shows_no_key() -> None:
    assert "PRIVATE" not in repr(LEAVES["operator-client"])


def test_a_service_account_key() -> None:
    pair = issuing.service_account_key()
    private = load_pem_private_key(pair.key_pem, None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert isinstance(private.curve, ec.SECP256R1)
    assert load_pem_public_key(pair.certificate_pem) == private.public_key()


def test_a_key_has_the_id_that_the_api_server_expects() -> None:
    """The name of its file is `KID.pub`: vc-signer refuses another."""
    lines = (
        b"-----BEGIN PUBLIC KEY-----",
        b"MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEaxfR8uEsQkf4vOblY6RA8ncDfYEt",
        b"6zOg9KE5RdiYwpZP40Li/hp/m47n60p8D54WK84zV2sxXs7LtkBoN79R9Q==",
        b"-----END PUBLIC KEY-----",
    )
    assert issuing.key_id(b"\n".join(lines) + b"\n") == "XNJS-wzokyQ2-vjM0QQJgbie5K1rn-niorfnGqyyfNM"


def test_encryption_keys_are_32_random_bytes() -> None:
    found = {issuing.encryption_key() for _ in range(8)}
    assert len(found) == 8
    assert {len(base64.b64decode(each)) for each in found} == {32}
