# SPDX-License-Identifier: Apache-2.0
"""A fake of kata-bridge, in process or, with `serve`, on a unix socket.

The contract tests in `tests/functional/bridge_api` run against it and against kata-bridge. Its guests are
values: rules and resolv.confs are stored, and applied to nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from bridge_api import rpc
from bridge_api.client import BridgeError, BridgeUnavailableError
from bridge_api.messages import (
    Capabilities,
    CheckDriftRequest,
    Flow,
    FlushConntrackRequest,
    Guest,
    GuestEvent,
    GuestEventKind,
    GuestResult,
    ReadBackReply,
    ReadBackRequest,
    ResultCode,
    SetResolvConfRequest,
    SetRulesetRequest,
    WatchGuestsRequest,
)
from bridge_api.rulesets import BadRuleset, from_message, to_message, to_part
from ruleset.delta import BaseMismatch, RulesetDelta, apply_delta
from ruleset.document import Ruleset

CAPABILITIES = Capabilities(
    channel="agent", backends=("iptables", "nft"), ipv6=True, deltas=True, conntrack=True, resolv_conf=True
)
_GONE = "this node has no such sandbox"


@dataclass(frozen=True, slots=True)
class RulesetRequest:
    """One ruleset that came for one guest. `data` is the whole request, as bytes."""

    guest: str
    ruleset: Ruleset | RulesetDelta
    flush: tuple[Flow, ...]
    result: GuestResult
    data: bytes

    @property
    def is_delta(self) -> bool:
        return isinstance(self.ruleset, RulesetDelta)


@dataclass(slots=True)
class BridgeGuest:
    """A guest. `next_results` are returned, one each, instead of applying a ruleset.

    While `unreachable` is set, the guest gets nothing. `has_drifted` lasts until the next ruleset.
    """

    guest: Guest
    desired: Ruleset | None = None
    installed: Ruleset | None = None
    next_results: list[tuple[ResultCode, str]] = field(default_factory=list)
    unreachable: str = ""
    has_drifted: bool = False


class FakeBridge:
    """kata-bridge with the guests and pods of a node. Its calls are those of `BridgeClient`.

    Pods are known by their UID, or where a guest has none by the guest's id. Tests may change `guests`
    and then `announce` them.
    """

    def __init__(self) -> None:
        self.is_synced = True
        self.delay_s = 0.0
        self.guests: dict[str, BridgeGuest] = {}
        self.ruleset_requests: list[RulesetRequest] = []
        self.resolv_conf_requests: list[SetResolvConfRequest] = []
        self.flushed: list[tuple[str, tuple[Flow, ...]]] = []
        self.resolvers: dict[str, SetResolvConfRequest] = {}
        """By pod: the latest request, unless it was withdrawn."""
        self.resolv_confs: dict[str, str] = {}
        """By pod: the file that its running containers have."""
        self.wait_messages: dict[str, str] = {}
        """By pod: why its containers may not start; "" if they may."""
        # Returned, one each, instead of taking a resolv.conf.
        self.next_resolv_conf_results: list[tuple[ResultCode, str]] = []
        self._watchers: set[asyncio.Queue[GuestEvent | None]] = set()
        self._server: grpc.aio.Server | None = None

    # ---- for tests: guests

    def add(self, name: str, tenant: str, pod: str = "", /, **fields: Any) -> BridgeGuest:
        """Add the guest `name`, of the pod `NAMESPACE/NAME` in the super cluster."""
        namespace, _, pod_name = (pod or f"{tenant}-default/{name}").partition("/")
        standard = Guest(
            id=name,
            namespace=namespace,
            name=pod_name,
            tenant=tenant,
            tenant_namespace="default",
            tenant_name=name,
            networks=("default",),
            ips=("10.244.0.9",),
            capabilities=CAPABILITIES,
        )
        added = self.guests[name] = BridgeGuest(replace(standard, **fields))
        self.announce(name)
        return added

    def remove(self, name: str) -> None:
        del self.guests[name]
        self._send(GuestEvent(GuestEventKind.GONE, Guest(id=name)))

    def change(self, name: str, /, **fields: Any) -> None:
        """Change fields of a guest's message."""
        known = self.guests[name]
        known.guest = replace(known.guest, **fields)
        self.announce(name)

    def announce(self, name: str) -> None:
        """Send the guest to all watchers."""
        self._send(GuestEvent(GuestEventKind.PRESENT, self._message(self.guests[name])))

    def finish_sync(self) -> None:
        """Send SYNCED, where `is_synced` was False."""
        self.is_synced = True
        self._send(GuestEvent(GuestEventKind.SYNCED))

    def lose_state(self) -> None:
        """Restart without saved state: what was set is forgotten, guests keep what they have."""
        for known in self.guests.values():
            known.desired = None
        self.resolvers.clear()
        self.resolv_confs.clear()
        self.wait_messages.clear()
        for watcher in self._watchers:
            watcher.put_nowait(None)

    def installed(self, name: str) -> Ruleset | None:
        return self.guests[name].installed

    def requests_for(self, name: str) -> list[RulesetRequest]:
        return [each for each in self.ruleset_requests if each.guest == name]

    def _message(self, known: BridgeGuest) -> Guest:
        installed = known.installed or Ruleset(0, "", ())
        return replace(known.guest, digest=installed.digest, generation=installed.generation)

    def _send(self, event: GuestEvent) -> None:
        for watcher in self._watchers:
            watcher.put_nowait(event)

    # ---- the calls of `BridgeClient`

    async def watch_guests(self) -> AsyncIterator[GuestEvent]:
        watcher: asyncio.Queue[GuestEvent | None] = asyncio.Queue()
        for known in self.guests.values():
            watcher.put_nowait(GuestEvent(GuestEventKind.PRESENT, self._message(known)))
        if self.is_synced:
            watcher.put_nowait(GuestEvent(GuestEventKind.SYNCED))
        self._watchers.add(watcher)
        try:
            while True:
                event = await watcher.get()
                if event is None:
                    raise BridgeUnavailableError("kata-bridge restarts")
                yield event
        finally:
            self._watchers.discard(watcher)

    async def set_ruleset(
        self, guests: Sequence[str], ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow] = ()
    ) -> AsyncIterator[GuestResult]:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        data = repr((to_message(ruleset), flush)).encode()
        for name in guests:
            result = self._set(name, ruleset)
            self.ruleset_requests.append(RulesetRequest(name, ruleset, tuple(flush), result, data))
            yield result

    def _set(self, name: str, ruleset: Ruleset | RulesetDelta) -> GuestResult:
        known = self.guests.get(name)
        if known is None:
            return GuestResult(name, ResultCode.GONE, _GONE)
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
        if known.next_results:
            return self._result(name, known, *known.next_results.pop(0))
        is_installed = known.installed is not None and known.installed.digest == known.desired.digest
        was_changed = known.has_drifted or not is_installed
        known.installed, known.has_drifted = known.desired, False
        if not was_changed:
            return self._result(name, known, ResultCode.UNCHANGED)
        return self._result(name, known, ResultCode.APPLIED)

    def _composed(self, known: BridgeGuest, ruleset: Ruleset | RulesetDelta) -> Ruleset:
        if isinstance(ruleset, Ruleset):
            return ruleset
        if known.desired is None:
            raise BaseMismatch("no ruleset was set for this guest")
        return apply_delta(known.desired, ruleset)

    def _result(self, name: str, known: BridgeGuest, code: ResultCode, text: str = "") -> GuestResult:
        message = self._message(known)
        return GuestResult(name, code, text, message.generation, message.digest)

    async def check_drift(self, guests: Sequence[str] = ()) -> AsyncIterator[GuestResult]:
        for name in guests or tuple(self.guests):
            known = self.guests.get(name)
            if known is None:
                yield GuestResult(name, ResultCode.GONE, _GONE)
            elif known.unreachable:
                yield self._result(name, known, ResultCode.UNREACHABLE, known.unreachable)
            else:
                is_other = known.desired is not None and known.desired != known.installed
                code = ResultCode.DRIFTED if known.has_drifted or is_other else ResultCode.APPLIED
                yield self._result(name, known, code)

    async def flush_conntrack(
        self, guests: Sequence[str], flows: Sequence[Flow]
    ) -> AsyncIterator[GuestResult]:
        for name in guests:
            known = self.guests.get(name)
            if known is None:
                yield GuestResult(name, ResultCode.GONE, _GONE)
            else:
                self.flushed.append((name, tuple(flows)))
                yield self._result(name, known, ResultCode.APPLIED)

    async def read_back(self, guest: str) -> ReadBackReply:
        known = self.guests.get(guest)
        if known is None:
            return ReadBackReply(GuestResult(guest, ResultCode.GONE, _GONE))
        desired = tuple(to_part(document) for document in known.desired.documents) if known.desired else ()
        if known.unreachable:
            result = self._result(guest, known, ResultCode.UNREACHABLE, known.unreachable)
            return ReadBackReply(result, (), desired)
        installed = known.installed.documents if known.installed else ()
        parts = tuple(to_part(document) for document in installed)
        return ReadBackReply(self._result(guest, known, ResultCode.APPLIED), parts, desired)

    async def set_resolv_conf(self, request: SetResolvConfRequest) -> GuestResult:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        guest, text, networks = request.guest, request.text, request.networks
        self.resolv_conf_requests.append(request)
        if self.next_resolv_conf_results:
            return GuestResult(guest, *self.next_resolv_conf_results.pop(0))
        if guest and guest not in self.guests:
            if not text:
                return GuestResult(guest, ResultCode.UNCHANGED)
            return GuestResult(guest, ResultCode.GONE, _GONE)
        pod = request.pod_uid or self.guests[guest].guest.uid or guest
        before = self.resolvers.pop(pod, SetResolvConfRequest())
        latest = SetResolvConfRequest()
        if text or request.wait_message:
            self.resolvers[pod] = latest = replace(request, guest="", pod_uid="")
        if not networks or self._is_for(pod, networks):
            if text:
                self.resolv_confs[pod] = text
            self.wait_messages[pod] = request.wait_message
        return GuestResult(guest, ResultCode.UNCHANGED if before == latest else ResultCode.APPLIED)

    def _is_for(self, pod: str, networks: Sequence[str]) -> bool:
        """Whether each guest of the pod that reports networks is on exactly these."""
        guests = (each.guest for each in self.guests.values())
        return all(
            set(each.networks) == set(networks)
            for each in guests
            if pod in (each.uid, each.id) and each.networks
        )

    async def close(self) -> None:
        """Part of `BridgeClient`; there is nothing to close."""

    # ---- over gRPC

    async def serve(self, path: Path) -> None:
        """Listen on the unix socket `path` until `stop`."""
        path.unlink(missing_ok=True)  # noqa: ASYNC240 - once, before anything is served
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((rpc.service(*self._methods()),))
        self._server.add_insecure_port(f"unix:{path}")
        await self._server.start()

    async def stop(self) -> None:
        """Stop listening and lose the state; guests keep what they have."""
        self.lose_state()
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    def _methods(self) -> Sequence[rpc.BoundMethod]:
        async def watch(_: WatchGuestsRequest, context: Any) -> AsyncIterator[GuestEvent]:
            try:
                async for event in self.watch_guests():
                    yield event
            except BridgeUnavailableError as error:
                await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

        async def set_ruleset(request: SetRulesetRequest, context: Any) -> AsyncIterator[GuestResult]:
            if request.ruleset is None:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no ruleset")
                return
            try:
                ruleset = from_message(request.ruleset)
            except BadRuleset as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
                return
            async for result in self.set_ruleset(request.guests, ruleset, request.flush):
                yield result

        async def set_resolv_conf(request: SetResolvConfRequest, context: Any) -> GuestResult:
            if bool(request.guest) == bool(request.pod_uid):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "exactly one of guest and pod_uid")
            return await self.set_resolv_conf(request)

        async def check_drift(request: CheckDriftRequest, _: Any) -> AsyncIterator[GuestResult]:
            async for result in self.check_drift(request.guests):
                yield result

        async def flush(request: FlushConntrackRequest, _: Any) -> AsyncIterator[GuestResult]:
            async for result in self.flush_conntrack(request.guests, request.flows):
                yield result

        async def read_back(request: ReadBackRequest, _: Any) -> ReadBackReply:
            return await self.read_back(request.guest)

        return (
            rpc.WATCH_GUESTS.bind(watch),
            rpc.SET_RULESET.bind(set_ruleset),
            rpc.SET_RESOLV_CONF.bind(set_resolv_conf),
            rpc.READ_BACK.bind(read_back),
            rpc.CHECK_DRIFT.bind(check_drift),
            rpc.FLUSH_CONNTRACK.bind(flush),
        )


async def scripted_watch(script: Iterable[GuestEvent | BridgeError]) -> AsyncIterator[GuestEvent]:
    """A `watch_guests` that yields or raises what `script` has, and then waits."""
    for event in script:
        if isinstance(event, BridgeError):
            raise event
        yield event
    await asyncio.sleep(1e6)
