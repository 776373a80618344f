# SPDX-License-Identifier: Apache-2.0
"""The work for one Service and its EndpointSlice grows as they do, with each list, map and text of both.

A rule is needed for each address and port, and for each endpoint and port: these two products are what
kube-proxy has too, and `rule_limit` bounds them. So ports are pumped apart from addresses and endpoints.
"""

import json
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import msgspec
import pytest

from kubeproxy_ext.cache import transform
from kubeproxy_ext.compute import objects
from kubeproxy_ext.compute.guest_view import GuestView
from kubeproxy_ext.compute.service_state import ServiceState
from kubeproxy_ext.compute.stale_flows import stale_flows
from ruleset.model import Family
from ruleset.render import iptables, nft
from tenancy import keys
from tests.pump import Schema, Sizes, peak_bytes, steps, superlinear
from tests.unit.kubeproxy_ext.compute import builders

T = TypeVar("T")

_VIEW = GuestView("A", (), ("10.1.0.2",), "here", "a", ("172.30.0.0/16",), Family.IPV4)


def _number(where: str) -> int:
    return int(where.rpartition(".")[2])


def _ip(prefix: str) -> Callable[[str], str]:
    return lambda where: f"{prefix}.{_number(where) // 200}.{_number(where) % 200 + 1}"


def _of_two(first: str, second: str) -> Callable[[str], str]:
    return lambda where: second if _number(where) % 2 else first


_SERVICE = Schema(
    "Service",
    {
        "metadata.name": "s",
        "metadata.namespace": "A-web",
        "spec.type": "LoadBalancer",
        "spec.clusterIP": "172.30.0.41",
        "spec.clusterIPs[]": _of_two("172.30.0.41", "fd00:172::41"),
        "spec.ipFamilies[]": _of_two("IPv4", "IPv6"),
        "spec.externalIPs[]": _ip("11.0"),
        "spec.loadBalancerSourceRanges[]": lambda where: f"10.{_number(where) % 256}.0.0/16",
        "spec.ports[].name": lambda where: f"p{_number(where)}",
        "spec.ports[].port": lambda where: _number(where) + 1,
        "spec.ports[].protocol": _of_two("UDP", "TCP"),
        "spec.sessionAffinity": "ClientIP",
        "status.loadBalancer.ingress[].ip": _ip("11.1"),
        "status.loadBalancer.ingress[].ipMode": "VIP",
    },
)
_SLICE = Schema(
    "EndpointSlice",
    {
        "metadata.name": "s-1",
        "metadata.namespace": "A-web",
        "addressType": "IPv4",
        # The first address counts: each endpoint has one of its own.
        "endpoints[].addresses[]": lambda where: _ip("10.2")(".".join(where.split(".")[:2])),
        "ports[].name": lambda where: f"p{_number(where)}",
        "ports[].port": lambda where: _number(where) + 8000,
        "ports[].protocol": _of_two("UDP", "TCP"),
    },
)
_OWN = ("service own clusterIP", "service own clusterIPs")
_PLACES = (
    *(f"service {place}" for place in _SERVICE.places()),
    *(f"slice {place}" for place in _SLICE.places()),
    *_OWN,
)
_PORTS = {"service spec.ports", "slice ports"}
_MULTIPLIED = {"service spec.externalIPs", "service status.loadBalancer.ingress", "slice endpoints"}


def _below(sizes: Sizes, kind: str) -> Sizes:
    return {place.removeprefix(f"{kind} "): size for place, size in sizes.items() if place.startswith(kind)}


def _objects(sizes: Sizes) -> tuple[objects.ServiceObject, objects.EndpointSliceObject]:
    """As the API server sends them."""
    service = _SERVICE.object(_below(sizes, "service"), text=str)
    many = [",10.96.0.9" * sizes.get(place, 0) for place in _OWN]
    service["metadata"]["annotations"] |= {
        keys.CLUSTER_IP: f"10.96.0.7{many[0]}",
        keys.CLUSTER_IPS: f"10.96.0.7{many[1]}",
    }
    one = _SLICE.object(_below(sizes, "slice"), text=str)
    one["metadata"]["labels"]["kubernetes.io/service-name"] = "s"
    return _decoded(service, objects.ServiceObject), _decoded(one, objects.EndpointSliceObject)


def _decoded(value: dict[str, Any], kind: type[T]) -> T:
    return msgspec.json.decode(json.dumps(value), type=kind)


def _work(service: objects.ServiceObject, one: objects.EndpointSliceObject) -> None:
    """All that is done with them: for a guest without rules, and for one that has them."""
    state = ServiceState()
    state.put_namespace(builders.namespace("A-web", "A", "web"))
    state.put_slice(transform.endpoint_slice(one))
    state.put_service(transform.service(service))
    before = state.result_for(_VIEW)
    assert before.rules.services
    state.put_slice(
        transform.endpoint_slice(msgspec.structs.replace(one, endpoints=(one.endpoints or [])[1:]))
    )
    state.take_changed_groups()
    after = state.result_for(_VIEW)
    for each in (None, before):
        stale_flows(each, after)
    iptables.render(before.rules)
    nft.render(before.rules)
    state.problems()
    state.services_with_address("A", "11.0.0.1")


def _measured(sizes: Sizes) -> int:
    made = _objects(sizes)
    return steps(lambda: _work(*made))


@pytest.mark.parametrize("apart", [_PORTS, _MULTIPLIED], ids=["without ports", "without addresses"])
def test_work_grows_as_the_objects_do(apart: Collection[str]) -> None:
    # Families and protocols take turns, and addresses that were read are kept for others.
    assert superlinear(_measured, _PLACES, tolerated=apart, first=6, noise=120) == []


@pytest.mark.parametrize("apart", [_PORTS, _MULTIPLIED], ids=["without ports", "without addresses"])
def test_memory_grows_as_the_objects_do(apart: Collection[str]) -> None:
    places = [place for place in _PLACES if place not in apart]

    def peak(size: int) -> int:
        made = _objects(dict.fromkeys(places, size))
        # Addresses that were read are kept for others.
        _work(*made)
        return peak_bytes(lambda: _work(*made))

    one, two, four = (peak(size) for size in (50, 100, 200))
    assert four - two < 3 * (two - one)
