# SPDX-License-Identifier: Apache-2.0
"""The cluster IPs and node ports of one server's Services, and the defaults of a Service."""

import ipaddress
from typing import Any

from daemonkit.kube.resources import SERVICES
from devkit.kube.storage import Object, invalid

_NODE_PORTS = range(30_000, 32_768)
_WITH_NODE_PORTS = ("NodePort", "LoadBalancer")


class ServiceAddresses:
    """Hands out addresses in order; the first of the range is the API server's own."""

    def __init__(self, cidr: str) -> None:
        self._network = ipaddress.ip_network(cidr)
        self._next_ip = 0
        self._next_port = 0
        self._ips: set[str] = set()
        self._ports: set[int] = set()

    def default(self, value: Object, old: Object | None) -> None:
        """Complete a Service before it is stored. Raises StatusError 422."""
        name, spec = value["metadata"]["name"], value.setdefault("spec", {})
        before: Object = {} if old is None else old["spec"]
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port["port"])
        if spec["type"] == "ExternalName":
            self.free(before)
            return
        spec.setdefault("internalTrafficPolicy", "Cluster")
        spec.setdefault("ipFamilies", before.get("ipFamilies") or ["IPv4"])
        spec.setdefault("ipFamilyPolicy", before.get("ipFamilyPolicy") or "SingleStack")
        self._take_ip(name, spec, before.get("clusterIP", ""))
        if spec["type"] in _WITH_NODE_PORTS:
            spec.setdefault("externalTrafficPolicy", "Cluster")
        self._take_ports(name, spec, before)

    def free(self, spec: Object) -> None:
        """Take back the addresses of a Service that is no more."""
        self._ips.discard(spec.get("clusterIP", ""))
        self._ports -= _node_ports(spec)

    def _take_ip(self, name: str, spec: Object, old_ip: str) -> None:
        wanted = spec.get("clusterIP") or next(iter(spec.get("clusterIPs") or ()), "") or old_ip
        if old_ip and wanted != old_ip:
            raise invalid(
                SERVICES, name, f"spec.clusterIPs[0]: Invalid value: {wanted}: may not change once set"
            )
        if wanted and wanted != "None" and wanted != old_ip:
            why = f"spec.clusterIPs: Invalid value: {wanted}: failed to allocate IP {wanted}: "
            if ipaddress.ip_address(wanted) not in self._network:
                raise invalid(SERVICES, name, why + "the provided network does not match the current range")
            if wanted in self._ips:
                raise invalid(SERVICES, name, why + "provided IP is already allocated")
        spec["clusterIP"] = wanted or self._free_ip()
        spec["clusterIPs"] = [spec["clusterIP"]]
        if spec["clusterIP"] != "None":
            self._ips.add(spec["clusterIP"])

    def _free_ip(self) -> str:
        while True:
            self._next_ip = self._next_ip % (self._network.num_addresses - 2) + 1
            found = str(self._network[self._next_ip])
            if found not in self._ips:
                return found

    def _take_ports(self, name: str, spec: Object, before: Object) -> None:
        kept = _node_ports(before)
        has_ports = spec["type"] in _WITH_NODE_PORTS and spec.get("allocateLoadBalancerNodePorts", True)
        old = {_port_key(port): port.get("nodePort") for port in before.get("ports") or ()}
        taken: set[int] = set()
        for at, port in enumerate(spec.get("ports") or ()):
            if not has_ports:
                port.pop("nodePort", None)
                continue
            number = port.get("nodePort") or old.get(_port_key(port)) or self._free_port()
            if number in taken or (number in self._ports and number not in kept):
                why = (
                    f"spec.ports[{at}].nodePort: Invalid value: {number}: provided port is already allocated"
                )
                raise invalid(SERVICES, name, why)
            port["nodePort"] = number
            taken.add(number)
        self._ports = self._ports - kept | taken

    def _free_port(self) -> int:
        while True:
            found = _NODE_PORTS[self._next_port % len(_NODE_PORTS)]
            self._next_port += 1
            if found not in self._ports:
                return found


def _node_ports(spec: Object) -> set[int]:
    return {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}


def _port_key(port: Object) -> tuple[Any, ...]:
    return port.get("protocol", "TCP"), port["port"]
