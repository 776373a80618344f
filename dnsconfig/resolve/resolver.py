# SPDX-License-Identifier: Apache-2.0
"""A pod's resolver from its policy, its own settings, its network's server and the node's. Pure.

This is the kubelet's GetPodDNS (pkg/kubelet/network/dns/dns.go, 1.34), step by step, with the
server of the pod's network where the kubelet has `--cluster-dns`, the tenant's name of the
namespace in the search list, and no fall back to the node's resolver. Every value carries where it
comes from.

Where the kubelet goes over a Go map, the order of options is any; here it is the order in which
they were first named.
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dnsconfig.cluster.objects import DnsOption, DnsSettings, PodSpec
from dnsconfig.resolve.node_resolver import HostResolver

# pkg/apis/core/validation, 1.34. The kubelet counts bytes where it says characters.
MAX_SERVERS = 3
MAX_SEARCHES = 32
MAX_SEARCH_BYTES = 2048
# apimachinery, DNS1123SubdomainMaxLength: glibc 2.28 and older abort at a longer search path.
MAX_SEARCH_PATH_BYTES = 253

NDOTS = "ndots:5"

FROM_POD = "the pod's dnsConfig"
FROM_NODE = "the node's resolv.conf"
FROM_KUBELET = "as the kubelet does without a resolv.conf of the node's"


class DnsClass(enum.Enum):
    """Where a pod's resolver starts from (the kubelet's podDNSType)."""

    CLUSTER = "cluster"
    HOST = "host"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Entry:
    """One value of a resolv.conf, and where it comes from."""

    value: str
    source: str


@dataclass(frozen=True, slots=True)
class ClusterDns:
    """What the kubelet gets by flags, and a pod of a tenant by its network."""

    addresses: tuple[str, ...]
    address_source: str
    namespace: str
    domain: str
    domain_source: str


@dataclass(frozen=True, slots=True)
class Resolver:
    servers: tuple[Entry, ...] = ()
    searches: tuple[Entry, ...] = ()
    options: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class PodEvent:
    """An Event of type Warning that the pod is to get."""

    reason: str
    message: str


def dns_class(spec: PodSpec) -> DnsClass:
    """Which of the three a pod is; a policy that the API server would not have let in is ClusterFirst."""
    match spec.dns_policy:
        case "None":
            return DnsClass.NONE
        case "Default":
            return DnsClass.HOST
        case "ClusterFirst" if spec.host_network:
            return DnsClass.HOST
        case _:
            return DnsClass.CLUSTER


def resolver(
    spec: PodSpec, cluster: ClusterDns | None, host: HostResolver, node_ips: Sequence[str] = ()
) -> tuple[Resolver, tuple[PodEvent, ...]]:
    """The resolver of a pod, and what it is to be told of what did not fit.

    `cluster` may be None only for a pod that is not of class CLUSTER. `node_ips` are the kubelet's
    `--node-ip`; they matter only where it has no resolv.conf.
    """
    match dns_class(spec):
        case DnsClass.NONE:
            found = Resolver()
        case DnsClass.HOST:
            found = _without_file(node_ips) if host.is_none else _of_host(host)
        case DnsClass.CLUSTER:
            if cluster is None:
                raise ValueError("a pod of class CLUSTER has a network")
            found = _of_cluster(cluster, host)
    if spec.dns_config is not None:
        found = _with_settings(found, spec.dns_config)
    servers, server_events = _fitting_servers(found.servers)
    searches, search_events = _fitting_searches(found.searches)
    return Resolver(servers, searches, found.options), (*server_events, *search_events)


def _of_host(host: HostResolver) -> Resolver:
    return Resolver(
        _entries(host.servers, FROM_NODE),
        _entries(host.searches, FROM_NODE),
        _entries(host.options, FROM_NODE),
    )


def _without_file(node_ips: Sequence[str]) -> Resolver:
    """A resolver that disables lookups, unless there is a server in the pod itself."""
    servers = ["::1" if ":" in ip else "127.0.0.1" for ip in node_ips] or ["127.0.0.1"]
    return Resolver(_entries(servers, FROM_KUBELET), (Entry(".", FROM_KUBELET),))


def _of_cluster(cluster: ClusterDns, host: HostResolver) -> Resolver:
    searches = _entries(host.searches, FROM_NODE)
    if cluster.domain:
        paths = (f"{cluster.namespace}.svc.{cluster.domain}", f"svc.{cluster.domain}", cluster.domain)
        own = _entries(paths, f"cluster domain, {cluster.domain_source}")
        searches = _unique([*own, *searches])
    return Resolver(
        _entries(cluster.addresses, cluster.address_source),
        searches,
        (Entry(NDOTS, "policy ClusterFirst"),),
    )


def _with_settings(found: Resolver, settings: DnsSettings) -> Resolver:
    return Resolver(
        _unique([*found.servers, *_entries(settings.nameservers or (), FROM_POD)]),
        _unique([*found.searches, *_entries(settings.searches or (), FROM_POD)]),
        _merged(found.options, settings.options or ()),
    )


def _merged(options: Iterable[Entry], own: Iterable[DnsOption]) -> tuple[Entry, ...]:
    """By name, the pod's value wins; an empty value is none, be it of the pod or not."""
    merged: dict[str, tuple[str, str]] = {}
    for entry in options:
        name, _, value = entry.value.partition(":")
        merged[name] = (value, entry.source)
    for option in own:
        merged[option.name] = (option.value or "", FROM_POD)
    return tuple(
        Entry(f"{name}:{value}" if value else name, source) for name, (value, source) in merged.items()
    )


def _fitting_servers(servers: tuple[Entry, ...]) -> tuple[tuple[Entry, ...], tuple[PodEvent, ...]]:
    if len(servers) <= MAX_SERVERS:
        return servers, ()
    kept = servers[:MAX_SERVERS]
    return kept, (
        PodEvent(
            "DNSConfigForming",
            "Nameserver limits were exceeded, some nameservers have been omitted, "
            f"the applied nameserver line is: {_joined(kept)}",
        ),
    )


def _fitting_searches(searches: tuple[Entry, ...]) -> tuple[tuple[Entry, ...], tuple[PodEvent, ...]]:
    """The first ones, without those that are too long, until the line is too long; in this order."""
    kept = [each for each in searches[:MAX_SEARCHES] if _bytes(each.value) <= MAX_SEARCH_PATH_BYTES]
    while kept and _bytes(_joined(kept)) > MAX_SEARCH_BYTES:
        kept.pop()
    if len(kept) == len(searches):
        return searches, ()
    return tuple(kept), (
        PodEvent(
            "DNSConfigForming",
            "Search Line limits were exceeded, some search paths have been omitted, "
            f"the applied search line is: {_joined(kept)}",
        ),
    )


def _entries(values: Iterable[str], source: str) -> tuple[Entry, ...]:
    return tuple(Entry(value, source) for value in values)


def _unique(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The first of each value."""
    found: dict[str, Entry] = {}
    for entry in entries:
        found.setdefault(entry.value, entry)
    return tuple(found.values())


def _joined(entries: Iterable[Entry]) -> str:
    return " ".join(entry.value for entry in entries)


def _bytes(text: str) -> int:
    return len(text.encode())
