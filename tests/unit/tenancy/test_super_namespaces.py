# SPDX-License-Identifier: Apache-2.0
import pytest

from tenancy import keys
from tenancy.names import Refused
from tenancy.super_namespaces import SuperNamespaceOwner, owner_of

WHOLE = {keys.CLUSTER: "k-1", keys.NAMESPACE: "web", keys.UID: "u-1", keys.VC_UID: "v-1"}


def test_annotations_name_the_owner() -> None:
    assert owner_of("k-1-web", WHOLE) == SuperNamespaceOwner("k-1", "web", "u-1", "v-1")


def test_the_super_clusters_own_namespace_has_no_owner() -> None:
    assert owner_of("kube-system", {"some": "annotation"}) is None


@pytest.mark.parametrize("missing", [keys.CLUSTER, keys.NAMESPACE, keys.UID])
def test_a_part_of_the_annotations_is_refused(missing: str) -> None:
    found = owner_of("k-1-web", {key: value for key, value in WHOLE.items() if key != missing})
    assert found == Refused("not all of its ownership annotations are set")


def test_copied_annotations_make_no_owner() -> None:
    assert owner_of("other", WHOLE) == Refused("its ownership annotations belong to another namespace")


def test_a_long_namespace_is_known_by_its_shortened_name() -> None:
    long = "a" * 63
    name = "tenant-1-70b001-test-" + "a" * 36 + "-ebf56"
    found = owner_of(name, WHOLE | {keys.CLUSTER: "tenant-1-70b001-test", keys.NAMESPACE: long})
    assert found == SuperNamespaceOwner("tenant-1-70b001-test", long, "u-1", "v-1")


@pytest.mark.parametrize(
    ("vc_uid", "key", "uid", "is_of"),
    [
        ("v-1", "k-1", "v-1", True),
        ("v-1", "k-1", "v-2", False),
        ("v-1", "k-2", "v-1", False),
        ("", "k-1", "v-1", True),
        ("v-1", "k-1", "", True),
    ],
)
def test_another_virtual_cluster_is_another_tenant(vc_uid: str, key: str, uid: str, is_of: bool) -> None:
    assert SuperNamespaceOwner("k-1", "web", "u-1", vc_uid).is_of(key, uid) is is_of
