# SPDX-License-Identifier: Apache-2.0
import asyncio
from collections.abc import Callable

import pytest

from daemonkit.kube.resources import NAMESPACES, NODES, SECRETS, SERVICES
from syncer.core.plan import Side
from syncer.core.unknown import Unknown
from syncer.core.view import View
from syncer.tenant.view import TenantView
from syncer.tenant.waits import Lookup
from tenancy import keys
from tests.unit.syncer import objects
from tests.unit.syncer.planes import TOO_LARGE, grow
from tests.unit.syncer.worlds import ENDPOINTS, sessions_of, synced_tenant

pytestmark = pytest.mark.asyncio


async def test_who_looks_into_a_super_namespace_looks_at_it() -> None:
    """What is in it is the tenant's no longer than the Namespace is."""
    async with synced_tenant(objects.pod("p")) as (world, _):
        session = sessions_of(world)["red"]
        looks: list[Callable[[TenantView], object]] = [
            lambda view: view.in_super("Pod", "web", "p"),
            lambda view: view.super_services("web"),
            lambda view: view.pod_addresses("web"),
            lambda view: view.drain_seconds("web"),
            lambda view: view.super_namespace("web"),
        ]
        for look in looks:
            view = session.view()
            look(view)
            assert (Side.SUPER, "Namespace", "", "web") in view.looked


# By each method of a View that looks for something: of which object, and how.
_LOOKS: dict[str, tuple[Lookup, Callable[[TenantView], object]]] = {
    "in_tenant": (
        (Side.TENANT, "Secret", "web", "x"),
        lambda view: view.in_tenant("Secret", "web", "x"),
    ),
    "tenant_uid": (
        (Side.TENANT, "Secret", "web", "x"),
        lambda view: view.tenant_uid("Secret", "web", "x"),
    ),
    "tenant_keys": (
        (Side.TENANT, "Secret", "web", "x"),
        lambda view: view.tenant_keys("Secret", "web", "x"),
    ),
    "in_super": (
        (Side.SUPER, "Service", "web", "s"),
        lambda view: view.in_super("Service", "web", "s"),
    ),
    "super_namespace": (
        (Side.TENANT, "Namespace", "", "big"),
        lambda view: view.super_namespace("big"),
    ),
    "vnode_labels": ((Side.TENANT, "Node", "", "n"), lambda view: view.vnode_labels("n")),
}
# The same, of what comes up alone: nothing that goes down waits for it.
_LOOKS_UP: dict[str, tuple[Lookup, Callable[[TenantView], object]]] = {
    "vnode_addresses": ((Side.TENANT, "Node", "", "n"), lambda view: view.vnode_addresses("n")),
}
_NOT_HELD = {
    "super_pod": "proves whose an address is, and unknown is no proof",
    "pod_addresses": "proves whose an address is, and unknown is no proof",
    "api_server_addresses": "proves whose an address is, and unknown is no proof",
    "cluster_networks": "of Nodes that cannot be read the networks stay",
    "others_hold": "of pods that cannot be read the addresses stay unknown: they have none",
    "drain_seconds": "of Nodes and pods that cannot be read stays what was known",
    "super_services": "variables of a Service that cannot be read are left out: it stops no pod",
    "tenant_namespace": "of Namespaces of the super cluster that cannot be read the owner stays",
    "is_reserved_name": "looks for nothing",
    "tenant_text": "looks for nothing",
    "tenant": "looks for nothing",
    "policy": "looks for nothing",
    "policy_wait": "a change of the policy has all objects planned again",
    "settings": "looks for nothing",
}


async def test_each_look_up_notes_what_cannot_be_read() -> None:
    assert {each for each in vars(View) if not each.startswith("_")} == {*_LOOKS, *_LOOKS_UP, *_NOT_HELD}
    async with synced_tenant(objects.service("s", ports=[{"port": 80}])) as (world, plane):
        plane.cluster.create(NAMESPACES, {"metadata": {"name": "big"}})
        plane.storage.put(NODES, {"metadata": {"name": "n"}})
        plane.cluster.create(SECRETS, {"metadata": {"namespace": "web", "name": "x"}, "data": {}})
        await asyncio.sleep(5)
        view = sessions_of(world)["red"].view()
        for _, look in (*_LOOKS.values(), *_LOOKS_UP.values()):
            assert not isinstance(look(view), Unknown)
        assert view.unknown == set()
        for storage, resource, namespace, name in (
            (plane.storage, SECRETS, "web", "x"),
            (world.super.storage, SERVICES, "red-web", "s"),
            (plane.storage, NAMESPACES, "", "big"),
            (plane.storage, NODES, "", "n"),
        ):
            grow(storage, resource, namespace, name)
        await asyncio.sleep(5)
        for where, look in (*_LOOKS.values(), *_LOOKS_UP.values()):
            view = sessions_of(world)["red"].view()
            expected = Unknown(*where, TOO_LARGE)
            assert look(view) == expected
            assert where in view.looked
            assert view.unknown == ({expected} if (where, look) in _LOOKS.values() else set())


async def test_an_address_that_the_api_server_had_leads_nowhere() -> None:
    """The Service of a tenant's control plane gets another address; the former may be anybody's next."""
    async with synced_tenant() as (world, plane):
        own = {"namespace": "red", "name": "apiserver", "labels": {keys.VC_NAME: "one"}}
        world.super.cluster.create(NAMESPACES, {"metadata": {"name": "red"}})
        world.super.storage.put(SERVICES, {"metadata": own, "spec": {"clusterIP": "10.96.7.1"}})
        subsets = [{"addresses": [{"ip": "10.96.7.1"}]}]
        meta = {"namespace": "default", "name": "kubernetes"}
        plane.cluster.create(ENDPOINTS, {"metadata": meta, "subsets": subsets})
        await asyncio.sleep(5)
        assert ("red-default", "kubernetes") in world.super.objects(ENDPOINTS)
        world.super.storage.put(SERVICES, {"metadata": own, "spec": {"clusterIP": "10.96.7.2"}})
        await asyncio.sleep(5)
        assert ("red-default", "kubernetes") not in world.super.objects(ENDPOINTS)
