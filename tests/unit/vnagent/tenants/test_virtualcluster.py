# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from daemonkit.kube.resources import ObjectMeta
from devkit.pki import Authority, Leaf
from tenancy import keys
from tenancy.registry import Bad, Registry, merge
from tenancy.tenant import Role, Tenant
from vnagent.tenants.rotation import Registered, Rotation, dump_rotations, load_rotations, rotate, tenant_of
from vnagent.tenants.virtualcluster import (
    CertificateSecret,
    ClientsConfigMap,
    VirtualCluster,
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


def cluster(phase: str = "Running", cluster_namespace: str = "", domain: str = "") -> VirtualCluster:
    whole = {
        "metadata": {"name": "test", "namespace": "tenant-1", "uid": UID, "resourceVersion": "1"},
        "spec": {"clusterDomain": domain, "clusterVersionName": "cv-1-18", "pkiExpireDays": 365},
        "status": {"phase": phase, "clusterNamespace": cluster_namespace, "conditions": []},
    }
    return msgspec.json.decode(msgspec.json.encode(whole), type=VirtualCluster)


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
SYNCED = {keys.CLUSTER: "tenant-1-70b001-test"}


def registered(authority: Authority = AUTHORITY, leaf: Leaf = LEAF, key: str = KEY) -> Registered:
    return Registered(key, (authority.der,), leaf.spki_sha256, {}, "cluster.local")


@pytest.mark.parametrize(
    ("phase", "answer"),
    [("", False), ("Pending", False), ("Running", True), ("Updating", True), ("Error", False)],
)
def test_a_running_virtual_cluster_is_a_tenant(phase: str, answer: bool) -> None:
    assert is_served(cluster(phase)) is answer


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
    assert read(cluster(), ROOT_CA, CERTIFICATE, None) == registered()


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
    assert read(cluster(), ROOT_CA, CERTIFICATE, planted) == registered()


def test_a_replaced_certificate_overlaps() -> None:
    renewed = AUTHORITY.issue(KEY)
    state = rotate(Rotation(), registered(), 0.0, 600.0)
    assert tenant_of(registered(), state) == Tenant(KEY, (AUTHORITY.der,), {LEAF.spki_sha256: Role.APISERVER})
    state = rotate(state, registered(leaf=renewed), 100.0, 600.0)
    assert state.next_end_s == 700.0
    both = {LEAF.spki_sha256: Role.APISERVER, renewed.spki_sha256: Role.APISERVER}
    assert tenant_of(registered(leaf=renewed), state).clients == both
    # Reading again in between does not prolong it.
    state = rotate(state, registered(leaf=renewed), 699.0, 600.0)
    assert state.next_end_s == 700.0
    state = rotate(state, registered(leaf=renewed), 700.0, 600.0)
    assert tenant_of(registered(leaf=renewed), state).clients == {renewed.spki_sha256: Role.APISERVER}
    assert state.next_end_s is None


def test_a_certificate_that_comes_back_is_not_retired() -> None:
    renewed = AUTHORITY.issue(KEY)
    state = rotate(Rotation(), registered(), 0.0, 600.0)
    state = rotate(state, registered(leaf=renewed), 1.0, 600.0)
    state = rotate(state, registered(), 2.0, 600.0)
    assert dict(state.retired_spkis) == {renewed.spki_sha256: 602.0}


def test_a_replaced_authority_overlaps_with_its_clients() -> None:
    other = Authority.create("kubernetes")
    renewed = other.issue(KEY)
    state = rotate(Rotation(), registered(), 0.0, 600.0)
    state = rotate(state, registered(other, renewed), 1.0, 600.0)
    tenant = tenant_of(registered(other, renewed), state)
    assert tenant.authorities == (other.der, AUTHORITY.der)
    assert set(tenant.clients) == {LEAF.spki_sha256, renewed.spki_sha256}
    assert merge(Registry(), {"s": tenant})[1] == ()


def test_confusable_authorities_have_no_overlap() -> None:
    """Without key identifiers OpenSSL would take either, and the registry refuse the tenant."""
    old = Authority.create("kubernetes", has_key_identifier=False)
    new = Authority.create("kubernetes", has_key_identifier=False)
    renewed = new.issue(KEY)
    state = rotate(Rotation(), registered(old), 0.0, 600.0)
    state = rotate(state, registered(new, renewed), 1.0, 600.0)
    tenant = tenant_of(registered(new, renewed), state)
    assert tenant.authorities == (new.der,)
    assert merge(Registry(), {"s": tenant})[1] == ()


def test_another_key_starts_a_new_rotation() -> None:
    state = rotate(Rotation(), registered(), 0.0, 600.0)
    state = rotate(state, registered(leaf=AUTHORITY.issue("x"), key="other"), 1.0, 600.0)
    assert state.retired_spkis == {}
    assert state.retired_authorities == {}


def test_overlap_zero_retires_at_once() -> None:
    state = rotate(Rotation(), registered(), 0.0, 0.0)
    state = rotate(state, registered(leaf=AUTHORITY.issue(KEY)), 1.0, 0.0)
    assert state.next_end_s is None


def test_a_source_is_named_with_its_uid() -> None:
    assert source_of(cluster()) == f"tenant-1/test/{UID}"
    assert key_of_source(source_of(cluster())) == ("tenant-1", "test")
    assert key_of_source("tenant-1/test") == ("tenant-1", "test")


ROTATION = Rotation(KEY, (b"new",), "02" * 32, {b"old": 700.0}, {"01" * 32: 650.0})


@pytest.mark.parametrize(
    ("later_s", "authorities", "spkis"),
    [
        (0.0, {b"old": 50.0 + 600.0}, {"01" * 32: 50.0 + 550.0}),
        (100.0, {b"old": 50.0 + 500.0}, {"01" * 32: 50.0 + 450.0}),
        (549.0, {b"old": 50.0 + 51.0}, {"01" * 32: 50.0 + 1.0}),
        (550.0, {b"old": 50.0 + 50.0}, {}),
        (600.0, {}, {}),
        (1e9, {}, {}),
        (-3600.0, {b"old": 50.0 + 600.0}, {"01" * 32: 50.0 + 600.0}),  # the wall clock was set back
    ],
)
def test_rotations_continue_after_a_restart(
    later_s: float, authorities: dict[bytes, float], spkis: dict[str, float]
) -> None:
    """Saved at 100 s of one monotonic clock, loaded at 50 s of another, `later_s` apart by the wall clock."""
    wall_s = 1_700_000_000.0
    saved = dump_rotations({"a/vc/uid": ROTATION}, wall_s - 100.0)
    loaded = load_rotations(saved, wall_s + later_s - 50.0, 50.0, 600.0)
    assert loaded == {"a/vc/uid": Rotation(KEY, (b"new",), "02" * 32, authorities, spkis)}


@pytest.mark.parametrize(
    "saved", [b"", b"[]", b"{", b'{"a": 1}', b'{"a": {"key": "k"}}', b"\xff", b"[" * 100_000]
)
def test_damaged_rotations_are_refused(saved: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        load_rotations(saved, 0.0, 0.0, 600.0)
