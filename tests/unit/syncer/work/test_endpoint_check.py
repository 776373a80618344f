# SPDX-License-Identifier: Apache-2.0
"""A tenant that nobody plans for has nothing that leads to another's pod."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from daemonkit.kube.client import UnreachableError
from daemonkit.kube.resources import ENDPOINT_SLICES, PODS, VIRTUAL_CLUSTERS
from devkit.kube.storage import Object
from syncer.policy.addresses import CountedNetworks, networks
from syncer.work.endpoint_check import has_foreign_address
from tests.unit.syncer import objects
from tests.unit.syncer.worlds import ENDPOINTS, World, furnish, running

_POD = {"kind": "Pod", "name": "p"}


def _slice(address: str, **entry: Any) -> Object:
    return {"endpoints": [{"addresses": [address], **entry}]}


def _endpoints(address: str, *, field: str = "addresses", **entry: Any) -> Object:
    return {"subsets": [{field: [{"ip": address, **entry}]}]}


@pytest.mark.parametrize("make", [_slice, _endpoints])
@pytest.mark.parametrize(
    ("address", "entry", "expected"),
    [
        ("10.244.0.1", {"targetRef": _POD}, False),
        ("10.244.0.2", {"targetRef": _POD}, True),
        ("10.244.0.9", {"targetRef": _POD}, True),
        ("10.244.0.1", {}, False),
        ("10.244.0.2", {}, True),
        ("::ffff:10.244.0.1", {}, False),
        ("::ffff:10.244.0.2", {}, True),
        ("FD00:0::2", {}, True),
        ("fd00:0:0::1", {"targetRef": _POD}, False),
        ("no address", {}, False),
        ("203.0.113.1", {}, False),
        ("203.0.113.1", {"targetRef": {"kind": "Node"}}, False),
    ],
)
def test_foreign_addresses(make: Callable[..., Object], address: str, entry: Object, expected: bool) -> None:
    """Own is .1, another tenant's .2, and nobody's .9."""
    holders = {"10.244.0.1": "red", "fd00::1": "red", "10.244.0.2": "blue", "fd00::2": "blue"}
    value = make(address, **entry)
    own = {"10.244.0.1", "fd00::1"}
    assert has_foreign_address(value, own, "red", holders, CountedNetworks()) == expected


@pytest.mark.parametrize("make", [_slice, _endpoints])
@pytest.mark.parametrize(
    ("name", "address", "expected"),
    [
        ("web", "10.244.0.1", False),
        ("web", "10.244.0.9", True),
        ("web", "10.245.0.9", False),
        ("kubernetes", "10.244.0.9", False),
    ],
)
def test_a_pod_of_nobodys_is_foreign(
    make: Callable[..., Object], name: str, address: str, expected: bool
) -> None:
    """It may be one of the super cluster's own; the tenant's API server may be one of them too."""
    cluster = CountedNetworks(networks(["10.244.0.0/24"]))
    value = make(address) | {"metadata": {"namespace": "default", "name": name}}
    assert has_foreign_address(value, {"10.244.0.1"}, "red", {}, cluster) == expected


def test_addresses_that_are_not_ready_count() -> None:
    value = _endpoints("10.244.0.2", field="notReadyAddresses")
    assert has_foreign_address(value, (), "red", {"10.244.0.2": "blue"}, CountedNetworks())


def _goes_away(world: World) -> None:
    world.tenants["one"].failures.extend([UnreachableError("connect")] * 100_000)


def _does_not_run(world: World) -> None:
    cluster = world.super.storage.get(VIRTUAL_CLUSTERS, "tenants", "one")
    cluster["status"]["phase"] = "Pending"
    world.super.storage.put(VIRTUAL_CLUSTERS, cluster)


@pytest.mark.asyncio
@pytest.mark.parametrize("ends", [_goes_away, _does_not_run])
async def test_endpoints_end_with_their_pods_without_plans(ends: Callable[[World], None]) -> None:
    world = World({"one": "red", "two": "blue"})
    async with running(world):
        furnish(world.tenants["one"], objects.service("s"), *(objects.pod(name) for name in ("p", "q")))
        furnish(world.tenants["two"], objects.pod("other"))
        await asyncio.sleep(20)
        own = {
            key[1]: each["status"]["podIP"]
            for key, each in world.super.objects(PODS).items()
            if key[0] == "red-web"
        }
        plane = world.tenants["one"]
        for name in ("p", "q"):
            ref = {"kind": "Pod", "namespace": "web", "name": name}
            labels = {"kubernetes.io/service-name": "s"}
            meta: Object = {"namespace": "web", "name": name}
            each = {"addresses": [own[name]]}
            plane.cluster.create(
                ENDPOINT_SLICES,
                {
                    "kind": "EndpointSlice",
                    "addressType": "IPv4",
                    "metadata": meta | {"labels": labels},
                    "endpoints": [each],
                },
            )
            subsets = [{"addresses": [{"ip": own[name], "targetRef": ref}]}]
            plane.cluster.create(ENDPOINTS, {"kind": "Endpoints", "metadata": meta, "subsets": subsets})
        await asyncio.sleep(20)
        assert {key[1] for key in world.super.objects(ENDPOINTS)} == {"p", "q"}
        await world.kill_syncer()
        ends(world)
        pod = world.super.storage.get(PODS, "red-web", "p")
        pod["status"]["phase"] = "Succeeded"
        world.super.storage.put(PODS, pod)
        other = world.super.storage.get(PODS, "blue-web", "other")
        other["status"] |= {"podIP": own["p"], "podIPs": [{"ip": own["p"]}]}
        world.super.storage.put(PODS, other)
        world.start_syncer()
        await asyncio.sleep(60)
        for resource in (ENDPOINTS, ENDPOINT_SLICES):
            assert {key[1] for key in world.super.objects(resource)} == {"q"}
        assert world.problems == []
