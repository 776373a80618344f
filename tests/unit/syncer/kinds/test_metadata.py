# SPDX-License-Identifier: Apache-2.0
"""Keys on their way (reference 8: TestBuildSuperClusterObject, TestCheckDWKVEquality and the upward one)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devkit.syncer.fake_view import FakeView
from syncer.core.tenant_cluster import TenantCluster
from syncer.core.view import SyncSettings
from syncer.kinds.metadata import (
    LABEL_PREFIX,
    has_prefix,
    is_of,
    is_reserved,
    metadata_patch,
    selectable_label,
    super_labels,
    super_object,
    translate_selector,
    transparent_patch,
)
from syncer.policy import patterns
from syncer.policy.sync_policy import MetadataPolicy, SyncPolicy
from tests.unit.syncer.kinds.objects import (
    OWN_LABELS,
    PREFIXED,
    SUPER_NAMESPACE,
    owner_annotations,
    tenant_object,
)

DOMAINS = ("kubernetes.io", "k8s.io")
EVERY_KEY = SyncPolicy(
    metadata=MetadataPolicy(allowed_labels=patterns.of("*"), allowed_annotations=patterns.of("*"))
)


@pytest.mark.parametrize(
    ("key", "domain", "expected"),
    [
        ("kubernetes.io/a", "kubernetes.io", True),
        ("app.kubernetes.io/a", "kubernetes.io", True),
        ("notkubernetes.io/a", "kubernetes.io", False),
        ("kubernetes.io", "kubernetes.io", False),
        ("kubernetes.io.evil/a", "kubernetes.io", False),
        ("a", "", False),
    ],
)
def test_a_domain_matches_at_label_boundaries(key: str, domain: str, expected: bool) -> None:
    assert (bool(domain) and is_of(key, domain)) is expected


@pytest.mark.parametrize(
    ("key", "prefix", "expected"),
    [
        ("opaque.io/a", "opaque.io", True),
        ("opaque.io/a", "opaque.io/", True),
        ("opaque.io", "opaque.io", True),
        ("opaque.iot/a", "opaque.io", False),
        ("m.opaque.io/a", "opaque.io", False),
        ("opaque.io/ab", "opaque.io/a", False),
    ],
)
def test_a_prefix_ends_at_a_boundary(key: str, prefix: str, expected: bool) -> None:
    assert has_prefix(key, prefix) is expected


def test_a_super_object_has_owners_and_nothing_of_the_server() -> None:
    tenant = tenant_object(
        "ConfigMap",
        meta={
            "labels": {"app": "a"},
            "annotations": {"note": "n"},
            "generation": 3,
            "creationTimestamp": "2025-01-01T00:00:00Z",
            "managedFields": [{}],
            "finalizers": ["example.com/hold"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}],
        },
        data={"k": "v"},
        unknown={"of": "a newer version"},
        status={"phase": "x"},
    )
    owners = '[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]'
    assert super_object("ConfigMap", tenant, SUPER_NAMESPACE, FakeView()) == {
        "kind": "ConfigMap",
        "metadata": {
            "name": "a",
            "namespace": SUPER_NAMESPACE,
            "labels": {"app": "a", **OWN_LABELS},
            "annotations": {
                "note": "n",
                **owner_annotations(),
                "tenancy.x-k8s.io/ownerReferences": owners,
            },
        },
        "data": {"k": "v"},
        "unknown": {"of": "a newer version"},
    }


def test_forged_and_opaque_keys_of_a_tenant_do_not_pass() -> None:
    forged = {
        "tenancy.x-k8s.io/cluster": "other",
        "tenancy.x-k8s.io/vcname": "other",
        "tenancy.x-k8s.io/foo": "x",
        "transparency.tenancy.x-k8s.io/clusterIP": "1.2.3.4",
        "vcnode.io/containers": "c",
        "note": "stays, for it has no domain",
        "m.kubernetes.io/a": "goes",
        "opaque.example.com/kk": "goes",
        "m.opaque.example.com/kk": "goes",
        "helm.sh/chart": "stays, for it is known",
    }
    tenant = tenant_object("ConfigMap", meta={"labels": forged, "annotations": forged})
    made = super_object("ConfigMap", tenant, SUPER_NAMESPACE, FakeView(tenant=PREFIXED))["metadata"]
    kept = {"note": "stays, for it has no domain", "helm.sh/chart": "stays, for it is known"}
    assert made["labels"] == kept | OWN_LABELS
    assert made["annotations"] == kept | owner_annotations()


@pytest.mark.parametrize(
    ("wanted", "actual", "expected"),
    [
        ({}, {}, {}),
        ({"a": "1"}, {}, {"a": "1"}),
        ({"a": "1"}, {"a": "1"}, {}),
        ({"a": "1"}, {"a": "2"}, {"a": "1"}),
        ({"a": "1"}, {"a": "1", "b": "1"}, {"b": None}),
        ({}, {"a": "1"}, {"a": None}),
        ({"a": "1"}, {"a": "1", "tenancy.x-k8s.io/name": "x"}, {}),
        ({}, {"tenancy.x-k8s.io/name": "x"}, {}),
        ({"transparent.example.com/a": "1"}, {"transparent.example.com/a": "2"}, {}),
        ({"transparent.example.com/a": "1"}, {}, {}),
        ({}, {"transparent.example.com/a": "1"}, {}),
        ({}, {"opaque.example.com/a": "1"}, {}),
        ({}, {"kubernetes.io/a": "1"}, {}),
        ({}, {"b.k8s.io/a": "1"}, {}),
        ({}, {"notk8s.io/a": "1"}, {"notk8s.io/a": None}),
        # What the syncer itself writes is repaired.
        ({"tenancy.x-k8s.io/uid": "u"}, {"tenancy.x-k8s.io/uid": "forged"}, {"tenancy.x-k8s.io/uid": "u"}),
        (
            {"transparency.tenancy.x-k8s.io/clusterIP": "10.0.0.1"},
            {"transparency.tenancy.x-k8s.io/clusterIP": "10.0.0.2"},
            {"transparency.tenancy.x-k8s.io/clusterIP": "10.0.0.1"},
        ),
        ({}, {"tenant-label.vcnode.io/a": "1"}, {"tenant-label.vcnode.io/a": None}),
        ({}, {"vcnode.io/containers": "c"}, {"vcnode.io/containers": None}),
        ({}, {"vcnode.io/gate-opened": "now"}, {}),
    ],
)
def test_the_tenant_wins_but_for_keys_of_the_super_cluster(
    wanted: dict[str, str], actual: dict[str, str], expected: dict[str, str | None]
) -> None:
    desired = {"metadata": {"annotations": wanted}}
    found = {"metadata": {"annotations": actual}}
    patch = {"annotations": expected} if expected else {}
    assert metadata_patch(desired, found, PREFIXED, DOMAINS) == patch


@pytest.mark.parametrize(
    ("tenant", "found", "expected"),
    [
        ({"a": "1"}, {"a": "1"}, {}),
        ({"a": "1"}, {"a": "2", "b": "1"}, {}),
        ({}, {"transparent.example.com/a": "1"}, {"transparent.example.com/a": "1"}),
        (
            {},
            {"transparent.example.com/a": "1", "transparency.tenancy.x-k8s.io/b": "2"},
            {"transparent.example.com/a": "1", "transparency.tenancy.x-k8s.io/b": "2"},
        ),
        ({"transparent.example.com/a": "1"}, {"transparent.example.com/a": "1"}, {}),
        (
            {"transparent.example.com/a": "0"},
            {"transparent.example.com/a": "1"},
            {"transparent.example.com/a": "1"},
        ),
        ({"transparent.example.com/a": "1"}, {}, {}),
        ({}, {"transparent.example.community/a": "1"}, {}),
    ],
)
def test_transparent_keys_go_up_and_are_never_removed(
    tenant: dict[str, str], found: dict[str, str], expected: dict[str, str]
) -> None:
    patch = transparent_patch({"metadata": {"labels": tenant}}, {"metadata": {"labels": found}}, PREFIXED)
    assert patch == ({"labels": expected} if expected else {})


def test_a_selector_finds_the_labels_that_went_down() -> None:
    selector = {
        "matchLabels": {"app.kubernetes.io/name": "n", "app": "a"},
        "matchExpressions": [{"key": "x.k8s.io/y", "operator": "Exists"}],
        "unknown": 1,
    }
    assert translate_selector(selector, FakeView()) == {
        "matchLabels": {"tenant-label.vcnode.io/app.kubernetes.io__name": "n", "app": "a"},
        "matchExpressions": [{"key": "tenant-label.vcnode.io/x.k8s.io__y", "operator": "Exists"}],
        "unknown": 1,
    }


def test_labels_of_namespaces_have_keys_of_their_own() -> None:
    assert super_labels({"team": "blue", "kubernetes.io/metadata.name": "ns", "a.b/c": "d"}) == {
        "tenant-label.vcnode.io/team": "blue",
        "tenant-label.vcnode.io/a.b__c": "d",
    }


_NAME = st.from_regex(r"[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?", fullmatch=True)
_DOMAIN = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?(\.[a-z]{1,9}){1,3}", fullmatch=True)
_KEYS = st.one_of(
    _NAME,
    st.builds("{}/{}".format, _DOMAIN, _NAME),
    st.builds(
        "{}{}/{}".format,
        st.sampled_from(["", "a.", "not"]),
        st.sampled_from(["tenancy.x-k8s.io", "transparency.tenancy.x-k8s.io", "vcnode.io", "k8s.io"]),
        _NAME,
    ),
)


@given(_KEYS, _KEYS)
def test_selectable_labels_are_valid_and_distinct(one: str, other: str) -> None:
    found = selectable_label(one)
    name = found.removeprefix(LABEL_PREFIX)
    assert len(name) <= 63
    assert name[0].isalnum()
    assert name[-1].isalnum()
    assert (found == selectable_label(other)) is (one == other)


@given(st.dictionaries(_KEYS, st.sampled_from(["", "x"]), max_size=8), st.sampled_from([(), DOMAINS]))
def test_reserved_keys_of_a_tenant_never_pass(pairs: dict[str, str], domains: tuple[str, ...]) -> None:
    tenant = tenant_object("ConfigMap", meta={"labels": pairs, "annotations": pairs})
    view = FakeView(settings=SyncSettings(opaque_domains=domains), policy=EVERY_KEY)
    made = super_object("ConfigMap", tenant, SUPER_NAMESPACE, view)["metadata"]
    assert {key: value for key, value in made["labels"].items() if is_reserved(key)} == OWN_LABELS
    reserved = {key: value for key, value in made["annotations"].items() if is_reserved(key)}
    assert reserved == owner_annotations()


_PAIRS = st.dictionaries(
    st.sampled_from(
        [
            *("a", "b", "transparent.example.com/a", "opaque.example.com/a", "x.k8s.io/a"),
            *("tenancy.x-k8s.io/uid", "vcnode.io/containers", "tenant-label.vcnode.io/a"),
        ]
    ),
    st.sampled_from(["1", "2"]),
)


@given(_PAIRS, _PAIRS)
def test_metadata_patched_once_needs_no_second_patch(wanted: dict[str, str], actual: dict[str, str]) -> None:
    tenant: TenantCluster = PREFIXED
    desired, found = {"metadata": {"labels": wanted}}, {"metadata": {"labels": dict(actual)}}
    patch = metadata_patch(desired, found, tenant, DOMAINS).get("labels", {})
    now = {key: value for key, value in (actual | patch).items() if value is not None}
    assert metadata_patch(desired, {"metadata": {"labels": now}}, tenant, DOMAINS) == {}
