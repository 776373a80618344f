# SPDX-License-Identifier: Apache-2.0
"""One guest at work: carries out what its state machine asks for, one call after another."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bridge_api.messages import Guest
from daemonkit import logs
from daemonkit.tasks import Tasks
from kata_bridge.channels.port import Channel, GuestRefused, NeedsFull, NotInjectable, Unreachable
from kata_bridge.channels.select import ChannelProvider, SelectedChannel, choose
from kata_bridge.guests.call_semaphore import CallSemaphore
from kata_bridge.guests.core.events import (
    Call,
    CallRefused,
    CancelProbe,
    CheckState,
    Event,
    FlushFlows,
    FlushSucceeded,
    FullRulesetNeeded,
    GuestNotInjectable,
    GuestUnreachable,
    ProbeChannel,
    ProbeSucceeded,
    PushRuleset,
    RecordDrift,
    Result,
    SandboxAdded,
    SandboxRemoved,
    SetRulesetReply,
    StateReturned,
    Tick,
)
from kata_bridge.guests.core.machine import GuestMachine
from kata_bridge.guests.core.ruleset_cache import RulesetCache
from kata_bridge.metrics import Metrics
from kata_bridge.sandboxes.core.sandbox import Sandbox
from ruleset.document import Ruleset

# Channels have shorter deadlines of their own; this one is for a channel that forgets.
CALL_S = 90.0
# A VM boots in a few seconds at worst; by then an agent that is in its image has attached.
YOUNG_S = 30.0
# Calls at once, by channel. An agent's work is done in the guest; a namespace's is done by processes
# of this node, and the more of them run the later each is done.
PARALLEL = {"agent": 128, "stock": 20, "netns": 4}
PARALLEL_OTHER = 16
# Of one tenant's guests. A stock guest can make each of its calls last; a node has fewer agents than turns
# of theirs, and no call into a namespace waits for who is in it.
PARALLEL_OF_A_TENANT = {"stock": 16}

T = TypeVar("T")

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class DriverContext:
    """What all guests of the node have in common."""

    openers: Mapping[str, ChannelProvider]
    rulesets: RulesetCache
    metrics: Metrics
    tasks: Tasks
    turns: Mapping[str, CallSemaphore]
    luck: Callable[[], float]
    check_s: float


class GuestDriver:
    """A guest that lives. `changed` is called when what watchers are told of it may be another."""

    def __init__(
        self,
        sandbox: Sandbox,
        channels: Sequence[str],
        shared: DriverContext,
        answered: Callable[[str, SetRulesetReply], None],
        changed: Callable[["GuestDriver"], None],
    ) -> None:
        self.sandbox = sandbox
        self.channels = tuple(channels)
        self.machine = GuestMachine(shared.check_s)
        self.chosen: SelectedChannel | None = None
        self._resolv_conf = ""
        self._shared = shared
        self._answered, self._changed = answered, changed
        self._loop = asyncio.get_running_loop()
        self.began_s = self._loop.time()
        self.behind_since_s: float | None = self.began_s
        self._one_call = asyncio.Lock()
        self._call_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._said: tuple[str, str] | None = None

    # ---- events in

    def begin(self) -> None:
        self.feed(SandboxAdded())

    def feed(self, event: Event) -> None:
        """Tell the machine what happened, and start what it asks for. Never waits."""
        now_s = self._loop.time()
        actions = self.machine.on(event, now_s, self._shared.luck())
        for action in actions:
            if isinstance(action, SetRulesetReply):
                self._answered(self.sandbox.id, action)
            elif isinstance(action, RecordDrift):
                self._note(action)
            elif isinstance(action, CancelProbe):
                if self._call_task is not None:
                    self._call_task.cancel()
            else:
                name = f"guest {self.sandbox.id[:12]}"
                self._call_task = self._shared.tasks.spawn(self._carry_out(action), name)
        self._keep_time(now_s)
        self._say()
        self._changed(self)

    def _keep_time(self, now_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_s = self.machine.due_s()
        if due_s is not None:
            self._timer = self._loop.call_at(max(due_s, now_s + 0.001), self.feed, Tick())
        if self.machine.is_current or self.machine.is_gone:
            self.behind_since_s = None
        elif self.behind_since_s is None:
            self.behind_since_s = now_s

    def end(self) -> None:
        """The sandbox is gone."""
        self.feed(SandboxRemoved())
        if self._call_task is not None:
            self._call_task.cancel()

    def stop(self) -> None:
        """Do no more; the guest keeps what it has."""
        if self._timer is not None:
            self._timer.cancel()

    # ---- calls into the guest

    async def _carry_out(self, call: Call) -> None:
        self.feed(await self._result(call))

    async def _result(self, call: Call) -> Result:
        try:
            return await self.turn(lambda: self._call(call))
        except Unreachable as error:
            return GuestUnreachable(str(error))
        except NotInjectable as error:
            return GuestNotInjectable(str(error))
        except GuestRefused as error:
            return CallRefused(str(error))
        except NeedsFull:
            return FullRulesetNeeded()

    async def turn(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call into this guest when it is its turn: one at a time, few at once on the node.

        Raises the four outcomes of `channels.channel`; `Unreachable` also when it takes too long, and
        for a bug of a channel: a guest keeps its retries, and who asked about others their answers.
        """
        async with self._one_call:
            name = self.chosen.name if self.chosen is not None else self.channels[0] if self.channels else ""
            turns = self._shared.turns.get(name) or self._shared.turns[""]
            async with turns.turn(self.sandbox.tenant):
                try:
                    async with asyncio.timeout(CALL_S):
                        return await call()
                except (Unreachable, NotInjectable, GuestRefused, NeedsFull):
                    raise
                except TimeoutError:
                    raise Unreachable(f"{name}: no answer within {CALL_S:g} s") from None
                # A driver that ends never pushes rules into its guest again. It takes a bug of the channel
                # for a guest that cannot be reached, and tries again.
                except Exception as error:  # noqa: BLE001 - one guest's answer must not end its driver
                    _log.error(
                        "a channel failed", guest=self.sandbox.id, error=error, traceback=logs.trace(error)
                    )
                    said = f"a fault of kata-bridge's own: {type(error).__name__}: {error}"
                    raise Unreachable(said) from None

    def channel(self) -> Channel:
        """The channel that was chosen. Raises `Unreachable` and `NotInjectable` where there is none."""
        if self.chosen is not None:
            return self.chosen.channel
        if self.machine.not_injectable:
            raise NotInjectable(self.machine.not_injectable)
        raise Unreachable(self.machine.unreachable or "no way into it has been found yet")

    async def write_resolv_conf(self, text: str) -> None:
        """Write its resolv.conf, now and again whenever it is reached by another channel.

        Raises what a channel raises; where it was not reached it is written as soon as it is.
        """
        self._resolv_conf = text
        await self.channel().set_resolv_conf(text)

    async def _call(self, call: Call) -> Result:
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
        if self.sandbox.refusal:
            raise NotInjectable(self.sandbox.refusal)
        is_young = self._loop.time() - self.began_s < YOUNG_S
        chosen = await choose(self.sandbox, self.channels, self._shared.openers, is_young=is_young)
        state = await chosen.channel.state()
        if self.chosen is None or self.chosen.name != chosen.name:
            _log.info(
                "channel chosen",
                guest=self.sandbox.id,
                channel=chosen.capabilities.channel,
                digest=state.digest[:16],
            )
        if self.chosen is None or self.chosen.channel is not chosen.channel:
            await self._restore_resolv_conf(chosen)
        self.chosen = chosen
        return ProbeSucceeded(chosen.capabilities, state)

    async def _restore_resolv_conf(self, chosen: SelectedChannel) -> None:
        """Write what was last said: a guest that was booted anew has its image's."""
        if not self._resolv_conf or not chosen.capabilities.resolv_conf:
            return
        try:
            await chosen.channel.set_resolv_conf(self._resolv_conf)
        except (NotInjectable, GuestRefused) as error:
            # Its rules do not wait for that.
            _log.warning("a guest's resolv.conf cannot be written again", guest=self.sandbox.id, reason=error)

    async def _push(self, push: PushRuleset) -> StateReturned:
        channel = self.channel()
        what: Ruleset = push.ruleset
        given = what if push.base is None else self._shared.rulesets.between(push.base, what)
        kind = "full" if isinstance(given, Ruleset) else "delta"
        began_s = self._loop.time()
        result = "failed"
        try:
            state = await channel.apply(given, push.flush)
            result = "applied"
        except GuestRefused:
            result = "refused"
            raise
        except NeedsFull:
            result = "needs full"
            raise
        finally:
            self._shared.metrics.pushes.labels(kind, result).inc()
        took_s = self._loop.time() - began_s
        self._shared.metrics.apply_seconds.observe(took_s)
        _log.info(
            "ruleset applied",
            guest=self.sandbox.id,
            tenant=self.sandbox.tenant,
            pod=f"{self.sandbox.namespace}/{self.sandbox.name}",
            generation=state.generation,
            digest=state.digest[:16],
            kind=kind,
            ms=round(took_s * 1000, 1),
        )
        return StateReturned(state)

    # ---- what is said of it

    def _note(self, note: RecordDrift) -> None:
        if note.loss is None:
            self._shared.metrics.repairs.inc()
            _log.info("rules of a guest are back", guest=self.sandbox.id, tenant=self.sandbox.tenant)
            return
        self._shared.metrics.losses.labels(note.loss.value).inc()
        _log.warning(
            "a guest has not the rules that it was given",
            guest=self.sandbox.id,
            tenant=self.sandbox.tenant,
            pod=f"{self.sandbox.namespace}/{self.sandbox.name}",
            how=note.loss,
        )

    def _say(self) -> None:
        """One line when a guest gets into a state that a person should know of, and one at its end."""
        machine = self.machine
        if machine.is_gone:
            return
        said: tuple[str, str] | None = None
        if machine.not_injectable:
            said = ("not injectable", machine.not_injectable)
        elif machine.refused:
            said = ("ruleset refused", machine.refused)
        elif machine.unreachable and self._loop.time() - self.began_s >= YOUNG_S:
            # A guest that boots is unreachable as a matter of course.
            said = ("unreachable", machine.unreachable)
        # The words of one state may change with every try.
        if (said and said[0]) != (self._said and self._said[0]):
            pod = f"{self.sandbox.namespace}/{self.sandbox.name}"
            if said is not None:
                _log.warning("a guest cannot be served", guest=self.sandbox.id, pod=pod, **_fields(said))
            elif machine.in_flight is not None or not (machine.is_current or machine.desired is None):
                return  # it is being tried: keep what was said until it is known how it went
            else:
                _log.info("a guest can be served again", guest=self.sandbox.id, pod=pod)
            self._said = said

    def message(self) -> Guest:
        """What watchers are told."""
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
            generation=machine.said.generation,
            digest=machine.said.digest,
            not_injectable=machine.not_injectable,
            tenant_namespace=sandbox.tenant_namespace,
            tenant_name=sandbox.tenant_name,
        )

    def status(self) -> dict[str, object]:
        """What /status says of it."""
        sandbox, machine = self.sandbox, self.machine
        behind_s = None if self.behind_since_s is None else self._loop.time() - self.behind_since_s
        return {
            "id": sandbox.id,
            "pod": f"{sandbox.namespace}/{sandbox.name}",
            "tenant": sandbox.tenant,
            "tenantPod": f"{sandbox.tenant_namespace}/{sandbox.tenant_name}" if sandbox.tenant else "",
            "networks": list(sandbox.networks),
            "ips": list(sandbox.ips),
            "runtimeHandler": sandbox.runtime_handler,
            "channel": self.channel_name,
            # Where what this pod sends can be seen and tried from this node: not for a guest kernel's.
            "netns": sandbox.netns if self.channel_name == "netns" else "",
            "version": machine.capabilities.version if machine.capabilities is not None else "",
            "ipv6Why": self._ipv6_why(),
            "generation": machine.said.generation,
            "digest": machine.said.digest,
            "desiredGeneration": machine.desired.generation if machine.desired is not None else None,
            "desiredDigest": machine.desired.digest if machine.desired is not None else "",
            "state": self.state,
            "why": machine.why,
            "behindSeconds": None if behind_s is None else round(behind_s, 3),
        }

    def _ipv6_why(self) -> str:
        """Why the guest takes no IPv6 rules; empty where it does, and for a pod that has no IPv6 address."""
        ips, capabilities = self.sandbox.ips, self.machine.capabilities
        is_wanted = not ips or any(":" in ip for ip in ips)
        if capabilities is None or capabilities.ipv6 or not is_wanted:
            return ""
        return capabilities.ipv6_message or "its agent does not say why"

    @property
    def channel_name(self) -> str:
        """Of the way in that was found; empty while there is none."""
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


def _fields(said: tuple[str, str]) -> dict[str, object]:
    return {"state": said[0], "reason": said[1]}


def turns() -> dict[str, CallSemaphore]:
    """The turns of `PARALLEL`."""
    counts = (*PARALLEL.items(), ("", PARALLEL_OTHER))
    return {name: CallSemaphore(count, PARALLEL_OF_A_TENANT.get(name, count)) for name, count in counts}
