# SPDX-License-Identifier: Apache-2.0
"""The content of a file of Service cases, as values with the file's own words.

The format is explained at the head of ../shared/cases/service-proxy.yaml. `ApiState.objects` makes the
objects that an API server would have, as plain JSON.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Word = Literal["reject", "drop", "accept", "pass", "unreach"]


@dataclass(frozen=True, slots=True)
class FlowOrigin:
    """Where the flows originate. `pod` and `outside` are sources; `nodeport_addresses` is "all" or a list."""

    node: str = "test-node"
    node_ips: tuple[str, ...] = ()
    node_ip: str = ""
    pod_cidr: str = ""
    service_cidr: str = ""
    pod: str = ""
    outside: str = ""
    outside_blocked: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PortSpec:
    name: str = ""
    proto: str = "TCP"
    port: int = 0
    node_port: int = 0


@dataclass(frozen=True, slots=True)
class Ingress:
    ip: str
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class ServiceCaseSpec:
    """`tenant_vip` and `tenant_namespace`: what the tenant calls its cluster IPs and the namespace."""

    svc: str
    type: str = "ClusterIP"
    vip: tuple[str, ...] = ()
    ports: tuple[PortSpec, ...] = ()
    itp: str = "Cluster"
    etp: str = "Cluster"
    external_ips: tuple[str, ...] = ()
    lb: tuple[Ingress, ...] = ()
    lb_ranges: tuple[str, ...] = ()
    affinity: int | None = None
    health_port: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    families: tuple[str, ...] = ()
    tenant: str | None = None
    network: str | None = None
    tenant_vip: tuple[str, ...] = ()
    tenant_namespace: str | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)

    def object(self) -> dict[str, Any]:
        """The v1 Service as an API server prints it."""
        spec: dict[str, Any] = {
            "type": self.type,
            "clusterIP": self.vip[0] if self.vip else "",
            "clusterIPs": list(self.vip),
            "ipFamilies": list(self.families or (_family(ip) for ip in self.vip if ip != "None")),
            "ports": [_service_port(port) for port in self.ports],
            "internalTrafficPolicy": self.itp,
            "externalTrafficPolicy": self.etp,
            "sessionAffinity": "None" if self.affinity is None else "ClientIP",
        }
        if self.affinity is not None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": self.affinity}}
        if self.external_ips:
            spec["externalIPs"] = list(self.external_ips)
        if self.lb_ranges:
            spec["loadBalancerSourceRanges"] = list(self.lb_ranges)
        if self.health_port:
            spec["healthCheckNodePort"] = self.health_port
        labels = dict(self.labels)
        if self.network is not None:
            labels["arktos.futurewei.com/network"] = self.network
        ingress = [{"ip": one.ip} | ({"ipMode": one.mode} if one.mode else {}) for one in self.lb]
        metadata = _metadata(self.svc, labels)
        annotations = dict(self.annotations)
        if self.tenant_vip:
            annotations["tenancy.x-k8s.io/clusterIP"] = ",".join(self.tenant_vip)
        if annotations:
            metadata["annotations"] = annotations
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": spec,
            "status": {"loadBalancer": {"ingress": ingress} if ingress else {}},
        }


@dataclass(frozen=True, slots=True)
class SlicePort:
    name: str = ""
    proto: str = "TCP"
    port: int = 0


@dataclass(frozen=True, slots=True)
class EndpointSpec:
    """`node` None: not on this node. `serving` None: as `ready`."""

    ip: str
    node: str | None = None
    zone: str | None = None
    ready: bool = True
    serving: bool | None = None
    terminating: bool = False
    zones: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()

    def object(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "addresses": [self.ip],
            "conditions": {
                "ready": self.ready,
                "serving": self.ready if self.serving is None else self.serving,
                "terminating": self.terminating,
            },
        }
        if self.node is not None:
            found["nodeName"] = self.node
        if self.zone is not None:
            found["zone"] = self.zone
        hints = {"forZones": self.zones, "forNodes": self.nodes}
        found_hints = {key: [{"name": name} for name in names] for key, names in hints.items() if names}
        return found | ({"hints": found_hints} if found_hints else {})


@dataclass(frozen=True, slots=True)
class SliceSpec:
    svc: str
    ports: tuple[SlicePort, ...] = ()
    eps: tuple[EndpointSpec, ...] = ()
    tenant: str | None = None
    network: str | None = None

    def object(self, number: int) -> dict[str, Any]:
        """The EndpointSlice as an API server prints it; `number` makes its name unique."""
        name = self.svc.partition("/")[2]
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": _metadata(f"{self.svc}-{number}", {"kubernetes.io/service-name": name}),
            "addressType": _family(self.eps[0].ip) if self.eps else "IPv4",
            "ports": [{"name": p.name, "protocol": p.proto, "port": p.port} for p in self.ports],
            "endpoints": [endpoint.object() for endpoint in self.eps] or None,
        }


@dataclass(frozen=True, slots=True)
class ApiState:
    """The objects of the API server at one time."""

    services: tuple[ServiceCaseSpec, ...] = ()
    slices: tuple[SliceSpec, ...] = ()

    def objects(self, node: str = "test-node") -> list[dict[str, Any]]:
        """The items of a v1 List: the Node, the Namespaces with their tenants, Services and slices."""
        tenants: dict[str, str | None] = {}
        both: tuple[SliceSpec | ServiceCaseSpec, ...] = (*self.slices, *self.services)
        for one in both:
            tenants[one.svc.partition("/")[0]] = one.tenant
        own = {one.svc.partition("/")[0]: one.tenant_namespace for one in self.services}
        namespaces = [_namespace(name, tenant, own.get(name)) for name, tenant in sorted(tenants.items())]
        return [
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}},
            *namespaces,
            *(service.object() for service in self.services),
            *(one.object(number) for number, one in enumerate(self.slices)),
        ]


@dataclass(frozen=True, slots=True)
class Check:
    """One packet. `expect` is the set of `ip:port` that it may reach, in the order of rules, or a word."""

    name: str
    source: str
    protocol: str
    destination: str
    port: int
    expect: tuple[str, ...] | Word
    masquerade: bool


@dataclass(frozen=True, slots=True)
class FlowCase:
    """A group of packets through one state, as kube-proxy on a node treats them."""

    id: str
    origin: str
    state: ApiState
    checks: tuple[Check, ...]
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GuestCase:
    """A group of packets out of a guest. `how` names the procedure; "load": load, then check."""

    id: str
    is_live: bool
    given: str
    state: ApiState
    checks: tuple[Check, ...]
    how: str = "load"
    before: ApiState | None = None
    has_catch_all: bool = True
    networks: tuple[str, ...] = ()
    tenant: str | None = None
    within_ms: float | None = None
    pod: str | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """Whether a Service is proxied at all; `ipv4` and `ipv6` are its addresses where that matters."""

    reason: str
    service: ServiceCaseSpec
    is_proxied: bool
    service_ports: int | None = None
    ipv4: str | None = None
    ipv6: str | None = None


@dataclass(frozen=True, slots=True)
class EndpointMap:
    """Endpoints by service port, in order, before and after a change; `before` or `after` in `ip:port`."""

    id: str
    before: Mapping[str, tuple[str, ...]]
    after: Mapping[str, tuple[str, ...]]
    has_udp_pass: bool | None = None


@dataclass(frozen=True, slots=True)
class ChoiceEndpoint:
    """`state`: ready, dead, or term (serving and terminating)."""

    name: str
    is_local: bool
    state: Literal["ready", "dead", "term"]
    zones: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EndpointChoiceCase:
    """Which endpoints are used; None: that set is not computed at all."""

    id: str
    endpoints: tuple[ChoiceEndpoint, ...]
    cluster: frozenset[str] | None
    local: frozenset[str] | None
    has_any: bool
    zone: str = ""
    me: str = ""
    itp: str = "Cluster"
    etp: str = "Cluster"
    node_port: int = 0
    all: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class ConntrackEntry:
    """A conntrack entry; `destination` "*" is any address of the node."""

    protocol: str
    destination: str
    port: int
    reply_source: str
    reply_port: int
    is_kept: bool


@dataclass(frozen=True, slots=True)
class Conntrack:
    """The entries of one Service with a serving, a non-serving and a removed endpoint."""

    service: Mapping[str, Any]
    endpoints: Mapping[str, str]
    entries: tuple[ConntrackEntry, ...]
    later: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Sync:
    """Steps of changes and what each writes, or one rule in words."""

    id: str
    steps: tuple[Mapping[str, Any], ...] = ()
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class UnreadableCase:
    """A group that cannot be read, and why."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class CaseFile:
    """`problems` are the groups that could not be read."""

    path: Path
    node_origin: FlowOrigin = FlowOrigin()
    guest_origin: FlowOrigin = FlowOrigin()
    chain_names: Mapping[str, str] = field(default_factory=dict)
    probabilities: Mapping[int, str] = field(default_factory=dict)
    flows: tuple[FlowCase, ...] = ()
    guest: tuple[GuestCase, ...] = ()
    selection: tuple[Selection, ...] = ()
    slice_rules: Mapping[str, str] = field(default_factory=dict)
    endpoint_map: tuple[EndpointMap, ...] = ()
    endpoint_choices: tuple[EndpointChoiceCase, ...] = ()
    conntrack: Conntrack | None = None
    sync: tuple[Sync, ...] = ()
    problems: tuple[UnreadableCase, ...] = ()


def _family(ip: str) -> str:
    """By the shape of the text: an address may be malformed on purpose."""
    try:
        return f"IPv{ipaddress.ip_address(ip).version}"
    except ValueError:
        return "IPv6" if ":" in ip else "IPv4"


def _service_port(port: PortSpec) -> dict[str, Any]:
    found: dict[str, Any] = {"protocol": port.proto, "port": port.port}
    if port.name:
        found["name"] = port.name
    if port.node_port:
        found["nodePort"] = port.node_port
    return found


def _metadata(svc: str, labels: Mapping[str, str]) -> dict[str, Any]:
    namespace, _, name = svc.partition("/")
    return {"namespace": namespace, "name": name, "labels": dict(labels)}


def _namespace(name: str, tenant: str | None, own_name: str | None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if tenant is not None:
        metadata["annotations"] = {"tenancy.x-k8s.io/cluster": tenant}
    if own_name is not None:
        metadata["annotations"]["tenancy.x-k8s.io/namespace"] = own_name
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
