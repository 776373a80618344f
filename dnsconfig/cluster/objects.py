# SPDX-License-Identifier: Apache-2.0
"""The Structs that watches decode Kubernetes objects into.

They have only the fields that decide something. An object with a field of another type is not
decoded: it is unreadable, which is distinct from missing.
"""

import msgspec

from daemonkit.kube.resources import ObjectMeta, Resource

NETWORKS = Resource("arktos.futurewei.com", "v1", "networks")

SERVICE_PREFIX = "kube-dns-"
"""`kube-dns-<network>` is the network's DNS Service (arktos-network-controller)."""

PLAIN_SERVICE = "kube-dns"
"""The name that Kubernetes and VirtualCluster's syncer give to a cluster's one DNS Service."""


def is_dns_service(name: str) -> bool:
    """Whether a Service of this name may be the DNS server of some network."""
    return name == PLAIN_SERVICE or name.startswith(SERVICE_PREFIX)


SANDBOX_READY = "PodReadyToStartContainers"
"""core/v1 pod condition, set by kubelets from 1.29 on: the pod's sandbox and its network are ready."""

MIRROR = "kubernetes.io/config.mirror"
"""Annotation of a static pod's mirror, whose UID differs from the sandbox's (kubelet, pkg/kubelet/types)."""


class _ObjectStruct(msgspec.Struct, frozen=True, rename="camel"):
    pass


class PodDnsOption(_ObjectStruct, frozen=True):
    name: str = ""
    value: str | None = None


class PodDnsConfig(_ObjectStruct, frozen=True):
    """A pod's `spec.dnsConfig`."""

    nameservers: list[str] | None = None
    searches: list[str] | None = None
    options: list[PodDnsOption] | None = None


class PodSpec(_ObjectStruct, frozen=True, rename="camel"):
    """The API server defaults an absent policy to ClusterFirst (core/v1)."""

    dns_policy: str = "ClusterFirst"
    dns_config: PodDnsConfig | None = None
    host_network: bool = False
    hostname: str = ""
    subdomain: str = ""


class PodCondition(_ObjectStruct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class PodStatus(_ObjectStruct, frozen=True):
    phase: str = ""
    conditions: list[PodCondition] | None = None


class PodObject(_ObjectStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class ServiceSpec(_ObjectStruct, frozen=True):
    type: str = ""
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    cluster_ips: list[str] | None = msgspec.field(name="clusterIPs", default=None)


class ServiceObject(_ObjectStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class NetworkService(_ObjectStruct, frozen=True):
    ipam: str = ""


class NetworkSpec(_ObjectStruct, frozen=True):
    type: str = ""
    service: NetworkService | None = None


class NetworkStatus(_ObjectStruct, frozen=True):
    phase: str = ""
    message: str = ""
    dns_service_ip: str = msgspec.field(name="dnsServiceIP", default="")


class NetworkObject(_ObjectStruct, frozen=True):
    """An arktos.futurewei.com/v1 Network of the super cluster, where it is namespaced."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NetworkSpec = NetworkSpec()
    status: NetworkStatus | None = None


class NamespaceObject(_ObjectStruct, frozen=True):
    """A v1 Namespace: its annotations name its owner."""

    metadata: ObjectMeta = ObjectMeta()


class VirtualClusterSpec(_ObjectStruct, frozen=True, rename="camel"):
    cluster_domain: str = ""


class VirtualClusterStatus(_ObjectStruct, frozen=True, rename="camel"):
    cluster_namespace: str = ""


class VirtualClusterObject(_ObjectStruct, frozen=True):
    """A tenancy.x-k8s.io/v1alpha1 VirtualCluster: it has the tenant's cluster domain."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualClusterSpec = VirtualClusterSpec()
    status: VirtualClusterStatus = VirtualClusterStatus()


AnyObject = PodObject | ServiceObject | NetworkObject | NamespaceObject | VirtualClusterObject
