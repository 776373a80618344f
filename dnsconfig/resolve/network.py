# SPDX-License-Identifier: Apache-2.0
"""Finds a pod's network, its DNS server (docs/spec/resolver.md#networks), and the cluster domain.

The search starts at the pod: its tenant, the one super namespace that is this tenant's kube-system,
and the Network and Service there with exactly the right names. Services of that name elsewhere are
never considered: a name alone never makes a Service another tenant's DNS server. (Arktos took the
first cached Service with a matching name.)
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from daemonkit.kube.resources import ObjectMeta
from dnsconfig.cluster.objects import PLAIN_SERVICE, SERVICE_PREFIX, NetworkObject, ServiceObject
from dnsconfig.cluster.state import KUBE_SYSTEM, Absence, ClusterState
from dnsconfig.resolve.waiting import PodWaiting, WaitReason
from tenancy import keys, names

READY = "Ready"
EXTERNAL = "External"
EXTERNAL_NAME = "ExternalName"
# Limits for text of tenants that a message quotes.
_MAX_QUOTED = 80
_MAX_PHASE, _MAX_STATUS_MESSAGE = 40, 200
# kata-bridge's limit for a network's name; a label has 63 characters at most.
_MAX_LABEL = 253


@dataclass(frozen=True, slots=True)
class PodNetwork:
    """The pod's network, and in words how it is known."""

    network: str
    source: str


@dataclass(frozen=True, slots=True)
class NetworkServer:
    """The DNS server of a network: canonical addresses in order of preference, and their source in words.

    `is_cluster_ip`: all are a Service's cluster IPs, which the API server can give to another Service;
    otherwise none is.
    """

    addresses: tuple[str, ...]
    source: str
    is_cluster_ip: bool = False


@dataclass(frozen=True, slots=True)
class ClusterIps:
    """The cluster IPs that a network's DNS Service has now, whether or not the Service is usable.

    The API server may give any other address to any tenant. `is_confirmed` is False while only a
    distrusted relist reports that the Service is gone.
    """

    addresses: tuple[str, ...] = ()
    is_confirmed: bool = True


@dataclass(frozen=True, slots=True)
class RevocableAddresses:
    """The cluster IPs in a pod's resolv.conf, which the API server may give to another Service later.

    `network` is the one whose DNS Service had them.
    """

    network: str
    cluster_ips: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusterDomain:
    """A tenant's cluster domain, and its source in words."""

    name: str
    source: str


def network_of(labels: Mapping[str, str], sandbox_networks: tuple[str, ...] = ()) -> PodNetwork | PodWaiting:
    """The network that the pod's sandbox is attached to, or else the one of its label.

    Without the label, or with an empty one, it is `default`, as in kata-bridge and kubeproxy-ext: a
    pod's rules and its resolver must be of the same network. (Arktos took an empty value as a name,
    which no network has.) A value that cannot follow `kube-dns-` in a Service's name is refused. It is
    not folded or cut: two labels could then name one server.

    A label may change at any time, but the sandbox stays attached where it was created.
    """
    name, source = labels.get(keys.ARKTOS_NETWORK, ""), f"label {keys.ARKTOS_NETWORK}"
    if sandbox_networks not in ((), (name or keys.DEFAULT_NETWORK,)):
        name = sandbox_networks[0] or keys.DEFAULT_NETWORK
        source = f"{source} at the creation of its sandbox; the label was changed since"
    if not name:
        how = "is empty" if keys.ARKTOS_NETWORK in labels else "is not set"
        return PodNetwork(keys.DEFAULT_NETWORK, f"label {keys.ARKTOS_NETWORK} {how}")
    if not (names.is_dns_label(name) and names.is_dns_label(SERVICE_PREFIX + name)):
        return PodWaiting(
            WaitReason.INVALID_NETWORK_NAME,
            f"label {keys.ARKTOS_NETWORK} is {name[:_MAX_QUOTED]!r}, which is not a valid network name: use "
            f"lower-case letters, digits and hyphens, {names.LABEL_MAX_CHARS - len(SERVICE_PREFIX)} at most",
        )
    return PodNetwork(name, source)


