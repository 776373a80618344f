# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from daemonkit.kube.resources import ObjectMeta
from devkit.pki import Authority
from tenancy import keys
from tenancy.registry import Bad
from tenancy.tenant import Role
from vnagent.tenants.rotation import Registered
from vnagent.tenants.virtualcluster import (
    CertificateSecret,
    ClientsConfigMap,
    RegisteredCluster,
    is_served,
    key_of,
    key_of_source,
    read,
    source_of,
)

UID = "7374a172-c35d-45b1-9c8e-bf5c5b614937"
KEY = "tenant-1-70b001-test"
AUTHORITY = Authority.create("kubernetes")
LEAF = AUTHORITY.issue(KEY)
METRICS = "ab" * 32


def cluster(phase: str = "Running", cluster_namespace: str = "", domain: str = "") -> RegisteredCluster:
    whole = {
        "metadata": {"name": "test", "namespace": "tenant-1", "uid": UID, "resourceVersion": "1"},
        "spec": {"clusterDomain": domain, "clusterVersionName": "cv-1-18", "pkiExpireDays": 365},
        "status": {"phase": phase, "clusterNamespace": cluster_namespace, "conditions": []},
    }
    return msgspec.json.decode(msgspec.json.encode(whole), type=RegisteredCluster)


def secret(pem: bytes, annotations: dict[str, str] | None = None) -> CertificateSecret:
    # As it is on the wire: base64, with the private key beside it.
    data = {"tls.crt": pem, "tls.key": b"-----BEGIN EC PRIVATE KEY-----"}
    whole = {"metadata": {"name": "s", "annotations": annotations or {}}, "data": data}
    return msgspec.json.decode(msgspec.json.encode(whole), type=CertificateSecret)


def clients(text: str | None, annotations: dict[str, str] | None = None) -> ClientsConfigMap:
    data = {} if text is None else {"clients.yaml": text}
    whole = {"metadata": {"name": "c", "annotations": annotations or {}}, "data": data}
    return msgspec.json.decode(msgspec.json.encode(whole), type=ClientsConfigMap)


ROOT_CA, CERTIFICATE = secret(AUTHORITY.cert_pem), secret(LEAF.cert_pem)
REGISTERED = Registered(KEY, (AUTHORITY.der,), LEAF.spki_sha256, {}, "cluster.local")
SYNCED = {keys.CLUSTER: "tenant-1-70b001-test"}


@pytest.mark.parametrize(
    ("phase", "expected"),
    [("", False), ("Pending", False), ("Running", True), ("Updating", True), ("Error", False)],
)
def test_a_running_virtual_cluster_is_a_tenant(phase: str, expected: bool) -> None:
    assert is_served(cluster(phase)) is expected


def test_the_cluster_key_is_virtualclusters() -> None:
    assert key_of(cluster()) == KEY
    assert key_of(cluster(cluster_namespace="chosen")) == "chosen"


def test_registration_from_the_objects() -> None:
    found = read(
        cluster(domain="tenant.example"),
        ROOT_CA,
        secret(LEAF.cert_pem + AUTHORITY.cert_pem),
        clients(f"- spkiSHA256: {METRICS}\n  role: metrics\n"),
    )
    assert found == Registered(
        KEY, (AUTHORITY.der,), LEAF.spki_sha256, {METRICS: Role.METRICS}, "tenant.example"
    )
    assert read(cluster(), ROOT_CA, CERTIFICATE, None) == REGISTERED


def test_private_keys_are_not_kept() -> None:
    assert b"PRIVATE" not in msgspec.msgpack.encode(CERTIFICATE)


@pytest.mark.parametrize(
    ("authority", "certificate", "extra", "reason"),
    [
        (None, CERTIFICATE, None, f"Secret {KEY}/root-ca does not exist"),
        (ROOT_CA, None, None, f"Secret {KEY}/apiserver-ca does not exist"),
        (secret(AUTHORITY.cert_pem, SYNCED), CERTIFICATE, None, f"Secret {KEY}/root-ca does not exist"),
        (ROOT_CA, secret(LEAF.cert_pem, SYNCED), None, f"Secret {KEY}/apiserver-ca does not exist"),
        ("Expected `str`", CERTIFICATE, None, f"Secret {KEY}/root-ca: Expected `str`"),
        (secret(b""), CERTIFICATE, None, f"Secret {KEY}/root-ca: tls.crt holds no certificate"),
        (secret(b"\xff"), CERTIFICATE, None, f"Secret {KEY}/root-ca: tls.crt is not text"),
        (
            CertificateSecret(ObjectMeta()),
            CERTIFICATE,
            None,
            f"Secret {KEY}/root-ca: tls.crt holds no certificate",
        ),
        (
            ROOT_CA,
            secret(b"-----BEGIN CERTIFICATE-----\nAAAA"),
            None,
            f"Secret {KEY}/apiserver-ca: tls.crt a PEM block is not closed",
        ),
        (
            ROOT_CA,
            secret(LEAF.key_pem),
            None,
            f"Secret {KEY}/apiserver-ca: tls.crt holds a PEM marker other than the begin of a CERTIFICATE",
        ),
        (ROOT_CA, CERTIFICATE, clients(None), f"ConfigMap {KEY}/vn-agent-clients has no clients.yaml"),
        (
            ROOT_CA,
            CERTIFICATE,
            "Expected `object`",
            f"ConfigMap {KEY}/vn-agent-clients: Expected `object`",
        ),
        (
            ROOT_CA,
            CERTIFICATE,
            clients("- {spkiSHA256: 12, role: admin}"),
            f"ConfigMap {KEY}/vn-agent-clients: spec.clients[0].spkiSHA256: must be a string; "
            "spec.clients[0].spkiSHA256: must be 64 hex digits; "
            "spec.clients[0].role: must be apiserver or metrics",
        ),
    ],
)
def test_invalid_objects(
    authority: CertificateSecret | str | None,
    certificate: CertificateSecret | str | None,
    extra: ClientsConfigMap | str | None,
    reason: str,
) -> None:
    assert read(cluster(), authority, certificate, extra) == Bad(reason)


def test_a_leaf_as_authority_is_invalid() -> None:
    assert isinstance(read(cluster(), CERTIFICATE, CERTIFICATE, None), Bad)


def test_an_impossible_key_is_invalid() -> None:
    found = read(cluster(cluster_namespace="kube-system"), ROOT_CA, CERTIFICATE, None)
    assert found == Bad("cluster key kube-system is a namespace of the super cluster itself")


def test_client_lists_from_the_syncer_are_ignored() -> None:
    """A tenant's namespace may come to have another tenant's key as its super name."""
    planted = clients(f"- {{spkiSHA256: {METRICS}, role: apiserver}}", SYNCED)
    assert read(cluster(), ROOT_CA, CERTIFICATE, planted) == REGISTERED


def test_a_source_is_named_with_its_uid() -> None:
    assert source_of(cluster()) == f"tenant-1/test/{UID}"
    assert key_of_source(source_of(cluster())) == ("tenant-1", "test")
    assert key_of_source("tenant-1/test") == ("tenant-1", "test")
