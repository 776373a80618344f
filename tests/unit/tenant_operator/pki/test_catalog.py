# SPDX-License-Identifier: Apache-2.0
"""Which certificates a control plane has, and that one authority's open nothing of another's."""

from collections.abc import Iterable

import msgspec
import pytest

from tenant_operator.model import names
from tenant_operator.pki import catalog, issuing
from tenant_operator.pki.catalog import CertificateUsage, LeafSpec, spec_digest
from tests.unit.tenant_operator.pki import control_planes
from tests.unit.tenant_operator.pki.control_planes import KEY, accepts

PLANE = control_planes.control_plane()
AUTHORITIES, LEAVES = control_planes.issue_all(PLANE)
SPECS = {spec.secret: spec for spec in control_planes.specs(PLANE)}

# What each verifier of the control plane trusts, of which usage the peer's certificate must be.
VERIFIERS = {
    "etcd's clients and members": (names.ETCD_CA, CertificateUsage.CLIENT),
    "etcd itself": (names.ETCD_CA, CertificateUsage.SERVER),
    "vn-agent": (names.KUBELET_CLIENT_CA, CertificateUsage.CLIENT),
    "aggregated API servers": (names.FRONT_PROXY_CA, CertificateUsage.CLIENT),
    "the gateway's header": (names.GATEWAY_CA, CertificateUsage.CLIENT),
    "the API server's users": (names.CLUSTER_CA, CertificateUsage.CLIENT),
    "the API server itself": (names.CLUSTER_CA, CertificateUsage.SERVER),
}


def row(spec: LeafSpec) -> tuple[object, ...]:
    return (
        f"{spec.namespace}/{spec.secret}",
        spec.authority,
        spec.common_name,
        spec.organizations,
        "+".join(spec.usages),
        spec.days,
    )


def test_leaves_of_a_control_plane() -> None:
    """The whole table."""
    client, server, both = "client", "server", "server+client"
    assert [row(spec) for spec in SPECS.values()] == [
        (f"{KEY}/etcd-server", "etcd-ca", "etcd", (), both, 365),
        (f"{KEY}/apiserver-etcd-client", "etcd-ca", "kube-apiserver-etcd-client", (), client, 365),
        (f"{KEY}/apiserver-serving", "cluster-ca", "kube-apiserver", (), server, 365),
        (
            f"{KEY}/apiserver-kubelet-client",
            "kubelet-client-ca",
            "kube-apiserver-kubelet-client",
            (),
            client,
            365,
        ),
        (f"{KEY}/front-proxy-client", "front-proxy-ca", "front-proxy-client", (), client, 365),
        (
            f"{KEY}/controller-manager-client",
            "cluster-ca",
            "system:kube-controller-manager",
            (),
            client,
            365,
        ),
        (f"{KEY}/controller-manager-serving", "cluster-ca", "kube-controller-manager", (), server, 365),
        (f"{KEY}/operator-client", "cluster-ca", "vcnode:vc-operator", ("system:masters",), client, 1),
        (f"{KEY}/admin-kubeconfig", "cluster-ca", "vcnode:vc-syncer", ("vcnode:vc-syncers",), client, 365),
        (
            "tenants/acme-kubeconfig",
            "cluster-ca",
            "vcnode:tenant-admin",
            ("vcnode:tenant-admins",),
            client,
            1,
        ),
    ]


def test_metrics_server_has_a_certificate_with_its_image() -> None:
    images = msgspec.structs.replace(PLANE.release.images, metrics_server="m:1")
    plane = msgspec.structs.replace(PLANE, release=msgspec.structs.replace(PLANE.release, images=images))
    added = [row(spec) for spec in control_planes.specs(plane) if spec.secret not in SPECS]
    assert added == [(f"{KEY}/metrics-client", "kubelet-client-ca", "metrics-server", (), "client", 365)]


def test_names_that_servers_are_reached_by() -> None:
    serving, etcd = SPECS["apiserver-serving"], SPECS["etcd-server"]
    assert serving.dns == (
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "apiserver-svc",
        f"apiserver-svc.{KEY}",
        f"apiserver-svc.{KEY}.svc",
        "acme.example.com",
    )
    assert serving.ips == ("10.32.0.1", "10.96.3.7")
    assert etcd.dns[:4] == ("localhost", "etcd", f"etcd.{KEY}", f"etcd.{KEY}.svc")
    assert f"etcd-2.etcd.{KEY}.svc" in etcd.dns


def test_addresses_outside_are_addresses_in_the_certificate() -> None:
    found = {each.secret: each for each in catalog.leaves(PLANE, ["10.96.3.7", "fd00::7"], ["198.51.100.4"])}
    assert found["apiserver-serving"].ips == ("10.32.0.1", "10.96.3.7", "fd00::7", "198.51.100.4")
    assert found["acme-kubeconfig"].server == "https://198.51.100.4:6443"
    assert found["admin-kubeconfig"].server == "https://10.96.3.7:6443"


