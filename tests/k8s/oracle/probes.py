# SPDX-License-Identifier: Apache-2.0
"""The probes of namespaces: every address and port of every Service, and some that no Service has."""

import enum
import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kubeproxy_ext.compute.addresses import canonical_ip
from ruleset.model import Protocol
from tests.k8s.oracle.draw import DrawnNamespace, Json, ingress
from tests.k8s.oracle.prober import ProbedFlow
from tests.k8s.oracle.sides import OracleNode

WRONG_PORT = 7777


class DestinationKind(enum.Enum):
    """The kind of a packet's destination."""

    CLUSTER_IP = "a cluster IP and a port of the Service"
    EXTERNAL_IP = "an external IP and a port of the Service"
    BALANCER_IP = "a load balancer address and a port of the Service"
    NODE_PORT = "the node's address and a node port"
    WRONG_PORT = "a cluster IP and a port that the Service lacks"
    WRONG_OUTER_PORT = "an external or load balancer address and a port that the Service lacks"
    WRONG_PROTOCOL = "a cluster IP and a port that the Service has for another protocol"
    UNALLOCATED = "an address in the service range that no Service has"
    ENDPOINT = "an endpoint itself"


@dataclass(frozen=True, slots=True)
class FlowProbe:
    """One flow to probe. `service` is `namespace/name`; for an unallocated address the namespace alone."""

    kind: DestinationKind
    service: str
    flow: ProbedFlow

    def __str__(self) -> str:
        return f"{self.flow.protocol.value} {self.flow.endpoint}, {self.kind.value}: {self.service}"


def probes_of_namespaces(
    namespaces: Iterable[DrawnNamespace],
    services: dict[tuple[str, str], Json],
    node: OracleNode,
    taken: set[str],
) -> list[FlowProbe]:
    """All probes of these namespaces, each flow once. `services` are as the API server has them, `taken`
    the allocated addresses of the service ranges."""
    found: dict[ProbedFlow, FlowProbe] = {}
    for drawn in namespaces:
        for name in drawn.services:
            service = services.get((drawn.name, name))
            for one in () if service is None else probes_of_service(service, node):
                found.setdefault(one.flow, one)
        for one in _of_drawn(drawn, taken):
            found.setdefault(one.flow, one)
    return list(found.values())


def probes_of_service(service: Json, node: OracleNode) -> Iterator[FlowProbe]:
    """The probes of one Service; its own addresses first."""
    spec, metadata = service["spec"], service["metadata"]
    reference = f"{metadata['namespace']}/{metadata['name']}"
    ports = [(Protocol[one["protocol"]], one["port"]) for one in spec.get("ports") or ()]
    cluster_ips = [ip for ip in spec.get("clusterIPs") or () if ip not in ("", "None")]
    outer = {
        DestinationKind.EXTERNAL_IP: _canonical(spec.get("externalIPs") or ()),
        DestinationKind.BALANCER_IP: _canonical(one["ip"] for one in ingress(service)),
    }
    for kind, ips in ((DestinationKind.CLUSTER_IP, cluster_ips), *outer.items()):
        for ip in ips:
            for protocol, port in ports:
                yield FlowProbe(kind, reference, ProbedFlow(protocol, ip, port))
    for ip in cluster_ips:
        for protocol, port in ports[:1]:
            yield FlowProbe(DestinationKind.WRONG_PORT, reference, ProbedFlow(protocol, ip, WRONG_PORT))
            for other in [each for each in Protocol if (each, port) not in ports][:1]:
                yield FlowProbe(DestinationKind.WRONG_PROTOCOL, reference, ProbedFlow(other, ip, port))
    for ips in outer.values():
        for ip in ips[:1]:
            yield FlowProbe(
                DestinationKind.WRONG_OUTER_PORT, reference, ProbedFlow(Protocol.TCP, ip, WRONG_PORT)
            )
    for one in spec.get("ports") or ():
        if one.get("nodePort"):
            for ip in node.node_ips:
                flow = ProbedFlow(Protocol[one["protocol"]], ip, one["nodePort"])
                yield FlowProbe(DestinationKind.NODE_PORT, reference, flow)


def _of_drawn(drawn: DrawnNamespace, taken: set[str]) -> Iterator[FlowProbe]:
    for ip in (
        f"10.96.{200 + drawn.index % 50}.{drawn.index // 50 + 1}",
        f"fd00:10:96::{0xF000 + drawn.index:x}",
    ):
        if ip not in taken:
            yield FlowProbe(DestinationKind.UNALLOCATED, drawn.name, ProbedFlow(Protocol.TCP, ip, 80))
    for one in list(drawn.slices.values())[:1]:
        for endpoint in one["endpoints"][:1]:
            for ip in _canonical(endpoint["addresses"][:1]):
                yield FlowProbe(DestinationKind.ENDPOINT, drawn.name, ProbedFlow(Protocol.UDP, ip, 53))


def _canonical(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(ip for text in texts if (ip := canonical_ip(text)) is not None))


def cluster_ips(services: Iterable[Json]) -> set[str]:
    """All addresses that the API server has allocated, in canonical form."""
    found = (ip for one in services for ip in one["spec"].get("clusterIPs") or () if ip != "None")
    return {str(ipaddress.ip_address(ip)) for ip in found}
