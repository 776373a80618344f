# SPDX-License-Identifier: Apache-2.0
"""The client of kata-bridge's API, for the daemons of its node and for `vcnode`.

    async with BridgeClient(Path("/run/vcnode/kata-bridge.sock")) as bridge:
        async for event in bridge.watch_guests(): ...

Only this module handles gRPC's errors: it raises them as `BridgeError`.
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
from daemonkit import os_errors
from daemonkit.remedies import Cause, Fault, Hop, HopKind
from ruleset.delta import RulesetDelta
from ruleset.document import Ruleset

KATA_BRIDGE = Hop(HopKind.KATA_BRIDGE, "kata-bridge", "bridge.socket")
# kata-bridge reports a result for each guest within 90 s, whatever the guest does.
TIMEOUT_S = 120.0
MAX_REPLY_BYTES = 32 << 20
# kata-bridge restarts within a second.
_RECONNECT_MIN_MS, _RECONNECT_MAX_MS = 100, 2_000
# By gRPC's name a delay; it is the least time that each attempt to connect gets.
_CONNECT_MS = 5_000

Q = TypeVar("Q")
A = TypeVar("A")


class BridgeError(Exception):
    """A call of kata-bridge failed; `fault` has why, and what to do."""

    def __init__(self, text: str, fault: Fault | None = None) -> None:
        super().__init__(text)
        self.fault = fault


class BridgeUnavailableError(BridgeError):
    """kata-bridge is not running, restarted, hangs, or ended a watch that lagged: try again."""


class BridgeRejectedError(BridgeError):
    """kata-bridge rejects this request or this caller: a retry does not help."""


class BridgeClient:
    """A connection to kata-bridge's socket. gRPC connects at the first call, and again after a loss.

    All calls raise `BridgeUnavailableError` and `BridgeRejectedError`.
    """

    def __init__(self, path: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._channel = grpc.aio.insecure_channel(
            f"unix:{path}",
            options=[
                ("grpc.max_receive_message_length", MAX_REPLY_BYTES),
                ("grpc.max_send_message_length", MAX_REPLY_BYTES),
                ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),
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
        """Every guest, SYNCED, then every change, until kata-bridge stops."""
        return self._stream(rpc.WATCH_GUESTS, WatchGuestsRequest(), None)

    def set_ruleset(
        self, guests: Sequence[str], ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow] = ()
    ) -> AsyncIterator[GuestResult]:
        """Set the guests' desired ruleset. Yields one result for each guest, as each applies it or fails."""
        request = SetRulesetRequest(tuple(guests), to_message(ruleset), tuple(flush))
        return self._stream(rpc.SET_RULESET, request, self._timeout_s)

    def check_drift(self, guests: Sequence[str] = ()) -> AsyncIterator[GuestResult]:
        """Compare installed rules with desired ones, of all guests if `guests` is empty. Repairs nothing."""
        request = CheckDriftRequest(tuple(guests))
        return self._stream(rpc.CHECK_DRIFT, request, self._timeout_s)

    def flush_conntrack(self, guests: Sequence[str], flows: Sequence[Flow]) -> AsyncIterator[GuestResult]:
        request = FlushConntrackRequest(tuple(guests), tuple(flows))
        return self._stream(rpc.FLUSH_CONNTRACK, request, self._timeout_s)

    async def set_resolv_conf(self, request: SetResolvConfRequest) -> GuestResult:
        """Set a pod's resolv.conf, or block the start of its containers with `wait_message`.

        `guest` names the pod, or if it is empty `pod_uid`, also of a pod that is not a guest.
        Only sandboxes on `networks` get the resolver.
        """
        return await self._one(rpc.SET_RESOLV_CONF, request)

    async def read_back(self, guest: str) -> ReadBackReply:
        """Read the guest's installed rules and its desired ones."""
        request = ReadBackRequest(guest)
        return await self._one(rpc.READ_BACK, request)

    async def _one(self, method: rpc.UnaryMethod[Q, A], request: Q) -> A:
        try:
            return await method.stub(self._channel)(request, timeout=self._timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self._translated(error) from None
        except grpc.aio.UsageError:
            raise self._closed() from None

    async def _stream(
        self, method: rpc.ServerStream[Q, A], request: Q, timeout_s: float | None
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

    def _closed(self) -> BridgeUnavailableError:
        """The error of a call that was started before `close` and sent after it."""
        return BridgeUnavailableError(f"{self._path}: this connection is closed")

    def _translated(self, error: grpc.aio.AioRpcError) -> BridgeError:
        details = error.details() or error.code().name
        text = f"{self._path}: {details}"
        if error.code() in _REFUSALS:
            return BridgeRejectedError(text, KATA_BRIDGE.fault(Cause.FORBIDDEN, details, str(self._path)))
        # Of the operating system's errors gRPC keeps the text alone.
        known, cause = os_errors.describe_text(details)
        return BridgeUnavailableError(text, KATA_BRIDGE.fault(cause, known, str(self._path)))


_REFUSALS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.OUT_OF_RANGE,
    }
)
