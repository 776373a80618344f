# SPDX-License-Identifier: Apache-2.0
"""Kubernetes objects as canonical values, parsed once.

A malformed address is left out with a problem text, and the rest of its object is used. Repeated texts are
interned and empty tuples shared, as a node has thousands of these values.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from daemonkit.kube.resources import is_excluded
from kubeproxy_ext.compute import objects
from kubeproxy_ext.compute.addresses import AddressRange, canonical_ip, family_of, merge_ranges, parse_range
from kubeproxy_ext.compute.packed_slices import endpoints_of
from ruleset.model import Family, Protocol
from tenancy import keys

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
ZONE_LABEL = "topology.kubernetes.io/zone"

_PROTOCOLS = {protocol.name: protocol for protocol in Protocol}
_ADDRESS_TYPES = {"IPv4": Family.IPV4, "IPv6": Family.IPV6}

# What the API server fills in (core/v1 defaults, DefaultClientIPServiceAffinitySeconds).
_AFFINITY_S = 10800

# One of each family is usual; an annotation may have 256 KiB of them.
_MAX_OWN_IPS = 16

# Problems reported for one object: in a long list they tend to be the same.
_MAX_PROBLEMS = 8
_MAX_QUOTED = 64


@dataclass(frozen=True, slots=True)
class PortInfo:
    name: str
    protocol: Protocol
    port: int


@dataclass(frozen=True, slots=True)
class Addresses:
    """A Service's addresses of one family.

    `tenant_cluster_ips` are those of the tenant's own control plane.
    `load_balancer_ranges` are the sources that may use the `load_balancer` addresses, None for all.
    """

    cluster: str
    tenant_cluster_ips: tuple[str, ...]
    external: tuple[str, ...]
    load_balancer: tuple[str, ...]
    load_balancer_ranges: tuple[AddressRange, ...] | None


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """A Service that is proxied. `network` is its label, None without one; `ports` are sorted.

    The external traffic policy does not matter, as a pod reaches all endpoints under either. Guests have no
    node ports.
    """

    namespace: str
    name: str
    network: str | None
    created: str
    ports: tuple[PortInfo, ...]
    ipv4: Addresses | None
    ipv6: Addresses | None
    is_internal_local: bool
    affinity_s: int | None
    problems: tuple[str, ...]

    @property
    def reference(self) -> str:
        return f"{self.namespace}/{self.name}"

    def addresses(self, family: Family) -> Addresses | None:
        """None if the Service has no cluster IP of this family, and so is not proxied in it."""
        return self.ipv4 if family is Family.IPV4 else self.ipv6


@dataclass(frozen=True, slots=True)
class EndpointInfo:
    """One endpoint of a slice; `zones` and `nodes` are its hints."""

    ip: str
    node: str | None
    is_ready: bool
    is_serving: bool
    is_terminating: bool
    zones: tuple[str, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SliceInfo:
    """An EndpointSlice of the Service `service` in its namespace."""

    namespace: str
    name: str
    service: str
    family: Family
    ports: tuple[PortInfo, ...]
    endpoints: tuple[EndpointInfo, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NamespaceOwner:
    """The tenant that owns a super namespace, and the tenant's name for it."""

    tenant: str | None
    namespace: str


def parse_service(item: objects.ServiceObject) -> ServiceInfo | None:
    """The Service as a value; None for one that is not proxied, as in kube-proxy.

    Not proxied are Services without a cluster IP, headless and ExternalName ones, and those of another
    proxy.
    """
    spec, labels = item.spec, item.metadata.labels
    if is_excluded(item.metadata):
        return None
    if spec.type == "ExternalName" or spec.cluster_ip in ("", "None"):
        return None
    problems: list[str] = []
    ports = _service_ports(spec.ports or (), problems)
    tenant_cluster_ips = _ips(_own_ips(item, problems), keys.CLUSTER_IP, problems)
    external = _ips(spec.external_ips or (), "spec.externalIPs", problems)
    load_balancer = _ips(_ingress(item.status), "status.loadBalancer.ingress", problems)
    given = (
        ("clusterIPs of the tenant", tenant_cluster_ips),
        ("spec.externalIPs", external),
        ("status.loadBalancer.ingress", load_balancer),
    )
    ranges = _ranges(spec.load_balancer_source_ranges or (), problems)

    def of_family(family: Family) -> Addresses | None:
        cluster = _cluster_ip(spec, family, problems)
        if cluster is None:
            return None
        own_ips = tuple(ip for ip in tenant_cluster_ips if family_of(ip) is family and ip != cluster)
        return Addresses(
            cluster,
            own_ips,
            tuple(sorted({ip for ip in external if family_of(ip) is family})),
            tuple(sorted({ip for ip in load_balancer if family_of(ip) is family})),
            _ranges_of(family, ranges),
        )

    ipv4, ipv6 = of_family(Family.IPV4), of_family(Family.IPV6)
    for family, found in ((Family.IPV4, ipv4), (Family.IPV6, ipv6)):
        if found is None and (ipv4 or ipv6):
            for where, ips in given:
                problems += _without_family(family, where, ips)
    return ServiceInfo(
        namespace=sys.intern(item.metadata.namespace),
        name=sys.intern(item.metadata.name),
        network=sys.intern(labels[keys.ARKTOS_NETWORK]) if labels.get(keys.ARKTOS_NETWORK) else None,
        created=sys.intern(item.metadata.creation_timestamp or ""),
        ports=ports,
        ipv4=ipv4,
        ipv6=ipv6,
        is_internal_local=spec.internal_traffic_policy == "Local",
        affinity_s=_affinity_s(spec),
        problems=_limited(problems),
    )


