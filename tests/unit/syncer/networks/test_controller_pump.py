# SPDX-License-Identifier: Apache-2.0
"""Work for one tenant's Networks grows with their number, and no faster: a tenant may make any number."""

import asyncio

from syncer.networks.controller import MAX_NETWORKS
from syncer.networks.objects import NETWORK, NetworkSettings
from tests.pump import Sizes, steps, superlinear
from tests.unit.conftest import VirtualTimeLoop
from tests.unit.syncer.networks.test_controller import TenantEnvironment

_LISTED, _MADE, _OTHERS = "listed", "made", "providers'"


async def _serve(sizes: Sizes) -> None:
    """As many as are served, and beyond them what is pumped: in the first list, or made one by one."""
    environment = TenantEnvironment(NetworkSettings(makes_default=False))
    for n in range(MAX_NETWORKS):
        environment.add(f"a-{n:03}", "mizar")
    for n in range(sizes.get(_LISTED, 0)):
        environment.add(f"listed-{n}")
    for n in range(sizes.get(_OTHERS, 0)):
        environment.add(f"other-{n}", "mizar")
    await environment.start(1.0)
    for n in range(sizes.get(_MADE, 0)):
        environment.add(f"made-{n}")
        await asyncio.sleep(1.0)
    await asyncio.sleep(700.0)  # a round of all of them
    for n in range(sizes.get(_MADE, 0)):
        environment.plane.storage.delete(NETWORK.resource, "", f"made-{n}")
        await asyncio.sleep(1.0)
    assert not any(each.endswith("/services") for each in environment.plane.requests)
    await environment.close()


def test_work_for_networks_grows_with_their_number() -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(_serve({_LISTED: 1, _MADE: 1}))  # what is made once

        def measure(sizes: Sizes) -> int:
            return steps(lambda: runner.run(_serve(sizes)))

        assert superlinear(measure, (_LISTED, _MADE, _OTHERS), first=16, noise=8_000) == []
