# SPDX-License-Identifier: Apache-2.0
"""What an operator reaches outside itself: API servers, nodes and clocks. Tests put fakes in their place."""

import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from daemonkit.kube.byte_budget import ByteBudget
from daemonkit.kube.client import ApiClient, Client, HostResolver
from daemonkit.kube.credentials import Credentials
from daemonkit.kube.kubeconfig import Access, in_cluster, load
from daemonkit.kube.resources import KubeObject
from daemonkit.kube.shared_budget import SharedBudget
from tenant_operator.model.objects import OPERATOR

# Of the super cluster, as many as are reconciled at once, and one for the Lease.
MAX_IDLE = 9
# Of answers under way, of all tenants and nodes together: each is held in parts, and joined beside them.
MAX_ANSWERS_BYTES = 48 << 20
# Of API servers that others made.
MAX_IMPORT_BYTES = 16 << 20


def open_super(path: Path | None, environment: Mapping[str, str]) -> ApiClient:
    """A client by a kubeconfig, or by the pod's service account. Raises CredentialsError."""

    def access() -> Access:
        return in_cluster(environment) if path is None else load(path)

    credentials = Credentials(access, watched=() if path is None else (path,))
    return Client(credentials, user_agent=OPERATOR, max_idle=MAX_IDLE, repeats_writes=True)


class _CountedClient(Client):
    """Its answers count until it is closed."""

    def __init__(
        self, access: Access, budget: ByteBudget[KubeObject], resolve: HostResolver | None = None
    ) -> None:
        super().__init__(
            Credentials(lambda: access),
            user_agent=OPERATOR,
            max_idle=1,
            repeats_writes=True,
            received=budget,
            resolve=resolve,
        )
        self._budget = budget

    async def close(self) -> None:
        await super().close()
        self._budget.close()


class CountedClients:
    """Clients of API servers that answer what their tenants like. What they hold of answers under way is
    bounded for all of them together, and divided among them."""

    def __init__(self, limit_bytes: int) -> None:
        self.shared = SharedBudget(limit_bytes)

    def open_tenant(self, access: Access) -> ApiClient:
        """A client of a tenant's API server. Raises CredentialsError."""
        return _CountedClient(access, self._budget())

    def open_import(self, access: Access, resolve: HostResolver) -> ApiClient:
        """A client of an API server that the author of a VirtualCluster names, at addresses that `resolve`
        gives. Raises CredentialsError."""
        return _CountedClient(access, self._budget(), resolve)

    def _budget(self) -> ByteBudget[KubeObject]:
        return ByteBudget(self.shared.limit_bytes, lambda _: 0, shared=self.shared)


class OperatorSurroundings(msgspec.Struct, frozen=True):
    """`monotonic` and `wall` are in seconds, `jitter` draws from 0 to 1."""

    open_super: Callable[[Path | None, Mapping[str, str]], ApiClient] = open_super
    open_tenant: Callable[[Access], ApiClient] = msgspec.field(
        default_factory=lambda: CountedClients(MAX_ANSWERS_BYTES).open_tenant
    )
    open_import: Callable[[Access, HostResolver], ApiClient] = msgspec.field(
        default_factory=lambda: CountedClients(MAX_IMPORT_BYTES).open_import
    )
    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    jitter: Callable[[], float] = random.random
