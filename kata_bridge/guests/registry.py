# SPDX-License-Identifier: Apache-2.0
"""All guests of the node, and what can be asked of them."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bridge_api.messages import Flow, GuestResult, ReadBackReply, ResultCode
from bridge_api.rulesets import to_part
from daemonkit import logs
from kata_bridge.channels.port import GuestRefused, GuestState, NeedsFull, NotInjectable, Unreachable
from kata_bridge.guests.broadcaster import GuestBroadcaster
from kata_bridge.guests.core.events import ChannelChanged, DesiredChanged, SetRulesetReply, StateReported
from kata_bridge.guests.driver import DriverContext, GuestDriver
from kata_bridge.sandboxes.core.sandbox import Appeared, Change, Sandbox
from kata_bridge.start_gate.core.decision import are_for
from ruleset.delta import BaseMismatch, RulesetDelta
from ruleset.document import Ruleset

_log = logs.get(__name__)

_GONE = "no such sandbox on this node"
_NOT_SYNCED = "the node's sandboxes are not known yet"


@dataclass(slots=True)
class _Waiting:
    """Someone who set rulesets and reads the answers."""

    answers: "asyncio.Queue[GuestResult]"


class GuestRegistry:
    """One driver for each guest. `channels_of` tells the ways into a sandbox; none: it is no guest."""

    def __init__(
        self,
        shared: DriverContext,
        watchers: GuestBroadcaster,
        channels_of: Callable[[Sandbox], tuple[str, ...]],
    ) -> None:
        self._shared = shared
        self._watchers = watchers
        self._channels_of = channels_of
        self._drivers: dict[str, GuestDriver] = {}
        self._left_alone: dict[str, Sandbox] = {}
        self._tickets = itertools.count(1)
        self._waiting: dict[int, _Waiting] = {}
        self.is_synced = False
        # Called with the sandbox's id when anything of a guest may have become another.
        self.on_changed: Callable[[str], None] = lambda _: None

    def __len__(self) -> int:
        return len(self._drivers)

    @property
    def drivers(self) -> Mapping[str, GuestDriver]:
        return self._drivers

    @property
    def left_alone(self) -> int:
        """Sandboxes that are no guests of ours: in the host's network, or of another runtime."""
        return len(self._left_alone)

    @property
    def takes_agents(self) -> bool:
        """Whether there is a door on this node for agents of guests."""
        return "agent" in self._shared.openers

    # ---- what discovery says

    def take(self, changes: Iterable[Change]) -> None:
        """Take in what changed among the sandboxes of the node."""
        for change in changes:
            if isinstance(change, Appeared):
                self._appeared(change.sandbox)
            else:
                self._vanished(change.id)
        # A shim that makes its socket late turns a sandbox of an unlisted handler into a guest.
        for sandbox in list(self._left_alone.values()):
            if self._channels_of(sandbox):
                self._appeared(sandbox)

    def synced(self) -> None:
        """Discovery has told of all sandboxes that there are."""
        if not self.is_synced:
            self.is_synced = True
            self._watchers.synced()

    def _appeared(self, sandbox: Sandbox) -> None:
        channels = self._channels_of(sandbox)
        driver = self._drivers.get(sandbox.id)
        if not channels:
            if driver is not None:
                self._vanished(sandbox.id)
            self._left_alone[sandbox.id] = sandbox
            return
        self._left_alone.pop(sandbox.id, None)
        if driver is None:
            driver = GuestDriver(sandbox, channels, self._shared, self._answered, self._changed)
            self._drivers[sandbox.id] = driver
            _log.info(
                "guest appeared",
                guest=sandbox.id,
                tenant=sandbox.tenant,
                pod=f"{sandbox.namespace}/{sandbox.name}",
                handler=sandbox.runtime_handler,
            )
            driver.begin()
            return
        is_other = driver.channels != channels or driver.sandbox.refusal != sandbox.refusal
        driver.sandbox, driver.channels = sandbox, channels
        if is_other:
            driver.feed(ChannelChanged())
        else:
            self._changed(driver)

    def _vanished(self, sandbox: str) -> None:
        self._left_alone.pop(sandbox, None)
        driver = self._drivers.pop(sandbox, None)
        if driver is None:
            return
        driver.end()
        for opener in self._shared.openers.values():
            self._shared.tasks.spawn(opener.forget(sandbox), f"forget {sandbox[:12]}")
        self._watchers.gone(sandbox)
        self._shared.rulesets.keep(self._used())
        _log.info("guest gone", guest=sandbox, tenant=driver.sandbox.tenant)

    def look_again(self) -> None:
        """Ask anew which sandboxes are guests and which ways lead into them (the rules changed)."""
        for sandbox in [*(driver.sandbox for driver in self._drivers.values()), *self._left_alone.values()]:
            self._appeared(sandbox)

    def _changed(self, driver: GuestDriver) -> None:
        if driver.sandbox.id in self._drivers:
            self._watchers.present(driver.message())
            self.on_changed(driver.sandbox.id)

    # ---- what channels say

    def channel_changed(self, sandbox: str) -> None:
        """An agent attached or left."""
        driver = self._drivers.get(sandbox)
        if driver is not None:
            driver.feed(ChannelChanged())

    def reported(self, sandbox: str, state: GuestState) -> None:
        """A guest says what it holds without having been asked."""
        driver = self._drivers.get(sandbox)
        if driver is not None:
            driver.feed(StateReported(state))

    # ---- what is asked

    async def set_ruleset(
        self, guests: Sequence[str], ruleset: Ruleset | RulesetDelta, flush: tuple[Flow, ...]
    ) -> AsyncGenerator[GuestResult, None]:
        """Let these guests hold `ruleset`; yields one result for each, as they come.

        Whoever stops to listen does not stop what was begun.
        """
        wanted = tuple(dict.fromkeys(guests))
        waiting = _Waiting(asyncio.Queue(len(wanted)))
        tickets = {}
        if isinstance(ruleset, Ruleset):
            ruleset = self._shared.rulesets.shared(ruleset)
        for guest in wanted:
            ticket = next(self._tickets)
            tickets[ticket] = guest
            self._waiting[ticket] = waiting
            try:
                self._set(guest, ruleset, flush, ticket)
            except BaseMismatch as error:
                self._finish(ticket, self._result(guest, ResultCode.NEEDS_FULL, str(error)))
        self._shared.rulesets.keep(self._used())
        try:
            for _ in wanted:
                yield await waiting.answers.get()
        finally:
            for ticket in tickets:
                self._waiting.pop(ticket, None)

    def _set(self, guest: str, ruleset: Ruleset | RulesetDelta, flush: tuple[Flow, ...], ticket: int) -> None:
        """Raises `BaseMismatch`."""
        driver = self._drivers.get(guest)
        if driver is None:
            self._finish(ticket, self._absent(guest))
            return
        if isinstance(ruleset, RulesetDelta):
            desired = driver.machine.desired
            if desired is None:
                raise BaseMismatch("nothing was set for this guest before")
            ruleset = self._shared.rulesets.composed(desired, ruleset)
        driver.feed(DesiredChanged(ruleset, flush, ticket))

    def _answered(self, guest: str, answer: SetRulesetReply) -> None:
        result = GuestResult(guest, answer.code, answer.text, answer.generation, answer.digest)
        self._finish(answer.ticket, result)

    def _finish(self, ticket: int, result: GuestResult) -> None:
        self._shared.metrics.results.labels(result.code.name.lower()).inc()
        waiting = self._waiting.pop(ticket, None)
        if waiting is not None:
            waiting.answers.put_nowait(result)

    async def set_resolv_conf(self, guest: str, text: str, networks: Collection[str] = ()) -> GuestResult:
        """Write a guest's resolv.conf; not one for other networks than its own, where that is said."""
        return await self._one(guest, lambda driver: self._write(driver, text, networks))

    async def _write(self, driver: GuestDriver, text: str, networks: Collection[str]) -> GuestResult:
        if not are_for(networks, driver.sandbox.networks):
            raise GuestRefused("its resolver is for another network")
        await driver.write_resolv_conf(text)
        return self._result(driver.sandbox.id, ResultCode.APPLIED)

    async def read_back(self, guest: str) -> ReadBackReply:
        """What a guest holds, beside what it shall hold."""
        reply = ReadBackReply()

        async def read(driver: GuestDriver) -> GuestResult:
            nonlocal reply
            held = await driver.channel().read_back()
            reply = replace(reply, installed=tuple(to_part(document) for document in held))
            return self._result(guest, ResultCode.APPLIED)

        result = await self._one(guest, read)
        driver = self._drivers.get(guest)
        desired = driver.machine.desired if driver is not None else None
        parts = () if desired is None else tuple(to_part(document) for document in desired.documents)
        return replace(reply, result=result, desired=parts)

    def check_drift(self, guests: Sequence[str]) -> AsyncGenerator[GuestResult, None]:
        """Ask guests (none named: all) what they hold; repairs nothing."""
        return self._each(guests or tuple(self._drivers), self._check)

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

        return self._each(guests, flush)

    async def _each(
        self, guests: Sequence[str], call: Callable[[GuestDriver], Awaitable[GuestResult]]
    ) -> AsyncGenerator[GuestResult, None]:
        """Make `call` in all guests at once; yields results as they come."""
        wanted = tuple(dict.fromkeys(guests))
        answers: asyncio.Queue[GuestResult] = asyncio.Queue(len(wanted) or 1)

        async def one(guest: str) -> None:
            answers.put_nowait(await self._one(guest, call))

        tasks = [self._shared.tasks.spawn(one(guest), f"ask {guest[:12]}") for guest in wanted]
        try:
            for _ in wanted:
                yield await answers.get()
        finally:
            for task in tasks:
                task.cancel()

    async def _one(self, guest: str, call: Callable[[GuestDriver], Awaitable[GuestResult]]) -> GuestResult:
        driver = self._drivers.get(guest)
        if driver is None:
            return self._absent(guest)
        try:
            return await driver.turn(lambda: call(driver))
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

    def _result(self, guest: str, code: ResultCode, text: str = "") -> GuestResult:
        driver = self._drivers.get(guest)
        if driver is None:
            return GuestResult(guest, code, text)
        return GuestResult(guest, code, text, driver.machine.said.generation, driver.machine.said.digest)

    def _used(self) -> set[str]:
        machines = (driver.machine for driver in self._drivers.values())
        return {machine.desired.digest for machine in machines if machine.desired is not None}

    def stop(self) -> None:
        """Do no more. Guests keep their rules."""
        for driver in self._drivers.values():
            driver.stop()
