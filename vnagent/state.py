# SPDX-License-Identifier: Apache-2.0
"""What all connections of one vn-agent share: who is known, what is whose, what is held by whom.

Sources replace `registry` and `index` whole (`set_registry`, `set_index`); both are immutable, so a
request sees one picture from its head to its decision. Nothing here waits: from a reload to the last
cut connection there is no await.
"""

import asyncio
import contextlib
import os
import socket
import ssl
import time
from collections.abc import Callable

from daemonkit.admission.connection_slots import ConnectionSlots
from daemonkit.admission.handshake_accounts import HandshakeAccounts
from daemonkit.tasks import Tasks
from daemonkit.tls.contexts import TlsError, verified_chain
from tenancy import identity
from tenancy.ownership import Owned, OwnerIndex
from tenancy.registry import Problem, Registry
from vnagent.audit_log import AuditLog
from vnagent.core import audit
from vnagent.core.access import Caller, Decision, decide
from vnagent.core.limits import Limits, Turn, Use, has_memory, has_room, ready_count, take_turn
from vnagent.core.requests import ContainerLogs, Endpoint, Page, Request, Stream
from vnagent.downstream.client_connection import ClientConnection
from vnagent.exchange.logs import LogRelay, StreamSetup
from vnagent.exchange.page_service import PageExchange, PageService
from vnagent.exchange.refresh import LearningExchange
from vnagent.metrics import Metrics
from vnagent.request_queue import WaitingRequests
from vnagent.sources.port import PodFeed
from vnagent.transport.cipher import Cipher
from vnagent.transport.poller import Channels
from vnagent.transport.tunnel import Tunnel
from vnagent.upstream.kubelet import KubeletPool

# Connections with TLS that have no place in a tenant's count: in their handshake on the loop, without a
# registered leaf, or above a tenant's cap. Each costs 43 KB. The next one evicts the oldest of the source
# that has most; an honest one is among them for milliseconds.
MAX_UNCOUNTED = 256
# Of these, those whose handshake is done and had more than so many bytes: OpenSSL keeps a chain as up to 54
# times its bytes. An honest one has 2 to 4 KB, and leaves with its answer.
MAX_HEAVY, HEAVY_BYTES = 16, 4096
# Hellos and chains of a tenant's live connections and streams: a name of 2 bytes takes 107. So that is 220
# MiB at worst, and 1 000 connections of a Go client with a chain of 2 KB: its hello has 1.5 KB.
MAX_TENANT_HANDSHAKE_BYTES = 4 << 20
# Requests of a tenant for pods that are not known, each until the source was read: a second, mostly. A node
# has 110 pods, few of them new.
MAX_LOOKUPS = 100
# An apiserver shows the same certificate on every connection; taking it apart costs 50 us.
MAX_IDENTIFIED = 256
_ID_CHARS = 16
# A call into the kernel for each request would be a noticeable part of it.
_IDS_AT_ONCE = 256
# After the drain, for what was written last to leave.
LAST_BYTES_S = 1.0


