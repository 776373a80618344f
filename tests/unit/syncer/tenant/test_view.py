# SPDX-License-Identifier: Apache-2.0
import asyncio
from collections.abc import Callable

import pytest

from daemonkit.kube.resources import NAMESPACES, SERVICES
from syncer.core.plan import Side
from syncer.tenant.view import TenantView
from tenancy import keys
from tests.unit.syncer import objects
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
            lambda view: view.super_namespace("web"),
        ]
        for look in looks:
            view = session.view()
            look(view)
            assert (Side.SUPER, "Namespace", "", "web") in view.looked


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
