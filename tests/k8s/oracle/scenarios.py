# SPDX-License-Identifier: Apache-2.0
"""Scenarios: namespaces and changes that random draws may miss.

Each is a namespace beside the random ones, probed as they are, and a few changes of it under long-lived
flows and clients. A step is one write; the steps of all scenarios run side by side, with probes after each.
A step None changes nothing.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

from tests.k8s.oracle.changes import SERVICES, SLICES, ObjectChange
from tests.k8s.oracle.draw import NODES, ZONES, DrawnNamespace, Json

ScenarioStep = Callable[[DrawnNamespace], ObjectChange] | None

_SERVICE = "svc-0"
_PROXY_NAME = "service.kubernetes.io/service-proxy-name"


@dataclass(frozen=True, slots=True)
class Scenario:
    """`fill` puts the objects into an empty namespace; `steps` are its changes."""

    name: str
    fill: Callable[[DrawnNamespace], None]
    steps: Sequence[ScenarioStep]

    def draw(self, index: int) -> DrawnNamespace:
        made = DrawnNamespace(index)
        self.fill(made)
        return made


def _balancer(drawn: DrawnNamespace, mode: str) -> Json:
    return {"ingress": [{"ip": f"fd00:ffff:{drawn.index + 1:x}::70", "ipMode": mode}]}


def _ranged(protocol: str, mode: str) -> Callable[[DrawnNamespace], None]:
    """A load balancer address of that mode, source ranges with every pod, an endpoint."""

    def fill(drawn: DrawnNamespace) -> None:
        made = _service(
            drawn,
            [_port("p0", 443, protocol)],
            type="LoadBalancer",
            loadBalancerSourceRanges=["fd00:10:244::/48"],
        )
        made["status"] = {"loadBalancer": _balancer(drawn, mode)}
        _slice(drawn, [_port("p0", 8443, protocol)], [_endpoint(drawn, 3)])

    return fill


def _elsewhere(protocol: str) -> Callable[[DrawnNamespace], None]:
    """Another proxy's Service with an external IP and a load balancer address, external policy Local, and an
    endpoint on a node without probes."""

    def fill(drawn: DrawnNamespace) -> None:
        made = _service(
            drawn,
            [_port("p0", 443, protocol)],
            type="LoadBalancer",
            externalTrafficPolicy="Local",
            externalIPs=[f"fd00:ffff:{drawn.index + 1:x}::2"],
        )
        made["metadata"]["labels"][_PROXY_NAME] = "another"
        made["status"] = {"loadBalancer": _balancer(drawn, "VIP")}
        _slice(drawn, [_port("p0", 8443, protocol)], [_endpoint(drawn, 3)])

    return fill


def _sticky(protocol: str) -> Callable[[DrawnNamespace], None]:
    """A Service with affinity, and so many endpoints that a forgotten client reaches another one."""

    def fill(drawn: DrawnNamespace) -> None:
        _service(drawn, [_port("p0", 443, protocol)], **_remembering(600)["spec"])
        _slice(drawn, [_port("p0", 8443, protocol)], [_endpoint(drawn, n) for n in range(3, 23)])

    return fill


def _sticky_at_home(node: str) -> Callable[[DrawnNamespace], None]:
    """A Service with affinity and node ports, and internal policy Local; all endpoints are on this node."""

    def fill(drawn: DrawnNamespace) -> None:
        ports = [_port("p0", 443, "TCP")]
        kind = {"type": "NodePort", "internalTrafficPolicy": "Local"}
        _service(drawn, ports, **kind, **_remembering(600)["spec"])
        made = [{**_endpoint(drawn, n), "nodeName": node} for n in range(3, 23)]
        _slice(drawn, [_port("p0", 8443, "TCP")], made)

    return fill


def _hinted(drawn: DrawnNamespace) -> ObjectChange:
    """Only the first endpoint has hints for zones with nodes."""
    after = deepcopy(drawn)
    name = f"{_SERVICE}-one"
    for number, one in enumerate(after.slices[name]["endpoints"]):
        zones = ("nowhere",) if number else ZONES
        one["hints"] = {"forZones": [{"name": zone} for zone in zones]}
    return ObjectChange(drawn, after, "put", SLICES, name, after.slices[name])


def _remembering(timeout_s: int) -> Json:
    config = {"clientIP": {"timeoutSeconds": timeout_s}}
    return {"spec": {"sessionAffinity": "ClientIP", "sessionAffinityConfig": config}}


def _remembered(timeout_s: int) -> ScenarioStep:
    return lambda drawn: _patched(drawn, _remembering(timeout_s))


def _balanced(mode: str) -> ScenarioStep:
    return lambda drawn: _patched(drawn, {"status": {"loadBalancer": _balancer(drawn, mode)}}, is_status=True)


def _admitting(*ranges: str) -> ScenarioStep:
    return lambda drawn: _patched(drawn, {"spec": {"loadBalancerSourceRanges": list(ranges)}})


def _service(drawn: DrawnNamespace, ports: list[Json], **spec: object) -> Json:
    made: Json = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": _SERVICE, "namespace": drawn.name, "labels": {"app": "any"}},
        "spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"], "ports": ports, **spec},
    }
    drawn.services[_SERVICE] = made
    return made


def _slice(drawn: DrawnNamespace, ports: list[Json], endpoints: list[Json], name: str = "one") -> Json:
    made: Json = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{_SERVICE}-{name}",
            "namespace": drawn.name,
            "labels": {"kubernetes.io/service-name": _SERVICE},
        },
        "addressType": "IPv6",
        "ports": ports,
        "endpoints": endpoints,
    }
    drawn.slices[made["metadata"]["name"]] = made
    return made


def _port(name: str, port: int, protocol: str) -> Json:
    return {"name": name, "port": port, "protocol": protocol}


def _endpoint(drawn: DrawnNamespace, number: int, **conditions: bool) -> Json:
    ip = f"fd00:eeee:{drawn.index + 1:x}::{number:x}"
    return {"addresses": [ip], "nodeName": NODES[2], "conditions": {"ready": True, **conditions}}


def _patched(drawn: DrawnNamespace, patch: Json, *, is_status: bool = False) -> ObjectChange:
    """With a patch of the Service, one level below its top."""
    after = deepcopy(drawn)
    for part, fields in patch.items():
        after.services[_SERVICE].setdefault(part, {}).update(fields)
    return ObjectChange(drawn, after, "patch", SERVICES, _SERVICE, patch, is_status)


def _handed_over(drawn: DrawnNamespace) -> ObjectChange:
    """Remove the label of the other proxy."""
    after = deepcopy(drawn)
    del after.services[_SERVICE]["metadata"]["labels"][_PROXY_NAME]
    return ObjectChange(
        drawn, after, "patch", SERVICES, _SERVICE, {"metadata": {"labels": {_PROXY_NAME: None}}}
    )


def _with_endpoints(*made: Callable[[DrawnNamespace], Json]) -> ScenarioStep:
    """Replace the first slice's endpoints."""

    def step(drawn: DrawnNamespace) -> ObjectChange:
        after = deepcopy(drawn)
        name = f"{_SERVICE}-one"
        after.slices[name]["endpoints"] = [one(drawn) for one in made]
        return ObjectChange(drawn, after, "put", SLICES, name, after.slices[name])

    return step


