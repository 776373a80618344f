# SPDX-License-Identifier: Apache-2.0
"""The session with kata-bridge: guest events come in, pushes go out."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from bridge_api.client import BridgeError, BridgeRejectedError
from bridge_api.messages import Flow, GuestEvent, GuestResult
from bridge_api.session import BridgeSession, GuestHandlers
from daemonkit import logs
from daemonkit.tasks import Tasks
from kubeproxy_ext.compute.stale_flows import StaleFlow
from kubeproxy_ext.delivery.queue import RulesetPush
from ruleset.delta import RulesetDelta
from ruleset.document import Ruleset

# The most that kata-bridge takes in a request. Further stale flows are left to time out.
MAX_FLOWS = 20_000
# The endpoints whose flows are spared: with the ruleset they have to fit into a request of 4 MiB.
MAX_SPARED = 50_000

_log = logs.get(__name__)


class RulesetClient(Protocol):
    """The part of `bridge_api.client.BridgeClient` that is used."""

    def watch_guests(self) -> AsyncIterator[GuestEvent]: ...
    def set_ruleset(
        self, guests: Sequence[str], ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow] = ()
    ) -> AsyncIterator[GuestResult]: ...
    def flush_conntrack(self, guests: Sequence[str], flows: Sequence[Flow]) -> AsyncIterator[GuestResult]: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PushHandlers(GuestHandlers):
    """With callbacks for pushes: `on_done` when all results are in, else `on_failure`. That gets the guests
    without a result, and whether kata-bridge rejected the whole request."""

    on_result: Callable[[RulesetPush, GuestResult], None]
    on_failure: Callable[[RulesetPush, frozenset[str], bool], None]
    on_done: Callable[[RulesetPush], None]


class Pusher(BridgeSession[RulesetClient, PushHandlers]):
    """The session with pushes, which are sent as tasks of `tasks`."""

    def __init__(
        self,
        connect: Callable[[], RulesetClient],
        handlers: PushHandlers,
        tasks: Tasks,
        rng: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        super().__init__(connect, handlers, rng, clock, consequence="guests keep their rules")
        self._tasks = tasks

    def push(self, push: RulesetPush) -> None:
        """Start to send a push; its results go to the handlers."""
        bridge = self.bridge
        if bridge is None:
            self.handlers.on_failure(push, frozenset(push.guests), False)
            return
        self._tasks.spawn(self._push(bridge, push), f"push {push.digest[:12]}")

    async def _push(self, bridge: RulesetClient, push: RulesetPush) -> None:
        waiting, is_refused = set(push.guests), False
        flows = [_flow(flow) for flow in _fitting(push.flush)]
        try:
            results = (
                bridge.flush_conntrack(push.guests, flows)
                if push.ruleset is None
                else bridge.set_ruleset(push.guests, push.ruleset, flows)
            )
            async for result in results:
                if bridge is not self.bridge:
                    break  # there is a newer connection by now
                waiting.discard(result.guest)
                self.handlers.on_result(push, result)
        except BridgeError as error:
            is_refused = isinstance(error, BridgeRejectedError)
            _log.warning("push failed", guests=len(waiting), digest=push.digest, reason=error)
        finally:
            if not waiting:
                self.handlers.on_done(push)
            elif bridge is self.bridge:
                self.handlers.on_failure(push, frozenset(waiting), is_refused)


def _fitting(flows: Sequence[StaleFlow]) -> Iterator[StaleFlow]:
    """The flows that fit into a request; the others are left to time out."""
    spared = 0
    for flow in flows[:MAX_FLOWS]:
        spared += len(flow.keep_replies_from)
        if spared > MAX_SPARED:
            return
        yield flow


def _flow(stale: StaleFlow) -> Flow:
    return Flow(
        protocol=stale.protocol.value,
        destination=stale.destination,
        port=stale.port,
        reply_source=stale.reply_source,
        reply_port=stale.reply_port,
        never_translated=stale.never_translated,
        keep_replies_from=stale.keep_replies_from,
    )
