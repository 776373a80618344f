# SPDX-License-Identifier: Apache-2.0
"""Which datastore a release has, and why one is refused."""

import pytest

from tenant_operator.datastores import kine_postgresql
from tenant_operator.datastores.choice import datastore_of
from tenant_operator.model import names
from tenant_operator.model.cluster_version import DatastoreSpec
from tenant_operator.model.control_plane import ManifestInputs
from tenant_operator.model.release import DATASTORES
from tests.unit.tenant_operator.control_planes import control_plane

KEY = "tenants-70b001-acme"
SHARED = ManifestInputs(store_endpoints=("https://etcd.example:2379",), store_cidrs=("198.51.100.0/28",))


def test_each_type_of_a_release_is_made() -> None:
    for kind in DATASTORES:
        spec = DatastoreSpec(type=kind, secret_name="postgresql")
        assert datastore_of(control_plane(datastore=spec), SHARED).problem == ""


def test_a_shared_etcd_needs_its_members() -> None:
    found = datastore_of(control_plane(datastore=DatastoreSpec(type="shared-etcd")), ManifestInputs())
    assert found.problem == (
        "ClusterVersion v1.34: spec.datastore.type is shared-etcd, and vc-operator's configuration has no"
        " sharedEtcd.endpoints"
    )


def test_a_shared_server_needs_a_gap_in_the_fence() -> None:
    """Without it the API server would wait for its store for ever, and no condition would tell why."""
    found = datastore_of(control_plane(datastore=DatastoreSpec(type="kine-postgresql")), ManifestInputs())
    assert "kine-postgresql, and vc-operator's configuration has no fence.storeCidrs" in found.problem
    for kind, port in (("kine-postgresql", 5432), ("shared-etcd", 2379)):
        (rule,) = datastore_of(control_plane(datastore=DatastoreSpec(type=kind)), SHARED).apiserver_egress
        assert rule == {
            "to": [{"ipBlock": {"cidr": "198.51.100.0/28"}}],
            "ports": [{"protocol": "TCP", "port": port}],
        }


def test_a_role_has_connections_for_one_more_api_server() -> None:
    spec = DatastoreSpec(type="kine-postgresql", secret_name="postgresql")
    assert kine_postgresql.connections(control_plane(datastore=spec, replicas=3)) == 40


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
