# SPDX-License-Identifier: Apache-2.0
"""The state that all connections share: registered tenants, the pod index, usage, open connections.

Sources replace `registry` and `index` as a whole. Both are immutable, so a request reads one version of each.
Nothing here waits. Connections that a reload cuts end in the next iterations of the loop, in which none of
them has a request served.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable

from daemonkit.fairness.lease import Lease
from daemonkit.fairness.scheduler import Account
from daemonkit.metrics import MAX_CELLS, OVERFLOW
from daemonkit.token_bucket import TokenBucket
from tenancy import identity
from tenancy.ownership import OwnerIndex
from tenancy.registry import Problem, Registry
from vnagent.core.access import Caller
from vnagent.core.bearer_token import VerifiedToken
from vnagent.core.expiry import ExpiryIndex
from vnagent.core.limits import (
    NO_PEERS,
    Limits,
    PeerUsage,
    RateVerdict,
    TenantUsage,
    admit_request,
    ready_count,
    retry_after_s,
)
from vnagent.exchange.port import ClientPort
from vnagent.metrics import AgentMetrics
from vnagent.request_log import RequestLog
from vnagent.request_queue import RequestQueue
from vnagent.transport.poller import ENDING_S, SocketPoller
from vnagent.transport.tunnel import Tunnel

# Audit lines of clients without a valid token, on all ports for tokens: 2 KB/s. A metric counts all.
UNKNOWN_LINES_BURST, UNKNOWN_LINES_PER_S = 100.0, 10.0
# After the drain, for the last bytes to leave.
LAST_BYTES_S = 1.0
# How many are looked at in one iteration.
CHECKED = 2_000
# Usages that are exchanged with other workers in one iteration, 2 us each.
EXCHANGED = 500


class AgentState:
    """The shared state of one listener."""

    def __init__(
        self,
        *,
        poller: SocketPoller,
        limits: Limits,
        metrics: AgentMetrics,
        request_log: RequestLog,
        registry: Registry,
        peers_of: Callable[[str], PeerUsage] = lambda _: NO_PEERS,
    ) -> None:
        """`peers_of` returns what other workers count for a tenant."""
        self._peers_of = peers_of
        self.poller = poller
        self.limits = limits
        self.metrics = metrics
        self.request_log = request_log
        self.registry = registry
        self.index = OwnerIndex.unsynced()
        self.tenant_problems: tuple[Problem, ...] = ()
        self.pod_problems: tuple[str, ...] = ()
        # None while no tenant is registered: every connection is refused.
        self.context: ssl.SSLContext | None = None
        # Of the ports for bearer tokens, if there are any.
        self.token_context: ssl.SSLContext | None = None
        self.connections: set[ClientPort] = set()
        self.tunnels: set[Tunnel] = set()
        # One bound method for all tunnels: one for each would be a part of a tunnel's size.
        self.on_tunnel_close: Callable[[Tunnel], None] = self._end_tunnel
        # Those whose right is looked at in the next iterations of the loop, and whether all are again.
        self._pending_checks: list[ClientPort | Tunnel] = []
        self._must_check_again = False
        # Certificates that were valid until then have expired: the time of the wall clock.
        self._expiry_s = 0.0
        self._expiry_index: ExpiryIndex[ClientPort | Tunnel] = ExpiryIndex()
        self.is_draining = False
        self._drained = asyncio.Event()
        self._usages: dict[str, TenantUsage] = {}
        burst, rate = UNKNOWN_LINES_BURST, UNKNOWN_LINES_PER_S
        self._unknown_lines = TokenBucket(burst, rate, burst, poller.loop.time())
        self._queue = RequestQueue(poller, self.usage_of, self._ready_count)

    # ---- what sources set

    def context_for(self, token_tenant: str | None) -> ssl.SSLContext | None:
        """For the next client: of the port with certificates, or of the port for tokens of this tenant. None
        while it can serve no client."""
        if token_tenant is None:
            return self.context
        return self.token_context if token_tenant in self.registry.tenants else None

    def serve_tenants(
        self,
        registry: Registry,
        context: ssl.SSLContext | None,
        problems: tuple[Problem, ...],
        token_context: ssl.SSLContext | None = None,
    ) -> None:
        """Serve these tenants from now on, and cut what their removed certificates and tokens opened."""
        self.registry, self.context, self.tenant_problems = registry, context, problems
        self.token_context = token_context
        self._forget_removed()
        self._check_rights()

    def serve_pods(self, index: OwnerIndex, problems: tuple[str, ...]) -> None:
        """Decide by these pods from now on. Streams to a deleted pod end with the pod."""
        self.index, self.pod_problems = index, problems

    def end_expired(self, now_s: float) -> None:
        """End what was opened by certificates that have expired. `now_s` is of the wall clock."""
        self._expiry_s = now_s
        due = self._expiry_index.due(now_s)
        if due:
            is_checking = bool(self._pending_checks)
            self._pending_checks += due
            if not is_checking:
                self.poller.loop.call_soon(self._check_some)

    def watch_expiry(self, opened: ClientPort | Tunnel) -> None:
        """End a connection or tunnel, whose client is identified now, when its certificates expire."""
        identified = opened.identity
        if isinstance(identified, identity.Identified):
            self._expiry_index.add(opened, identified.not_after_s)

    def _forget_expiry(self, ended: ClientPort | Tunnel) -> None:
        identified = ended.identity
        if isinstance(identified, identity.Identified):
            self._expiry_index.discard(ended, identified.not_after_s)

    def is_ending(self, connection: ClientPort) -> bool:
        """Whether its right has ended, and the connection is about to."""
        return bool(self._pending_checks or self._must_check_again) and self._has_ended(connection.identity)

    def _has_ended(self, identified: object) -> bool:
        return _is_revoked(identified, self.registry) or _is_expired(identified, self._expiry_s)

    def _check_rights(self) -> None:
        """Look at all that is open, a part in each iteration of the loop. Those whose right has ended end."""
        if self._pending_checks:
            self._must_check_again = True
            return
        self._must_check_again = False
        self._pending_checks = [*self.connections, *self.tunnels]
        # Not in this step, in which sources were read: it has taken its time already.
        self.poller.loop.call_soon(self._check_some)

    def _check_some(self) -> None:
        pending, clock = self._pending_checks, self.poller.clock
        until_s = clock() + ENDING_S
        try:
            for _ in range(min(len(pending), CHECKED)):
                each = pending.pop()
                if (each in self.connections or each in self.tunnels) and self._has_ended(each.identity):
                    if _is_expired(each.identity, self._expiry_s):
                        self.metrics.expired.inc()
                    each.abort()
                if clock() >= until_s:
                    break
        finally:  # also of the others, if one fails
            if pending:
                self.poller.loop.call_soon(self._check_some)
            elif self._must_check_again:
                self.poller.loop.call_soon(self._check_rights)

    # ---- usage

    def usage_of(self, tenant: str) -> TenantUsage:
        usage = self._usages.get(tenant)
        if usage is None:
            usage = self._usages[tenant] = TenantUsage(
                max_unsent_bytes=self.limits.buffered_bytes, peers=self._peers_of(tenant)
            )
        return usage

    async def exchange_usages(self) -> None:
        """Publish all usages to the other workers, and read theirs, also those without a socket."""
        left = list(self._usages.items())
        while left:
            for tenant, usage in left[-EXCHANGED:]:
                if self._usages.get(tenant) is usage:  # else its row may be another tenant's by now
                    usage.exchange()
            del left[-EXCHANGED:]
            await asyncio.sleep(0)
        self._forget_removed()

    def _forget_removed(self) -> None:
        """Forget removed tenants that have nothing open. Clients without a tenant have usage too, and keep
        their series."""
        registered = self.registry.tenants
        idle = {key for key, usage in self._usages.items() if key not in registered and usage.is_idle}
        for key in idle:
            self._usages.pop(key).exchange()
            self.poller.close_account(key)
        idle.discard("")
        if idle:
            self.metrics.forget_tenants(idle)

    def by_tenant(self, count: Callable[[str, TenantUsage], float]) -> dict[tuple[str, ...], float]:
        """What `count` returns for a tenant and its usage; beyond a bound on tenants, the rest together."""
        found: dict[tuple[str, ...], float] = {}
        for tenant, usage in self._usages.items():
            key = (tenant if len(found) < MAX_CELLS else OVERFLOW,)
            found[key] = found.get(key, 0.0) + count(tenant, usage)
        return found

    def usage_of_caller(self, caller: Caller) -> TenantUsage:
        """The usage that the caller's bytes count in."""
        return self.usage_of(caller.tenant or "")

    def account_of(self, tenant: str) -> Account:
        """The account of what is done for the tenant on the event loop; closed with its usage."""
        self.usage_of(tenant)
        return self.poller.account_of(tenant)

    def admit_request(self, caller: Caller, *, has_waited: bool, head_bytes: int = 0) -> RateVerdict:
        """Take a complete request out of its tenant's rate: serve, refuse or queue it."""
        tenant = caller.tenant
        if tenant is None:
            return RateVerdict.SERVE
        if self.request_log.must_wait(tenant):
            return RateVerdict.WAIT
        if not self.limits.requests_per_second:
            return RateVerdict.SERVE
        now_s = self.poller.loop.time()
        return admit_request(
            self.usage_of(tenant), self.limits, now_s, has_waited=has_waited, head_bytes=head_bytes
        )

    def try_acquire_unknown_line(self) -> bool:
        """Take one audit line of a client on a port for tokens that has shown none: anyone may connect."""
        return self._unknown_lines.try_acquire(self.poller.loop.time())

    def queue_request(self, connection: ClientPort) -> None:
        """Call `stop_waiting` of the connection when its request may be served."""
        self._queue.add(connection, connection.caller.tenant or "")

    def _ready_count(self, tenant: str) -> int:
        """How many of the tenant's queued requests may begin now."""
        if self.request_log.must_wait(tenant):
            return 0
        return ready_count(self.usage_of(tenant), self.limits, self.poller.loop.time())

    def lease_tunnel(self, caller: Caller) -> Lease | None:
        """Count a stream of the tenant's before it is opened; None if the tenant has too many."""
        usage = self.usage_of_caller(caller)
        return usage.lease(usage.tunnels, self.limits.tunnels)

    def lease_log_follow(self, caller: Caller) -> Lease | None:
        """Count a followed log of the tenant's; None if the tenant follows too many."""
        usage = self.usage_of_caller(caller)
        return usage.lease(usage.log_follows, self.limits.log_follows)

    def retry_after_s(self, caller: Caller, reason: str) -> int | None:
        """The Retry-After of a 429 for this reason, in seconds."""
        return retry_after_s(reason, self.usage_of_caller(caller), self.limits, self.poller.loop.time())

    @property
    def log_follow_count(self) -> int:
        return sum(usage.log_follows.count for usage in self._usages.values())

    @property
    def buffered_bytes(self) -> int:
        return sum(usage.unsent_bytes for usage in self._usages.values())

    @property
    def busy_count(self) -> int:
        """Exchanges and tunnels in progress."""
        return len(self.tunnels) + sum(each.exchange is not None for each in self.connections)

    # ---- open connections

    def remove(self, connection: ClientPort) -> None:
        """A connection ended, or became a tunnel."""
        self.connections.discard(connection)
        self._forget_expiry(connection)
        self._queue.discard(connection, connection.caller.tenant or "")
        self._check_drained()

    def add_tunnel(self, tunnel: Tunnel) -> None:
        """A connection became this tunnel."""
        self.tunnels.add(tunnel)
        self.watch_expiry(tunnel)
        if self._pending_checks:
            self._pending_checks.append(tunnel)  # the connection's turn may have been to come

    def _end_tunnel(self, tunnel: Tunnel) -> None:
        self.tunnels.discard(tunnel)
        self._forget_expiry(tunnel)
        tunnel.lease.release()
        self._check_drained()

    async def has_awaited_requests(self) -> bool:
        """Whether a client has connected, or begun a request, and the whole head has not come yet."""
        left = list(self.connections)
        while left:
            if any(connection.is_awaited for connection in left[-CHECKED:]):
                return True
            del left[-CHECKED:]
            await asyncio.sleep(0)
        return False

    async def drain(self, seconds: float) -> None:
        """Finish requests in progress, begin none, and after `seconds` cut the rest, in steps."""
        self.is_draining = True
        end_s = self.poller.loop.time() + seconds
        await self.poller.end_each(list(self.connections), self._close_idle)
        self._check_drained()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(end_s):
                await self._drained.wait()
        # Connections first: until its turn, one of them may become a tunnel.
        await self.poller.end_each(list(self.connections), self._abort_open)
        await self.poller.end_each(list(self.tunnels), _close)
        await self.poller.wait_closed(LAST_BYTES_S)

    def _close_idle(self, connection: ClientPort) -> None:
        if connection in self.connections and connection.exchange is None:
            connection.close()

    def _abort_open(self, connection: ClientPort) -> None:
        if connection in self.connections:
            connection.abort()

    def _check_drained(self) -> None:
        if self.is_draining and not self.tunnels and not self.connections:
            self._drained.set()


def _close(tunnel: Tunnel) -> None:
    tunnel.close()


def _is_revoked(identified: object, registry: Registry) -> bool:
    """Without an identity there is nothing to revoke: such a connection is answered 401 or 403."""
    if isinstance(identified, VerifiedToken):
        return identified.tenant not in registry.tenants
    return isinstance(identified, identity.Identified) and not identity.still_identified(identified, registry)


def _is_expired(identified: object, now_s: float) -> bool:
    return isinstance(identified, identity.Identified) and identified.is_expired(now_s)