@pytest.mark.parametrize(
    ("addresses", "external", "endpoint", "inside", "outside"),
    [
        (["10.96.3.7"], [], "", "https://10.96.3.7:6443", "https://10.96.3.7:6443"),
        (["fd00::7"], [], "", "https://[fd00::7]:6443", "https://[fd00::7]:6443"),
        (["10.96.3.7"], ["a.example"], "", "https://10.96.3.7:6443", "https://a.example:6443"),
        (
            ["10.96.3.7"],
            ["a.example"],
            "https://a.example:31443",
            "https://10.96.3.7:6443",
            "https://a.example:31443",
        ),
    ],
)
def test_servers_in_kubeconfigs(
    addresses: list[str], external: list[str], endpoint: str, inside: str, outside: str
) -> None:
    found = {each.secret: each.server for each in catalog.leaves(PLANE, addresses, external, endpoint)}
    assert (found["admin-kubeconfig"], found["operator-client"], found["acme-kubeconfig"]) == (
        inside,
        inside,
        outside,
    )


@pytest.mark.parametrize("datastore", ["kine-postgresql", "shared-etcd"])
def test_only_a_store_of_its_own_has_certificates_here(datastore: str) -> None:
    found = control_planes.specs(control_planes.control_plane(datastore))
    assert {spec.secret for spec in SPECS.values()} - {spec.secret for spec in found} == {
        "etcd-server",
        "apiserver-etcd-client",
    }


@pytest.mark.parametrize(("days", "expected"), [(0, 1), (-5, 1), (30, 30), (3650, 3650), (99999, 3650)])
def test_days_are_bounded(days: int, expected: int) -> None:
    found = control_planes.specs(control_planes.control_plane(days=days))
    assert {spec.secret: spec.days for spec in found}["apiserver-serving"] == expected


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_no_leaf_is_accepted_by_another_verifier(verifier: str) -> None:
    """Each leaf of each authority, shown to each verifier: accepted for its authority and usage only."""
    authority, usage = VERIFIERS[verifier]
    accepted = {
        secret
        for secret, pair in LEAVES.items()
        if accepts(AUTHORITIES[authority].certificate_pem, usage, pair)
    }
    assert accepted == {
        secret for secret, spec in SPECS.items() if spec.authority == authority and usage in spec.usages
    }


def test_what_tenants_have_signed_opens_nothing_but_the_api() -> None:
    """A tenant has any subject signed by its cluster authority, as the controller manager does."""
    forged = [
        msgspec.structs.replace(spec, authority=names.CLUSTER_CA)
        for spec in (*SPECS.values(), msgspec.structs.replace(SPECS["etcd-server"], common_name="root"))
    ]
    pairs = [issuing.issue_pair(spec, AUTHORITIES[names.CLUSTER_CA], control_planes.NOW) for spec in forged]
    for verifier, (authority, usage) in VERIFIERS.items():
        if authority != names.CLUSTER_CA:
            trusted = AUTHORITIES[authority].certificate_pem
            assert not any(accepts(trusted, usage, pair) for pair in pairs), verifier


def test_private_keys_are_in_the_secrets_of_the_table() -> None:
    """And nowhere else: bundles and the Secrets that vn-agent reads have none."""
    bundle = AUTHORITIES[names.CLUSTER_CA].certificate_pem
    found = {
        f"{secret}: {key}"
        for secret, data in (
            *((name, issuing.authority_data(pair)) for name, pair in AUTHORITIES.items()),
            *((name, issuing.leaf_data(SPECS[name], pair, bundle)) for name, pair in LEAVES.items()),
        )
        for key, value in data.items()
        if has_key(value)
    }
    pairs = {f"{name}: tls.key" for name in (*AUTHORITIES, *LEAVES)}
    assert found == pairs | {
        "operator-client: kubeconfig",
        "admin-kubeconfig: admin-kubeconfig",
        "acme-kubeconfig: value",
    }


def has_key(value: bytes) -> bool:
    return b"PRIVATE KEY" in value or b"client-key-data" in value


def test_a_digest_changes_with_what_a_leaf_was_issued_for() -> None:
    spec = SPECS["admin-kubeconfig"]
    base = spec_digest(spec, "aa", b"bundle")
    assert base == spec_digest(msgspec.structs.replace(spec), "aa", b"bundle")
    others: Iterable[str] = (
        spec_digest(msgspec.structs.replace(spec, dns=("a",)), "aa", b"bundle"),
        spec_digest(msgspec.structs.replace(spec, server="https://b:6443"), "aa", b"bundle"),
        spec_digest(spec, "bb", b"bundle"),
        spec_digest(spec, "aa", b"other"),
    )
    assert len({base, *others}) == 5
    pair = SPECS["apiserver-serving"]
    assert spec_digest(pair, "aa", b"bundle") == spec_digest(pair, "aa", b"other")
