# SPDX-License-Identifier: Apache-2.0
"""Random Services and EndpointSlices, as a person or a controller might write them.

Each namespace has addresses of its own, so that many fit into one cluster. The API server refuses some of
what is drawn. Rules that kube-proxy leaves to chance are not drawn (see `rules_left_to_chance`).
"""

import random
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from kubeproxy_ext.compute.addresses import canonical_ip

Json = dict[str, Any]

NODES = ("node-a", "node-b", "node-c")
ZONES = ("zone-a", "zone-b", "zone-c")
PODS = (("10.244.1.10", "fd00:10:244:1::a"), ("10.244.2.10", "fd00:10:244:2::a"))
CLUSTER_CIDRS = ("10.244.0.0/16", "fd00:10:244::/48")

SERVICE_PORTS = (53, 80, 443, 8080, 9090)
ENDPOINT_PORTS = (53, 80, 5353, 8080, 8443)
_PROTOCOLS = ("TCP", "TCP", "UDP", "SCTP")
_FAMILIES = ("IPv4", "IPv6")
_RANGES = (
    *("10.244.0.0/16", "10.244.1.0/24", "10.244.2.10/32", "10.71.0.0/16", "192.0.2.0/24", "0.0.0.0/0"),
    *("fd00:10:244::/48", "fd00:10:244:1::/64", "fd00:10:244:2::a/128", "2001:db8::/32", "::/0"),
    # Host bits and blanks: both are accepted.
    *("10.244.1.77/24", " 198.51.100.0/24 "),
)


@dataclass(slots=True)
class DrawnNamespace:
    """One namespace: its objects by name, as they were last written."""

    index: int
    services: dict[str, Json] = field(default_factory=dict)
    slices: dict[str, Json] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"drawn-{self.index}"

    def slices_of(self, service: str) -> Iterator[Json]:
        """The slices with the Service's name in their label."""
        for one in self.slices.values():
            if one["metadata"]["labels"].get("kubernetes.io/service-name") == service:
                yield one


def draw_namespace(seed: int, index: int) -> DrawnNamespace:
    """The namespace of that number under that seed, always the same."""
    rng = random.Random(f"{seed}/{index}")  # noqa: S311 - test data, not secrets
    drawing = Drawing(rng, DrawnNamespace(index))
    for number in range(drawing.rng.randint(3, 6)):
        drawing.add_service(f"svc-{number}")
    return drawing.drawn


def rules_left_to_chance(drawn: DrawnNamespace) -> str:
    """The rule of a namespace that kube-proxy decides by the order of a Go map; "" without one.

    Two Services of one address and port, and different copies of an endpoint of which several do not
    terminate, or all do.
    """
    claimed: dict[tuple[str, int, str], str] = {}
    for name, service in drawn.services.items():
        for ip in claimed_ips(service):
            for port in service["spec"].get("ports") or ():
                holder = claimed.setdefault((ip, port["port"], port["protocol"]), name)
                if holder != name:
                    return f"{holder} and {name} have {ip}:{port['port']}"
    for name in drawn.services:
        copies_of: dict[tuple[str, ...], list[Json]] = {}
        for one in drawn.slices_of(name):
            # Slices may have other numbers for a port: an address is another endpoint then.
            ports = [f"{port.get('name', '')} {port['protocol']} {port.get('port')}" for port in one["ports"]]
            for endpoint in one["endpoints"]:
                ip = canonical_ip(endpoint["addresses"][0]) or ""
                values = {key: endpoint.get(key) for key in ("conditions", "hints", "nodeName")}
                for port in ports:
                    copies_of.setdefault((ip, port), []).append(values)
        for (ip, port), copies in copies_of.items():
            contenders = [one for one in copies if not (one["conditions"] or {}).get("terminating")] or copies
            if any(one != contenders[0] for one in contenders):
                return f"{name} has several {ip} at {port}"
    return ""


def claimed_ips(service: Json) -> set[str]:
    """The addresses that a Service's author chose; the API server chooses the others."""
    texts = [*(service["spec"].get("externalIPs") or ()), *(one["ip"] for one in ingress(service))]
    return {ip for text in texts if (ip := canonical_ip(text.strip())) is not None}


def ingress(service: Json) -> list[Json]:
    """The load balancer addresses in a Service's status."""
    found = service.get("status", {}).get("loadBalancer", {}).get("ingress") or []
    return [one for one in found if one.get("ip")]


