# SPDX-License-Identifier: Apache-2.0
"""A tenant without plans has nothing that leads to another's pod."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemonkit.kube.client import UnreachableError
from daemonkit.kube.resources import ENDPOINT_SLICES, PODS, VIRTUAL_CLUSTERS
from devkit.kube.storage import Object
from devkit.syncer.fake_view import FakeView
from syncer.kinds.endpoints import endpoint_refusals
from syncer.policy.addresses import CountedNetworks, networks
from syncer.policy.sync_policy import DEFAULT, EndpointPolicy, PolicyUnusable, SyncPolicy
from syncer.sources.policies import SYNC_POLICIES
from syncer.work.endpoint_check import has_foreign_address
from tests.unit.syncer import objects
from tests.unit.syncer.kinds.objects import super_object
from tests.unit.syncer.worlds import ENDPOINTS, World, furnish, running


def _slice(address: str, **entry: Any) -> Object:
    return {"endpoints": [{"addresses": [address], **entry}]}


def _endpoints(address: str, *, field: str = "addresses", **entry: Any) -> Object:
    return {"subsets": [{field: [{"ip": address, **entry}]}]}


# A pod in its node's network has no address of its own.
_PODS: Mapping[str, tuple[str, ...]] = {"p": ("10.244.0.1", "fd00::1"), "on-host": ()}
_OWN = frozenset(_PODS["p"])
# Of others: red is the judged tenant. 10.9.0.4 and 198.51.100.4 are what an operator may open to it.
_HOLDERS = {
    "10.244.0.1": "red",
    "fd00::1": "red",
    "10.244.0.2": "blue",
    "fd00::2": "blue",
    "198.51.100.2": "blue",
    "10.9.0.4": "blue",
}
_UNKNOWN = PolicyUnusable("SyncPolicies are not synced")


def _opened(*texts: str) -> SyncPolicy:
    return replace(DEFAULT, endpoints=EndpointPolicy(allowed_cidrs=networks(texts)))


def _is_foreign(value: Object, policy: SyncPolicy | PolicyUnusable, cluster: Sequence[str] = ()) -> bool:
    named = {"metadata": {"namespace": "default", "name": "s"}} | value
    networks_of_cluster = CountedNetworks(networks(cluster))
    return has_foreign_address(named, policy, _OWN, _PODS.get, _is_of_others, networks_of_cluster)


def _is_of_others(address: str) -> bool:
    return _HOLDERS.get(address, "red") != "red"


@pytest.mark.parametrize("make", [_slice, _endpoints])
@pytest.mark.parametrize(
    ("address", "target", "is_foreign", "is_foreign_if_unknown"),
    [
        ("10.244.0.1", "p", False, False),
        ("10.244.0.1", None, False, False),
        ("10.244.0.1", "gone", False, False),
        ("::ffff:10.244.0.1", None, False, False),
        ("fd00:0:0::1", "p", False, False),
        ("10.244.0.2", "p", True, True),
        ("10.244.0.2", None, True, True),
        ("::ffff:10.244.0.2", None, True, True),
        ("FD00:0::2", None, True, True),
        ("198.51.100.2", None, True, True),
        ("10.244.0.9", "p", True, True),
        ("10.244.0.9", "gone", True, True),
        ("10.244.0.9", "on-host", True, False),
        ("10.244.0.9", None, True, False),
        ("203.0.113.1", None, False, False),
        ("169.254.169.254", None, True, True),
        ("no address", None, True, False),
    ],
)
def test_foreign_addresses(
    make: Callable[..., Object],
    address: str,
    target: str | None,
    is_foreign: bool,
    is_foreign_if_unknown: bool,
) -> None:
    """Own is .1, another tenant's .2, and nobody's .9. What a policy may have opened stays without one."""
    value = make(address, **({} if target is None else {"targetRef": {"kind": "Pod", "name": target}}))
    assert _is_foreign(value, DEFAULT) == is_foreign
    assert _is_foreign(value, _UNKNOWN) == is_foreign_if_unknown


@pytest.mark.parametrize("make", [_slice, _endpoints])
@pytest.mark.parametrize("target", [{}, {"targetRef": {"kind": "Pod", "name": "gone"}}])
@pytest.mark.parametrize(
    ("opened", "address", "is_foreign"),
    [
        ("10.9.0.0/16", "10.9.0.3", False),
        ("10.9.0.0/16", "10.9.0.4", False),
        ("10.9.0.0/16", "10.244.0.2", True),
        ("198.51.100.0/24", "198.51.100.2", False),
        ("10.0.0.0/8", "10.244.0.9", True),
        ("10.244.0.0/24", "10.244.0.9", False),
        ("0.0.0.0/0", "169.254.169.254", True),
    ],
)
def test_what_the_policy_opens_is_not_foreign(
    make: Callable[..., Object], target: Object, opened: str, address: str, is_foreign: bool
) -> None:
    """As for plans: pods of the super cluster, in 10.244.0.0/24, are opened by a network that is no wider."""
    assert _is_foreign(make(address, **target), _opened(opened), ["10.244.0.0/24"]) == is_foreign


@pytest.mark.parametrize("make", [_slice, _endpoints])
@pytest.mark.parametrize(
    ("name", "address", "expected"),
    [
        ("web", "192.0.2.1", False),
        ("web", "192.0.2.9", True),
        ("kubernetes", "192.0.2.9", False),
        ("kubernetes", "198.51.100.2", True),
    ],
)
def test_a_pod_of_nobodys_is_foreign(
    make: Callable[..., Object], name: str, address: str, expected: bool
) -> None:
    """It may be one of the super cluster's own; the tenant's API server may be one of them too."""
    value = make(address) | {"metadata": {"namespace": "default", "name": name}}
    assert _is_foreign(value, DEFAULT, ["192.0.2.8/29"]) == expected


_STRANGE = ("::ffff:10.244.0.2", "::ffff:198.51.100.2", "FD00:0::2", "::ffff:203.0.113.1", "no address")
_OF_NOBODY = ("10.244.0.9", "10.9.0.3", "192.0.2.9", "203.0.113.1", "169.254.169.254")
_TEXTS = st.sampled_from([*sorted(_OWN), *_HOLDERS, *_OF_NOBODY, *_STRANGE])
_V4 = ("10.0.0.0/8", "10.9.0.0/16", "10.244.0.0/24", "198.51.100.0/24", "203.0.113.0/24", "192.0.2.8/29")
_CIDRS = st.lists(st.sampled_from([*_V4, "fd00::/8", "0.0.0.0/0", "::/0"]), max_size=3)
_ENTRIES = st.lists(st.tuples(_TEXTS, st.sampled_from([None, "p", "on-host", "gone"])), max_size=3)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from([_slice, _endpoints]), _ENTRIES, _CIDRS, _CIDRS, _CIDRS)
def test_the_check_is_the_rule_of_plans(
    make: Callable[..., Object],
    entries: list[tuple[str, str | None]],
    opened: list[str],
    denied: list[str],
    cluster: list[str],
) -> None:
    """In every world: else a plan makes anew what the check deletes, or it leaves what no plan lets down."""
    made = [
        make(each, **({} if target is None else {"targetRef": {"kind": "Pod", "name": target}}))
        for each, target in entries
    ]
    meta = {"metadata": {"namespace": "ns", "name": "s"}}
    value: Object = dict(meta)
    for one in made:
        for name, listed in one.items():
            value[name] = [*value.get(name, []), *listed]
    limits = EndpointPolicy(allowed_cidrs=networks(opened), denied_cidrs=networks(denied))
    policy = replace(DEFAULT, endpoints=limits)
    of_cluster = CountedNetworks(networks(cluster))
    held = frozenset(address for address, key in _HOLDERS.items() if key != "red")
    pods = [
        super_object("Pod", name, status={"phase": "Running", "podIPs": [{"ip": each} for each in addresses]})
        for name, addresses in _PODS.items()
    ]
    view = FakeView(policy=policy, super_objects=pods, super_networks=of_cluster, held=held)
    is_refused = bool(endpoint_refusals(value, view))
    assert has_foreign_address(value, policy, _OWN, _PODS.get, _is_of_others, of_cluster) == is_refused


@pytest.mark.parametrize("policy", [DEFAULT, _UNKNOWN])
def test_addresses_that_are_not_ready_count(policy: SyncPolicy | PolicyUnusable) -> None:
    assert _is_foreign(_endpoints("10.244.0.2", field="notReadyAddresses"), policy)


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


def _open_to_tenants(world: World, cidr: str) -> None:
    policy: Object = {
        "apiVersion": "vcnode.io/v1alpha1",
        "kind": "SyncPolicy",
        "metadata": {"namespace": "tenants", "name": "default"},
        "spec": {"endpoints": {"allowedCIDRs": [cidr]}},
    }
    world.super.storage.put(SYNC_POLICIES, policy)


def _stays(world: World) -> None:
    assert world.super.storage.get(SYNC_POLICIES, "tenants", "default")


def _cannot_be_read(world: World) -> None:
    policy = world.super.storage.get(SYNC_POLICIES, "tenants", "default")
    policy["spec"] = {"endpoints": {"allowedCIDRs": ["no network"]}}
    world.super.storage.put(SYNC_POLICIES, policy)


def _is_taken_back(world: World) -> None:
    world.super.storage.delete(SYNC_POLICIES, "tenants", "default")


@pytest.mark.asyncio
@pytest.mark.parametrize("ends", [_goes_away, _does_not_run])
@pytest.mark.parametrize(
    ("policy", "kept"),
    [(_stays, {"opened"}), (_cannot_be_read, {"opened"}), (_is_taken_back, set())],
)
async def test_what_a_policy_opens_stays_without_plans(
    ends: Callable[[World], None], policy: Callable[[World], None], kept: set[str]
) -> None:
    world = World({"one": "red", "two": "blue"})
    _open_to_tenants(world, "10.9.0.0/16")
    async with running(world):
        plane = world.tenants["one"]
        furnish(plane, objects.pod("p"))
        furnish(world.tenants["two"], objects.pod("other"))
        await asyncio.sleep(20)
        own = str(world.super.storage.get(PODS, "red-web", "p")["status"]["podIP"])
        for name, address in (("opened", "10.9.0.3"), ("pod", own)):
            subsets = [{"addresses": [{"ip": address}]}]
            meta: Object = {"namespace": "web", "name": name}
            plane.cluster.create(ENDPOINTS, {"kind": "Endpoints", "metadata": meta, "subsets": subsets})
        await asyncio.sleep(20)
        assert {key[1] for key in world.super.objects(ENDPOINTS)} == {"opened", "pod"}
        await world.kill_syncer()
        ends(world)
        policy(world)
        world.super.storage.delete(PODS, "red-web", "p")
        other = world.super.storage.get(PODS, "blue-web", "other")
        other["status"] |= {"podIP": own, "podIPs": [{"ip": own}]}
        world.super.storage.put(PODS, other)
        world.start_syncer()
        await asyncio.sleep(60)
        assert {key[1] for key in world.super.objects(ENDPOINTS)} == kept
        assert world.problems == []


@pytest.mark.asyncio
@pytest.mark.parametrize("has_plans", [True, False])
async def test_an_address_outside_that_is_a_pods_is_no_more(*, has_plans: bool) -> None:
    """Nodes say nothing of their networks, and pods have public addresses."""
    world = World({"one": "red", "two": "blue"})
    async with running(world):
        plane = world.tenants["one"]
        furnish(plane, objects.pod("p"))
        furnish(world.tenants["two"], objects.pod("other"))
        await asyncio.sleep(20)
        for name, address in (("moved", "203.0.113.7"), ("outside", "203.0.113.8")):
            subsets = [{"addresses": [{"ip": address}]}]
            meta: Object = {"namespace": "web", "name": name}
            plane.cluster.create(ENDPOINTS, {"kind": "Endpoints", "metadata": meta, "subsets": subsets})
        await asyncio.sleep(10)
        assert {key[1] for key in world.super.objects(ENDPOINTS)} == {"moved", "outside"}
        if not has_plans:
            await world.kill_syncer()
            _goes_away(world)
            world.start_syncer()
        other = world.super.storage.get(PODS, "blue-web", "other")
        before = other["status"]
        other["status"] = before | {"podIP": "203.0.113.7", "podIPs": [{"ip": "203.0.113.7"}]}
        world.super.storage.put(PODS, other)
        await asyncio.sleep(5 if has_plans else 60)
        assert {key[1] for key in world.super.objects(ENDPOINTS)} == {"outside"}
        other = world.super.storage.get(PODS, "blue-web", "other")
        world.super.storage.put(PODS, other | {"status": before})
        await asyncio.sleep(5)
        expected = {"moved", "outside"} if has_plans else {"outside"}
        assert {key[1] for key in world.super.objects(ENDPOINTS)} == expected
        assert world.problems == []