def parse_slice(item: objects.EndpointSliceObject) -> SliceInfo | None:
    """The slice as a value; None for FQDN slices, slices without a Service, and another proxy's."""
    home = service_of(item)
    if home is None:
        return None
    service, family = home[1], _ADDRESS_TYPES[item.address_type]
    problems: list[str] = []
    return SliceInfo(
        namespace=sys.intern(item.metadata.namespace),
        name=sys.intern(item.metadata.name),
        service=sys.intern(service),
        family=family,
        ports=_slice_ports(item.ports or (), problems),
        endpoints=_slice_endpoints(endpoints_of(item), family, problems),
        problems=_limited(problems),
    )


def service_of(item: objects.EndpointSliceObject) -> tuple[str, str] | None:
    """Namespace and name of the slice's Service; None for slices that are not used."""
    name = item.metadata.labels.get(SERVICE_NAME_LABEL)
    is_used = item.address_type in _ADDRESS_TYPES and not is_excluded(item.metadata)
    return (item.metadata.namespace, name) if name and is_used else None


def parse_namespace(item: objects.NamespaceObject) -> NamespaceOwner | None:
    """The owner of a namespace; its tenant is None for the super cluster's own. None: the annotation is
    empty, so the owner is unknown."""
    annotations = item.metadata.annotations
    tenant = annotations.get(keys.CLUSTER)
    if tenant == "":
        return None
    name = annotations.get(keys.NAMESPACE) or item.metadata.name
    return NamespaceOwner(None if tenant is None else sys.intern(tenant), sys.intern(name))


def parse_zone(item: objects.NodeObject) -> str:
    """The node's zone, "" without one."""
    return sys.intern(item.metadata.labels.get(ZONE_LABEL, ""))


def _service_ports(raw: Iterable[objects.ServicePort], problems: list[str]) -> tuple[PortInfo, ...]:
    found = []
    for port in raw:
        protocol = _PROTOCOLS.get(port.protocol)
        if protocol is None or not 0 < port.port < 65536:
            problems.append(f"spec.ports: {_quoted(f'{port.protocol}/{port.port}')} is not a port")
        else:
            found.append(PortInfo(sys.intern(port.name), protocol, port.port))
    return tuple(sorted(found, key=_port_order))


def _slice_ports(raw: Iterable[objects.SlicePort], problems: list[str]) -> tuple[PortInfo, ...]:
    """Ports with a null name or number are ignored, as in kube-proxy. An empty name is a name."""
    found = []
    for port in raw:
        if port.name is None or not port.port:
            continue
        protocol = _PROTOCOLS.get(port.protocol or "TCP")
        if protocol is None or not 0 < port.port < 65536:
            problems.append(f"ports: {_quoted(f'{port.protocol}/{port.port}')} is not a port")
        else:
            found.append(PortInfo(sys.intern(port.name), protocol, port.port))
    return tuple(found)


def _port_order(port: PortInfo) -> tuple[str, str, int]:
    return port.name, port.protocol.value, port.port


def _slice_endpoints(
    raw: Iterable[objects.SliceEndpoint], family: Family, problems: list[str]
) -> tuple[EndpointInfo, ...]:
    found = []
    for endpoint in raw:
        if not endpoint.addresses:
            continue
        # Only the first address is used, as discovery/v1 leaves the meaning of others open.
        text = endpoint.addresses[0]
        ip = canonical_ip(text)
        if ip is None or family_of(ip) is not family:
            problems.append(f"endpoints: {_quoted(text)} is not an {family.value} address")
            continue
        conditions = endpoint.conditions or objects.Conditions()
        hints = endpoint.hints or objects.Hints()
        found.append(
            EndpointInfo(
                ip=sys.intern(ip),
                node=None if endpoint.node_name is None else sys.intern(endpoint.node_name),
                is_ready=conditions.ready is not False,
                is_serving=conditions.serving is not False,
                is_terminating=conditions.terminating is True,
                zones=_hinted(hints.for_zones or ()),
                nodes=_hinted(hints.for_nodes or ()),
            )
        )
    return tuple(found)


