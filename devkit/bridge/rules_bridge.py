# SPDX-License-Identifier: Apache-2.0
"""A stand-in kata-bridge: guests that are values, and rulesets that are applied to nothing.

It keeps to bridge.proto where a client can tell: a whole ruleset replaces what a guest has, a delta
needs its base, an older generation replaces nothing, answers come one a guest. With `serve` it does
so over gRPC on a unix socket.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import grpc

from bridge_api import rpc
from bridge_api.messages import (
    Capabilities,
    Flow,
    FlushConntrackRequest,
    Guest,
    GuestEvent,
    GuestEventKind,
    GuestResult,
    ReadBackReply,
    ReadBackRequest,
    ResultCode,
    SetRulesetRequest,
)
from bridge_api.rulesets import from_message, to_message, to_part
from devkit.bridge.fake_guests import FakeGuests
from ruleset.delta import BaseMismatch, RulesetDelta, apply_delta
from ruleset.document import Ruleset

CAPABILITIES = Capabilities(
    channel="agent", backends=("iptables", "nft"), ipv6=True, deltas=True, conntrack=True, resolv_conf=True
)


@dataclass(frozen=True, slots=True)
class Received:
    """One ruleset as it came for one guest; `data` is all that was sent, as bytes."""

    guest: str
    ruleset: Ruleset | RulesetDelta
    flush: tuple[Flow, ...]
    result: GuestResult
    data: bytes

    @property
    def is_delta(self) -> bool:
        return isinstance(self.ruleset, RulesetDelta)


@dataclass(slots=True)
class _Guest:
    guest: Guest
    desired: Ruleset | None = None
    held: Ruleset | None = None
    # Given instead of applying, one each; for as long as it is set, `unreachable`.
    refusals: list[tuple[ResultCode, str]] = field(default_factory=list)
    unreachable: str = ""


class FakeBridge(FakeGuests):
    """The guests of a node. `guests` may be changed at will; then `tell` whoever watches."""

    def __init__(self) -> None:
        super().__init__()
        self.guests: dict[str, _Guest] = {}
        self.received: list[Received] = []
        self.flushed: list[tuple[str, tuple[Flow, ...]]] = []
        self.delay_s = 0.0

    # ---- guests

    def add(self, name: str, tenant: str, /, **fields: Any) -> _Guest:
        """A guest appears; its id is its name."""
        standard = Guest(
            id=name,
            namespace=f"{tenant}-default",
            name=name,
            tenant=tenant,
            tenant_namespace="default",
            tenant_name=name,
            networks=("default",),
            ips=("10.244.0.9",),
            capabilities=CAPABILITIES,
        )
        guest = replace(standard, **fields)
        added = self.guests[name] = _Guest(guest)
        self._tell(GuestEvent(GuestEventKind.PRESENT, self._message(added)))
        return added

    def remove(self, name: str) -> None:
        del self.guests[name]
        self._tell(GuestEvent(GuestEventKind.GONE, Guest(id=name)))

    def change(self, name: str, /, **fields: Any) -> None:
        """Something of the guest itself becomes different, and is told."""
        known = self.guests[name]
        known.guest = replace(known.guest, **fields)
        self.tell(name)

    def forget_rules(self, name: str) -> None:
        """The guest was rebooted, and nobody repairs it."""
        self.guests[name].held = None
        self.tell(name)

    def tell(self, name: str) -> None:
        self._tell(GuestEvent(GuestEventKind.PRESENT, self._message(self.guests[name])))

    def forget_everything(self) -> None:
        """As a restart of the bridge does: guests keep what they have, it knows what they say."""
        for known in self.guests.values():
            known.desired = None
        self._break_watches()

    def held(self, name: str) -> Ruleset | None:
        return self.guests[name].held

    def of(self, name: str) -> list[Received]:
        """What came for a guest."""
        return [each for each in self.received if each.guest == name]

    def _message(self, known: _Guest) -> Guest:
        held = known.held
        return replace(
            known.guest,
            digest="" if held is None else held.digest,
            generation=0 if held is None else held.generation,
        )

    def _present(self) -> Iterable[Guest]:
        return map(self._message, self.guests.values())

    # ---- a connection, as `bridge_api.client.BridgeClient` is one

    async def set_ruleset(
        self, guests: Sequence[str], ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow] = ()
    ) -> AsyncIterator[GuestResult]:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        data = repr((to_message(ruleset), flush)).encode()
        for name in guests:
            result = self._set(name, ruleset)
            self.received.append(Received(name, ruleset, tuple(flush), result, data))
            yield result

    async def flush_conntrack(
        self, guests: Sequence[str], flows: Sequence[Flow]
    ) -> AsyncIterator[GuestResult]:
        for name in guests:
            self.flushed.append((name, tuple(flows)))
            yield GuestResult(name, ResultCode.APPLIED)

    async def read_back(self, name: str) -> ReadBackReply:
        known = self.guests.get(name)
        if known is None:
            return ReadBackReply(GuestResult(name, ResultCode.GONE, "no such sandbox"))
        desired = tuple(to_part(document) for document in known.desired.documents) if known.desired else ()
        if known.unreachable:
            result = self._result(name, known, ResultCode.UNREACHABLE, known.unreachable)
            return ReadBackReply(result, (), desired)
        held = tuple(to_part(document) for document in known.held.documents) if known.held else ()
        return ReadBackReply(self._result(name, known, ResultCode.APPLIED), held, desired)

    async def close(self) -> None:
        """Nothing to close."""

    def _set(self, name: str, ruleset: Ruleset | RulesetDelta) -> GuestResult:
        known = self.guests.get(name)
        if known is None:
            return GuestResult(name, ResultCode.GONE, "no such sandbox")
        if known.desired is not None and ruleset.generation < known.desired.generation:
            text = f"generation {known.desired.generation} was set before"
            newest = known.desired
            return GuestResult(name, ResultCode.SUPERSEDED, text, newest.generation, newest.digest)
        try:
            known.desired = self._composed(known, ruleset)
        except BaseMismatch as error:
            return self._result(name, known, ResultCode.NEEDS_FULL, str(error))
        if known.unreachable:
            return self._result(name, known, ResultCode.UNREACHABLE, known.unreachable)
        if known.refusals:
            return self._result(name, known, *known.refusals.pop(0))
        if known.held is not None and known.held.digest == known.desired.digest:
            return self._result(name, known, ResultCode.UNCHANGED)
        known.held = known.desired
        return self._result(name, known, ResultCode.APPLIED)

    def _composed(self, known: _Guest, ruleset: Ruleset | RulesetDelta) -> Ruleset:
        if isinstance(ruleset, Ruleset):
            return ruleset
        if known.desired is None:
            raise BaseMismatch("nothing was set for this guest before")
        return apply_delta(known.desired, ruleset)

    def _result(self, name: str, known: _Guest, code: ResultCode, text: str = "") -> GuestResult:
        message = self._message(known)
        return GuestResult(name, code, text, message.generation, message.digest)

    # ---- over gRPC

    def _methods(self) -> Sequence[rpc.Bound]:
        async def set_ruleset(request: SetRulesetRequest, context: Any) -> AsyncIterator[GuestResult]:
            if request.ruleset is None:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no ruleset")
                return
            ruleset = from_message(request.ruleset)
            async for result in self.set_ruleset(request.guests, ruleset, request.flush):
                yield result

        async def flush(request: FlushConntrackRequest, _: Any) -> AsyncIterator[GuestResult]:
            async for result in self.flush_conntrack(request.guests, request.flows):
                yield result

        async def read_back(request: ReadBackRequest, _: Any) -> ReadBackReply:
            return await self.read_back(request.guest)

        return (
            rpc.SET_RULESET.bind(set_ruleset),
            rpc.READ_BACK.bind(read_back),
            rpc.FLUSH_CONNTRACK.bind(flush),
        )
