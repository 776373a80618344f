# SPDX-License-Identifier: Apache-2.0
"""Turns a decision into an exchange, a reply or a refusal: `act` is the whole list."""

from collections.abc import Callable

from daemonkit.tasks import Tasks
from tenancy.ownership import Owned
from vnagent.core import replies
from vnagent.core.access import AnswerHealth, Caller, Decision, Deny, Forward, NotYetKnown, Serve, decide
from vnagent.core.audit import OWN_ANSWER
from vnagent.core.limits import LimitReason, has_memory
from vnagent.core.requests import ContainerLogs, Health, PageRequest, Request, Stream
from vnagent.exchange.logs import LogExchange
from vnagent.exchange.page import PageExchange, RenderedPages
from vnagent.exchange.port import ClientPort
from vnagent.exchange.refresh import RefreshExchange
from vnagent.exchange.stream import StreamExchange
from vnagent.sources.port import PodsOnDemand
from vnagent.state import AgentState
from vnagent.upstream.pool import UpstreamPool

# Requests of a tenant for unknown pods, each until the source was read: a second, mostly. A node
# has 110 pods, few of them new.
MAX_LOOKUPS = 100


class Dispatcher:
    """Serves the requests of all connections.

    `refreshable` is the source of pods, if it can be read on demand. `are_pods_stale` returns whether it
    cannot be read now. `is_audit_required`: a stream without room for its audit line is refused.
    """

    def __init__(
        self,
        state: AgentState,
        pool: UpstreamPool,
        pages: RenderedPages,
        tasks: Tasks,
        *,
        refreshable: PodsOnDemand | None,
        are_pods_stale: Callable[[], bool],
        is_audit_required: bool = True,
    ) -> None:
        self._state = state
        self._pool = pool
        self._pages = pages
        self._tasks = tasks
        self._refreshable = refreshable
        self._are_pods_stale = are_pods_stale
        self._is_audit_required = is_audit_required

    def decide(self, request: Request, caller: Caller, *, is_stale: bool = False) -> Decision:
        return decide(request, caller, self._state.index, is_stale=is_stale or self._are_pods_stale())

    def start_log(self, client: ClientPort, request: ContainerLogs, pod: Owned) -> None:
        """Relay a log."""
        follow = self._state.lease_log_follow(client.caller) if request.is_follow else None
        if request.is_follow and follow is None:
            client.deny(request, Deny(429, LimitReason.LOG_FOLLOWS))
            return
        LogExchange(client, self._state, self._pool, request, pod, follow).start()

    def act(
        self, client: ClientPort, request: Request, decision: Decision, *, is_final: bool = False
    ) -> None:
        """Do what was decided. `is_final`: the source of pods was already read for this request."""
        match decision:
            case Forward(request=ContainerLogs() as logs, pod=pod):
                self.start_log(client, logs, pod)
            case Forward(request=Stream() as stream, pod=pod):
                self._open_stream(client, stream, pod)
            case Serve(page=page):
                if has_memory(self._state.usage_of_caller(client.caller)):
                    PageExchange(client, self._state, page, self._pages, self._tasks).start()
                else:
                    client.deny(request, Deny(429, LimitReason.UNREAD))
            case AnswerHealth(request=health):
                self._answer_health(client, health)
            case NotYetKnown() | Deny(status=404) if not is_final and self._can_refresh_pods(request):
                self._refresh_pods(client, request)
            case NotYetKnown(reason=reason):
                is_stream = isinstance(request, Stream)
                client.deny(request, Deny(503, reason, must_close=is_stream), retry_after_s=1)
            case Deny():
                client.deny(request, decision)

    def _answer_health(self, client: ClientPort, health: Health) -> None:
        state = self._state
        request_id = state.request_log.next_request_id()
        state.request_log.record(client.caller, health, OWN_ANSWER, 200, request_id, client.begun_s)
        client.answer(
            replies.whole_reply(
                200,
                "text/plain; charset=utf-8",
                b"ok",
                request_id,
                is_close=state.is_draining,
                is_head=health.is_head,
                date=state.request_log.date,
            ),
            is_close=False,
        )

    def _open_stream(self, client: ClientPort, stream: Stream, pod: Owned) -> None:
        state, caller = self._state, client.caller
        lease = state.lease_tunnel(caller)
        if lease is None:
            client.deny(stream, Deny(429, LimitReason.TUNNELS, must_close=True))
            return
        room = state.request_log.reserve(caller.tenant or "")
        if room is not None or not self._is_audit_required:
            StreamExchange(client, state, self._pool, stream, pod, lease=lease, room=room).start()
        else:
            lease.release()
            client.deny(stream, Deny(503, "audit-unavailable", must_close=True), retry_after_s=1)

    def _can_refresh_pods(self, request: Request) -> bool:
        return self._refreshable is not None and isinstance(request, (ContainerLogs, Stream, PageRequest))

    def _refresh_pods(self, client: ClientPort, request: Request) -> None:
        usage, source = self._state.usage_of_caller(client.caller), self._refreshable
        lease = None if source is None else usage.lease(usage.lookups, MAX_LOOKUPS)
        if source is None or lease is None:
            is_stream = isinstance(request, Stream)
            client.deny(request, Deny(429, LimitReason.LOOKUPS, must_close=is_stream))
            return
        account, log = self._state.account_of(client.caller.tenant or ""), self._state.request_log
        RefreshExchange(client, request, source, lease, account, log, self._tasks, self._decide_again).start()

    def _decide_again(self, client: ClientPort, request: Request, *, is_read: bool) -> None:
        # A failed read cannot confirm that a pod is missing.
        decision = self.decide(request, client.caller, is_stale=not is_read)
        self.act(client, request, decision, is_final=True)
