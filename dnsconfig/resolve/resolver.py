# SPDX-License-Identifier: Apache-2.0
"""Computes a pod's resolver as the kubelet 1.34 does: docs/spec/resolver.md#text.

Differences: the server of the pod's network replaces `--cluster-dns`. The search list has the tenant's own
name of the namespace and the tenant's cluster domain. A cluster policy never falls back to the node's
resolver. Options keep the order of their first occurrence; the kubelet's is random (a Go map).
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from daemonkit.kube.resources import EventReason
from dnsconfig.cluster.objects import PodDnsConfig, PodDnsOption, PodSpec
from dnsconfig.resolve.node_resolver import NodeResolver

# pkg/apis/core/validation, 1.34. The constants name characters, but the kubelet counts bytes.
MAX_SERVERS = 3
MAX_SEARCHES = 32
MAX_SEARCH_BYTES = 2048
# apimachinery, DNS1123SubdomainMaxLength: glibc 2.28 and older abort at a longer search path.
MAX_SEARCH_PATH_BYTES = 253

NDOTS = "ndots:5"


class ResolverEventReason(EventReason):
    """The kubelet's own reason, and ours."""

    DNS_CONFIG_FORMING = "DNSConfigForming"
    OBJECT_TOO_LARGE = "ObjectTooLarge"


EVENT_REASONS = {
    ResolverEventReason.DNS_CONFIG_FORMING: (
        "Servers or search paths exceed a limit; the message has those that are left."
    ),
    ResolverEventReason.OBJECT_TOO_LARGE: "The pod's object is too large to be read; it gets no resolver.",
}

FROM_POD = "the pod's dnsConfig"
FROM_NODE = "the node's resolv.conf"
FROM_KUBELET = "the kubelet's default without a resolv.conf of the node"


class DnsClass(enum.Enum):
    """What a pod's resolver is based on: docs/spec/resolver.md#class."""

    CLUSTER = "cluster"
    HOST = "host"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """One value of a resolv.conf, and its source in words; `is_from_pod`: it is of the pod's dnsConfig."""

    value: str
    source: str
    is_from_pod: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDns:
    """What the kubelet has as flags; here of the pod's network and tenant."""

    addresses: tuple[str, ...]
    address_source: str
    namespace: str
    domain: str
    domain_source: str


@dataclass(frozen=True, slots=True)
class ResolvConf:
    """The content of a resolv.conf."""

    servers: tuple[SourcedValue, ...] = ()
    searches: tuple[SourcedValue, ...] = ()
    options: tuple[SourcedValue, ...] = ()


@dataclass(frozen=True, slots=True)
class PodEvent:
    """An Event of type Warning about a pod."""

    reason: ResolverEventReason
    message: str


def dns_class(spec: PodSpec) -> DnsClass:
    """The pod's class; a policy that the API server does not know is taken as ClusterFirst."""
    match spec.dns_policy:
        case "None":
            return DnsClass.NONE
        case "Default":
            return DnsClass.HOST
        case "ClusterFirst" if spec.host_network:
            return DnsClass.HOST
        case _:
            return DnsClass.CLUSTER


def compute_resolver(
    spec: PodSpec, cluster: ClusterDns | None, node: NodeResolver, node_ips: Sequence[str] = ()
) -> tuple[ResolvConf, tuple[PodEvent, ...]]:
    """The pod's resolver, and Events about values that exceeded a limit.

    `cluster` may be None only for a pod that is not of class CLUSTER. `node_ips` are the kubelet's
    `--node-ip`; they matter only without a resolv.conf of the node.
    """
    match dns_class(spec):
        case DnsClass.NONE:
            found = ResolvConf()
        case DnsClass.HOST:
            found = _without_file(node_ips) if node.is_none else _of_node(node)
        case DnsClass.CLUSTER:
            if cluster is None:
                raise ValueError("a pod of class CLUSTER needs the DNS server of its network")
            found = _of_cluster(cluster, node)
    if spec.dns_config is not None:
        found = _with_dns_config(found, spec.dns_config)
    servers, server_events = _fitting_servers(found.servers)
    searches, search_events = _fitting_searches(found.searches)
    return ResolvConf(servers, searches, found.options), (*server_events, *search_events)


