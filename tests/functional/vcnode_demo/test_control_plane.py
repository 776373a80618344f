# SPDX-License-Identifier: Apache-2.0
"""A tenant's control plane in the demo, and what the super cluster does with vc-syncer's objects."""

from collections.abc import Iterator

import pytest

from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES, PODS, SERVICES
from devkit.kubelet.pods import FakePod
from devkit.pki import Authority
from tenancy import keys
from tests.waiting import wait_until
from vcnode_demo.control_plane import DemoControlPlane
from vcnode_demo.super_cluster import FakeSuperCluster
from vcnode_demo.tenant import DemoTenant


@pytest.fixture
def plane() -> Iterator[DemoControlPlane]:
    authority = Authority.create("kubernetes")
    leaf = authority.issue("acme", usages=("client", "server"))
    made = DemoControlPlane(DemoTenant("acme", "team-acme", authority, leaf, leaf, leaf))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def super_cluster() -> Iterator[FakeSuperCluster]:
    made = FakeSuperCluster("node-1")
    made.start()
    yield made
    made.stop()


def test_a_wiped_control_plane_keeps_its_address(plane: DemoControlPlane) -> None:
    url, kubeconfig = plane.url, plane.kubeconfig()
    own = [each["metadata"]["name"] for each in plane.objects(NAMESPACES)]
    plane.create(NAMESPACES, "", "shop")
    plane.create(CONFIG_MAPS, "shop", "prices", data={"anvil": "70"})
    service = plane.create(SERVICES, "shop", "web", spec={"ports": [{"port": 80}]})
    assert service["spec"]["clusterIP"].startswith("10.32.")
    plane.wipe()
    assert plane.find(CONFIG_MAPS, "shop", "prices") is None
    assert [each["metadata"]["name"] for each in plane.objects(NAMESPACES)] == own
    assert (plane.url, plane.kubeconfig()) == (url, kubeconfig)


def test_the_node_runs_synced_pods_alone(super_cluster: FakeSuperCluster) -> None:
    found: list[tuple[FakePod, ...]] = []
    super_cluster.add_pod("kube-system", "by-hand", {}, {})
    super_cluster.start_node(found.append)
    spec = {"containers": [{"name": "app", "image": "i"}]}
    labels = {keys.VC_NAME: "acme"}
    # In a namespace of the super cluster, as vc-syncer makes it.
    super_cluster.create(PODS, "default", "web", metadata={"labels": labels}, spec=spec)
    wait_until(lambda: found and found[-1])
    (pod,) = found[-1]
    assert (pod.namespace, pod.name, pod.containers, pod.labels) == ("default", "web", ("app",), labels)
    stored = super_cluster.find(PODS, "default", "web")
    assert stored is not None
    assert pod.uid == stored["metadata"]["uid"]
    super_cluster.delete(PODS, "default", "web")
    wait_until(lambda: not found[-1])
