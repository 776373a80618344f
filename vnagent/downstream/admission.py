# SPDX-License-Identifier: Apache-2.0
"""Who a client is once its handshake is done, and whether its tenant has room for the connection.

Connections without a tenant have slots of their own, and the costs of their handshakes are charged to
accounts (`daemonkit.admission.handshake_accounts`).
"""

import time
from typing import Protocol

from daemonkit.admission.connection_slots import ConnectionSlots
from daemonkit.admission.handshake_accounts import HandshakeAccounts, HandshakeCost
from daemonkit.fairness.lease import Lease
from daemonkit.tls.contexts import TlsError, verified_chain
from daemonkit.tls.openssl import end_inspection
from tenancy import identity
from tenancy.registry import Registry
from vnagent.core.access import Caller
from vnagent.core.bearer_token import VerifiedToken
from vnagent.state import AgentState
from vnagent.transport.tls_connection import TlsConnection

# Connections with TLS that count for no tenant: in their handshake on the loop, without a registered leaf,
# or above a tenant's limit. Each costs 43 KB. The next one evicts the oldest of the address
# that has most; an honest one is among them for milliseconds.
MAX_UNCOUNTED = 256
# Of these, those whose handshake is done and had more than so many bytes: OpenSSL keeps a chain as up to 54
# times its bytes. An honest one has 2 to 4 KB, and leaves with its answer.
MAX_HEAVY, HEAVY_BYTES = 16, 4096
# Hellos and chains of a tenant's live connections and streams: a name of 2 bytes takes 107. So that is 220
# MiB at worst, and 1 000 connections of a Go client with a chain of 2 KB: its hello has 1.5 KB.
MAX_TENANT_HANDSHAKE_BYTES = 4 << 20
# An apiserver shows the same certificate on every connection; parsing it costs 50 us.
MAX_IDENTIFIED = 256


class Admitted(Protocol):
    """What admission uses of a client's connection, and sets once its handshake is done."""

    transport: TlsConnection
    client_address: str
    caller: Caller
    identity: object
    is_on_loop: bool
    loop_lease: Lease | None

    def __hash__(self) -> int: ...

    def abort(self) -> None: ...


class Admission:
    """Admits connections to the tenants of `state`."""

    def __init__(self, state: AgentState, accounts: HandshakeAccounts) -> None:
        self.accounts = accounts
        self._state = state
        # By a digest: the chains are the clients' to choose, and may have 12 KiB each.
        self._identified: dict[str, identity.Identified] = {}
        self._identified_by: Registry | None = None
        self._uncounted: ConnectionSlots[Admitted] = ConnectionSlots(MAX_UNCOUNTED)
        self._heavy: ConnectionSlots[Admitted] = ConnectionSlots(MAX_HEAVY)

    def begin(self, connection: Admitted) -> None:
        """Give a new connection a slot among those without a tenant."""
        if connection.is_on_loop:
            connection.loop_lease = self.accounts.begin_on_loop(connection.client_address)
        self._evict(self._uncounted.add(connection, connection.client_address))

    def admit(self, connection: Admitted) -> Lease | None:
        """Identify the client of a completed handshake. Returns its place among its tenant's connections,
        None if it has none."""
        tls = connection.transport.tls
        try:
            chain = verified_chain(tls) if tls is not None else ()
        except TlsError:
            chain = ()
        found = self._identify(chain)
        cost = self.charge(connection, identity.fingerprint(chain[-1]) if chain else "")
        connection.identity = found
        if isinstance(found, identity.Unregistered):
            connection.caller = Caller(None, None, found.spki)
            self._bound_heavy(connection)
            return None
        connection.caller = Caller(found.tenant, found.role, found.spki)
        if connection.is_on_loop:
            # Its tenant is known by the handshake alone: the tenant's sockets owe the time to other tenants.
            self._state.account_of(found.tenant).charge(int(cost.cpu_s * 1e9))
        return self._count(connection, found.tenant)

    def admit_without_certificate(self, connection: Admitted) -> None:
        """A handshake on a port for tokens is done. The client is unknown until it has shown one."""
        self.charge(connection, "")
        connection.caller = Caller(None, None, "")
        self._bound_heavy(connection)
        tls = connection.transport.tls
        if tls is not None:
            end_inspection(tls)

    def admit_token(self, connection: Admitted, token: VerifiedToken) -> Lease | None:
        """The client of a connection has shown its first valid token. Returns as `admit`."""
        return self._count(connection, token.tenant)

    def _count(self, connection: Admitted, tenant: str) -> Lease | None:
        transport, state = connection.transport, self._state
        usage = state.usage_of(tenant)
        usage.exchange()
        handshake_bytes = usage.handshake_bytes + usage.peer_handshake_bytes + transport.handshake_bytes
        is_light = handshake_bytes <= MAX_TENANT_HANDSHAKE_BYTES
        lease = usage.lease(usage.connections, state.limits.connections) if is_light else None
        if lease is None:
            self._bound_heavy(connection)
            return None
        transport.bind(usage)
        transport.join(state.poller.group_of(tenant, usage))
        self.accounts.assign(connection.client_address, tenant)
        self._uncounted.discard(connection)
        self._heavy.discard(connection)
        return lease

    def _bound_heavy(self, connection: Admitted) -> None:
        if connection.transport.handshake_bytes > HEAVY_BYTES:
            self._evict(self._heavy.add(connection, connection.client_address))

    def _evict(self, connection: Admitted | None) -> None:
        if connection is not None:
            self._state.metrics.evictions.inc()
            connection.abort()

    def _identify(self, chain: tuple[bytes, ...]) -> identity.Identified | identity.Unregistered:
        registry = self._state.registry
        if self._identified_by is not registry:
            self._identified_by = registry
            self._identified.clear()
        now_s = time.time()
        digest = identity.fingerprint(b"".join(chain))
        cached = self._identified.get(digest)
        if cached is not None and not cached.is_expired(now_s):
            return cached
        found = identity.identify(chain, registry, now_s)
        if isinstance(found, identity.Identified) and len(self._identified) < MAX_IDENTIFIED:
            self._identified[digest] = found
        return found

    def charge(self, connection: Admitted, authority: str) -> HandshakeCost:
        """Charge a handshake that has ended or failed, and return its cost. `authority`: the end of its
        chain, if it was verified."""
        cost = connection.transport.take_handshake_cost()
        _end_on_loop(connection)
        if connection.is_on_loop:
            self._state.metrics.handshake_seconds["loop"].inc(cost.cpu_s)
        now_s = self._state.poller.loop.time()
        self.accounts.charge(
            connection.client_address, authority, cost, now_s, is_on_loop=connection.is_on_loop
        )
        return cost

    def remove(self, connection: Admitted) -> None:
        """A connection ended, or became a tunnel."""
        _end_on_loop(connection)
        self._uncounted.discard(connection)
        self._heavy.discard(connection)


def _end_on_loop(connection: Admitted) -> None:
    lease, connection.loop_lease = connection.loop_lease, None
    if lease is not None:
        lease.release()
