# SPDX-License-Identifier: Apache-2.0
"""The super cluster as a source, ready to run: a client for the kubeconfig around each watch.

This is the only door from the daemon to aiohttp; a node that does not watch never opens it.
"""

from collections.abc import Callable
from pathlib import Path

from daemonkit.kube.client import Client
from tenancy.ownership import ContainerPolicy
from vnagent.sources.port import PublishPods, PublishTenants, Source
from vnagent.sources.super_pods import SuperPods
from vnagent.sources.super_tenants import SuperTenants


class _Connected:
    """A source together with the client that it speaks through, closed when the source ends."""

    def __init__(self, kubeconfig: Path, make: Callable[[Client], Source]) -> None:
        self._client = Client.from_kubeconfig(kubeconfig, user_agent="vn-agent")
        self._source = make(self._client)

    async def run(self) -> None:
        async with self._client:
            await self._source.run()

    def age_s(self) -> float | None:
        return self._source.age_s()


def tenants(kubeconfig: Path, publish: PublishTenants) -> Source:
    """Tenants from VirtualCluster objects and their Secrets. Raises KubeconfigError."""
    return _Connected(kubeconfig, lambda client: SuperTenants(client, publish))


def pods(kubeconfig: Path, node_name: str, policy: ContainerPolicy, publish: PublishPods) -> Source:
    """This node's pods from a watch. Raises KubeconfigError."""
    return _Connected(kubeconfig, lambda client: SuperPods(client, node_name, policy, publish))
