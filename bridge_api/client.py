# SPDX-License-Identifier: Apache-2.0
"""How the daemons of a node, and its operator's tool, speak to kata-bridge.

    async with BridgeClient(Path("/run/vcnode/kata-bridge.sock")) as bridge:
        async for event in bridge.watch_guests(): ...

Everything that gRPC can raise becomes one of the errors of this file, here and nowhere else.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import grpc
import grpc.aio

from bridge_api import rpc
from bridge_api.messages import (
    CheckDriftRequest,
    Flow,
    FlushConntrackRequest,
    GuestEvent,
    GuestResult,
    ReadBackReply,
    ReadBackRequest,
    SetResolvConfRequest,
    SetRulesetRequest,
    WatchGuestsRequest,
)
from bridge_api.rulesets import to_message
from ruleset.delta import RulesetDelta
from ruleset.document import Ruleset

# The bridge answers for a guest within 90 s, whatever the guest does.
TIMEOUT_S = 120.0
MAX_REPLY_BYTES = 32 << 20
# A bridge that restarts is back within a second.
_RECONNECT_MIN_MS, _RECONNECT_MAX_MS = 100, 2_000

Q = TypeVar("Q")
A = TypeVar("A")


class BridgeError(Exception):
    """A call of the bridge failed; the text says how."""


class BridgeAway(BridgeError):  # noqa: N818 - the state it tells of
    """The bridge is not there, went away, hangs, or ended a watch that was not read: try again."""


class BridgeRefuses(BridgeError):  # noqa: N818 - the state it tells of
    """The bridge does not take this request, or not from us: trying again does not help."""


class BridgeClient:
    """One connection to the bridge's socket; it is made at the first call, and again when it was lost.

    All calls raise `BridgeAway` and `BridgeRefuses`.
    """

    def __init__(self, path: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._channel = grpc.aio.insecure_channel(
            f"unix:{path}",
            options=[
                ("grpc.max_receive_message_length", MAX_REPLY_BYTES),
                ("grpc.max_send_message_length", MAX_REPLY_BYTES),
                ("grpc.min_reconnect_backoff_ms", _RECONNECT_MIN_MS),
                ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MIN_MS),
                ("grpc.max_reconnect_backoff_ms", _RECONNECT_MAX_MS),
                ("grpc.enable_http_proxy", 0),
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End all calls and the connection."""
        await self._channel.close()

    def watch_guests(self) -> AsyncIterator[GuestEvent]:
        """Every guest, SYNCED, then every change, until the bridge goes away."""
        return self._stream(rpc.WATCH_GUESTS, WatchGuestsRequest(), None)

    def set_ruleset(
        self, guests: Sequence[str], ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow] = ()
    ) -> AsyncIterator[GuestResult]:
        """Let guests hold `ruleset`; one result for each, as they come."""
        request = SetRulesetRequest(tuple(guests), to_message(ruleset), tuple(flush))
        return self._stream(rpc.SET_RULESET, request, self._timeout_s)

    def check_drift(self, guests: Sequence[str] = ()) -> AsyncIterator[GuestResult]:
        """Compare what guests hold with what they shall hold; repairs nothing. None named: all."""
        request = CheckDriftRequest(tuple(guests))
        return self._stream(rpc.CHECK_DRIFT, request, self._timeout_s)

    def flush_conntrack(self, guests: Sequence[str], flows: Sequence[Flow]) -> AsyncIterator[GuestResult]:
        request = FlushConntrackRequest(tuple(guests), tuple(flows))
        return self._stream(rpc.FLUSH_CONNTRACK, request, self._timeout_s)

    async def set_resolv_conf(
        self, guest: str, text: str, *, waits: str = "", pod_uid: str = "", networks: Sequence[str] = ()
    ) -> GuestResult:
        """Let a pod's containers have this resolv.conf, or wait for it and say why.

        The pod is that of `guest`, or where that is empty the one with `pod_uid`, guest or not.
        `networks` are those that this is said for; a sandbox in others gets nothing of it.
        """
        request = SetResolvConfRequest(guest, text, waits, pod_uid, tuple(networks))
        return await self._one(rpc.SET_RESOLV_CONF, request)

    async def read_back(self, guest: str) -> ReadBackReply:
        """What the guest's packet filter holds now, beside what it shall hold."""
        request = ReadBackRequest(guest)
        return await self._one(rpc.READ_BACK, request)

    async def _one(self, method: rpc.Unary[Q, A], request: Q) -> A:
        try:
            return await method.stub(self._channel)(request, timeout=self._timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self._translated(error) from None
        except grpc.aio.UsageError:
            raise self._closed() from None

    async def _stream(
        self, method: rpc.ReplyStream[Q, A], request: Q, timeout_s: float | None
    ) -> AsyncIterator[A]:
        try:
            call = method.stub(self._channel)(request, timeout=timeout_s)
        except grpc.aio.UsageError:
            raise self._closed() from None
        try:
            async for message in call:
                yield message
        except grpc.aio.AioRpcError as error:
            raise self._translated(error) from None
        finally:
            call.cancel()

    def _closed(self) -> BridgeAway:
        """For a call that was begun before `close` and sent after it."""
        return BridgeAway(f"{self._path}: this connection is closed")

    def _translated(self, error: grpc.aio.AioRpcError) -> BridgeError:
        text = f"{self._path}: {error.details() or error.code().name}"
        if error.code() in _REFUSALS:
            return BridgeRefuses(text)
        return BridgeAway(text)


_REFUSALS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.OUT_OF_RANGE,
    }
)
