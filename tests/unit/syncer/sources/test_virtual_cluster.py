# SPDX-License-Identifier: Apache-2.0
import base64
from typing import Any

import msgspec
import pytest
import yaml

from syncer.core.tenant_cluster import TenantCluster
from syncer.sources.port import Reachable, TenantState, Unusable
from syncer.sources.virtual_cluster import (
    KubeconfigSecret,
    SecretRef,
    TenantStates,
    VirtualCluster,
    is_served,
    secret_of,
    tenant_of,
    with_condition,
)

SUPER = "https://10.0.0.1:6443"
UID = "uid-1"


def kubeconfig(server: str = "https://10.0.0.2:6443", **user: str) -> bytes:
    return yaml.safe_dump(
        {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": user or {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
    ).encode()


def virtual_cluster(
    annotations: dict[str, str] | None = None, *, phase: str = "Running", key: str = "", **spec: Any
) -> VirtualCluster:
    return msgspec.convert(
        {
            "metadata": {
                "namespace": "tenants",
                "name": "acme",
                "uid": UID,
                "annotations": annotations or {},
            },
            "spec": spec,
            "status": {"phase": phase, "clusterNamespace": key},
        },
        VirtualCluster,
    )


def secret(
    text: bytes, key: str = "admin-kubeconfig", annotations: dict[str, str] | None = None
) -> KubeconfigSecret:
    return msgspec.convert(
        {"metadata": {"annotations": annotations or {}}, "data": {key: base64.b64encode(text).decode()}},
        KubeconfigSecret,
    )


def cluster_of(state: TenantState) -> TenantCluster:
    assert isinstance(state, Reachable)
    return state.cluster


def unusable(message: str, key: str = "k") -> Unusable:
    return Unusable(key, "CredentialsUnusable", message, ("tenants", "acme"))


@pytest.mark.parametrize(
    ("phase", "is_it"),
    [("Running", True), ("Updating", True), ("Pending", False), ("Error", False), ("", False)],
)
def test_a_control_plane_that_runs_is_served(phase: str, is_it: bool) -> None:
    assert is_served(virtual_cluster(phase=phase)) is is_it


@pytest.mark.parametrize(
    ("annotations", "where"),
    [
        ({}, SecretRef("k", "admin-kubeconfig", "admin-kubeconfig")),
        ({"tenancy.x-k8s.io/secret.admin-kubeconfig": "own"}, SecretRef("k", "own", "value")),
        ({"tenancy.x-k8s.io/admin-kubeconfig": "x"}, None),
    ],
)
def test_the_credentials_are_where_upstream_puts_them(
    annotations: dict[str, str], where: SecretRef | None
) -> None:
    assert secret_of(virtual_cluster(annotations, key="k")) == where


def test_a_virtual_cluster_describes_its_tenant() -> None:
    found = tenant_of(
        virtual_cluster(
            {"vcnode.io/sync-weight": "7", "vcnode.io/sync-policy": "strict"},
            key="k",
            clusterDomain="acme.local",
            transparentMetaPrefixes=["up.example.com"],
            opaqueMetaPrefixes=["own.example.com"],
        ),
        secret(kubeconfig()),
        SUPER,
    )
    expected = TenantCluster(
        "k", "tenants", "acme", UID, "acme.local", ("up.example.com",), ("own.example.com",), 7, "strict"
    )
    assert cluster_of(found) == expected


@pytest.mark.parametrize("imports", [{}, {"secretName": "theirs"}, None])
@pytest.mark.parametrize("place", ["Secret", "named Secret", "annotation"])
def test_an_imported_kubeconfig_is_of_somebody_else(place: str, imports: dict[str, str] | None) -> None:
    """Wherever it is read: what VirtualClusters import are texts of their authors."""
    annotations, found = {
        "Secret": (None, secret(kubeconfig())),
        "named Secret": ({"tenancy.x-k8s.io/secret.admin-kubeconfig": "x"}, secret(kubeconfig(), "value")),
        "annotation": (
            {"tenancy.x-k8s.io/admin-kubeconfig": base64.b64encode(kubeconfig()).decode()},
            None,
        ),
    }[place]
    spec: dict[str, Any] = {} if imports is None else {"import": imports}
    state = tenant_of(virtual_cluster(annotations, key="k", **spec), found, SUPER)
    assert isinstance(state, Reachable)
    assert state.access.is_foreign is (imports is not None)


# PyYAML takes minutes for some of these, in which no tenant is synced.
_ALIASES = b"a: &a [x]\nb: *a\n"


@pytest.mark.parametrize("imports", [True, False])
@pytest.mark.parametrize("is_annotation", [True, False])
def test_texts_of_authors_have_no_aliases(*, is_annotation: bool, imports: bool) -> None:
    text = kubeconfig() + _ALIASES
    encoded = base64.b64encode(text).decode()
    annotations = {"tenancy.x-k8s.io/admin-kubeconfig": encoded} if is_annotation else None
    spec: dict[str, Any] = {"import": {"secretName": "theirs"}} if imports else {}
    found = tenant_of(
        virtual_cluster(annotations, key="k", **spec), None if is_annotation else secret(text), SUPER
    )
    assert isinstance(found, Unusable) is (is_annotation or imports)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", ""), ("0a1b", "0a1b"), ("f" * 64, "f" * 64), ("f" * 65, ""), ("0A", ""), ("a b", "")],
)
def test_token_of_a_restore_is_read_if_a_condition_can_name_it(text: str, expected: str) -> None:
    annotations = {"vcnode.io/hold-deletions": text, "vcnode.io/release-held": "abc"}
    found = cluster_of(tenant_of(virtual_cluster(annotations, key="k"), secret(kubeconfig()), SUPER))
    assert (found.restored, found.release) == (expected, "abc")


