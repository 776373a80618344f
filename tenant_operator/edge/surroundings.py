# SPDX-License-Identifier: Apache-2.0
"""What an operator reaches outside itself: API servers, nodes and clocks. Tests put fakes in their place."""

import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from daemonkit.kube.client import ApiClient, Client
from daemonkit.kube.credentials import Credentials
from daemonkit.kube.foreign_hosts import ForeignHosts
from daemonkit.kube.kubeconfig import Access, in_cluster, load
from tenant_operator.model.objects import OPERATOR

# Of the super cluster, as many as are reconciled at once, and one for the Lease.
MAX_IDLE = 9


def open_super(path: Path | None, environment: Mapping[str, str]) -> ApiClient:
    """A client by a kubeconfig, or by the pod's service account. Raises CredentialsError."""

    def access() -> Access:
        return in_cluster(environment) if path is None else load(path)

    credentials = Credentials(access, watched=() if path is None else (path,))
    return Client(credentials, user_agent=OPERATOR, max_idle=MAX_IDLE, repeats_writes=True)


def open_tenant(access: Access) -> ApiClient:
    """A client of a tenant's API server. Raises CredentialsError."""
    return Client(Credentials(lambda: access), user_agent=OPERATOR, max_idle=1, repeats_writes=True)


def open_import(access: Access, super_server: str) -> ApiClient:
    """A client of an API server that the author of a VirtualCluster names. Raises CredentialsError."""
    resolve = ForeignHosts(lambda: super_server).resolve
    credentials = Credentials(lambda: access)
    return Client(credentials, user_agent=OPERATOR, max_idle=1, repeats_writes=True, resolve=resolve)


class OperatorSurroundings(msgspec.Struct, frozen=True):
    """`monotonic` and `wall` are in seconds, `jitter` draws from 0 to 1."""

    open_super: Callable[[Path | None, Mapping[str, str]], ApiClient] = open_super
    open_tenant: Callable[[Access], ApiClient] = open_tenant
    open_import: Callable[[Access, str], ApiClient] = open_import
    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    jitter: Callable[[], float] = random.random
