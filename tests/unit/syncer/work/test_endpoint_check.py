# SPDX-License-Identifier: Apache-2.0
"""A tenant that nobody plans for has nothing that leads to another's pod."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from daemonkit.kube.client import UnreachableError
from daemonkit.kube.resources import ENDPOINT_SLICES, PODS, VIRTUAL_CLUSTERS
from devkit.kube.storage import Object
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
        ("203.0.113.1", {}, False),
        ("203.0.113.1", {"targetRef": {"kind": "Node"}}, False),
    ],
)
def test_foreign_addresses(make: Callable[..., Object], address: str, entry: Object, expected: bool) -> None:
    """Own is .1, another tenant's .2, and nobody's .9."""
    holders = {"10.244.0.1": "red", "10.244.0.2": "blue"}
    assert has_foreign_address(make(address, **entry), {"10.244.0.1"}, "red", holders) == expected


def test_addresses_that_are_not_ready_count() -> None:
    value = _endpoints("10.244.0.2", field="notReadyAddresses")
    assert has_foreign_address(value, (), "red", {"10.244.0.2": "blue"})


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