@pytest.mark.parametrize("annotation", ["", "0a", "ff"])
@pytest.mark.parametrize(("hold", "expected"), [("0b", "0b"), ("", None), (None, None), ("a b", "")])
def test_the_status_holds_deletions_whatever_annotations_say(
    annotation: str, hold: str | None, expected: str | None
) -> None:
    """Annotations go with each replace of the object, and anybody who may change it writes them."""
    restore = {} if hold is None else {"restore": {"hold": hold}}
    value = msgspec.to_builtins(virtual_cluster({"vcnode.io/hold-deletions": annotation}, key="k"))
    value["status"] |= restore
    cluster = msgspec.convert(value, VirtualCluster)
    found = cluster_of(tenant_of(cluster, secret(kubeconfig()), SUPER))
    assert found.restored == (annotation if expected is None else expected)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"type": "ControlPlaneAvailable", "status": "True", "lastTransitionTime": "t1"}, "t1"),
        ({"type": "ControlPlaneAvailable", "status": "False", "lastTransitionTime": "t1"}, ""),
        ({"type": "Ready", "status": "True", "lastTransitionTime": "t1"}, ""),
        ({"status": "True", "reason": "ControlPlaneAvailable", "lastTransitionTime": "t1"}, ""),
    ],
)
def test_since_when_it_serves_is_in_a_condition(condition: dict[str, str], expected: str) -> None:
    cluster = virtual_cluster(key="k")
    status = msgspec.structs.replace(cluster.status, conditions=[condition])
    found = tenant_of(msgspec.structs.replace(cluster, status=status), secret(kubeconfig()), SUPER)
    assert isinstance(found, Reachable)
    assert found.available_since == expected


def test_the_key_of_a_new_virtual_cluster_is_made_of_its_uid() -> None:
    found = cluster_of(tenant_of(virtual_cluster(), secret(kubeconfig()), SUPER))
    # The first 6 hex digits of SHA-256 of `uid-1`.
    assert found.key == "tenants-4a49ac-acme"


def test_an_annotation_has_the_kubeconfig_in_base64() -> None:
    text = base64.b64encode(kubeconfig()).decode()
    found = tenant_of(virtual_cluster({"tenancy.x-k8s.io/admin-kubeconfig": text}, key="k"), None, SUPER)
    assert isinstance(found, Reachable)
    assert found.access.server == "https://10.0.0.2:6443"


def test_an_unchanged_kubeconfig_is_read_once() -> None:
    """All tenants are published when one changes: a thousand kubeconfigs were read again each time."""
    states, cluster = TenantStates(), virtual_cluster(key="k")
    source = "tenants/acme/uid-1"
    first = states.of([(cluster, secret(kubeconfig()))], SUPER)
    assert first == {source: tenant_of(cluster, secret(kubeconfig()), SUPER)}
    assert states.of([(virtual_cluster(key="k"), secret(kubeconfig()))], SUPER)[source] is first[source]
    assert states.of([], SUPER) == {}
    assert states.of([(cluster, secret(kubeconfig()))], SUPER)[source] is not first[source]