def _deleted(drawn: DrawnNamespace) -> ObjectChange:
    """Delete the Service, not its slices."""
    after = deepcopy(drawn)
    del after.services[_SERVICE]
    return ObjectChange(drawn, after, "delete", SERVICES, _SERVICE, {})


def _at(number: int, **conditions: bool) -> Callable[[DrawnNamespace], Json]:
    return lambda drawn: _endpoint(drawn, number, **conditions)


def _ending(number: int, node: str) -> Callable[[DrawnNamespace], Json]:
    """An endpoint of a node that ends and serves no more."""
    conditions = {"ready": False, "serving": False, "terminating": True}
    return lambda drawn: {**_endpoint(drawn, number, **conditions), "nodeName": node}


SCENARIOS = (
    tuple(
        Scenario(
            # A flow that is earlier than its rule stays untranslated. In mode iptables kube-proxy then treats
            # it as outside the ranges for as long as its entry lives, without any further change.
            name=f"a {protocol} flow from before an address with source ranges",
            fill=_ranged(protocol, "Proxy"),
            steps=(_balanced("VIP"), None, _with_endpoints(_at(3), _at(4)), None),
        )
        for protocol in ("TCP", "UDP")
    )
    + tuple(
        Scenario(
            # Likewise where all endpoints are on other nodes: in both modes kube-proxy treats the
            # untranslated flow as external traffic, without a local endpoint.
            name=f"a {protocol} flow from before an external address without local endpoints",
            fill=_elsewhere(protocol),
            steps=(_handed_over, None, _with_endpoints(_at(3), _at(4)), None),
        )
        for protocol in ("TCP", "UDP")
    )
    + tuple(
        Scenario(
            # In mode nftables kube-proxy filters sources of new packets before conntrack entries count, and
            # these flows have no reply: one that was shut out in between continues to its endpoint.
            name=f"a {protocol} flow that is shut out for a while",
            fill=_ranged(protocol, "VIP"),
            steps=(
                _admitting("192.0.2.0/24", "2001:db8::/32"),
                _with_endpoints(_at(4)),
                _admitting("::/0"),
                None,
            ),
        )
        for protocol in ("TCP", "UDP")
    )
    + tuple(
        Scenario(
            # A UDP flow stays while its endpoint serves and no longer; a TCP flow stays in any case.
            name=f"a {protocol} flow whose endpoint ends, goes, and whose Service goes",
            fill=_ranged(protocol, "VIP"),
            steps=(
                _with_endpoints(_at(3, ready=False, serving=True, terminating=True), _at(4)),
                _with_endpoints(_at(4)),
                _with_endpoints(),
                _with_endpoints(_at(5)),
                _deleted,
            ),
        )
        for protocol in ("TCP", "UDP")
    )
    + tuple(
        Scenario(
            # A pod has the address of one that still ends, on another node. The running one's flows stay.
            name=f"a {protocol} flow to an address that a pod which ends has too, {where}",
            fill=_ranged(protocol, "VIP"),
            steps=(
                _with_endpoints(*order, _at(4, ready=False)),
                None,
                _with_endpoints(_at(3)),
                _with_endpoints(*reversed(order)),
                _with_endpoints(_at(3, ready=False, serving=False, terminating=True)),
            ),
        )
        for protocol in ("TCP", "UDP")
        for where, node in (("here", NODES[0]), ("elsewhere", NODES[2]))
        for order in ((_ending(3, node), _at(3)),)
    )
    + (
        Scenario(
            name="an affinity timeout that changes",
            fill=_sticky("TCP"),
            steps=(_remembered(86400), _remembered(600)),
        ),
        Scenario(
            # nft cannot change the timeout of a set: only the changed Service's set may be recreated.
            name="clients that stay while another Service's affinity timeout changes",
            fill=_sticky("UDP"),
            steps=(None, None),
        ),
    )
    + tuple(
        Scenario(
            # The node port's endpoint remembers the client from then on, also for the cluster IP, which had
            # led it to another one.
            name=f"a client of {node} that the node port leads to another endpoint than the cluster IP",
            fill=_sticky_at_home(node),
            steps=(_hinted, None),
        )
        for node in NODES[:2]
    )
)
