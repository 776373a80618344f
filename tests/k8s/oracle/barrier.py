# SPDX-License-Identifier: Apache-2.0
"""Waits until a kube-proxy has written all earlier changes, as packets show.

A Service and its slices are created last. kube-proxy receives objects of a kind in the order of their
writes, and each sync writes all that it has received. Once packets to the new Service reach its endpoint,
all earlier changes are written. IPv4 and IPv6 have syncs of their own, so both are probed.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from ruleset.model import Endpoint, Protocol
from tests.k8s.oracle.changes import SERVICES, SLICES
from tests.k8s.oracle.draw import ZONES, Json
from tests.k8s.oracle.prober import ProbedFlow, Prober
from tests.k8s.oracle.store import Store
from tests.k8s.ring.processes import wait_for

_NAMESPACE = "barriers"
_PORT = 80
_WRITTEN_S = 120.0
_ZONED = "zoned"
_FIRST_ZONE = 60_000


class Barrier:
    """`probers` are those of the sides that kube-proxies write."""

    def __init__(self, store: Store, probers: Sequence[Prober]) -> None:
        self._store = store
        self._probers = probers
        self._number = 0
        store.put_namespace(_NAMESPACE)
        hinted = {
            number: {"hints": {"forZones": [{"name": zone}]}}
            for number, zone in enumerate(ZONES, _FIRST_ZONE)
        }
        self._zoned = self._make(_ZONED, hinted)

    def wait(self) -> None:
        """Raises RingError if a kube-proxy does not sync in time."""
        self._number += 1
        flows = self._make(f"barrier-{self._number}", {self._number: {}})
        for prober in self._probers:
            self._wait(f"{prober.side.name} has written all", prober, flows, self._number)
        if self._number > 1:
            before = f"barrier-{self._number - 1}"
            self._store.delete(SERVICES, _NAMESPACE, before)
            for family in ("ipv4", "ipv6"):
                self._store.delete(SLICES, _NAMESPACE, f"{before}-{family}")

    def wait_zone(self, prober: Prober, zone: str) -> None:
        """Wait until the kube-proxy of that side uses this zone. Raises RingError."""
        number = _FIRST_ZONE + ZONES.index(zone)
        self._wait(f"{prober.side.name} is in {zone}", prober, self._zoned, number)

    def _wait(self, what: str, prober: Prober, flows: Sequence[ProbedFlow], number: int) -> None:
        """Until these flows end at the endpoint of that number alone."""
        ends = {flow: Endpoint(_address(number, ":" in flow.destination), _PORT) for flow in flows}
        wait_for(what, partial(_is_there, prober, ends), timeout_s=_WRITTEN_S)

    def _make(self, name: str, endpoints: Mapping[int, Json]) -> list[ProbedFlow]:
        """A Service with these endpoints, by their numbers, in both families; the flows to it."""
        service = self._store.create(SERVICES, _service(name))
        flows = []
        for ip in service["spec"]["clusterIPs"]:
            self._store.create(SLICES, _slice(name, endpoints, is_six=":" in ip))
            flows.append(ProbedFlow(Protocol.TCP, ip, _PORT))
        return flows


def _is_there(prober: Prober, ends: Mapping[ProbedFlow, Endpoint]) -> bool:
    # More than once each: one of three endpoints may be the right one by chance.
    seen = prober.probe([(flow, 16) for flow in ends])
    return all(one.ends == {end} for one, end in zip(seen, ends.values(), strict=True))


def _address(number: int, is_six: bool) -> str:
    return f"fd00:eeee:ffff::{number:x}" if is_six else f"10.127.{number >> 8}.{number & 255}"


def _service(name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": _NAMESPACE},
        "spec": {"ipFamilyPolicy": "RequireDualStack", "ports": [{"port": _PORT, "protocol": "TCP"}]},
    }


def _slice(name: str, endpoints: Mapping[int, Json], *, is_six: bool) -> Json:
    family = "IPv6" if is_six else "IPv4"
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{name}-{family.lower()}",
            "namespace": _NAMESPACE,
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": family,
        "ports": [{"port": _PORT, "protocol": "TCP"}],
        "endpoints": [
            {"addresses": [_address(number, is_six)], **more} for number, more in endpoints.items()
        ],
    }
