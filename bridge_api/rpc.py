# SPDX-License-Identifier: Apache-2.0
"""The calls of a gRPC service as values, from which server and client are both made.

SET_RULESET.stub(channel)(request, timeout=5)                  # the client's side
service(SET_RULESET.bind(self.set_ruleset), READ_BACK.bind(…)) # the server's
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import grpc.aio

from bridge_api.calls import Method
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
from daemonkit.protobuf import decoder, encode

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Bound:
    """A method and what serves it."""

    service: str
    name: str
    handler: "grpc.RpcMethodHandler[Any, Any]"


class Unary(Method[Q, A]):
    """One request, one reply."""

    __slots__ = ()

    def stub(self, channel: grpc.aio.Channel) -> "grpc.aio.UnaryUnaryMultiCallable[Q, A]":
        return channel.unary_unary(self.path, encode, decoder(self.reply))

    def bind(self, serve: "Callable[[Q, grpc.aio.ServicerContext[Q, A]], Awaitable[A]]") -> Bound:
        handler = grpc.unary_unary_rpc_method_handler(serve, decoder(self.request), encode)
        return Bound(self.service, self.name, handler)


class ReplyStream(Method[Q, A]):
    """One request, many replies."""

    __slots__ = ()

    def stub(self, channel: grpc.aio.Channel) -> "grpc.aio.UnaryStreamMultiCallable[Q, A]":
        return channel.unary_stream(self.path, encode, decoder(self.reply))

    def bind(self, serve: "Callable[[Q, grpc.aio.ServicerContext[Q, A]], AsyncIterator[A]]") -> Bound:
        handler = grpc.unary_stream_rpc_method_handler(serve, decoder(self.request), encode)
        return Bound(self.service, self.name, handler)


def service(*bound: Bound) -> grpc.GenericRpcHandler:
    """What a server is given (`add_generic_rpc_handlers`) to serve these methods of one service."""
    (name,) = {each.service for each in bound}
    return grpc.method_handlers_generic_handler(name, {each.name: each.handler for each in bound})


_BRIDGE = "vcnode.bridge.v1.Bridge"

WATCH_GUESTS = ReplyStream(_BRIDGE, "WatchGuests", WatchGuestsRequest, GuestEvent)
SET_RULESET = ReplyStream(_BRIDGE, "SetRuleset", SetRulesetRequest, GuestResult)
SET_RESOLV_CONF = Unary(_BRIDGE, "SetResolvConf", SetResolvConfRequest, GuestResult)
READ_BACK = Unary(_BRIDGE, "ReadBack", ReadBackRequest, ReadBackReply)
CHECK_DRIFT = ReplyStream(_BRIDGE, "CheckDrift", CheckDriftRequest, GuestResult)
FLUSH_CONNTRACK = ReplyStream(_BRIDGE, "FlushConntrack", FlushConntrackRequest, GuestResult)
BRIDGE = (WATCH_GUESTS, SET_RULESET, SET_RESOLV_CONF, READ_BACK, CHECK_DRIFT, FLUSH_CONNTRACK)
