# SPDX-License-Identifier: Apache-2.0
"""A process of its own: one replica that writes a ConfigMap for each tenant whenever it may.

python writing_replica.py KUBECONFIG NAME TENANT...
"""

import asyncio
import contextlib
import os
import sys
from pathlib import Path

import msgspec

from daemonkit.kube.client import ApiError, Client, UnreachableError
from daemonkit.kube.resources import CONFIG_MAPS
from daemonkit.tasks import Tasks
from syncer.sharding.fenced_client import FencedClient
from syncer.sharding.lease_objects import LeaseNames
from syncer.sharding.replica import Replica

NAMES = LeaseNames("vc-manager", "vc-syncer")
INTERVAL_S = 0.02


async def write(client: FencedClient, replica: str, tenant: str, number: int) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{replica}-{os.getpid()}-{number}", "namespace": "default"},
        "data": {"replica": replica, "tenant": tenant},
    }
    await client.request("POST", CONFIG_MAPS.path("default"), {}, msgspec.json.encode(body))


async def run(kubeconfig: Path, name: str, tenants: list[str]) -> None:
    tasks = Tasks("replica")
    async with Client.from_kubeconfig(kubeconfig) as leases, Client.from_kubeconfig(kubeconfig) as client:
        replica = Replica(leases, NAMES, name, f"{name}_{os.getpid()}", lambda: None)
        tasks.spawn(replica.run(), "leases")
        number = 0
        while True:
            for tenant in tenants:
                if replica.may_write(tenant):
                    number += 1
                    with contextlib.suppress(ApiError, UnreachableError):
                        await write(FencedClient(client, replica, tenant), name, tenant, number)
            await asyncio.sleep(INTERVAL_S)  # pace: of its writes


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
