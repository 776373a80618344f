# SPDX-License-Identifier: Apache-2.0
"""The gRPC API for the daemons of the node, on a socket that only `peer_auth` can reach.

All code that turns requests into calls of `guests` and of the start gate is here. `bridge.proto` defines
the requests.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from bridge_api import rpc
from bridge_api.messages import (
    CheckDriftRequest,
    Flow,
    FlushConntrackRequest,
    GuestEvent,
    GuestResult,
    Part,
    PartDelta,
    ReadBackReply,
    ReadBackRequest,
    Ruleset,
    SetResolvConfRequest,
    SetRulesetRequest,
    WatchGuestsRequest,
)
from bridge_api.rulesets import BadRuleset, from_message
from kata_bridge.guests.broadcaster import GuestBroadcaster, TooManyWatchers, WatcherLagged
from kata_bridge.guests.core.machine import MAX_FLOWS
from kata_bridge.guests.registry import GuestRegistry
from kata_bridge.metrics import KataBridgeMetrics
from kata_bridge.start_gate.service import StartGateService
from ruleset.delta import RulesetDelta
from ruleset.document import Ruleset as WholeRuleset

# gRPC's own default for what is received; a ruleset that is larger comes deflated.
MAX_REQUEST_BYTES = 4 << 20
# What a guest holds and what is desired, of two families each.
MAX_REPLY_BYTES = 32 << 20
MAX_GUESTS = 10_000
# Of all clients together, including watches; gRPC refuses more with RESOURCE_EXHAUSTED.
MAX_CALLS = 512
# resolv.conf(5): the kubelet's limits are 2 KiB of search list and three servers.
MAX_RESOLV_CONF_CHARACTERS = 64 << 10
# A sentence; and a UID of the API server, with room.
MAX_WAIT_MESSAGE_CHARACTERS = 4 << 10
MAX_UID_CHARACTERS = 128
# A pod is in one network today; a name is the value of a label.
MAX_NETWORKS, MAX_NETWORK_CHARACTERS = 64, 253
# A larger ruleset takes the event loop more than a few milliseconds to inflate and parse.
INLINE_BYTES = 64 << 10

_RpcContext = grpc.aio.ServicerContext[Any, Any]


class BridgeServer:
    """Serves `Bridge` from `guests`."""

    def __init__(
        self,
        guests: GuestRegistry,
        watchers: GuestBroadcaster,
        metrics: KataBridgeMetrics,
        start_gate: StartGateService | None = None,
    ) -> None:
        self._guests = guests
        self._start_gate = start_gate
        self._watchers = watchers
        self._metrics = metrics
        self._server: grpc.aio.Server | None = None

    async def start(self, path: Path) -> None:
        """Listen on the unix socket `path`. Raises `OSError`."""
        server = grpc.aio.server(
            maximum_concurrent_rpcs=MAX_CALLS,
            options=[
                ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
                ("grpc.max_send_message_length", MAX_REPLY_BYTES),
                ("grpc.so_reuseport", 0),
            ],
        )
        server.add_generic_rpc_handlers(
            (
                rpc.service(
                    rpc.WATCH_GUESTS.bind(self.watch_guests),
                    rpc.SET_RULESET.bind(self.set_ruleset),
                    rpc.SET_RESOLV_CONF.bind(self.set_resolv_conf),
                    rpc.READ_BACK.bind(self.read_back),
                    rpc.CHECK_DRIFT.bind(self.check_drift),
                    rpc.FLUSH_CONNTRACK.bind(self.flush_conntrack),
                ),
            )
        )
        try:
            server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise OSError(f"{path}: {error}") from None
        await server.start()
        self._server = server

    async def stop(self, grace_s: float) -> None:
        """Take no more calls, and let those in flight end within `grace_s`."""
        if self._server is not None:
            await self._server.stop(grace_s)

    async def watch_guests(self, _: WatchGuestsRequest, context: _RpcContext) -> AsyncIterator[GuestEvent]:
        try:
            async with aclosing(self._watchers.watch()) as events:
                async for event in events:
                    yield event
        except WatcherLagged as error:
            self._metrics.watchers_ended.inc()
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except TooManyWatchers as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))

    async def set_ruleset(
        self, request: SetRulesetRequest, context: _RpcContext
    ) -> AsyncIterator[GuestResult]:
        await _limit(context, request.guests, request.flush)
        if request.ruleset is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no ruleset")
        try:
            ruleset = await _decoded(request.ruleset)
        except BadRuleset as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        async with aclosing(self._guests.set_ruleset(request.guests, ruleset, request.flush)) as results:
            async for result in results:
                yield result

    async def set_resolv_conf(self, request: SetResolvConfRequest, context: _RpcContext) -> GuestResult:
        if len(request.text) > MAX_RESOLV_CONF_CHARACTERS:
            text = f"more than {MAX_RESOLV_CONF_CHARACTERS} characters"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        if (
            len(request.wait_message) > MAX_WAIT_MESSAGE_CHARACTERS
            or len(request.pod_uid) > MAX_UID_CHARACTERS
        ):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "wait_message or pod_uid is too long")
        networks = request.networks
        if len(networks) > MAX_NETWORKS or any(not 0 < len(n) <= MAX_NETWORK_CHARACTERS for n in networks):
            text = f"over {MAX_NETWORKS} networks, or a name not of 1 to {MAX_NETWORK_CHARACTERS} characters"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        if bool(request.guest) == bool(request.pod_uid):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "exactly one of guest and pod_uid")
        if self._start_gate is None:
            # Without a start gate only running containers can be given a resolver.
            if not request.guest or not request.text:
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this kata-bridge has no start gate")
            return await self._guests.set_resolv_conf(request.guest, request.text, networks)
        try:
            return await self._start_gate.set_resolv_conf(request)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except OSError as error:
            # A full disk: a later call may succeed.
            message = f"cannot write the resolv.conf: {error.strerror}"
            await context.abort(grpc.StatusCode.UNAVAILABLE, message)

    async def read_back(self, request: ReadBackRequest, _: _RpcContext) -> ReadBackReply:
        return await self._guests.read_back(request.guest)

    async def check_drift(
        self, request: CheckDriftRequest, context: _RpcContext
    ) -> AsyncIterator[GuestResult]:
        await _limit(context, request.guests, ())
        async with aclosing(self._guests.check_drift(request.guests)) as results:
            async for result in results:
                yield result

    async def flush_conntrack(
        self, request: FlushConntrackRequest, context: _RpcContext
    ) -> AsyncIterator[GuestResult]:
        await _limit(context, request.guests, request.flows)
        async with aclosing(self._guests.flush_conntrack(request.guests, request.flows)) as results:
            async for result in results:
                yield result


async def _limit(context: _RpcContext, guests: tuple[str, ...], flows: tuple[Flow, ...]) -> None:
    if len(guests) > MAX_GUESTS or len(flows) > MAX_FLOWS:
        text = f"more than {MAX_GUESTS} guests or {MAX_FLOWS} flows"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)


async def _decoded(message: Ruleset) -> WholeRuleset | RulesetDelta:
    """Raises `BadRuleset`."""
    parts: tuple[Part | PartDelta, ...] = (*message.parts, *message.deltas)
    size = sum(max(len(part.text), part.deflated_from) for part in parts)
    if size <= INLINE_BYTES:
        return from_message(message)
    return await asyncio.to_thread(from_message, message)