def _of_node(node: NodeResolver) -> ResolvConf:
    return ResolvConf(
        _entries(node.servers, FROM_NODE),
        _entries(node.searches, FROM_NODE),
        _entries(node.options, FROM_NODE),
    )


def _without_file(node_ips: Sequence[str]) -> ResolvConf:
    """Lookups fail unless the pod runs a server itself."""
    servers = ["::1" if ":" in ip else "127.0.0.1" for ip in node_ips] or ["127.0.0.1"]
    return ResolvConf(_entries(servers, FROM_KUBELET), (SourcedValue(".", FROM_KUBELET),))


def _of_cluster(cluster: ClusterDns, node: NodeResolver) -> ResolvConf:
    searches = _entries(node.searches, FROM_NODE)
    if cluster.domain:
        paths = (f"{cluster.namespace}.svc.{cluster.domain}", f"svc.{cluster.domain}", cluster.domain)
        own = _entries(paths, f"cluster domain, {cluster.domain_source}")
        searches = _unique([*own, *searches])
    return ResolvConf(
        _entries(cluster.addresses, cluster.address_source),
        searches,
        (SourcedValue(NDOTS, "policy ClusterFirst"),),
    )


def _with_dns_config(found: ResolvConf, dns_config: PodDnsConfig) -> ResolvConf:
    return ResolvConf(
        _unique([*found.servers, *map(_from_pod, dns_config.nameservers or ())]),
        _unique([*found.searches, *map(_from_pod, dns_config.searches or ())]),
        _merged(found.options, dns_config.options or ()),
    )


def _merged(options: Iterable[SourcedValue], own: Iterable[PodDnsOption]) -> tuple[SourcedValue, ...]:
    """Options by name, where the pod's value wins; an empty value is written as none."""
    merged: dict[str, SourcedValue] = {}
    for entry in options:
        name, _, value = entry.value.partition(":")
        merged[name] = replace(entry, value=_option(name, value))
    for option in own:
        merged[option.name] = _from_pod(_option(option.name, option.value or ""))
    return tuple(merged.values())


def _option(name: str, value: str) -> str:
    return f"{name}:{value}" if value else name


def _fitting_servers(
    servers: tuple[SourcedValue, ...],
) -> tuple[tuple[SourcedValue, ...], tuple[PodEvent, ...]]:
    if len(servers) <= MAX_SERVERS:
        return servers, ()
    kept = servers[:MAX_SERVERS]
    return kept, (
        PodEvent(
            ResolverEventReason.DNS_CONFIG_FORMING,
            "Nameserver limits were exceeded, some nameservers have been omitted, "
            f"the applied nameserver line is: {_joined(kept)}",
        ),
    )


def _fitting_searches(
    searches: tuple[SourcedValue, ...],
) -> tuple[tuple[SourcedValue, ...], tuple[PodEvent, ...]]:
    """The kubelet's three steps: the first paths, without too long ones, up to the line's limit."""
    kept = [each for each in searches[:MAX_SEARCHES] if _bytes(each.value) <= MAX_SEARCH_PATH_BYTES]
    while kept and _bytes(_joined(kept)) > MAX_SEARCH_BYTES:
        kept.pop()
    if len(kept) == len(searches):
        return searches, ()
    return tuple(kept), (
        PodEvent(
            ResolverEventReason.DNS_CONFIG_FORMING,
            "Search Line limits were exceeded, some search paths have been omitted, "
            f"the applied search line is: {_joined(kept)}",
        ),
    )


def _entries(values: Iterable[str], source: str) -> tuple[SourcedValue, ...]:
    return tuple(SourcedValue(value, source) for value in values)


def _from_pod(value: str) -> SourcedValue:
    return SourcedValue(value, FROM_POD, is_from_pod=True)


def _unique(entries: Iterable[SourcedValue]) -> tuple[SourcedValue, ...]:
    """Each value once, at its first place."""
    found: dict[str, SourcedValue] = {}
    for entry in entries:
        found.setdefault(entry.value, entry)
    return tuple(found.values())


def _joined(entries: Iterable[SourcedValue]) -> str:
    return " ".join(entry.value for entry in entries)


def _bytes(text: str) -> int:
    return len(text.encode())