@pytest.mark.parametrize(
    ("changed", "text", "super_server"),
    [
        (virtual_cluster({"vcnode.io/sync-weight": "7"}, key="k"), kubeconfig(), SUPER),
        (virtual_cluster(key="k"), kubeconfig(token="other"), SUPER),
        (virtual_cluster(key="k"), kubeconfig(), "https://10.0.0.2:6443"),
    ],
)
def test_what_a_tenant_is_read_from_may_change(
    changed: VirtualCluster, text: bytes, super_server: str
) -> None:
    states = TenantStates()
    before = states.of([(virtual_cluster(key="k"), secret(kubeconfig()))], SUPER)
    after = states.of([(changed, secret(text))], super_server)
    assert after == {"tenants/acme/uid-1": tenant_of(changed, secret(text), super_server)} != before


def test_a_dns_name_in_brackets_is_understood() -> None:
    found = tenant_of(virtual_cluster(key="k"), secret(kubeconfig("https://[apiserver.k]:6443")), SUPER)
    assert isinstance(found, Reachable)
    assert found.access.server == "https://apiserver.k:6443"


@pytest.mark.parametrize(
    ("cluster", "found", "state"),
    [
        (virtual_cluster(key="k"), None, unusable("Secret k/admin-kubeconfig does not exist")),
        (
            virtual_cluster(key="k"),
            secret(kubeconfig(), annotations={"tenancy.x-k8s.io/cluster": "other"}),
            unusable("Secret k/admin-kubeconfig does not exist"),
        ),
        (
            virtual_cluster(key="k"),
            secret(kubeconfig(), "other"),
            unusable("Secret k/admin-kubeconfig has no key admin-kubeconfig"),
        ),
        (virtual_cluster(key="k"), "too large", unusable("Secret k/admin-kubeconfig: too large")),
        (
            virtual_cluster(key="k"),
            secret(b"{"),
            unusable("Secret k/admin-kubeconfig: not YAML at line 1"),
        ),
        (
            virtual_cluster(key="k"),
            secret(kubeconfig(SUPER)),
            unusable("the kubeconfig leads to the super cluster itself; give the tenant's own"),
        ),
        (
            virtual_cluster(key="k"),
            secret(kubeconfig(tokenFile="/etc/shadow")),
            unusable("Secret k/admin-kubeconfig: it names files; embed certificates, key and token"),
        ),
        (
            virtual_cluster({"tenancy.x-k8s.io/admin-kubeconfig": "%"}, key="k"),
            None,
            unusable("annotation tenancy.x-k8s.io/admin-kubeconfig is not base64"),
        ),
        (
            virtual_cluster({"vcnode.io/sync-weight": "0"}, key="k"),
            secret(kubeconfig()),
            unusable("annotation vcnode.io/sync-weight: expected a number from 1 to 100"),
        ),
        (
            virtual_cluster(key="kube-system"),
            secret(kubeconfig()),
            Unusable(
                "",
                "ClusterKeyRefused",
                "cluster key kube-system is a namespace of the super cluster itself",
                ("tenants", "acme"),
            ),
        ),
    ],
)
def test_what_cannot_be_used_has_a_reason(
    cluster: VirtualCluster, found: KubeconfigSecret | str | None, state: Unusable
) -> None:
    assert tenant_of(cluster, found, SUPER) == state


def test_a_condition_stands_once_for_each_reason() -> None:
    first = with_condition([{"reason": "Other", "status": "True"}], "CredentialsUnusable", "a", "t1")
    second = with_condition(first, "CredentialsUnusable", "b", "t2")
    assert second == [
        {"reason": "Other", "status": "True"},
        {"status": "True", "lastTransitionTime": "t2", "reason": "CredentialsUnusable", "message": "b"},
    ]
    assert with_condition(second, "CredentialsUnusable", "b", "t3") is None
    assert with_condition(second, "CredentialsUnusable", "", "t4", is_true=False) == [
        {"reason": "Other", "status": "True"},
        {"status": "False", "lastTransitionTime": "t4", "reason": "CredentialsUnusable", "message": ""},
    ]
    assert with_condition(second, "Never", "", "t5", is_true=False) is None
