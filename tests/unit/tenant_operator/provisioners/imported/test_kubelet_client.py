# SPDX-License-Identifier: Apache-2.0
"""The certificate of a foreign API server for kubelets: where it is found, and what a person is asked for."""

import base64

import msgspec
import pytest

from tenant_operator.model.objects import Object
from tenant_operator.model.virtual_cluster import ImportRef
from tenant_operator.provisioners.imported.kubelet_client import (
    CertificatePlace,
    KubeletClient,
    KubeletClientMissing,
    kubelet_client,
    places,
    registration,
    secrets_to_read,
)
from tenant_operator.provisioners.imported.source import SourceChoice, choose
from tests.unit.tenant_operator.provisioners.imported import secrets_of_others as others
from tests.unit.tenant_operator.provisioners.imported.secrets_of_others import OthersSecret
from vnagent.tenants.rotation import Registered
from vnagent.tenants.virtualcluster import CertificateSecret, RegisteredCluster, read

CERTIFICATE, AUTHORITY = others.KUBELET_CLIENT.cert_pem.decode(), others.AUTHORITY.cert_pem.decode()
GIVEN = OthersSecret("acme-kubelet-client", {"tls.crt": CERTIFICATE, "ca.crt": AUTHORITY})


def choice_of(secret: OthersSecret) -> SourceChoice:
    found = choose(ImportRef(secret.name), secret.facts, "tenants")
    assert isinstance(found, SourceChoice)
    return found


def found_with(source: OthersSecret, *secrets: OthersSecret) -> KubeletClient | KubeletClientMissing:
    values = {key: value for each in secrets for key, value in each.values.items()}
    return kubelet_client(choice_of(source), "acme", "tenants", values)


@pytest.mark.parametrize(
    ("source", "secrets", "place"),
    [
        (
            others.KAMAJI,
            [others.KAMAJI_KUBELET_CLIENT, others.KAMAJI_CA],
            CertificatePlace(
                "acme-api-server-kubelet-client-certificate",
                "apiserver-kubelet-client.crt",
                "acme-ca",
                "ca.crt",
            ),
        ),
        (
            others.VCLUSTER,
            [others.VCLUSTER_CERTS],
            CertificatePlace("acme-certs", "apiserver-kubelet-client.crt", "acme-certs", "ca.crt"),
        ),
        *(
            (
                source,
                [GIVEN, others.VCLUSTER_CERTS],
                CertificatePlace(GIVEN.name, "tls.crt", GIVEN.name, "ca.crt"),
            )
            for source in (others.VCLUSTER, others.K3K, others.CLUSTER_API, others.K3S)
        ),
    ],
)
def test_the_certificate_is_found(
    source: OthersSecret, secrets: list[OthersSecret], place: CertificatePlace
) -> None:
    assert found_with(source, *secrets) == KubeletClient(CERTIFICATE, AUTHORITY, place)
    names = {each.name for each in secrets}
    assert {place.certificate_secret, place.authority_secret} <= names
    assert {place.certificate_secret, place.authority_secret} <= secrets_to_read(
        places(choice_of(source), "acme")
    )


def missing(source: OthersSecret, *secrets: OthersSecret) -> str:
    found = found_with(source, *secrets)
    assert isinstance(found, KubeletClientMissing)
    return found.message


@pytest.mark.parametrize(
    ("source", "why", "files"),
    [
        (
            others.KAMAJI, "Kamaji keeps it in no Secret that is here",
            "/etc/kubernetes/pki/apiserver-kubelet-client.crt and /etc/kubernetes/pki/ca.crt of its server",
        ),
        (
            others.CLUSTER_API, "ClusterAPI keeps it in no Secret that is here",
            "/etc/kubernetes/pki/apiserver-kubelet-client.crt and /etc/kubernetes/pki/ca.crt of its server",
        ),
        (
            others.K3K, "k3k keeps it in no Secret that is here",
            "/var/lib/rancher/k3s/server/tls/client-kube-apiserver.crt and"
            " /var/lib/rancher/k3s/server/tls/client-ca.crt of its server",
        ),
        (
            others.K3S, "plain keeps it in no Secret that is here",
            "the file of its flag --kubelet-client-certificate and the authority that signed it (k3s:"
            " client-kube-apiserver.crt and client-ca.crt of /var/lib/rancher/k3s/server/tls)",
        ),
    ],
)  # fmt: skip
def test_what_is_not_there_is_asked_for(source: OthersSecret, why: str, files: str) -> None:
    assert missing(source) == (
        f"the certificate that this API server shows to kubelets is not known ({why}), so exec, logs and"
        " metrics of its pods fail. Run: kubectl -n tenants create secret generic acme-kubelet-client"
        f" --from-file=tls.crt=FILE --from-file=ca.crt=FILE, with {files}"
    )


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (others.KUBELET_CLIENT.key_pem, "has a private key beside the certificate; leave it out"),
        (
            others.KUBELET_CLIENT.cert_pem + others.KUBELET_CLIENT.key_pem,
            "has a private key beside the certificate; leave it out",
        ),
        ("nonsense", "holds no certificate in PEM"),
        (b"\xff", "holds no certificate in PEM"),
        ("", "holds no certificate in PEM"),
    ],
)
def test_what_is_no_certificate_is_named(value: bytes | str, why: str) -> None:
    given = OthersSecret(GIVEN.name, {**GIVEN.data, "tls.crt": value})
    assert f"(Secret tenants/acme-kubelet-client: {why})" in missing(others.K3S, given)


def test_a_broken_gift_leaves_what_others_wrote() -> None:
    given = OthersSecret(GIVEN.name, {**GIVEN.data, "ca.crt": "nonsense"})
    found = found_with(others.VCLUSTER, given, others.VCLUSTER_CERTS)
    assert isinstance(found, KubeletClient)
    assert found.place.certificate_secret == "acme-certs"


def test_vn_agent_reads_the_registration() -> None:
    """It gets public parts alone, and serves the one certificate."""
    found = found_with(others.VCLUSTER, others.VCLUSTER_CERTS)
    assert isinstance(found, KubeletClient)
    key = "tenants-a1b2c3-acme"
    manifests = registration(found.certificate_pem, found.authority_pem, key, {"a": "b"})
    assert [each["metadata"] for each in manifests] == [
        {"name": name, "namespace": key, "labels": {"a": "b"}} for name in ("root-ca", "apiserver-ca")
    ]
    assert [list(each["data"]) for each in manifests] == [["tls.crt"], ["tls.crt"]]
    assert all(b"PRIVATE" not in base64.b64decode(each["data"]["tls.crt"]) for each in manifests)
    authority, certificate = (msgspec.convert(_as_read(each), CertificateSecret) for each in manifests)
    whole = {
        "metadata": {"name": "acme", "namespace": "tenants", "uid": "u", "resourceVersion": "1"},
        "status": {"phase": "Running", "clusterNamespace": key},
    }
    registered = read(msgspec.convert(whole, RegisteredCluster), authority, certificate, None)
    assert isinstance(registered, Registered)
    assert registered.apiserver_spki == others.KUBELET_CLIENT.spki_sha256


def _as_read(manifest: Object) -> Object:
    return {**manifest, "data": {key: base64.b64decode(value) for key, value in manifest["data"].items()}}
