# SPDX-License-Identifier: Apache-2.0
"""Which network a pod is in, and which server answers for that network. Pure.

The server is found by walking from the pod: its tenant, the one super namespace that is this
tenant's kube-system, and in there the Network and the Service that have exactly the right names. A
Service of that name anywhere else is never looked at, so nobody becomes another's resolver by
choosing a name (Arktos took the first of all cached Services whose name fits).
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from daemonkit.kube.resources import ObjectMeta
from dnsconfig.cluster.objects import PLAIN_SERVICE, SERVICE_PREFIX, NetworkObject, ServiceObject
from dnsconfig.cluster.state import KUBE_SYSTEM, Absence, World
from dnsconfig.resolve.waiting import Cause, Waits
from tenancy import keys, names

READY = "Ready"
EXTERNAL = "External"
EXTERNAL_NAME = "ExternalName"
# What is quoted of others' words in a reason.
_MAX_QUOTED = 80
# kata-bridge takes as much of a network's name; a label has 63 at most.
_MAX_LABEL = 253


@dataclass(frozen=True, slots=True)
class Membership:
    """The network that a pod is in, and how that is known."""

    network: str
    source: str


@dataclass(frozen=True, slots=True)
class Server:
    """The DNS server of a network: canonical addresses, best first, and where they come from.

    `is_cluster_ip`: the API server has given them to a Service, and can give them to another.
    """

    addresses: tuple[str, ...]
    source: str
    is_cluster_ip: bool = False


@dataclass(frozen=True, slots=True)
class ClusterIps:
    """The cluster IPs that the DNS Service of a network has now, be it usable or not.

    The API server may give any other to any tenant. `is_doubted`: only a list that lacks everything
    says that there is no such Service.
    """

    addresses: tuple[str, ...] = ()
    is_doubted: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """Which network's Service it was that had the cluster IPs in a pod's resolv.conf."""

    network: str
    cluster_ips: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """What a tenant calls its own cluster, and who says so."""

    name: str
    source: str


def network_of(labels: Mapping[str, str], attached: tuple[str, ...] = ()) -> Membership | Waits:
    """The network that a pod's labels name, or that its sandbox is attached to.

    Without the label, and with an empty one, it is `default`: kata-bridge and kubeproxy-ext take it
    so too, and rules and resolver of a pod must not be of two networks. (Arktos used an empty value
    as a name, and no network has that.) Anything that cannot name a Service `kube-dns-<network>`,
    an RFC 1123 label, names no network: nothing is cut, folded or escaped until it fits, as two
    labels could then lead to one server.

    `attached` are the networks of its guest, empty where none is known. A label may be changed at any
    time; the sandbox stays where it was made, with the Services of that network and with nothing that
    leads to the other's server.
    """
    name, source = labels.get(keys.ARKTOS_NETWORK, ""), f"label {keys.ARKTOS_NETWORK}"
    if attached not in ((), (name or keys.DEFAULT_NETWORK,)):
        name = attached[0] or keys.DEFAULT_NETWORK
        source = f"{source} when its sandbox was made; it has been changed since"
    if not name:
        how = "is empty" if keys.ARKTOS_NETWORK in labels else "is not set"
        return Membership(keys.DEFAULT_NETWORK, f"label {keys.ARKTOS_NETWORK} {how}")
    if not (names.is_label(name) and names.is_label(SERVICE_PREFIX + name)):
        return Waits(
            Cause.NAME,
            f"label {keys.ARKTOS_NETWORK} is {name[:_MAX_QUOTED]!r}, which can be no network's name: "
            f"lower-case letters, digits and hyphens, {names.LABEL_MAX_CHARS - len(SERVICE_PREFIX)} at most",
        )
    return Membership(name, source)


def networks_of(labels: Mapping[str, str], attached: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The names of what a pod's sandbox is attached to, or will be by its labels; be they names or not.

    As kata-bridge has them of its sandboxes. What is longer than it takes is no label, and no sandbox's.
    """
    return attached or ((labels.get(keys.ARKTOS_NETWORK) or keys.DEFAULT_NETWORK)[:_MAX_LABEL],)


