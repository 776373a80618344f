# SPDX-License-Identifier: Apache-2.0
"""`kubectl vc doctor` reads as far as it may."""

from devkit.fake_kubectl import FakeKubectl
from kubectl_vc.core.faults import FaultReason, RequestFault
from kubectl_vc.core.view import CLUSTER_VERSIONS, VIRTUAL_CLUSTERS
from kubectl_vc.doctor import doctor
from tests.unit.kubectl_vc.invocations import Ended, call, running

HEAD = "VirtualCluster tenants/acme: Running, v1.34, control plane in namespace tenants-acme\n"


def test_nothing_is_wrong() -> None:
    api = FakeKubectl({VIRTUAL_CLUSTERS: [running()], CLUSTER_VERSIONS: [{"metadata": {"name": "v1.34"}}]})
    assert call(doctor, "doctor acme -n tenants", api) == Ended(0, f"{HEAD}nothing is wrong\n", "")
    assert api.requests == []


def test_what_may_not_be_read_is_named() -> None:
    claim = {"metadata": {"name": "data-etcd-0", "namespace": "tenants-acme"}, "status": {"phase": "Lost"}}
    api = FakeKubectl({VIRTUAL_CLUSTERS: [running()], "persistentvolumeclaims": [claim]})
    for resource in (CLUSTER_VERSIONS, "pods", "leases.coordination.k8s.io"):
        api.refusals["list", resource] = RequestFault(FaultReason.FORBIDDEN, "no")
    assert call(doctor, "doctor acme -n tenants", api) == Ended(
        1,
        HEAD
        + "PersistentVolumeClaim data-etcd-0: it is Lost, of the default StorageClass\n"
        + "    see why: kubectl -n tenants-acme describe pvc data-etcd-0\n"
        + "not examined: clusterversions (Forbidden)\n"
        + "not examined: leases (Forbidden)\n"
        + "not examined: pods in namespace tenants-acme (Forbidden)\n",
        "",
    )


def test_an_api_server_that_is_away_is_the_error() -> None:
    api = FakeKubectl({VIRTUAL_CLUSTERS: [running()]})
    api.refusals["list", "pods"] = RequestFault(FaultReason.UNREACHABLE, "refused")
    assert call(doctor, "doctor acme -n tenants", api).error == (
        "cannot list pods in namespace tenants-acme: the super cluster: Unreachable: refused; check the"
        " API server's address, the network and any proxy; then try again"
    )
