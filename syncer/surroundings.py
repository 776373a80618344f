# SPDX-License-Identifier: Apache-2.0
"""What a syncer reaches outside itself: API servers, vn-agents and clocks. Tests put fakes in their place."""

import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from daemonkit.fairness.scheduler import TenantScheduler
from daemonkit.kube.client import ApiClient, Client, HostResolver, ReceivedBytes
from daemonkit.kube.credentials import Credentials
from daemonkit.kube.kubeconfig import Access, in_cluster, load
from daemonkit.run import memory_limit
from daemonkit.run.memory_limit import MemoryLimit
from daemonkit.run.process_limits import return_free_pages
from syncer.vnodes.super_nodes import AgentProbe
from syncer.vnodes.tls_probe import TlsAgentProbe

COMPONENT = "vc-syncer"


class ProvenClient(ApiClient, Protocol):
    """A client that keeps the addresses where its server has proved by TLS to be who it is."""

    @property
    def peer_addresses(self) -> frozenset[str]: ...


def open_super(
    path: Path | None, environment: Mapping[str, str], max_idle: int, user_agent: str
) -> ProvenClient:
    """A client by a kubeconfig, or by the pod's service account. Raises CredentialsError."""

    def access() -> Access:
        return in_cluster(environment) if path is None else load(path)

    watched = () if path is None else (path,)
    credentials = Credentials(access, watched=watched)
    return Client(credentials, user_agent=user_agent, max_idle=max_idle, repeats_writes=True)


def open_tenant(
    credentials: Credentials,
    max_idle: int,
    user_agent: str,
    received: ReceivedBytes,
    resolve: HostResolver | None,
) -> ProvenClient:
    """A client of a tenant's API server. `received` counts what it holds, and `resolve` has the addresses
    that are dialled (`Client`)."""
    return Client(
        credentials,
        user_agent=user_agent,
        max_idle=max_idle,
        repeats_writes=True,
        received=received,
        resolve=resolve,
    )


OpenTenant = Callable[[Credentials, int, str, ReceivedBytes, HostResolver | None], ProvenClient]


class Surroundings(msgspec.Struct, frozen=True):
    """`monotonic` and `wall` are in seconds, `jitter` draws from 0 to 1. `scheduler` measures tenants' steps
    by clocks of its own. `return_free_pages` has the allocator give freed memory back."""

    open_super: Callable[[Path | None, Mapping[str, str], int, str], ProvenClient] = open_super
    open_tenant: OpenTenant = open_tenant
    probe: AgentProbe = msgspec.field(default_factory=TlsAgentProbe)
    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    jitter: Callable[[], float] = random.random
    memory_limit: Callable[[], MemoryLimit | None] = memory_limit.find
    scheduler: Callable[[], TenantScheduler] = TenantScheduler
    return_free_pages: Callable[[], object] = return_free_pages
