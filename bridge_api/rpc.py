# SPDX-License-Identifier: Apache-2.0
"""The methods of kata-bridge's API, for clients and servers.

SET_RULESET.stub(channel)(request, timeout=5)                  # client
service(SET_RULESET.bind(self.set_ruleset), READ_BACK.bind(…)) # server
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import grpc.aio

from bridge_api.messages import (
    CheckDriftRequest,
    FlushConntrackRequest,
    GuestEvent,
    GuestResult,
    ReadBackReply,
    ReadBackRequest,
    SetResolvConfRequest,
    SetRulesetRequest,
    WatchGuestsRequest,
)
from bridge_api.methods import Method
from daemonkit.protobuf import decoder, encode

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class BoundMethod:
    service: str
    name: str
    handler: "grpc.RpcMethodHandler[Any, Any]"


class UnaryMethod(Method[Q, A]):
    """One request, one reply."""

    __slots__ = ()

    def stub(self, channel: grpc.aio.Channel) -> "grpc.aio.UnaryUnaryMultiCallable[Q, A]":
        return channel.unary_unary(self.path, encode, decoder(self.reply))

    def bind(self, serve: "Callable[[Q, grpc.aio.ServicerContext[Q, A]], Awaitable[A]]") -> BoundMethod:
        handler = grpc.unary_unary_rpc_method_handler(serve, decoder(self.request), encode)
        return BoundMethod(self.service, self.name, handler)


class ServerStream(Method[Q, A]):
    """One request, a stream of replies."""

    __slots__ = ()

    def stub(self, channel: grpc.aio.Channel) -> "grpc.aio.UnaryStreamMultiCallable[Q, A]":
        return channel.unary_stream(self.path, encode, decoder(self.reply))

    def bind(self, serve: "Callable[[Q, grpc.aio.ServicerContext[Q, A]], AsyncIterator[A]]") -> BoundMethod:
        handler = grpc.unary_stream_rpc_method_handler(serve, decoder(self.request), encode)
        return BoundMethod(self.service, self.name, handler)


def service(*bound: BoundMethod) -> grpc.GenericRpcHandler:
    """The handler of one service with these methods, for `grpc.aio.Server.add_generic_rpc_handlers`."""
    (name,) = {each.service for each in bound}
    return grpc.method_handlers_generic_handler(name, {each.name: each.handler for each in bound})


_BRIDGE = "vcnode.bridge.v1.Bridge"

WATCH_GUESTS = ServerStream(_BRIDGE, "WatchGuests", WatchGuestsRequest, GuestEvent)
SET_RULESET = ServerStream(_BRIDGE, "SetRuleset", SetRulesetRequest, GuestResult)
SET_RESOLV_CONF = UnaryMethod(_BRIDGE, "SetResolvConf", SetResolvConfRequest, GuestResult)
READ_BACK = UnaryMethod(_BRIDGE, "ReadBack", ReadBackRequest, ReadBackReply)
CHECK_DRIFT = ServerStream(_BRIDGE, "CheckDrift", CheckDriftRequest, GuestResult)
FLUSH_CONNTRACK = ServerStream(_BRIDGE, "FlushConntrack", FlushConntrackRequest, GuestResult)
BRIDGE = (WATCH_GUESTS, SET_RULESET, SET_RESOLV_CONF, READ_BACK, CHECK_DRIFT, FLUSH_CONNTRACK)
