# SPDX-License-Identifier: Apache-2.0
"""The connection to kata-bridge: guests come in, pushes go out, and it is made again when it ends."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from bridge_api.client import BridgeError, BridgeRejectedError
from bridge_api.messages import Flow, GuestEvent, GuestResult
from bridge_api.session import BridgeSession, GuestHandlers
from daemonkit import logs
from daemonkit.tasks import Tasks
from kubeproxy_ext.compute.stale_flows import StaleFlow
from kubeproxy_ext.delivery.queue import Push
from ruleset.delta import RulesetDelta
from ruleset.document import Ruleset

# The bridge takes as many in a request; a guest with more stale flows had better let them time out.
MAX_FLOWS = 20_000
# With the endpoints that they spare: a request has 4 MiB, and with the ruleset these have to fit.
MAX_SPARED = 50_000

_log = logs.get(__name__)


class Bridge(Protocol):
    """What is used of `bridge_api.client.BridgeClient`."""

    def watch_guests(self) -> AsyncIterator[GuestEvent]: ...
    def set_ruleset(
        self, guests: Sequence[str], ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow] = ()
    ) -> AsyncIterator[GuestResult]: ...
    def flush_conntrack(self, guests: Sequence[str], flows: Sequence[Flow]) -> AsyncIterator[GuestResult]: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Handlers(GuestHandlers):
    """What is to be done with what kata-bridge says; called on the loop, must not block or raise.

    `failed` gets the guests that a push ended without an answer for, and whether the bridge would
    not take it at all.
    """

    answered: Callable[[Push, GuestResult], None]
    failed: Callable[[Push, frozenset[str], bool], None]
    done: Callable[[Push], None]


class Pusher(BridgeSession[Bridge, Handlers]):
    """The link, with pushes: they go out as tasks of `tasks`."""

    def __init__(
        self, connect: Callable[[], Bridge], handlers: Handlers, tasks: Tasks, rng: Callable[[], float]
    ) -> None:
        super().__init__(connect, handlers, rng, consequence="guests keep what they have")
        self._tasks = tasks

    def push(self, push: Push) -> None:
        """Begin a push; its answers go to the handlers."""
        bridge = self.bridge
        if bridge is None:
            self.handlers.failed(push, frozenset(push.guests), False)
            return
        self._tasks.spawn(self._push(bridge, push), f"push {push.digest[:12]}")

    async def _push(self, bridge: Bridge, push: Push) -> None:
        waiting, is_refused = set(push.guests), False
        flows = [_flow(flow) for flow in _worthwhile(push.flush)]
        try:
            answers = (
                bridge.flush_conntrack(push.guests, flows)
                if push.ruleset is None
                else bridge.set_ruleset(push.guests, push.ruleset, flows)
            )
            async for result in answers:
                if bridge is not self.bridge:
                    break  # of another connection, which knows better by now
                waiting.discard(result.guest)
                self.handlers.answered(push, result)
        except BridgeError as error:
            is_refused = isinstance(error, BridgeRejectedError)
            _log.warning("push failed", guests=len(waiting), digest=push.digest, reason=error)
        finally:
            if waiting and bridge is self.bridge:
                self.handlers.failed(push, frozenset(waiting), is_refused)
            self.handlers.done(push)


def _worthwhile(flows: Sequence[StaleFlow]) -> Iterator[StaleFlow]:
    """As many as a request has room for; the entries of the others are left to time out."""
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
