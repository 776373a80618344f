# SPDX-License-Identifier: Apache-2.0
from daemonkit.kube.resources import EXCLUDING_LABELS
from dnsconfig.cluster import transform
from dnsconfig.cluster.objects import MIRROR, PodCondition, PodStatus
from tenancy import keys
from tests.unit.dnsconfig.objects import namespace, network, pod, service, virtual_cluster
from tests.unit.dnsconfig.reading import read_all

OTHERS = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 1000, "app": "web"}


def test_transforms_keep_only_fields_that_decide() -> None:
    one = pod("a", network="blue", labels=OTHERS, annotations=OTHERS | {keys.NETWORK_READINESS: "false"})
    found = transform.pod(read_all([one])["Pod"]["a-shop", "web-0"])
    assert found.metadata.labels == {keys.ARKTOS_NETWORK: "blue"}
    assert found.metadata.annotations == {
        keys.CLUSTER: "a",
        keys.NAMESPACE: "shop",
        keys.UID: "tenant-web-0",
        keys.NETWORK_READINESS: "false",
    }
    assert found.status == PodStatus()
    condition = {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": "then"}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}, condition]}
    mirror = pod("a", annotations={MIRROR: "x" * 1000}) | {"status": status}
    found = transform.pod(read_all([mirror])["Pod"]["a-shop", "web-0"])
    assert found.status == PodStatus("Running", [PodCondition("PodReadyToStartContainers", "True", "then")])
    assert found.metadata.annotations[MIRROR] == ""
    labels = {keys.ARKTOS_NETWORK: "blue"} | dict.fromkeys(EXCLUDING_LABELS, "")
    made = service("a", "blue", "10.0.0.1", labels=labels | OTHERS, annotations=OTHERS)
    kept = transform.service(read_all([made])["Service"]["a-kube-system", "kube-dns-blue"])
    assert kept.metadata.labels == labels
    assert kept.metadata.annotations == {}
    assert kept.spec.cluster_ips == ["10.0.0.1"]
    where = namespace("a", "shop", **OTHERS)
    assert transform.namespace(read_all([where])["Namespace"]["", "a-shop"]).metadata.annotations == {
        keys.CLUSTER: "a",
        keys.NAMESPACE: "shop",
    }
    net = network("a", "blue", annotations=OTHERS | {keys.CLUSTER: "a"}, labels=OTHERS)
    assert transform.network(read_all([net])["Network"]["a-kube-system", "blue"]).metadata.annotations == {
        keys.CLUSTER: "a"
    }
    cluster = virtual_cluster("a", "a.example")
    assert transform.virtual_cluster(
        read_all([cluster])["VirtualCluster"]["tenants", "vc"]
    ).spec.cluster_domain == ("a.example")
