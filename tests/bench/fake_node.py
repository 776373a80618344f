# SPDX-License-Identifier: Apache-2.0
"""Schedules and runs the pods of a real API server, without containers, until it is interrupted.

python -m tests.bench.fake_node --kubeconfig FILE [--nodes 3] [--start-delay 0.5]
"""

import argparse
import asyncio
import contextlib
from pathlib import Path

from daemonkit.kube.client import Client
from devkit.syncer.fake_node import FakeNode


async def run(kubeconfig: Path, names: list[str], start_delay_s: float, max_requests: int) -> None:
    """Register the nodes, and be their kubelets."""
    async with Client.from_kubeconfig(kubeconfig, user_agent="fake-node", max_idle=max_requests) as client:
        node = FakeNode(client, names, start_delay_s=start_delay_s, max_requests=max_requests)
        await node.register()
        await node.run()


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--start-delay", type=float, default=0.0, help="seconds until a bound pod runs")
    parser.add_argument("--max-requests", type=int, default=16, help="requests that are under way at once")
    asked = parser.parse_args()
    names = [f"fake-node-{number}" for number in range(asked.nodes)]
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(asked.kubeconfig, names, asked.start_delay, asked.max_requests))


if __name__ == "__main__":
    main()
