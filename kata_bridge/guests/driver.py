# SPDX-License-Identifier: Apache-2.0
"""Runs the state machine of one guest: one call into the guest after another, with timers and logs."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bridge_api.messages import Guest
from daemonkit import logs
from daemonkit.tasks import Tasks
from kata_bridge.channels.port import Channel, GuestRefused, NeedsFull, NotInjectable, Unreachable
from kata_bridge.channels.select import ChannelProvider, SelectedChannel, select_channel
from kata_bridge.guests.call_semaphore import CallSemaphore
from kata_bridge.guests.core.events import (
    CallOutcome,
    CallRefused,
    CancelProbe,
    CheckState,
    FlushFlows,
    FlushSucceeded,
    FullRulesetNeeded,
    GuestCall,
    GuestMachineEvent,
    GuestNotInjectable,
    GuestUnreachable,
    ProbeChannel,
    ProbeSucceeded,
    PushRuleset,
    RecordDrift,
    SandboxAdded,
    SandboxRemoved,
    SetRulesetReply,
    StateReturned,
    Tick,
)
from kata_bridge.guests.core.machine import GuestMachine
from kata_bridge.guests.core.ruleset_cache import RulesetCache
from kata_bridge.metrics import KataBridgeMetrics
from kata_bridge.sandboxes.core.sandbox import Sandbox
from ruleset.document import Ruleset

# Channels have shorter deadlines of their own. This one ends a call whose channel has lost it.
CALL_S = 90.0
# A VM boots in a few seconds at worst. By then the agent of an image that has one has attached.
BOOT_S = 30.0
# Calls at once, by channel. An agent works in the guest; a namespace's work is done by processes of this
# node, and more of them at once only makes each slower.
MAX_CALLS = {"agent": 128, "stock": 20, "netns": 4}
MAX_CALLS_OTHER = 16
# Calls at once into the guests of one tenant. A stock guest can delay each call up to its deadline. A node
# has fewer agents than slots for them, and a netns call does not wait for anything in the pod.
MAX_CALLS_PER_TENANT = {"stock": 16}

T = TypeVar("T")

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class DriverContext:
    """What all drivers of the node share."""

    providers: Mapping[str, ChannelProvider]
    rulesets: RulesetCache
    metrics: KataBridgeMetrics
    tasks: Tasks
    semaphores: Mapping[str, CallSemaphore]
    jitter: Callable[[], float]
    check_s: float


class GuestDriver:
    """One running guest.

    `on_reply` gets each reply to a SetRuleset request; `on_changed` is called after each event.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        channels: Sequence[str],
        context: DriverContext,
        on_reply: Callable[[str, SetRulesetReply], None],
        on_changed: Callable[["GuestDriver"], None],
    ) -> None:
        self.sandbox = sandbox
        self.channels = tuple(channels)
        self.machine = GuestMachine(context.check_s)
        self.selected: SelectedChannel | None = None
        self._resolv_conf = ""
        self._context = context
        self._on_reply, self._on_changed = on_reply, on_changed
        self._loop = asyncio.get_running_loop()
        self._started_s = self._loop.time()
        self.behind_since_s: float | None = self._started_s
        self._one_call = asyncio.Lock()
        self._call_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last_reported: tuple[str, str] | None = None

    # ---- events

    def start(self) -> None:
        self.handle(SandboxAdded())

    def handle(self, event: GuestMachineEvent) -> None:
        """Pass an event to the machine and start the actions that it returns. Does not wait."""
        now_s = self._loop.time()
        actions = self.machine.handle(event, now_s, self._context.jitter())
        for action in actions:
            match action:
                case SetRulesetReply():
                    self._on_reply(self.sandbox.id, action)
                case RecordDrift():
                    self._record_drift(action)
                case CancelProbe():
                    if self._call_task is not None:
                        self._call_task.cancel()
                case _:
                    name = f"guest {self.sandbox.id[:12]}"
                    self._call_task = self._context.tasks.spawn(self._run(action), name)
        self._set_timer(now_s)
        self._log_state()
        self._on_changed(self)

    def _set_timer(self, now_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_s = self.machine.due_s()
        if due_s is not None:
            self._timer = self._loop.call_at(max(due_s, now_s + 0.001), self.handle, Tick())
        if self.machine.is_current or self.machine.is_removed:
            self.behind_since_s = None
        elif self.behind_since_s is None:
            self.behind_since_s = now_s

    def remove(self) -> None:
        """The sandbox was stopped."""
        self.handle(SandboxRemoved())
        if self._call_task is not None:
            self._call_task.cancel()

    def stop(self) -> None:
        """Start no more calls; the guest keeps its rules."""
        if self._timer is not None:
            self._timer.cancel()

    # ---- calls into the guest

    async def _run(self, call: GuestCall) -> None:
        self.handle(await self._outcome(call))

    async def _outcome(self, call: GuestCall) -> CallOutcome:
        try:
            return await self.call(lambda: self._make(call))
        except Unreachable as error:
            return GuestUnreachable(str(error))
        except NotInjectable as error:
            return GuestNotInjectable(str(error))
        except GuestRefused as error:
            return CallRefused(str(error))
        except NeedsFull:
            return FullRulesetNeeded()

    async def call(self, make: Callable[[], Awaitable[T]]) -> T:
        """Make a call into this guest: one at a time, and a bounded number at once on the node.

        Raises the four outcomes of `channels.port`. A call that takes too long is `Unreachable`, and so
        is a bug of the channel: the guest keeps its retries, and a client that asked about several
        guests gets the results of the others.
        """
        async with self._one_call:
            name = self.selected.name if self.selected else self.channels[0] if self.channels else ""
            semaphore = self._context.semaphores.get(name) or self._context.semaphores[""]
            async with semaphore.slot(self.sandbox.tenant):
                try:
                    async with asyncio.timeout(CALL_S):
                        return await make()
                except (Unreachable, NotInjectable, GuestRefused, NeedsFull):
                    raise
                except TimeoutError:
                    raise Unreachable(f"{name}: no answer within {CALL_S:g} s") from None
                # A driver that died would never push rules into its guest again.
                except Exception as error:  # noqa: BLE001 - one guest's answer must not end its driver
                    _log.error(
                        "call into guest failed, a bug of its channel",
                        guest=self.sandbox.id,
                        error=error,
                        traceback=logs.trace(error),
                    )
                    text = f"internal error of kata-bridge: {type(error).__name__}: {error}"
                    raise Unreachable(text) from None

    def channel(self) -> Channel:
        """The selected channel. Raises `Unreachable` and `NotInjectable` where there is none."""
        if self.selected is not None:
            return self.selected.channel
        if self.machine.not_injectable:
            raise NotInjectable(self.machine.not_injectable)
        raise Unreachable(self.machine.unreachable or "no channel was selected yet")

    async def write_resolv_conf(self, text: str) -> None:
        """Write the guest's resolv.conf now, and again whenever another channel is selected.

        Raises what a channel raises; a guest that is unreachable now gets it with its next channel.
        """
        self._resolv_conf = text
        await self.channel().set_resolv_conf(text)

    async def _make(self, call: GuestCall) -> CallOutcome:
        match call:
            case ProbeChannel():
                return await self._probe()
            case CheckState():
                return StateReturned(await self.channel().state())
            case FlushFlows(flows):
                await self.channel().flush_conntrack(flows)
                return FlushSucceeded()
            case PushRuleset():
                return await self._push(call)

    async def _probe(self) -> ProbeSucceeded:
        if self.sandbox.ownership_problem:
            raise NotInjectable(self.sandbox.ownership_problem)
        is_booting = self._loop.time() - self._started_s < BOOT_S
        providers = self._context.providers
        selected = await select_channel(self.sandbox, self.channels, providers, is_booting=is_booting)
        state = await selected.channel.state()
        if self.selected is None or self.selected.name != selected.name:
            _log.info(
                "channel selected",
                guest=self.sandbox.id,
                channel=selected.capabilities.channel,
                digest=state.digest[:16],
            )
        if self.selected is None or self.selected.channel is not selected.channel:
            await self._restore_resolv_conf(selected)
        self.selected = selected
        return ProbeSucceeded(selected.capabilities, state)

    async def _restore_resolv_conf(self, selected: SelectedChannel) -> None:
        """Write the last resolv.conf again: a guest that was rebooted has its image's."""
        if not self._resolv_conf or not selected.capabilities.resolv_conf:
            return
        try:
            await selected.channel.set_resolv_conf(self._resolv_conf)
        except (NotInjectable, GuestRefused) as error:
            # The guest's rules do not wait for it.
            _log.warning("resolv.conf of a guest is not restored", guest=self.sandbox.id, reason=error)

    async def _push(self, push: PushRuleset) -> StateReturned:
        channel = self.channel()
        desired: Ruleset = push.ruleset
        payload = desired if push.base is None else self._context.rulesets.payload(push.base, desired)
        kind = "full" if isinstance(payload, Ruleset) else "delta"
        started_s = self._loop.time()
        result = "failed"
        try:
            state = await channel.apply(payload, push.flush)
            result = "applied"
        except GuestRefused:
            result = "refused"
            raise
        except NeedsFull:
            result = "needs full"
            raise
        finally:
            self._context.metrics.pushes.labels(kind, result).inc()
        took_s = self._loop.time() - started_s
        self._context.metrics.apply_seconds.observe(took_s)
        _log.info(
            "ruleset applied",
            guest=self.sandbox.id,
            tenant=self.sandbox.tenant,
            pod=self._pod,
            generation=state.generation,
            digest=state.digest[:16],
            kind=kind,
            ms=round(took_s * 1000, 1),
        )
        return StateReturned(state)

    # ---- logs and status

    @property
    def _pod(self) -> str:
        return f"{self.sandbox.namespace}/{self.sandbox.name}"

    def _record_drift(self, action: RecordDrift) -> None:
        if action.drift is None:
            self._context.metrics.repairs.inc()
            _log.info("drift of a guest repaired", guest=self.sandbox.id, tenant=self.sandbox.tenant)
            return
        self._context.metrics.drift.labels(action.drift.value).inc()
        _log.warning(
            "rules of a guest drifted; applying them again",
            guest=self.sandbox.id,
            tenant=self.sandbox.tenant,
            pod=self._pod,
            drift=action.drift,
        )

    def _log_state(self) -> None:
        """Log once when the guest enters a state that an operator must know of, and once at its end."""
        machine = self.machine
        if machine.is_removed:
            return
        problem: tuple[str, str] | None = None
        if machine.not_injectable:
            problem = ("not injectable", machine.not_injectable)
        elif machine.refused:
            problem = ("ruleset refused", machine.refused)
        elif machine.unreachable and self._loop.time() - self._started_s >= BOOT_S:
            # A guest that boots is unreachable as a matter of course.
            problem = ("unreachable", machine.unreachable)
        # The message may change with every try, the state does not.
        if (problem and problem[0]) == (self._last_reported and self._last_reported[0]):
            return
        if problem is not None:
            state, reason = problem
            _log.warning(
                "guest does not have its desired rules",
                guest=self.sandbox.id,
                pod=self._pod,
                state=state,
                reason=reason,
            )
        elif machine.in_flight is not None or not (machine.is_current or machine.desired is None):
            return  # a try is in flight: its outcome decides
        else:
            _log.info("guest's rules are current again", guest=self.sandbox.id, pod=self._pod)
        self._last_reported = problem

    def to_guest(self) -> Guest:
        """The guest as watchers get it."""
        sandbox, machine = self.sandbox, self.machine
        return Guest(
            id=sandbox.id,
            namespace=sandbox.namespace,
            name=sandbox.name,
            uid=sandbox.uid,
            tenant=sandbox.tenant,
            networks=sandbox.networks,
            ips=sandbox.ips,
            runtime_handler=sandbox.runtime_handler,
            capabilities=machine.capabilities,
            generation=machine.last_reported.generation,
            digest=machine.last_reported.digest,
            not_injectable=machine.not_injectable,
            tenant_namespace=sandbox.tenant_namespace,
            tenant_name=sandbox.tenant_name,
        )

    def status(self) -> dict[str, object]:
        """The guest's entry in /status."""
        sandbox, machine = self.sandbox, self.machine
        behind_s = None if self.behind_since_s is None else self._loop.time() - self.behind_since_s
        return {
            "id": sandbox.id,
            "pod": self._pod,
            "tenant": sandbox.tenant,
            "tenantPod": f"{sandbox.tenant_namespace}/{sandbox.tenant_name}" if sandbox.tenant else "",
            "networks": list(sandbox.networks),
            "ips": list(sandbox.ips),
            "runtimeHandler": sandbox.runtime_handler,
            "channel": self.channel_name,
            # `vcnode explain` sends packets from there; a guest kernel's namespace is out of its reach.
            "netns": sandbox.netns if self.channel_name == "netns" else "",
            "version": machine.capabilities.version if machine.capabilities is not None else "",
            "ipv6Message": self._ipv6_message(),
            "generation": machine.last_reported.generation,
            "digest": machine.last_reported.digest,
            "desiredGeneration": machine.desired.generation if machine.desired is not None else None,
            "desiredDigest": machine.desired.digest if machine.desired is not None else "",
            "state": self.state,
            "message": machine.message,
            "behindSeconds": None if behind_s is None else round(behind_s, 3),
        }

    def _ipv6_message(self) -> str:
        """Why the guest takes no IPv6 rules; empty if it does, or if its pod has no IPv6 address."""
        ips, capabilities = self.sandbox.ips, self.machine.capabilities
        is_needed = not ips or any(":" in ip for ip in ips)
        if capabilities is None or capabilities.ipv6 or not is_needed:
            return ""
        return capabilities.ipv6_message or "the guest's agent gives no reason"

    @property
    def channel_name(self) -> str:
        """The kind of the channel selected last; empty before the first."""
        return self.machine.capabilities.channel if self.machine.capabilities is not None else ""

    @property
    def state(self) -> str:
        """One word: the label of the metric, and the column of `vcnode guests`."""
        machine = self.machine
        if machine.not_injectable:
            return "notInjectable"
        if machine.unreachable:
            return "unreachable"
        if machine.desired is None:
            return "noRuleset"
        if machine.is_current:
            return "current"
        return "refused" if machine.refused else "behind"


def call_semaphores() -> dict[str, CallSemaphore]:
    """One semaphore for each channel of `MAX_CALLS`, and one for others."""
    sizes = (*MAX_CALLS.items(), ("", MAX_CALLS_OTHER))
    return {name: CallSemaphore(size, MAX_CALLS_PER_TENANT.get(name, size)) for name, size in sizes}