class Agent:
    """The shared state of one listener."""

    def __init__(
        self,
        *,
        channels: Channels,
        kubelet: KubeletPool,
        pages: PageService,
        limits: Limits,
        metrics: Metrics,
        audit_log: AuditLog,
        tasks: Tasks,
        is_audit_required: bool = True,
    ) -> None:
        self.channels = channels
        self.kubelet = kubelet
        self.metrics = metrics
        self.tasks = tasks
        self.registry = Registry()
        self.index = OwnerIndex.unsynced()
        self.tenant_problems: tuple[Problem, ...] = ()
        self.pod_problems: tuple[str, ...] = ()
        self.context: ssl.SSLContext | None = None
        self.connections: set[ClientConnection] = set()
        self.tunnels: set[Tunnel] = set()
        # One for all tunnels: a bound method made for each would be a part of its size.
        self.on_tunnel_close: Callable[[Tunnel], None] = self._end_tunnel
        self.is_draining = False
        self._drained = asyncio.Event()
        self.feed: PodFeed | None = None
        self.ages: Callable[[], dict[str, float]] = dict
        self.saved: Callable[[], dict[str, bool]] = dict
        # Whether the source of pods cannot be read now; never, without a source.
        self.are_pods_stale: Callable[[], bool] = bool
        self._pages = pages
        self._limits = limits
        self._audit_log = audit_log
        # Whether a stream needs a place for its audit line, or is refused.
        self.is_audit_required = is_audit_required
        self._waiting = WaitingRequests(channels, self._use, self._may_begin)
        # By a digest: the chains are the clients' to choose, and may have 12 KiB each.
        self._identified: dict[str, identity.Identified] = {}
        self._said: dict[tuple[str | None, str], str] = {}
        self._uses: dict[str, Use] = {}
        self._uncounted: ConnectionSlots[ClientConnection] = ConnectionSlots(MAX_UNCOUNTED)
        self._heavy: ConnectionSlots[ClientConnection] = ConnectionSlots(MAX_HEAVY)
        self.accounts = HandshakeAccounts()
        self._ids = ""
        self._id_at = 0
        self._stamp_second = 0
        self._stamp = ""
        self._date = ""

    # ---- what sources set

    def set_registry(self, registry: Registry, problems: tuple[Problem, ...]) -> None:
        """Serve these tenants from now on, and cut what they may not have any more."""
        self.registry = registry
        self._identified.clear()
        self.tenant_problems = problems
        idle = [key for key, use in self._uses.items() if key not in registry.tenants and use.is_idle]
        for key in idle:
            del self._uses[key]
        for connection in list(self.connections):
            if not self._is_still(connection.identity):
                connection.abort()
        for tunnel in list(self.tunnels):
            if not self._is_still(tunnel.identity):
                tunnel.abort()

    def _is_still(self, caller: object) -> bool:
        if not isinstance(caller, identity.Identified):
            return True  # it has nothing to lose: it is answered 403, or still in its handshake
        return identity.still_identified(caller, self.registry)

    def set_index(self, index: OwnerIndex, problems: tuple[str, ...]) -> None:
        """Decide by these pods from now on. Streams to a pod that is gone end with the pod."""
        self.index = index
        self.pod_problems = problems

    # ---- connections

    def connect(self, sock: socket.socket, source: str, cipher: Cipher | None = None) -> None:
        """Serve a connection that has begun to speak; `cipher` if its handshake is done."""
        if self.context is None or self.is_draining:
            sock.close()
            return
        try:
            connection = ClientConnection(self, sock, source, self.context, cipher)
        except OSError:  # the kernel has no room to watch it
            sock.close()
            return
        if connection.is_inline:
            connection.inline_account = self.accounts.begin_inline(source)
        self.connections.add(connection)
        self._evict(self._uncounted.add(connection, source))
        self.channels.guarded(connection.channel, connection.start)

    def admit(self, connection: ClientConnection) -> bool:
        """The handshake is done: find out who it is. True if the tenant has room for it."""
        tls = connection.channel.tls
        try:
            chain = verified_chain(tls) if tls is not None else ()
        except TlsError:
            chain = ()
        found = self._identify(chain)
        self.charge_handshake(connection, identity.fingerprint(chain[-1]) if chain else "")
        connection.identity = found
        if isinstance(found, identity.Unregistered):
            connection.caller = Caller(None, None, found.spki)
            self._bound_heavy(connection)
            return False
        connection.caller = Caller(found.tenant, found.role, found.spki)
        use = self._use(found.tenant)
        is_light = use.handshake_bytes + connection.channel.handshake_bytes <= MAX_TENANT_HANDSHAKE_BYTES
        if not is_light or not has_room(use.connections, self._limits.connections):
            self._bound_heavy(connection)
            return False
        use.connections += 1
        connection.channel.bind(use)
        connection.channel.join(self.channels.group_of(found.tenant, use))
        self._uncounted.discard(connection)
        return True

    def _bound_heavy(self, connection: ClientConnection) -> None:
        if connection.channel.handshake_bytes > HEAVY_BYTES:
            self._evict(self._heavy.add(connection, connection.source))

    def _evict(self, connection: ClientConnection | None) -> None:
        if connection is not None:
            self.metrics.evictions.inc()
            connection.abort()

    def _identify(self, chain: tuple[bytes, ...]) -> identity.Identified | identity.Unregistered:
        now_s = time.time()
        digest = identity.fingerprint(b"".join(chain))
        cached = self._identified.get(digest)
        if cached is not None and not cached.is_expired(now_s):
            return cached
        found = identity.identify(chain, self.registry, now_s)
        if isinstance(found, identity.Identified) and len(self._identified) < MAX_IDENTIFIED:
            self._identified[digest] = found
        return found

    def end_expired(self, now_s: float) -> None:
        """End what was opened by certificates that are not valid any more. `now_s`: the wall clock's."""
        for connection in list(self.connections):
            if _is_expired(connection.identity, now_s):
                self.metrics.expired.inc()
                connection.abort()
        for tunnel in list(self.tunnels):
            if _is_expired(tunnel.identity, now_s):
                self.metrics.expired.inc()
                tunnel.abort()

    def charge_handshake(self, connection: ClientConnection, authority: str) -> None:
        """A handshake is over, well or not. `authority`: where its chain ends, if it was verified."""
        cost = connection.channel.take_handshake_cost()
        is_inline = connection.is_inline
        self._end_inline(connection)
        if is_inline:
            self.metrics.handshake_seconds["loop"].inc(cost.cpu_s)
        now_s = self.channels.loop.time()
        self.accounts.charge(connection.source, authority, cost, now_s, is_inline=is_inline)

    def _end_inline(self, connection: ClientConnection) -> None:
        if connection.inline_account is not None:
            self.accounts.end_inline(connection.inline_account)
            connection.inline_account = None

    def dismiss(self, connection: ClientConnection, *, is_counted: bool) -> None:
        """A connection ended, or became a tunnel."""
        self._end_inline(connection)
        self.connections.discard(connection)
        self._uncounted.discard(connection)
        self._heavy.discard(connection)
        if is_counted and connection.caller.tenant is not None:
            self._use(connection.caller.tenant).connections -= 1
        self._waiting.discard(connection, connection.caller.tenant or "")
        self._check_drained()

    # ---- limits

    def _use(self, tenant: str) -> Use:
        use = self._uses.get(tenant)
        if use is None:
            use = self._uses[tenant] = Use(max_unsent_bytes=self._limits.buffered_bytes)
        return use

    def take_turn(self, caller: Caller, *, has_waited: bool, head_bytes: int = 0) -> Turn:
        """Whether a request that has arrived whole is served now."""
        tenant = caller.tenant
        if tenant is None:
            return Turn.SERVE
        if self._audit_log.must_wait(tenant):
            return Turn.WAIT
        if not self._limits.requests_per_second:
            return Turn.SERVE
        now_s = self.channels.loop.time()
        return take_turn(self._use(tenant), self._limits, now_s, has_waited=has_waited, head_bytes=head_bytes)

    def await_turn(self, connection: ClientConnection) -> None:
        """Call `stop_waiting` when the connection's turn may have come."""
        self._waiting.add(connection, connection.caller.tenant or "")

    def _may_begin(self, tenant: str) -> int:
        """How many of the tenant's requests that wait may begin now."""
        if self._audit_log.must_wait(tenant):
            return 0
        return ready_count(self._use(tenant), self._limits, self.channels.loop.time())

    def reserve_line(self, caller: Caller) -> bool:
        """Keep room for the audit line of a stream, before the kubelet is asked; False if there is
        none."""
        return self._audit_log.reserve(caller.tenant or "")

    def release_line(self, caller: Caller) -> None:
        self._audit_log.release(caller.tenant or "")

    def takes_tunnel(self, caller: Caller) -> bool:
        """Count a stream of the tenant's, from before it is asked for; False if it has too many."""
        use = self._use(caller.tenant or "")
        if not has_room(use.tunnels, self._limits.tunnels):
            return False
        use.tunnels += 1
        return True

    def takes_page(self, caller: Caller) -> bool:
        """Whether the tenant reads what it asks for."""
        return has_memory(self._use(caller.tenant or ""))

    def account_of(self, caller: Caller) -> Use:
        """Who answers for the bytes of a tunnel."""
        return self._use(caller.tenant or "")

    def drop_tunnel(self, caller: Caller) -> None:
        self._use(caller.tenant or "").tunnels -= 1

    def add_tunnel(self, tunnel: Tunnel) -> None:
        self.tunnels.add(tunnel)

    def _end_tunnel(self, tunnel: Tunnel) -> None:
        self.tunnels.discard(tunnel)
        self.drop_tunnel(tunnel.caller)
        self._check_drained()

    @property
    def buffered_bytes(self) -> int:
        return sum(use.unsent_bytes for use in self._uses.values())

    @property
    def busy_count(self) -> int:
        """Exchanges and tunnels under way."""
        return len(self.tunnels) + sum(each.exchange is not None for each in self.connections)

    # ---- requests

    def decide(self, request: Request, caller: Caller, *, is_stale: bool = False) -> Decision:
        return decide(request, caller, self.index, is_stale=is_stale or self.are_pods_stale())

    def relay_logs(self, client: ClientConnection, request: ContainerLogs, pod: Owned) -> None:
        LogRelay(client, request, pod).start()

    def open_stream(
        self, client: ClientConnection, request: Stream, pod: Owned, *, is_reserved: bool
    ) -> None:
        exchange = StreamSetup(client, request, pod, is_reserved=is_reserved)
        client.exchange = exchange
        exchange.start()

    def serve_page(self, client: ClientConnection, page: Page) -> None:
        exchange = PageExchange(client, page, self._pages)
        client.exchange = exchange
        exchange.start()

    def may_learn(self, request: Request) -> bool:
        """Whether the pod source can be asked once more about what it did not know."""
        is_about_pods = isinstance(request, (ContainerLogs, Stream, Page))
        return is_about_pods and self.feed is not None and self.feed.can_refresh()

    def can_wait_for_pods(self, caller: Caller) -> bool:
        """Whether few enough of the tenant's requests wait for the pod source."""
        return self._use(caller.tenant or "").lookups < MAX_LOOKUPS

    def learn_and_decide(self, client: ClientConnection, request: Request) -> None:
        if self.feed is None:
            raise AssertionError("asked only if may_learn said so")
        exchange = LearningExchange(client, request, self.feed)
        client.exchange = exchange
        exchange.start()

    # ---- records

    def next_request_id(self) -> str:
        """16 hexadecimal digits. Random, as the client reads them: a count would tell every tenant how
        much the others ask for."""
        at = self._id_at
        if at == len(self._ids):
            # As `secrets` makes them, which loads 0.1 MB for what nobody asks it here.
            self._ids, at = os.urandom(_IDS_AT_ONCE * _ID_CHARS // 2).hex(), 0
        self._id_at = at + _ID_CHARS
        return self._ids[at : at + _ID_CHARS]

    def audit(
        self,
        caller: Caller,
        request: Request | None,
        reason: str,
        status: int,
        request_id: str,
        *,
        is_reserved: bool = False,
    ) -> None:
        """Write the one line of a decision and count it. `is_reserved`: in the room of `reserve_line`."""
        who = (caller.tenant, caller.spki)
        said = self._said.get(who)
        if said is None:
            if len(self._said) >= MAX_IDENTIFIED:
                self._said.clear()
            said = self._said[who] = audit.identity_of(caller)
        endpoint = Endpoint.MALFORMED if request is None else request.endpoint
        self.metrics.count_request(caller.tenant, endpoint, status)
        line = audit.render(self._timestamp(), said, request, reason, status, request_id)
        self._audit_log.write(line, caller.tenant or "", is_reserved=is_reserved)

    @property
    def date(self) -> str:
        """Now, for the Date field. Never that of the last record: it would tell a tenant when another
        one asked for something."""
        self._turn(int(time.time()))
        return self._date

    def _timestamp(self) -> str:
        """RFC 3339 in UTC with milliseconds."""
        now = time.time()
        second = int(now)
        self._turn(second)
        return f"{self._stamp}.{int((now - second) * 1000):03d}Z"

    def _turn(self, second: int) -> None:
        """What changes once a second is made once a second."""
        if second == self._stamp_second:
            return
        self._stamp_second = second
        self._stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        # RFC 9110, 5.6.7. Not email.utils, which is 0.9 MB; no daemon sets a locale for times.
        self._date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(second))

    # ---- the end

    async def drain(self, seconds: float) -> None:
        """Serve what is under way, begin nothing, and after `seconds` cut what is left."""
        self.is_draining = True
        for connection in list(self.connections):
            if connection.exchange is None:
                connection.close()
        self._check_drained()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._drained.wait()
        for tunnel in list(self.tunnels):
            tunnel.close()
        for connection in list(self.connections):
            connection.abort()
        await self.channels.wait_closed(LAST_BYTES_S)

    def _check_drained(self) -> None:
        if self.is_draining and not self.tunnels and not self.connections:
            self._drained.set()


def _is_expired(caller: object, now_s: float) -> bool:
    return isinstance(caller, identity.Identified) and caller.is_expired(now_s)
