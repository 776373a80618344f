# SPDX-License-Identifier: Apache-2.0
"""The work of a decision grows as the objects do that it reads, with each list, map and text of them.

The pod, its Namespace, and the DNS Service of its network are made from Kubernetes' schemas; of a Network and
a VirtualCluster the texts that are decoded.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from dnsconfig.cluster import transform
from dnsconfig.cluster.objects import (
    AnyObject,
    NamespaceObject,
    NetworkObject,
    PodObject,
    ServiceObject,
    VirtualClusterObject,
)
from dnsconfig.resolve.decision import decide, node_dns_of, readiness_wait
from dnsconfig.resolve.resolv_conf import retained_lines
from tenancy import keys
from tests.cluster_states import cluster_state_of, decode_object
from tests.pump import ABSENT, CHARS, Schema, Sizes, peak_bytes, steps, superlinear
from tests.unit.dnsconfig import objects

T = TypeVar("T")


def _numbered(prefix: str) -> Any:
    return lambda where: f"{prefix}{int(where.rpartition('.')[2]) % 250 + 1}"


POD = Schema(
    "Pod",
    {
        "metadata.name": "web-0",
        "metadata.namespace": "a-shop",
        "spec.dnsPolicy": "ClusterFirst",
        "spec.hostNetwork": False,
        "spec.dnsConfig.nameservers[]": _numbered("192.0.2."),
        # What a decision does not read would only make the test slow.
        **dict.fromkeys(
            (
                *("spec.affinity", "spec.containers", "spec.ephemeralContainers", "spec.initContainers"),
                *("spec.volumes", "spec.topologySpreadConstraints", "status.containerStatuses"),
                *("status.initContainerStatuses", "status.ephemeralContainerStatuses"),
            ),
            ABSENT,
        ),
    },
)
_SERVICE = Schema(
    "Service",
    {
        "metadata.name": "kube-dns-default",
        "metadata.namespace": "a-kube-system",
        "spec.type": "ClusterIP",
        "spec.clusterIP": "10.0.0.1",
        "spec.clusterIPs[]": _numbered("10.0.0."),
    },
)
_NAMESPACE = Schema("Namespace", {"metadata.name": "a-shop"})
_TEXTS = ("network type", "network ipam", "network message", "network address", "domain", "resolv.conf")
_KINDS = {"pod": POD, "service": _SERVICE, "namespace": _NAMESPACE}
_PLACES = (*(f"{kind} {place}" for kind, schema in _KINDS.items() for place in schema.places()), *_TEXTS)


def _made(sizes: Sizes, kind: str) -> dict[str, Any]:
    below = {place.removeprefix(f"{kind} "): size for place, size in sizes.items() if place.startswith(kind)}
    return _KINDS[kind].object(below, text=str)


def with_owners(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod as a tenant's, of the default network."""
    pod["metadata"]["annotations"] |= {keys.CLUSTER: "a", keys.NAMESPACE: "shop", keys.UID: "u"}
    return pod


def _decoded(value: dict[str, Any], kind: type[T]) -> T:
    return msgspec.json.decode(json.dumps(value), type=kind)


def _work(sizes: Sizes) -> Callable[[], None]:
    """What is to be measured: from decoded objects to the pod's file."""
    text = {name: "x" * (CHARS * sizes.get(name, 0)) for name in _TEXTS}
    pod = _decoded(with_owners(_made(sizes, "pod")), PodObject)
    service = _made(sizes, "service")
    service["metadata"]["labels"] |= {keys.ARKTOS_NETWORK: "default"}
    namespace = _made(sizes, "namespace")
    namespace["metadata"]["annotations"] |= {keys.CLUSTER: "a", keys.NAMESPACE: "shop"}
    network = objects.network(
        "a", "default", message=text["network message"], ipam=f"Arktos{text['network ipam']}"
    )
    network["spec"]["type"] += text["network type"]
    network["status"]["dnsServiceIP"] = text["network address"]
    cluster = objects.virtual_cluster("a", f"cluster.local{text['domain']}")
    namespace |= {"apiVersion": "v1", "kind": "Namespace"}
    service |= {"apiVersion": "v1", "kind": "Service"}
    around = [namespace, objects.namespace("a", "kube-system"), service, network, cluster]
    lines = sizes.get("resolv.conf", 0)
    file = "".join(
        f"nameserver 192.0.2.{n % 250}\nsearch a{n}.example\noptions o{n}:1\n" for n in range(lines)
    )

    def work() -> None:
        kept = transform.pod(pod)
        for each in around:
            _transformed(decode_object(each))
        state = cluster_state_of(around)
        node = node_dns_of(f"nameserver 192.0.2.1\n{file}")
        decision = decide(kept, state, node)
        assert decision is not None
        assert decision.text is not None or sizes
        retained_lines(decision.text or "")
        readiness_wait(kept)

    return work


def _transformed(value: AnyObject | None) -> AnyObject:
    match value:
        case NamespaceObject():
            return transform.namespace(value)
        case ServiceObject():
            return transform.service(value)
        case NetworkObject():
            return transform.network(value)
        case VirtualClusterObject():
            return transform.virtual_cluster(value)
        case PodObject():
            return transform.pod(value)
        case None:
            raise AssertionError("not an object that dnsconfig reads")


def test_work_grows_as_the_objects_do() -> None:
    assert superlinear(lambda sizes: steps(_work(sizes)), _PLACES) == []


def test_memory_grows_as_the_objects_do() -> None:
    _work({})()
    one, two, four = (peak_bytes(_work(dict.fromkeys(_PLACES, size))) for size in (50, 100, 200))
    assert four - two < 3 * (two - one)