class Drawing:
    """Draws into one namespace."""

    def __init__(self, rng: random.Random, drawn: DrawnNamespace) -> None:
        self.rng = rng
        self.drawn = drawn

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def add_service(self, name: str) -> None:
        """A Service with its slices; drawn anew while its rules would be left to chance."""
        while True:
            trial = deepcopy(self.drawn)
            inner = Drawing(self.rng, trial)
            trial.services[name] = inner.service(name)
            for family in _FAMILIES:
                for number in range(inner.rng.choice((0, 1, 1, 1, 1, 2, 2, 3))):
                    one = inner.slice(name, family, number)
                    trial.slices[one["metadata"]["name"]] = one
            if not rules_left_to_chance(trial):
                self.drawn.services, self.drawn.slices = trial.services, trial.slices
                return

    def service(self, name: str) -> Json:
        kind = self.rng.choices(
            ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"), weights=(50, 18, 30, 2)
        )[0]
        spec: Json = {"type": kind, "ports": self.ports()}
        made: Json = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": self.drawn.name, "labels": self.labels()},
            "spec": spec,
        }
        if self.chance(0.3):
            spec["externalIPs"] = self.external_ips(name)
        if kind == "ExternalName":
            spec["externalName"] = "elsewhere.example.com"
            return made
        if kind == "ClusterIP" and self.chance(0.04):
            spec["clusterIP"] = "None"
            return made
        policy, families = self.rng.choice(
            (
                *(("SingleStack", ["IPv4"]), ("SingleStack", ["IPv6"])),
                *(("RequireDualStack", ["IPv4", "IPv6"]), ("RequireDualStack", ["IPv6", "IPv4"])),
            )
        )
        spec |= {"ipFamilyPolicy": policy, "ipFamilies": families}
        spec |= self.affinity()
        if self.chance(0.3):
            spec["internalTrafficPolicy"] = self.policy()
        if self.chance(0.2):
            spec["trafficDistribution"] = self.rng.choice(("PreferClose", "PreferSameZone", "PreferSameNode"))
        if self.chance(0.1):
            spec["publishNotReadyAddresses"] = True
        if (kind != "ClusterIP" or "externalIPs" in spec) and self.chance(0.5):
            spec["externalTrafficPolicy"] = self.policy()
        if kind == "LoadBalancer":
            if self.chance(0.3):
                spec["allocateLoadBalancerNodePorts"] = False
            if self.chance(0.5):
                spec["loadBalancerSourceRanges"] = self.ranges()
            made["status"] = {"loadBalancer": {"ingress": self.ingress(name, spec.get("externalIPs", ()))}}
        return made

    def labels(self) -> Json:
        if self.chance(0.02):
            return {"service.kubernetes.io/service-proxy-name": "another"}
        return {"app": "any"}

    def ports(self) -> list[Json]:
        count = self.rng.choice((1, 1, 1, 2, 2, 3))
        made: dict[tuple[int, str], Json] = {}
        for number in range(count):
            port, protocol = self.rng.choice(SERVICE_PORTS), self.rng.choice(_PROTOCOLS)
            made[port, protocol] = {"name": f"p{number}", "port": port, "protocol": protocol}
        if len(made) == 1 and self.chance(0.5):
            next(iter(made.values())).pop("name")
        return list(made.values())

    def affinity(self) -> Json:
        if self.chance(0.85):
            return {"sessionAffinity": "None"}
        return {
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": self.rng.choice((600, 10800, 86400))}},
        }

    def policy(self) -> str:
        return self.rng.choice(("Local", "Local", "Cluster"))

    def ranges(self) -> list[str]:
        return self.rng.sample(_RANGES, self.rng.choice((1, 1, 2, 3)))

    def external_ips(self, service: str) -> list[str]:
        return [self._written(self._outer(self._slot(service))) for _ in range(self.rng.choice((1, 1, 2, 3)))]

    def ingress(self, service: str, external_ips: tuple[str, ...] | list[str]) -> list[Json]:
        made: list[Json] = []
        for _ in range(self.rng.choice((0, 1, 1, 1, 2))):
            one: Json = {"ip": self._outer(100 + self._slot(service))}
            if external_ips and self.chance(0.05):
                one["ip"] = self.rng.choice(external_ips)
            if self.chance(0.4):
                one["ipMode"] = self.rng.choice(("VIP", "Proxy"))
            made.append(one)
        if self.chance(0.1):
            made.append({"hostname": "balancer.example.com"})
        return made

    def slice(self, service: str, family: str, number: int) -> Json:
        labels = {"kubernetes.io/service-name": service}
        style = self.hint_style()
        used = {
            canonical_ip(endpoint["addresses"][0])
            for one in self.drawn.slices_of(service)
            for endpoint in one["endpoints"]
        }
        endpoints = [self.endpoint(family, style) for _ in range(self.rng.choice((0, 1, 1, 2, 2, 3, 4, 5)))]
        endpoints = [one for one in endpoints if canonical_ip(one["addresses"][0]) not in used]
        siblings = [one for one in self.drawn.slices_of(service) if one["addressType"] == family]
        known = [*endpoints, *(siblings[0]["endpoints"] if siblings else ())]
        if known and self.chance(0.25):
            endpoints.insert(self.rng.randint(0, len(endpoints)), self.twin(self.rng.choice(known), style))
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{service}-{family.lower()}-{number}",
                "namespace": self.drawn.name,
                "labels": labels,
            },
            "addressType": family,
            "ports": self.slice_ports(service),
            "endpoints": endpoints,
        }

    def twin(self, endpoint: Json, style: tuple[str, ...]) -> Json:
        """Another endpoint of that address: the same one, which moves to another slice and is in both for a
        while, or one pod that ends and another that was given its address already."""
        made = deepcopy(endpoint)
        if self.chance(0.3):
            return made
        made["nodeName"] = self.node_of(made["addresses"][0])
        made["hints"] = self.hints(style)
        if (made.get("conditions") or {}).get("terminating"):
            made["conditions"] = {"ready": self.chance(0.8), "serving": True}
        else:
            made["conditions"] = {"ready": False, "serving": self.chance(0.5), "terminating": True}
        return made

    def node_of(self, ip: str) -> str:
        """A node for an endpoint; for a probing pod's address the pod's.

        In mode nftables kube-proxy 1.36 masquerades what a pod sends to itself only if the endpoint is known
        to be on the node.
        """
        homes = (node for node, ips in zip(NODES, PODS, strict=False) if canonical_ip(ip) in ips)
        return next(homes, None) or self.rng.choice(NODES)

    def slice_ports(self, service: str) -> list[Json]:
        made = []
        for port in self.drawn.services[service]["spec"]["ports"]:
            if self.chance(0.04):
                continue
            one: Json = {"port": self.rng.choice(ENDPOINT_PORTS), "protocol": port["protocol"]}
            if "name" in port:
                one["name"] = port["name"]
            if self.chance(0.03):
                one["protocol"] = self.rng.choice(("TCP", "UDP", "SCTP"))
            if self.chance(0.02):
                one.pop("port")
            made.append(one)
        if self.chance(0.05):
            made.append({"name": "elsewhere", "port": 1, "protocol": "TCP"})
        return made

    def hint_style(self) -> tuple[str, ...]:
        """Which hints the endpoints of a slice have."""
        return self.rng.choices(
            ((), ("forZones",), ("forNodes",), ("forZones", "forNodes")), weights=(55, 20, 12, 13)
        )[0]

    def endpoint(self, family: str, style: tuple[str, ...]) -> Json:
        ip = self._inner(family)
        # The API server accepts IPv6 addresses in slices only in canonical form.
        made: Json = {"addresses": [ip if family == "IPv6" else self._written(ip)]}
        if self.chance(0.03):
            made["addresses"].append(self._inner(family))
        if self.chance(0.85) or any(ip in ips for ips in PODS):
            made["nodeName"] = self.node_of(ip)
        if self.chance(0.5):
            made["zone"] = self.rng.choice(ZONES)
        conditions = self.conditions()
        if conditions or self.chance(0.5):
            made["conditions"] = conditions
        hints = self.hints(style)
        if hints:
            made["hints"] = hints
        return made

    def conditions(self) -> Json:
        ready, serving, terminating = self.rng.choices(
            (
                *((True, True, False), (None, None, None), (True, None, None)),
                *((False, True, True), (False, False, True), (False, False, False), (False, True, False)),
                *((False, None, None), (True, False, None), (None, None, True), (False, None, True)),
            ),
            weights=(40, 10, 10, 14, 6, 8, 3, 4, 1, 2, 2),
        )[0]
        drawn = {"ready": ready, "serving": serving, "terminating": terminating}
        return {key: value for key, value in drawn.items() if value is not None}

    def hints(self, style: tuple[str, ...]) -> Json:
        made: Json = {}
        for kind, names in (("forZones", ZONES), ("forNodes", NODES)):
            if kind in style and not self.chance(0.04):
                chosen = self.rng.sample(names, self.rng.choice((1, 1, 1, 2)))
                made[kind] = [{"name": name} for name in chosen]
        return made

    def _slot(self, service: str) -> int:
        """The first number of the Service's addresses; sometimes that of the shared ones."""
        return 90 if self.chance(0.1) else 8 * int(service.partition("-")[2])

    def _outer(self, slot: int) -> str:
        """An external or a load balancer address of this namespace."""
        number = slot + self.rng.randint(1, 3)
        if self.chance(0.5):
            return f"fd00:ffff:{self.drawn.index + 1:x}::{number:x}"
        return f"100.{64 + self.drawn.index // 250}.{self.drawn.index % 250}.{number}"

    def _inner(self, family: str) -> str:
        """An endpoint's address; sometimes that of a probing pod."""
        is_six = family == "IPv6"
        if self.chance(0.04):
            return self.rng.choice(PODS)[is_six]
        number = self.rng.randint(1, 9)
        if is_six:
            return f"fd00:eeee:{self.drawn.index + 1:x}::{number:x}"
        return f"10.{128 + self.drawn.index // 250}.{self.drawn.index % 250}.{number}"

    def _written(self, ip: str) -> str:
        """The address, sometimes in a non-canonical form."""
        if not self.chance(0.04):
            return ip
        if ":" in ip:
            return ip.upper().replace("::", ":0::")
        first, rest = ip.split(".", 1)
        return self.rng.choice((f"0{first}.{rest}", f"::ffff:{ip}"))
