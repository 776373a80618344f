# SPDX-License-Identifier: Apache-2.0
"""Where pods show the address of their vNode, what of a vNode has which pods planned again."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from daemonkit.kube.resources import NAMESPACES, NODES, PODS, SERVICES
from daemonkit.kube.store import Modified
from devkit.kube.storage import Object
from syncer.caches.cached_object import parse
from syncer.config import VnAgentConfig
from syncer.tenant.session import TenantSession
from syncer.vnodes.desired import AgentAddress
from tests.unit.syncer import objects
from tests.unit.syncer.planes import Plane, grow
from tests.unit.syncer.worlds import World, sessions_of, synced_tenant

pytestmark = pytest.mark.asyncio

AGENT = "10.96.0.9"
SHOWS_AGENT = VnAgentConfig(address=AgentAddress.SERVICE)
PODS_OF_TENANT = tuple(objects.pod(f"p{number}") for number in range(4))


async def _with_agent(world: World, address: str = AGENT) -> None:
    world.super.storage.put(NAMESPACES, {"metadata": {"name": "vc-manager"}})
    meta = {"namespace": "vc-manager", "name": "vn-agent"}
    world.super.storage.put(SERVICES, {"metadata": meta, "spec": {"clusterIP": address}})
    await asyncio.sleep(20)


def _hosts(plane: Plane) -> dict[str, str]:
    return {name: each["status"].get("hostIP", "") for (_, name), each in plane.objects(PODS).items()}


def _change(session: TenantSession, name: str, change: Callable[[Object], None]) -> set[str]:
    """Have the session see a vNode changed. Returns the names of the pods that it has planned again."""
    old = session.caches.nodes.objects["", name]
    value = old.load()
    change(value)
    new = parse(msgspec.json.encode(value))
    session.nodes_changed([Modified(("", name), old, new)])
    pods = session.caches.reflectors["Pod"].objects
    return {name for _, name in pods if session.waits.is_woken(("Pod", "web", name))}


def _other_address(vnode: Object) -> None:
    vnode["status"]["addresses"] = [{"type": "InternalIP", "address": "192.0.2.1"}]


def _other_label(vnode: Object) -> None:
    vnode["metadata"]["labels"]["color"] = "blue"


def _not_ours(vnode: Object) -> None:
    vnode["metadata"]["annotations"] = {}


def _other_condition(vnode: Object) -> None:
    vnode["status"]["conditions"] = []
    vnode["metadata"]["annotations"]["example.com/seen"] = "1"


@pytest.mark.parametrize(
    ("change", "is_read"),
    [(_other_address, True), (_other_label, True), (_not_ours, True), (_other_condition, False)],
)
async def test_a_vnode_brings_the_pods_on_it_if_what_they_read_changes(
    change: Callable[[Object], None], is_read: bool
) -> None:
    async with synced_tenant(*PODS_OF_TENANT, vn_agent=SHOWS_AGENT) as (world, plane):
        await _with_agent(world)
        nodes = {name: each["spec"]["nodeName"] for (_, name), each in plane.objects(PODS).items()}
        assert len(set(nodes.values())) == 2
        on_it = {name for name, node in nodes.items() if node == "node-0"}
        assert _change(sessions_of(world)["red"], "node-0", change) == (on_it if is_read else set())


async def test_pods_show_the_address_that_the_agent_gets() -> None:
    async with synced_tenant(*PODS_OF_TENANT, vn_agent=SHOWS_AGENT) as (world, plane):
        await _with_agent(world)
        assert set(_hosts(plane).values()) == {AGENT}
        await _with_agent(world, "10.96.0.10")
        assert set(_hosts(plane).values()) == {"10.96.0.10"}


async def test_pods_keep_the_address_of_a_vnode_that_cannot_be_read() -> None:
    """It is not known to have none. What the tenant changes of them goes down all the same."""
    async with synced_tenant(*PODS_OF_TENANT, vn_agent=SHOWS_AGENT) as (world, plane):
        await _with_agent(world)
        for _, name in plane.objects(NODES):
            grow(plane.storage, NODES, "", name)
        await asyncio.sleep(40)
        assert set(_hosts(plane).values()) == {AGENT}
        pod = plane.storage.get(PODS, "web", "p0")
        pod["spec"]["containers"][0]["image"] = "i:2"
        plane.storage.replace(PODS, pod)
        await asyncio.sleep(5)
        assert world.super.storage.get(PODS, "red-web", "p0")["spec"]["containers"][0]["image"] == "i:2"
        assert world.status()["one"]["notSynced"] == []
