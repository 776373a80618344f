# SPDX-License-Identifier: Apache-2.0
"""Creates pods in tenants: `python -m tests.bench.syncer.loader --count N --prefix P KUBECONFIG...`.

With a rate it is an open loop: pod number n is due n / rate seconds after the start, whatever became of the
others. Without one it creates as fast as the API servers let it. Pods go to the tenants in turn.
"""

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from daemonkit.kube.client import Client
from daemonkit.kube.resources import PODS
from tests.bench.syncer.clients import Object, client_of, create

NAMESPACE = "web"
# As many as keep a few API servers on two processors busy.
_WORKERS = 16


def pod(name: str) -> Object:
    """A pod without a service account's token, which ends at once."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "bench"}},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {"name": "main", "image": "registry.test/app:1", "resources": {"requests": {"cpu": "10m"}}}
            ],
        },
    }


async def load(clients: Sequence[Client], count: int, prefix: str, rate: float) -> None:
    """Create `count` pods, named by their numbers."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    numbers = iter(range(count))
    async with asyncio.TaskGroup() as group:
        for _ in range(_WORKERS):
            group.create_task(_work(clients, numbers, prefix, begun_s, rate))


async def _work(
    clients: Sequence[Client], numbers: Iterator[int], prefix: str, begun_s: float, rate: float
) -> None:
    loop = asyncio.get_running_loop()
    for number in numbers:
        if rate:
            await asyncio.sleep(max(0.0, begun_s + number / rate - loop.time()))
        client = clients[number % len(clients)]
        await create(client, PODS.path(NAMESPACE), pod(f"{prefix}{number}"))


async def _main(arguments: argparse.Namespace) -> None:
    clients = [client_of(path) for path in arguments.kubeconfigs]
    try:
        await load(clients, arguments.count, arguments.prefix, arguments.rate)
    finally:
        for client in clients:
            await client.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.syncer.loader", description=__doc__)
    parser.add_argument("kubeconfigs", nargs="+", type=Path, help="of tenants")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--rate", type=float, default=0.0, help="pods a second")
    asyncio.run(_main(parser.parse_args()))
