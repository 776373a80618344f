# SPDX-License-Identifier: Apache-2.0
"""All guests of the node, and the requests that clients make of them."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from bridge_api.messages import Flow, GuestResult, ReadBackReply, ResultCode
from bridge_api.rulesets import to_part
from daemonkit import logs
from kata_bridge.channels.port import GuestRefused, GuestState, NeedsFull, NotInjectable, Unreachable
from kata_bridge.guests.broadcaster import GuestBroadcaster
from kata_bridge.guests.core.events import (
    ChannelChanged,
    DesiredChanged,
    DriftKind,
    SetRulesetReply,
    StateReported,
)
from kata_bridge.guests.driver import DriverContext, GuestDriver
from kata_bridge.sandboxes.core.sandbox import Appeared, Sandbox, SandboxChange, resolver_applies_to
from ruleset.delta import BaseMismatch, RulesetDelta
from ruleset.document import Ruleset

_log = logs.get(__name__)

_GONE = "this node has no such sandbox"
_NOT_SYNCED = "the node's sandboxes are not synced yet"


class GuestRegistry:
    """One driver for each guest. `channels_of` returns the channels of a sandbox; none: unmanaged."""

    def __init__(
        self,
        context: DriverContext,
        broadcaster: GuestBroadcaster,
        channels_of: Callable[[Sandbox], tuple[str, ...]],
    ) -> None:
        self._context = context
        self._broadcaster = broadcaster
        self._channels_of = channels_of
        self._drivers: dict[str, GuestDriver] = {}
        self._unmanaged: dict[str, Sandbox] = {}
        self._tickets = itertools.count(1)
        self._pending: dict[int, asyncio.Queue[GuestResult]] = {}  # by ticket
        self._change_handlers: list[Callable[[str], None]] = []
        self.is_synced = False
        for kind in DriftKind:
            context.metrics.drift.labels(kind.value)

    def __len__(self) -> int:
        return len(self._drivers)

    @property
    def drivers(self) -> Mapping[str, GuestDriver]:
        return self._drivers

    @property
    def unmanaged(self) -> int:
        """How many sandboxes are unmanaged: in the host's network, or of another runtime."""
        return len(self._unmanaged)

    @property
    def accepts_agents(self) -> bool:
        """Whether this node accepts connections of guests' agents."""
        return "agent" in self._context.providers

    def add_change_handler(self, handler: Callable[[str], None]) -> None:
        """Call `handler` with the sandbox's id whenever a guest may have changed."""
        self._change_handlers.append(handler)

    # ---- sandboxes

    def update(self, changes: Iterable[SandboxChange]) -> None:
        """Apply changes of the node's sandboxes."""
        for change in changes:
            if isinstance(change, Appeared):
                self._classify(change.sandbox)
            else:
                self._remove(change.id)
        # A shim that makes its socket late turns a sandbox of an unlisted handler into a guest.
        for sandbox in list(self._unmanaged.values()):
            if self._channels_of(sandbox):
                self._classify(sandbox)

    def mark_synced(self) -> None:
        """Discovery has reported all sandboxes of the node."""
        if not self.is_synced:
            self.is_synced = True
            self._broadcaster.mark_synced()

    def reclassify(self) -> None:
        """Decide again which sandboxes are guests, and their channels: the configuration changed."""
        for sandbox in [*(driver.sandbox for driver in self._drivers.values()), *self._unmanaged.values()]:
            self._classify(sandbox)

    def _classify(self, sandbox: Sandbox) -> None:
        channels = self._channels_of(sandbox)
        driver = self._drivers.get(sandbox.id)
        if not channels:
            if driver is not None:
                self._remove(sandbox.id)
            self._unmanaged[sandbox.id] = sandbox
            return
        self._unmanaged.pop(sandbox.id, None)
        if driver is None:
            self._add(sandbox, channels)
            return
        is_other = (
            driver.channels != channels or driver.sandbox.ownership_problem != sandbox.ownership_problem
        )
        driver.sandbox, driver.channels = sandbox, channels
        if is_other:
            driver.handle(ChannelChanged())
        else:
            self._changed(driver)

    def _add(self, sandbox: Sandbox, channels: tuple[str, ...]) -> None:
        driver = GuestDriver(sandbox, channels, self._context, self._complete_set, self._changed)
        self._drivers[sandbox.id] = driver
        _log.info(
            "guest added",
            guest=sandbox.id,
            tenant=sandbox.tenant,
            pod=f"{sandbox.namespace}/{sandbox.name}",
            handler=sandbox.runtime_handler,
        )
        driver.start()

    def _remove(self, sandbox: str) -> None:
        self._unmanaged.pop(sandbox, None)
        driver = self._drivers.pop(sandbox, None)
        if driver is None:
            return
        driver.remove()
        for provider in self._context.providers.values():
            self._context.tasks.spawn(provider.forget(sandbox), f"forget {sandbox[:12]}")
        self._broadcaster.delete(sandbox)
        self._context.rulesets.evict_unused(self._desired_digests())
        _log.info("guest removed", guest=sandbox, tenant=driver.sandbox.tenant)

    def _changed(self, driver: GuestDriver) -> None:
        if driver.sandbox.id in self._drivers:
            self._broadcaster.update(driver.to_guest())
            for handler in self._change_handlers:
                handler(driver.sandbox.id)

    # ---- channels

    def channel_changed(self, sandbox: str) -> None:
        """An agent attached or left."""
        driver = self._drivers.get(sandbox)
        if driver is not None:
            driver.handle(ChannelChanged())

    def state_reported(self, sandbox: str, state: GuestState) -> None:
        """A guest reported its state without a request."""
        driver = self._drivers.get(sandbox)
        if driver is not None:
            driver.handle(StateReported(state))

    # ---- requests

    async def set_ruleset(
        self, guests: Sequence[str], ruleset: Ruleset | RulesetDelta, flush: tuple[Flow, ...]
    ) -> AsyncGenerator[GuestResult, None]:
        """Set the desired ruleset of `guests`; yield one result for each as it comes.

        Abandoning the iterator does not cancel the pushes.
        """
        unique = tuple(dict.fromkeys(guests))
        results: asyncio.Queue[GuestResult] = asyncio.Queue(len(unique))
        tickets = []
        if isinstance(ruleset, Ruleset):
            ruleset = self._context.rulesets.intern(ruleset)
        for guest in unique:
            ticket = next(self._tickets)
            tickets.append(ticket)
            self._pending[ticket] = results
            try:
                self._set(guest, ruleset, flush, ticket)
            except BaseMismatch as error:
                self._finish(ticket, self._result(guest, ResultCode.NEEDS_FULL, str(error)))
        self._context.rulesets.evict_unused(self._desired_digests())
        try:
            for _ in unique:
                yield await results.get()
        finally:
            for ticket in tickets:
                self._pending.pop(ticket, None)

    def _set(self, guest: str, ruleset: Ruleset | RulesetDelta, flush: tuple[Flow, ...], ticket: int) -> None:
        """Raises `BaseMismatch`."""
        driver = self._drivers.get(guest)
        if driver is None:
            self._finish(ticket, self._absent(guest))
            return
        if isinstance(ruleset, RulesetDelta):
            desired = driver.machine.desired
            if desired is None:
                raise BaseMismatch("no ruleset was set for this guest")
            ruleset = self._context.rulesets.compose(desired, ruleset)
        driver.handle(DesiredChanged(ruleset, flush, ticket))

    def _complete_set(self, guest: str, reply: SetRulesetReply) -> None:
        result = GuestResult(guest, reply.code, reply.message, reply.generation, reply.digest)
        self._finish(reply.ticket, result)

    def _finish(self, ticket: int, result: GuestResult) -> None:
        self._context.metrics.results.labels(result.code.name.lower()).inc()
        results = self._pending.pop(ticket, None)
        if results is not None:
            results.put_nowait(result)

    async def set_resolv_conf(self, guest: str, text: str, networks: Collection[str] = ()) -> GuestResult:
        """Write a guest's resolv.conf; one that names networks is refused for a guest on others."""
        return await self._call(guest, lambda driver: self._write_resolv_conf(driver, text, networks))

    async def _write_resolv_conf(
        self, driver: GuestDriver, text: str, networks: Collection[str]
    ) -> GuestResult:
        if not resolver_applies_to(networks, driver.sandbox.networks):
            raise GuestRefused("the resolver is for another network than the guest's")
        await driver.write_resolv_conf(text)
        return self._result(driver.sandbox.id, ResultCode.APPLIED)

    async def read_back(self, guest: str) -> ReadBackReply:
        """The rules that a guest holds, and those that it should hold."""
        reply = ReadBackReply()

        async def read(driver: GuestDriver) -> GuestResult:
            nonlocal reply
            documents = await driver.channel().read_back()
            reply = replace(reply, installed=tuple(to_part(document) for document in documents))
            return self._result(guest, ResultCode.APPLIED)

        result = await self._call(guest, read)
        driver = self._drivers.get(guest)
        desired = driver.machine.desired if driver is not None else None
        parts = () if desired is None else tuple(to_part(document) for document in desired.documents)
        return replace(reply, result=result, desired=parts)

    def check_drift(self, guests: Sequence[str]) -> AsyncGenerator[GuestResult, None]:
        """Read the state of guests (none named: all); repairs nothing."""
        return self._call_each(guests or tuple(self._drivers), self._check)

    async def _check(self, driver: GuestDriver) -> GuestResult:
        state = await driver.channel().state()
        desired = driver.machine.desired
        is_other = desired is not None and state.digest != desired.digest
        code = ResultCode.DRIFTED if state.has_drifted or is_other else ResultCode.APPLIED
        return GuestResult(driver.sandbox.id, code, "", state.generation, state.digest)

    def flush_conntrack(
        self, guests: Sequence[str], flows: tuple[Flow, ...]
    ) -> AsyncGenerator[GuestResult, None]:
        """Delete conntrack entries in guests."""

        async def flush(driver: GuestDriver) -> GuestResult:
            await driver.channel().flush_conntrack(flows)
            return self._result(driver.sandbox.id, ResultCode.APPLIED)

        return self._call_each(guests, flush)

    async def _call_each(
        self, guests: Sequence[str], make: Callable[[GuestDriver], Awaitable[GuestResult]]
    ) -> AsyncGenerator[GuestResult, None]:
        """Call all guests at once; yield results as they come."""
        unique = tuple(dict.fromkeys(guests))
        results: asyncio.Queue[GuestResult] = asyncio.Queue(len(unique) or 1)

        async def call(guest: str) -> None:
            results.put_nowait(await self._call(guest, make))

        tasks = [self._context.tasks.spawn(call(guest), f"call {guest[:12]}") for guest in unique]
        try:
            for _ in unique:
                yield await results.get()
        finally:
            for task in tasks:
                task.cancel()

    async def _call(self, guest: str, make: Callable[[GuestDriver], Awaitable[GuestResult]]) -> GuestResult:
        driver = self._drivers.get(guest)
        if driver is None:
            return self._absent(guest)
        try:
            return await driver.call(lambda: make(driver))
        except NotInjectable as error:
            return self._result(guest, ResultCode.NOT_INJECTABLE, str(error))
        except GuestRefused as error:
            return self._result(guest, ResultCode.REFUSED, str(error))
        except (Unreachable, NeedsFull) as error:
            return self._result(guest, ResultCode.UNREACHABLE, str(error))

    def _absent(self, guest: str) -> GuestResult:
        if self.is_synced:
            return GuestResult(guest, ResultCode.GONE, _GONE)
        return GuestResult(guest, ResultCode.UNREACHABLE, _NOT_SYNCED)

    def _result(self, guest: str, code: ResultCode, message: str = "") -> GuestResult:
        driver = self._drivers.get(guest)
        if driver is None:
            return GuestResult(guest, code, message)
        last = driver.machine.last_reported
        return GuestResult(guest, code, message, last.generation, last.digest)

    def _desired_digests(self) -> set[str]:
        machines = (driver.machine for driver in self._drivers.values())
        return {machine.desired.digest for machine in machines if machine.desired is not None}

    def stop(self) -> None:
        """Start no more calls. Guests keep their rules."""
        for driver in self._drivers.values():
            driver.stop()
