# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import pytest

from syncer.core.plan import Side
from syncer.tenant.view import TenantView
from tests.unit.syncer import objects
from tests.unit.syncer.worlds import sessions_of, synced_tenant

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
