# SPDX-License-Identifier: Apache-2.0
"""Which datastore a release has, and why one is refused."""

import pytest

from tenant_operator.datastores.choice import datastore_of
from tenant_operator.model import names
from tenant_operator.model.cluster_version import DatastoreSpec, Images
from tenant_operator.model.control_plane import ManifestInputs
from tenant_operator.model.release import DATASTORES
from tests.unit.tenant_operator.control_planes import control_plane, release_of

SHARED = ManifestInputs(store_endpoints=("https://etcd.example:2379",))


def test_each_type_of_a_release_is_made() -> None:
    for kind in DATASTORES:
        spec = DatastoreSpec(type=kind, secret_name="postgresql")
        assert datastore_of(control_plane(datastore=spec), SHARED).problem == ""


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (
            "shared-etcd",
            "spec.datastore.type is shared-etcd, and the operator's configuration has no URL of its members",
        ),
        ("kine-postgresql", "spec.images.backup is not named; it has psql, by which the database is made"),
    ],
)
def test_problems_name_the_field(kind: str, problem: str) -> None:
    release = release_of((1, 34, 4), images=Images(kine="kine"))
    found = control_plane(release=release, datastore=DatastoreSpec(type=kind, secret_name="s"))
    assert datastore_of(found, ManifestInputs()).problem == f"ClusterVersion v1.34: {problem}"


@pytest.mark.parametrize(
    ("kind", "interval"),
    [("etcd", "0"), ("shared-etcd", "0"), ("kine-sqlite", "5m"), ("kine-postgresql", "5m")],
)
def test_somebody_compacts(kind: str, interval: str) -> None:
    """etcd compacts by itself. kine does not: the API server asks it to."""
    spec = DatastoreSpec(type=kind, secret_name="postgresql")
    found = datastore_of(control_plane(datastore=spec), SHARED)
    assert found.apiserver_flags["etcd-compaction-interval"] == interval


def test_a_shared_etcd_has_a_prefix_for_each_tenant() -> None:
    found = datastore_of(control_plane(datastore=DatastoreSpec(type="shared-etcd")), SHARED)
    assert found.apiserver_flags["etcd-prefix"] == "/tenants-70b001-acme"
    assert found.apiserver_flags["etcd-certfile"].endswith(f"/{names.STORE_CREDENTIALS}/tls.crt")
    assert found.manifests == ()
