# SPDX-License-Identifier: Apache-2.0
"""The super cluster as a source, from the path of a kubeconfig on.

This module loads the API client: import it only where the super cluster is a source.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from daemonkit import logs
from daemonkit.kube.client import Client
from daemonkit.kube.credentials import CredentialsError
from daemonkit.remedies import Cause, Hop
from tenancy.ownership import ContainerPolicy
from vnagent.core.source_status import Failure
from vnagent.sources import super_pods, super_tenants
from vnagent.sources.port import Confirmation, PublishPods, PublishTenants, RunningSource
from vnagent.sources.super_pods import SuperPods
from vnagent.sources.super_tenants import SuperTenants
from vnagent.tenants.rotation import Rotation

# A credential that is written after boot is there within seconds.
RETRY_S = 5.0

_log = logs.get(__name__)


def tenants(kubeconfig: Path, publish: PublishTenants, rotations: Mapping[str, Rotation]) -> RunningSource:
    """A source of the super cluster's tenants; `rotations` are those of before a restart."""
    return _SourceWithClient(
        kubeconfig, super_tenants.HOP, lambda client: SuperTenants(client, publish, rotations=rotations)
    )


def pods(kubeconfig: Path, node_name: str, policy: ContainerPolicy, publish: PublishPods) -> RunningSource:
    """A source of the tenant pods on the node `node_name`."""
    return _SourceWithClient(
        kubeconfig, super_pods.HOP, lambda client: SuperPods(client, node_name, policy, publish)
    )


class _SourceWithClient:
    """A source with a client of its own.

    It waits for a usable kubeconfig: a restarted agent serves its saved state meanwhile.
    """

    def __init__(self, kubeconfig: Path, hop: Hop, make: Callable[[Client], RunningSource]) -> None:
        self._kubeconfig = kubeconfig
        self._hop = hop
        self._make = make
        self._source: RunningSource | None = None
        self._confirmation = Confirmation(time.monotonic)

    def age_s(self) -> float | None:
        return None if self._source is None else self._source.age_s()

    def failure(self) -> Failure | None:
        return self._confirmation.failure() if self._source is None else self._source.failure()

    async def run(self) -> None:
        async with await self._client() as client:
            self._source = self._make(client)
            await self._source.run()

    async def _client(self) -> Client:
        known = ""
        while True:
            try:
                return Client.from_kubeconfig(self._kubeconfig, user_agent="vn-agent")
            except CredentialsError as error:
                reason = f"kubeconfig {self._kubeconfig}: {error}"
                self._confirmation.fail(self._hop.fault(Cause.CONFIGURATION, reason))
                if str(error) != known:
                    known = str(error)
                    _log.error("kubeconfig is invalid: correct it, it is read again", reason=known)
            await asyncio.sleep(RETRY_S)