def server_of(world: World, tenant: str, network: str) -> Server | Waits:
    """The DNS server of a tenant's network, or what is missing.

    `network` is a name that `network_of` let through.
    """
    place = _place(world, tenant)
    if isinstance(place, Waits):
        return place
    found = _ready(world, tenant, place, network)
    if isinstance(found, Waits):
        return found
    name, *others = _service_names(world, network)
    service = _service(world, tenant, place, network, name)
    for other in others:
        if service is None:
            plain = _service(world, tenant, place, network, other)
            if plain is not None:
                name, service = other, plain
    if isinstance(service, Waits):
        return service
    addresses = _cluster_ips(service)
    if addresses:
        source = f"network {network}: Service {KUBE_SYSTEM}/{name}"
        return Server(addresses, source, is_cluster_ip=True)
    if found.spec.service is not None and found.spec.service.ipam == EXTERNAL:
        # The only kind of network whose server may be no Service at all: its provider says where.
        told = "" if found.status is None else found.status.dns_service_ip
        addresses = canonical([told])
        if addresses:
            return Server(addresses, f"network {network}: its status, ipam {EXTERNAL}")
    what = "does not exist" if service is None else "has no cluster IP"
    return Waits(
        Cause.NO_ADDRESS, f"network {network} has no DNS server yet: Service {KUBE_SYSTEM}/{name} {what}"
    )


def cluster_ips_of(world: World, tenant: str, network: str) -> ClusterIps | None:
    """What addresses the Service of a tenant's network holds; None where that is not known.

    Of no interest here is whether the Network is ready, or whether the Service may serve it: an
    address that it holds is nobody else's.
    """
    place = _place(world, tenant)
    if isinstance(place, Waits):
        return None
    places = [(place, name) for name in _service_names(world, network)]
    absence = world.absences.get(place, Absence.UNKNOWN)
    if absence is Absence.UNKNOWN or any(("Service", key) in world.unreadable for key in places):
        return None
    services = [world.services[key] for key in places if key in world.services]
    addresses = dict.fromkeys(ip for service in services for ip in _cluster_ips(service))
    return ClusterIps(tuple(addresses), not services and absence is Absence.DOUBTED)


def _service_names(world: World, network: str) -> tuple[str, ...]:
    """The names that a network's DNS Service may have, the first that is there counts.

    A plain `kube-dns` serves nothing but the default network, to which a Service without a label belongs
    for kubeproxy-ext as well. It is the tenant's own as much as the other: both are looked for in the
    one super namespace that is this tenant's kube-system.
    """
    own = SERVICE_PREFIX + network
    return (own, PLAIN_SERVICE) if world.has_plain_dns and network == keys.DEFAULT_NETWORK else (own,)


def domain_of(world: World, tenant: str) -> Domain | Waits:
    """The tenant's cluster domain: the operator's word, else its VirtualCluster's, else the default."""
    told = world.domains.get(tenant)
    if told is not None:
        return Domain(told, "configured for this tenant")
    if not world.has_clusters:
        return Waits(Cause.UNHEARD, "the cluster domain is not known yet: no VirtualClusters were listed")
    said = {each.spec.cluster_domain for each in world.clusters_of(tenant)}
    if len(said) > 1:
        return Waits(Cause.DOMAIN, "the cluster domain is not known: two VirtualClusters have this key")
    if not said and any(kind == "VirtualCluster" for kind, _ in world.unreadable):
        # Whose it is stands in it. It is nobody's business what it is called.
        return Waits(
            Cause.UNREADABLE,
            "the cluster domain is not known: a VirtualCluster cannot be read, and no other has this key",
        )
    name = said.pop() if said else ""
    if not name:
        return Domain(world.default_domain, "the default")
    if not names.is_pod_name(name):
        return Waits(Cause.DOMAIN, f"the VirtualCluster's clusterDomain is no domain: {name[:_MAX_QUOTED]!r}")
    return Domain(name, "the VirtualCluster's clusterDomain")