def networks_of(labels: Mapping[str, str], sandbox_networks: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The networks of the pod's sandbox, or of its next one by its labels, valid names or not.

    As kata-bridge has them: it cuts texts longer than any label.
    """
    return sandbox_networks or ((labels.get(keys.ARKTOS_NETWORK) or keys.DEFAULT_NETWORK)[:_MAX_LABEL],)


def server_of(state: ClusterState, tenant: str, network: str) -> NetworkServer | PodWaiting:
    """The DNS server of a tenant's network, whose name `network_of` has checked."""
    namespace = _dns_namespace(state, tenant)
    if isinstance(namespace, PodWaiting):
        return namespace
    found = _ready_network(state, tenant, namespace, network)
    if isinstance(found, PodWaiting):
        return found
    name, *others = _service_names(state, network)
    service = _service(state, tenant, namespace, network, name)
    for other in others:
        if service is None:
            plain = _service(state, tenant, namespace, network, other)
            if plain is not None:
                name, service = other, plain
    if isinstance(service, PodWaiting):
        return service
    addresses = _cluster_ips(service)
    if addresses:
        source = f"network {network}: Service {KUBE_SYSTEM}/{name}"
        return NetworkServer(addresses, source, is_cluster_ip=True)
    if found.spec.service is not None and found.spec.service.ipam == EXTERNAL:
        # Only such a network may have a server that is not a Service: its provider reports the address.
        reported = "" if found.status is None else found.status.dns_service_ip
        addresses = canonical_addresses([reported])
        if addresses:
            return NetworkServer(addresses, f"network {network}: its status, ipam {EXTERNAL}")
    problem = "does not exist" if service is None else "has no cluster IP"
    return PodWaiting(
        WaitReason.NO_SERVER_ADDRESS,
        f"network {network} has no DNS server yet: Service {KUBE_SYSTEM}/{name} {problem}",
    )


def cluster_ips_of(state: ClusterState, tenant: str, network: str) -> ClusterIps | None:
    """The addresses that the DNS Service of a tenant's network has; None where they are unknown.

    The Network's phase and the Service's fitness do not matter: the Service alone has its address.
    A deleted Namespace has no Services.
    """
    namespace = _dns_namespace(state, tenant)
    if isinstance(namespace, PodWaiting):
        gone = state.dns_namespace_absences.get(tenant, Absence.UNKNOWN)
        return None if gone is Absence.UNKNOWN else ClusterIps(is_confirmed=gone is Absence.CONFIRMED)
    candidates = [(namespace, name) for name in _service_names(state, network)]
    absence = state.absences.get(namespace, Absence.UNKNOWN)
    if absence is Absence.UNKNOWN or any(("Service", key) in state.unreadable for key in candidates):
        return None
    services = [state.services[key] for key in candidates if key in state.services]
    addresses = dict.fromkeys(ip for service in services for ip in _cluster_ips(service))
    return ClusterIps(tuple(addresses), bool(services) or absence is not Absence.UNCONFIRMED)


def domain_of(state: ClusterState, tenant: str) -> ClusterDomain | PodWaiting:
    """The tenant's cluster domain: as configured, else its VirtualCluster's, else the default."""
    configured = state.settings.tenant_domains.get(tenant)
    if configured is not None:
        return ClusterDomain(configured, "configured for this tenant")
    if not state.has_virtual_clusters:
        return PodWaiting(
            WaitReason.NOT_SYNCED, "the cluster domain is unknown: VirtualClusters are not synced"
        )
    found = {each.spec.cluster_domain for each in state.virtual_clusters_of(tenant)}
    if len(found) > 1:
        return PodWaiting(
            WaitReason.CLUSTER_DOMAIN_UNKNOWN,
            "the cluster domain is unknown: two VirtualClusters have this tenant's key",
        )
    if not found and any(kind == "VirtualCluster" for kind, _ in state.unreadable):
        # Its tenant is inside the object. The message does not name it: it may be another tenant's.
        return PodWaiting(
            WaitReason.UNREADABLE,
            "the cluster domain is unknown: a VirtualCluster cannot be read, and no other has this key",
        )
    name = found.pop() if found else ""
    if not name:
        return ClusterDomain(state.settings.cluster_domain, "the default")
    if not names.is_pod_name(name):
        return PodWaiting(
            WaitReason.CLUSTER_DOMAIN_UNKNOWN,
            f"the VirtualCluster's clusterDomain is not a domain: {name[:_MAX_QUOTED]!r}",
        )
    return ClusterDomain(name, "the VirtualCluster's clusterDomain")


def canonical_addresses(texts: Iterable[str]) -> tuple[str, ...]:
    """The addresses among these, as Go's net.IP prints them and the kubelet writes them."""
    found = []
    for text in texts:
        if "%" in text:
            continue  # a zone is valid on one host only, and may contain anything
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue  # such as "None" and ""
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        found.append(str(mapped or address))
    return tuple(dict.fromkeys(found))


def _service_names(state: ClusterState, network: str) -> tuple[str, ...]:
    """The names that a network's DNS Service may have.

    `server_of` uses the first that exists; `cluster_ips_of` counts the addresses of all.

    A plain `kube-dns` serves only the default network, to which kubeproxy-ext assigns a Service
    without a label. Both names are looked up in the tenant's own kube-system only.
    """
    own = SERVICE_PREFIX + network
    has_plain = state.settings.plain_kube_dns and network == keys.DEFAULT_NETWORK
    return (own, PLAIN_SERVICE) if has_plain else (own,)


def _dns_namespace(state: ClusterState, tenant: str) -> str | PodWaiting:
    """The super namespace that is the tenant's kube-system, if it is unique and synced."""
    found = state.dns_namespaces(tenant)
    if len(found) > 1:
        return PodWaiting(
            WaitReason.OWNER_UNKNOWN,
            f"more than one namespace of the super cluster is annotated as this tenant's {KUBE_SYSTEM}",
        )
    if not found and state.has_namespaces:
        return PodWaiting(
            WaitReason.NOT_FOUND, f"namespace {KUBE_SYSTEM} does not exist in the super cluster (yet)"
        )
    if not found:
        return PodWaiting(WaitReason.NOT_SYNCED, "the super cluster's Namespaces are not synced")
    if found[0] not in state.synced_namespaces:
        return PodWaiting(WaitReason.NOT_SYNCED, "this tenant's Networks and Services are not synced")
    return found[0]


def _ready_network(
    state: ClusterState, tenant: str, namespace: str, network: str
) -> NetworkObject | PodWaiting:
    unreadable = state.unreadable.get(("Network", (namespace, network)))
    if unreadable is not None:
        return PodWaiting(WaitReason.UNREADABLE, f"Network {network} cannot be read: {unreadable}")
    found = state.networks.get((namespace, network))
    if found is None:
        return PodWaiting(WaitReason.NOT_FOUND, f"network {network} does not exist")
    if _is_foreign(found.metadata, tenant):
        return PodWaiting(WaitReason.FOREIGN_OBJECT, f"Network {network} is annotated as another tenant's")
    if found.metadata.deletion_timestamp is not None:
        return PodWaiting(WaitReason.NETWORK_NOT_READY, f"network {network} is being deleted")
    status = found.status
    if status is None or status.phase != READY:
        phase = "no phase yet" if status is None or not status.phase else f"phase {status.phase[:_MAX_PHASE]}"
        more = f": {status.message[:_MAX_STATUS_MESSAGE]}" if status is not None and status.message else ""
        return PodWaiting(WaitReason.NETWORK_NOT_READY, f"network {network} is not ready, {phase}{more}")
    return found


def _service(
    state: ClusterState, tenant: str, namespace: str, network: str, name: str
) -> ServiceObject | PodWaiting | None:
    shown = f"Service {KUBE_SYSTEM}/{name}"
    unreadable = state.unreadable.get(("Service", (namespace, name)))
    if unreadable is not None:
        return PodWaiting(WaitReason.UNREADABLE, f"{shown} cannot be read: {unreadable}")
    service = state.services.get((namespace, name))
    if service is None:
        return None
    if _is_foreign(service.metadata, tenant):
        return PodWaiting(WaitReason.FOREIGN_OBJECT, f"{shown} is annotated as another tenant's")
    of = service.metadata.labels.get(keys.ARKTOS_NETWORK) or keys.DEFAULT_NETWORK
    if of != network:
        # Guests see only the Services of their own network: this one would not answer.
        return PodWaiting(
            WaitReason.FOREIGN_OBJECT,
            f"{shown} is of network {of[:_MAX_QUOTED]}, not {network} (label {keys.ARKTOS_NETWORK})",
        )
    return service


def _is_foreign(metadata: ObjectMeta, tenant: str) -> bool:
    """Whether an object is annotated as another tenant's; one without the annotation is not."""
    return metadata.annotations.get(keys.CLUSTER, tenant) != tenant


def _cluster_ips(service: ServiceObject | None) -> tuple[str, ...]:
    # An ExternalName Service has none; API servers before 1.20 leave old addresses in it.
    if service is None or service.spec.type == EXTERNAL_NAME:
        return ()
    return canonical_addresses(service.spec.cluster_ips or [service.spec.cluster_ip])