def _hinted(hints: Iterable[objects.Hint]) -> tuple[str, ...]:
    return tuple(sys.intern(hint.name) for hint in hints)


def _cluster_ip(spec: objects.ServiceSpec, family: Family, problems: list[str]) -> str | None:
    """Address i has family i of `ipFamilies`. Without families the one address counts if it fits."""
    if not spec.ip_families:
        ip = canonical_ip(spec.cluster_ip)
        if ip is None and family is Family.IPV4:
            problems.append(f"spec.clusterIP: {_quoted(spec.cluster_ip)} is not an IP address")
        return sys.intern(ip) if ip is not None and family_of(ip) is family else None
    texts = spec.cluster_ips or (spec.cluster_ip,)
    for text, named in zip(texts, spec.ip_families, strict=False):
        if _ADDRESS_TYPES.get(named) is family:
            ip = canonical_ip(text)
            if ip is not None and family_of(ip) is family:
                return sys.intern(ip)
            problems.append(f"spec.clusterIPs: {_quoted(text)} is not an {family.value} address")
    return None


def _ips(texts: Iterable[str], where: str, problems: list[str]) -> list[str]:
    """Each address once, in order."""
    found: dict[str, None] = {}
    for text in texts:
        ip = canonical_ip(text.strip())
        if ip is None:
            problems.append(f"{where}: {_quoted(text)} is not an IP address")
        elif ip not in found:
            found[sys.intern(ip)] = None
    return list(found)


def _without_family(family: Family, where: str, ips: Iterable[str]) -> Iterator[str]:
    """The problem of addresses of a family that the super Service lacks: they have no rules."""
    ours = [ip for ip in ips if family_of(ip) is family]
    if ours:
        more = f" and {len(ours) - 1} more" if len(ours) > 1 else ""
        yield f"{where}: {ours[0]}{more}: the Service has no {family.value} address in the super cluster"


def _own_ips(item: objects.ServiceObject, problems: list[str]) -> list[str]:
    """The cluster IPs of the tenant's own control plane, from the annotations."""
    annotations = item.metadata.annotations
    own = annotations.get(keys.CLUSTER_IP, "")
    listed = annotations.get(keys.CLUSTER_IPS, "")
    for key, text in ((keys.CLUSTER_IP, own), (keys.CLUSTER_IPS, listed)):
        if text.count(",") >= _MAX_OWN_IPS:
            problems.append(f"{key}: it has more than {_MAX_OWN_IPS} addresses, so all are ignored")
            return []
    if listed.partition(",")[0].strip() != own.strip():
        listed = ""
    return [ip for ip in f"{own},{listed}".split(",") if ip.strip() not in ("", "None")]


def _ingress(status: objects.ServiceStatus | None) -> list[str]:
    """The load balancer addresses, but those of mode Proxy, whose load balancer has to see its traffic. An
    unset mode means VIP."""
    if status is None or status.load_balancer is None:
        return []
    ingress = status.load_balancer.ingress or ()
    return [one.ip for one in ingress if one.ip and (one.ip_mode or "VIP") == "VIP"]


def _ranges(texts: Iterable[str], problems: list[str]) -> list[AddressRange | None]:
    """The ranges, with None for each malformed one."""
    found = []
    for text in texts:
        found.append(parse_range(text.strip()))
        if found[-1] is None:
            problems.append(f"spec.loadBalancerSourceRanges: {_quoted(text)} is not an address range")
    return found


def _ranges_of(family: Family, ranges: Sequence[AddressRange | None]) -> tuple[AddressRange, ...] | None:
    """The ranges of one family; None for no filter.

    As in kube-proxy ranges of the other family do not filter. A malformed range does: a filter was wanted,
    so only the ranges that are left let a guest in.
    """
    ours = merge_ranges(one for one in ranges if one is not None and one.family is family)
    return ours if ours or None in ranges else None


def _affinity_s(spec: objects.ServiceSpec) -> int | None:
    if spec.session_affinity != "ClientIP":
        return None
    config = spec.session_affinity_config
    given = config.client_ip.timeout_seconds if config and config.client_ip else None
    return given if given and given > 0 else _AFFINITY_S


def _quoted(text: str) -> str:
    return repr(text[:_MAX_QUOTED])


def _limited(problems: list[str]) -> tuple[str, ...]:
    kept = tuple(problems[:_MAX_PROBLEMS])
    more = len(problems) - len(kept)
    return (*kept, f"and {more} more") if more else kept
