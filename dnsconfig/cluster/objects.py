# SPDX-License-Identifier: Apache-2.0
"""The parts that are read of Kubernetes objects, as Structs: what a watch decodes into.

Only the fields that decide something stand here. An object whose field has another type does not
decode at all and is unreadable as a whole, which is told apart from missing.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from daemonkit.kube.resources import ObjectMeta, Resource

NETWORKS = Resource("arktos.futurewei.com", "v1", "networks")

SERVICE_PREFIX = "kube-dns-"
"""A network's DNS server is the Service of this and the network's name (arktos-network-controller)."""

PLAIN_SERVICE = "kube-dns"
"""What Kubernetes and VirtualCluster's syncer call the one DNS server of a cluster."""


def is_dns_service(name: str) -> bool:
    """Whether a Service of this name may be the DNS server of some network."""
    return name == PLAIN_SERVICE or name.startswith(SERVICE_PREFIX)


SANDBOX = "PodReadyToStartContainers"
"""core/v1: the kubelet (1.29 and later) has a sandbox for the pod, with its network."""

MIRROR = "kubernetes.io/config.mirror"
"""On what the API server has of a static pod, which runs under another UID (kubelet, pkg/kubelet/types)."""


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    pass


class DnsOption(_Struct, frozen=True):
    name: str = ""
    value: str | None = None


class DnsSettings(_Struct, frozen=True):
    """A pod's `spec.dnsConfig`."""

    nameservers: list[str] | None = None
    searches: list[str] | None = None
    options: list[DnsOption] | None = None


class PodSpec(_Struct, frozen=True, rename="camel"):
    """The API server fills in the policy where a pod has none (core/v1 defaults: ClusterFirst)."""

    dns_policy: str = "ClusterFirst"
    dns_config: DnsSettings | None = None
    host_network: bool = False
    hostname: str = ""
    subdomain: str = ""


class PodCondition(_Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class PodStatus(_Struct, frozen=True):
    phase: str = ""
    conditions: list[PodCondition] | None = None


class PodObject(_Struct, frozen=True):
    """A v1 Pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class ServiceSpec(_Struct, frozen=True):
    type: str = ""
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    cluster_ips: list[str] | None = msgspec.field(name="clusterIPs", default=None)


class ServiceObject(_Struct, frozen=True):
    """A v1 Service."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class NetworkService(_Struct, frozen=True):
    ipam: str = ""


class NetworkSpec(_Struct, frozen=True):
    type: str = ""
    service: NetworkService | None = None


class NetworkStatus(_Struct, frozen=True):
    phase: str = ""
    message: str = ""
    dns_service_ip: str = msgspec.field(name="dnsServiceIP", default="")


class NetworkObject(_Struct, frozen=True):
    """An arktos.futurewei.com/v1 Network, as it is in the super cluster: with a namespace."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NetworkSpec = NetworkSpec()
    status: NetworkStatus | None = None


class NamespaceObject(_Struct, frozen=True):
    """A v1 Namespace: its annotations say whose it is."""

    metadata: ObjectMeta = ObjectMeta()


class VirtualClusterSpec(_Struct, frozen=True, rename="camel"):
    cluster_domain: str = ""


class VirtualClusterStatus(_Struct, frozen=True, rename="camel"):
    cluster_namespace: str = ""


class VirtualClusterObject(_Struct, frozen=True):
    """A tenancy.x-k8s.io/v1alpha1 VirtualCluster: what its tenant calls its own cluster."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualClusterSpec = VirtualClusterSpec()
    status: VirtualClusterStatus = VirtualClusterStatus()


AnyObject = PodObject | ServiceObject | NetworkObject | NamespaceObject | VirtualClusterObject

_KINDS: Mapping[tuple[str, str], type[AnyObject]] = {
    ("v1", "Pod"): PodObject,
    ("v1", "Service"): ServiceObject,
    ("v1", "Namespace"): NamespaceObject,
    ("arktos.futurewei.com/v1", "Network"): NetworkObject,
    ("tenancy.x-k8s.io/v1alpha1", "VirtualCluster"): VirtualClusterObject,
}


class UnreadableError(ValueError):
    """An object is not of the shape that its kind has."""


def decode_object(item: Mapping[str, Any]) -> AnyObject | None:
    """Read one JSON object by its `apiVersion` and `kind`; None for a kind that decides nothing here.

    Raises UnreadableError.
    """
    kind = _KINDS.get((str(item.get("apiVersion")), str(item.get("kind"))))
    if kind is None:
        return None
    try:
        return msgspec.convert(item, kind)
    except msgspec.ValidationError as error:
        raise UnreadableError(f"{item.get('kind')}: {error}") from error