def _place(world: World, tenant: str) -> str | Waits:
    """The super namespace that is the tenant's kube-system, if it can be told and has been heard."""
    places = world.dns_namespaces(tenant)
    if len(places) > 1:
        return Waits(Cause.OWNER, f"more than one namespace of the super cluster says to be {KUBE_SYSTEM}")
    if not places:
        cause = Cause.MISSING if world.has_namespaces else Cause.UNHEARD
        return Waits(cause, f"namespace {KUBE_SYSTEM} is not in the super cluster (yet)")
    if places[0] not in world.heard:
        return Waits(Cause.UNHEARD, "the API server has not told of this tenant's networks yet")
    return places[0]


def _ready(world: World, tenant: str, place: str, network: str) -> NetworkObject | Waits:
    unreadable = world.unreadable.get(("Network", (place, network)))
    if unreadable is not None:
        return Waits(Cause.UNREADABLE, f"Network {network} cannot be read: {unreadable}")
    found = world.networks.get((place, network))
    if found is None:
        return Waits(Cause.MISSING, f"network {network} does not exist")
    if _is_foreign(found.metadata, tenant):
        return Waits(Cause.FOREIGN, f"Network {network} says to be another tenant's")
    if found.metadata.deletion_timestamp is not None:
        return Waits(Cause.NOT_READY, f"network {network} is being removed")
    status = found.status
    if status is None or status.phase != READY:
        phase = "no phase yet" if status is None or not status.phase else f"phase {status.phase[:40]}"
        more = f": {status.message[:200]}" if status is not None and status.message else ""
        return Waits(Cause.NOT_READY, f"network {network} is not ready, {phase}{more}")
    return found


def _service(world: World, tenant: str, place: str, network: str, name: str) -> ServiceObject | Waits | None:
    shown = f"Service {KUBE_SYSTEM}/{name}"
    unreadable = world.unreadable.get(("Service", (place, name)))
    if unreadable is not None:
        return Waits(Cause.UNREADABLE, f"{shown} cannot be read: {unreadable}")
    service = world.services.get((place, name))
    if service is None:
        return None
    if _is_foreign(service.metadata, tenant):
        return Waits(Cause.FOREIGN, f"{shown} says to be another tenant's")
    of = service.metadata.labels.get(keys.ARKTOS_NETWORK) or keys.DEFAULT_NETWORK
    if of != network:
        # Guests see the Services of their own network alone: this one would never answer.
        return Waits(
            Cause.FOREIGN,
            f"{shown} is of network {of[:_MAX_QUOTED]}, not {network} (label {keys.ARKTOS_NETWORK})",
        )
    return service


def _is_foreign(metadata: ObjectMeta, tenant: str) -> bool:
    """Whether an object says to be somebody else's than its namespace; who says nothing does not."""
    return metadata.annotations.get(keys.CLUSTER, tenant) != tenant


def _cluster_ips(service: ServiceObject | None) -> tuple[str, ...]:
    # One of an external name has no cluster IP, whatever is left of it (cleared by servers from 1.20 on).
    if service is None or service.spec.type == EXTERNAL_NAME:
        return ()
    return canonical(service.spec.cluster_ips or [service.spec.cluster_ip])


def canonical(texts: Iterable[str]) -> tuple[str, ...]:
    """The addresses among these, as Go's net.IP prints them, which is what the kubelet writes."""
    found = []
    for text in texts:
        if "%" in text:
            continue  # a zone means something on one host alone, and may hold anything
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue  # "None", "", and what is no address
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        found.append(str(mapped or address))
    return tuple(dict.fromkeys(found))
