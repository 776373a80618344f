# SPDX-License-Identifier: Apache-2.0
"""The gate of the node: answers the runtime out of memory, and notices when a pod may start.

A container that is refused is tried again by the kubelet, some seconds later by itself, at once when
somebody changes its pod: that is what `Reports.opened` is for.

Everything here is synchronous but `patience`. All pods of the node wait while we do; but a refusal
costs a pod half a second and more, and the rules of one that has just begun are in within some 30 ms.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from daemonkit import logs
from daemonkit.metrics import Registry
from kata_bridge.guests.registry import GuestRegistry
from kata_bridge.nri.dispatch import Hold
from kata_bridge.nri.messages import Container, ContainerAdjustment, Mount, PodSandbox
from kata_bridge.nri.session import Snapshot
from kata_bridge.patience import Patience
from kata_bridge.reports import Reports
from kata_bridge.sandboxes.core.sandbox import Sandbox, sandbox_of
from kata_bridge.sandboxes.core.tracker import GRACE_S
from kata_bridge.sandboxes.nri_source import SIDECAR, seen_of
from kata_bridge.start_gate.core.decision import (
    RESOLV_CONF,
    Admitted,
    Asking,
    Held,
    Kind,
    Policy,
    Reason,
    Resolver,
    Rules,
    Settings,
    Subject,
    brings_its_own,
    decide,
    is_in_place,
    is_ready,
)
from kata_bridge.start_gate.core.node_condition import Tally
from kata_bridge.start_gate.gated_pod import LIVING, PodAtGate, points, rules_of, tally
from kata_bridge.start_gate.metrics import GateMetrics
from kata_bridge.start_gate.resolv_conf import ResolvConfs
from tenancy import keys

# For how long the runtime waits for a sandbox that is younger than this. Of all time it is never more
# than this share, so that guests that are never reached hold up nobody.
PATIENCE_S, YOUNG_S = 0.1, 2.0
PATIENCE_SHARE, PATIENCE_AT_ONCE_S = 0.1, 1.0
# Containers that were admitted and not validated yet: the calls are serial for the whole node.
MAX_PENDING = 256

_MOUNT_OPTIONS = ("rbind", "ro", "rprivate")
_DISK = Reason(Kind.RESOLVER, "its resolv.conf cannot be written on the node")

_log = logs.get(__name__)


class Gate:
    """One gate for all sandboxes of the node; `channels_of` tells which of them are guests."""

    def __init__(
        self,
        settings: Settings,
        guests: GuestRegistry,
        channels_of: Callable[[Sandbox], tuple[str, ...]],
        resolv_confs: ResolvConfs,
        registry: Registry,
        reports: Reports | None = None,
    ) -> None:
        self._settings = settings
        self._guests = guests
        self._channels_of = channels_of
        self._confs = resolv_confs
        self._reports = reports
        self._loop = asyncio.get_running_loop()
        self._live: dict[str, PodAtGate] = {}
        self._pending: dict[str, bool] = {}
        self._patience = Patience(PATIENCE_S, PATIENCE_SHARE, PATIENCE_AT_ONCE_S)
        self.metrics = GateMetrics(registry, self._count_held)

    # ---- sandboxes

    def began(self, pod: PodSandbox) -> Hold | None:
        """A sandbox was started. It is refused only where waiting in it would never end: see `Hold`.

        The runtime keeps the annotations that a pod had when its sandbox was made. Where nobody reads
        them anew, a pod whose network is not ready is to get another sandbox for each try.
        """
        now_s = self._loop.time()
        live = self._see(pod, now_s)
        sandbox = live.sandbox
        is_enforced = self._policy(sandbox) is Policy.ENFORCE
        if is_enforced and self._reports is None and live.waits_for_network:
            decision = self._decide(live, Asking(""))
            self.ended(pod.id)
            return Hold(decision.text) if isinstance(decision, Held) else None
        live.began_s = now_s
        self._look(live)
        return None

    def ended(self, sandbox: str) -> None:
        """A sandbox was stopped."""
        live = self._live.pop(sandbox, None)
        self._confs.end(sandbox)
        if live is not None and self._reports is not None:
            self._reports.forgotten(live.sandbox)

    def synchronized(self, snapshot: Snapshot) -> None:
        """The runtime was away, or we were: take in what is there, and say what got through."""
        now_s = self._loop.time()
        living: dict[str, list[Container]] = {}
        for container in snapshot.containers:
            if container.state in LIVING:
                living.setdefault(container.pod_sandbox_id, []).append(container)
        alive = {pod.id: pod for pod in snapshot.pods if seen_of(pod).is_alive}
        for known in list(self._live.values()):
            # containerd tells of a new sandbox before its own list has it.
            if known.sandbox.id not in alive and now_s - known.since_s >= GRACE_S:
                self.ended(known.sandbox.id)
        self._confs.retain(alive.keys() | self._live.keys())
        for pod in alive.values():
            live = self._see(pod, now_s)
            containers = living.get(pod.id, [])
            for container in containers:
                self._check(live, container)
            may_wait = not containers or self._confs.was_held(pod.id)
            if may_wait and self._policy(live.sandbox) is Policy.ENFORCE:
                # It was refused, or may have been while nobody was there to notice when it need not be.
                live.held.setdefault("", (Asking(""), None))
                live.held_since_s = live.held_since_s or now_s
            self._look(live)

    def _see(self, pod: PodSandbox, now_s: float) -> PodAtGate:
        sandbox = sandbox_of(seen_of(pod))
        readiness = pod.annotations.get(keys.NETWORK_READINESS)
        live = self._live.get(pod.id)
        if live is None:
            live = self._live[pod.id] = PodAtGate(sandbox, readiness, None, now_s)
            if self._reports is not None and live.waits_for_network:
                self._reports.not_ready(sandbox)
        live.sandbox = sandbox
        try:
            self._confs.begin(pod.id, sandbox.uid, sandbox.networks)
        except OSError as error:
            _log.error("the resolv.conf of a pod cannot be written", sandbox=pod.id, reason=error)
        return live

    def _check(self, live: PodAtGate, container: Container) -> None:
        """Report a container that runs and was never asked about, once."""
        sandbox = live.sandbox
        is_ours_to_tell = bool(sandbox.tenant) and not sandbox.is_host_network
        if not is_ours_to_tell or self._policy(sandbox) is Policy.OFF:
            return
        if self._confs.was_admitted(sandbox.id, container.id):
            return
        self._note(sandbox.id, container.id)
        self.metrics.got_through.inc()
        _log.warning(
            "a container runs of which the gate was not asked",
            container=container.name,
            has_resolver=self._has_mount(sandbox.id, container),
            **live.whose,
        )
        if self._reports is not None:
            self._reports.got_through(sandbox, container.name)

    def _has_mount(self, sandbox: str, container: Container) -> bool:
        return any(mount.source == str(self._confs.path(sandbox)) for mount in container.mounts)

    # ---- containers

    async def patience(self, pod: PodSandbox, container: Container) -> None:
        """Wait for a moment if that may spare a container that is about to be created a refusal."""
        now_s = self._loop.time()
        live = self._see(pod, now_s)
        is_young = live.began_s is not None and now_s - live.began_s < YOUNG_S
        if is_young and not live.is_open and not self._decide(live, self._asking(live, container)).is_whole:
            await self._patience.wait(live.opened)

    def create(
        self, pod: PodSandbox, container: Container, *, lacks_certificate: bool = False
    ) -> ContainerAdjustment | Hold:
        """Say whether a container may be created, and with which resolv.conf."""
        live = self._see(pod, self._loop.time())
        sandbox = live.sandbox
        asking = replace(self._asking(live, container), lacks_certificate=lacks_certificate)
        decision = self._decide(live, asking)
        if isinstance(decision, Admitted) and decision.has_mount:
            try:
                self._confs.ready(pod.id, sandbox.uid, sandbox.networks)
            except (OSError, ValueError) as error:
                _log.error("the resolv.conf of a pod cannot be written", reason=error, **live.whose)
                is_enforced = self._policy(sandbox) is Policy.ENFORCE
                decision = Held((_DISK,)) if is_enforced else Admitted(False, (*decision.lacks, _DISK))
        if isinstance(decision, Held):
            return self._hold(live, asking, decision)
        return self._admit(live, container, decision)

    def _hold(self, live: PodAtGate, asking: Asking, decision: Held) -> Hold:
        for reason in decision.reasons:
            self.metrics.holds.labels(reason.kind.value).inc()
        if not live.held:
            live.held_since_s = self._loop.time()
        before = live.held.get(asking.name)
        live.held.pop("", None)
        live.held[asking.name] = (asking, decision)
        live.refused.add(asking.name)
        self._confs.hold(live.sandbox.id, is_held=True)
        if before is None or before[1] != decision:
            _log.info("container held", container=asking.name, waits=decision.text, **live.whose)
        if self._reports is not None:
            self._reports.held(live.sandbox, decision.reasons)
        return Hold(decision.text)

    def _admit(self, live: PodAtGate, container: Container, decision: Admitted) -> ContainerAdjustment:
        sandbox = live.sandbox
        was_held = container.name in live.refused
        live.refused.discard(container.name)
        live.held.pop(container.name, None)
        self._confs.hold(sandbox.id, is_held=bool(live.held))
        self._pending[container.id] = decision.has_mount
        while len(self._pending) > MAX_PENDING:
            del self._pending[next(iter(self._pending))]
        self._note(sandbox.id, container.id)
        if sandbox.tenant:
            self.metrics.admitted.inc()
            _log.info(
                "container admitted",
                container=container.name,
                has_resolver=decision.has_mount,
                was_held=was_held,
                **live.whose,
            )
        for reason in decision.lacks:
            self.metrics.warned.labels(reason.kind.value).inc()
        if decision.lacks:
            lacks = "; ".join(reason.words for reason in decision.lacks)
            _log.warning(
                "a container starts without what it needs",
                container=container.name,
                lacks=lacks,
                **live.whose,
            )
        if not decision.has_mount:
            return ContainerAdjustment()
        source = str(self._confs.path(sandbox.id))
        return ContainerAdjustment(mounts=(Mount(RESOLV_CONF, "bind", source, _MOUNT_OPTIONS),))

    def validate(self, pod: PodSandbox, container: Container, adjustment: ContainerAdjustment) -> Hold | None:
        """Look at a container once more when all plugins have had their say."""
        live = self._see(pod, self._loop.time())
        sandbox = live.sandbox
        asking = self._asking(live, container)
        decision = self._decide(live, asking)
        has_mount = self._pending.pop(container.id, None)
        if isinstance(decision, Held):
            self.metrics.rejected.inc()
            return self._hold(live, asking, decision)
        if has_mount is None:  # we were not asked before: what would we have answered?
            has_mount = decision.has_mount
        source = str(self._confs.path(sandbox.id))
        if not has_mount or is_in_place(source, points(adjustment.mounts)):
            return None
        self.metrics.rejected.inc()
        _log.error(
            "another NRI plugin has taken a container's resolv.conf",
            container=container.name,
            **live.whose,
        )
        if self._policy(sandbox) is not Policy.ENFORCE or not sandbox.tenant:
            return None
        return Hold("waiting: another plugin of the node has replaced its resolv.conf")

    def _note(self, sandbox: str, container: str) -> None:
        try:
            self._confs.admit(sandbox, container)
        except OSError as error:
            # A restart will take it for one that got through, which is said and harms nobody.
            _log.error("who passed the gate cannot be noted", sandbox=sandbox, reason=error)

    # ---- what pods need

    def say(self, uid: str, resolver: Resolver | None) -> bool:
        """Take in what is said of a pod's resolv.conf; None withdraws it. Whether that is news.

        Raises `OSError` and `ValueError`.
        """
        try:
            return self._confs.say(uid, resolver)
        finally:
            for sandbox in self._confs.sandboxes(uid):
                self.changed(sandbox)

    def sandbox(self, sandbox: str) -> Sandbox | None:
        """Whose sandbox it is; None for one that is not known."""
        live = self._live.get(sandbox)
        return live.sandbox if live is not None else None

    def sandboxes(self, uid: str) -> tuple[str, ...]:
        """The sandboxes of a pod that are there."""
        return self._confs.sandboxes(uid)

    def text_for(self, sandbox: str) -> str:
        """What the resolv.conf in a guest is to say; empty while nobody has said."""
        given = self._confs.given(sandbox) if sandbox in self._live else None
        return given.text if given is not None else ""

    def read_readiness(self, sandbox: str, readiness: str | None) -> None:
        """What the pod's annotation says now."""
        live = self._live.get(sandbox)
        if live is None:
            return
        live.readiness = readiness
        if is_ready(readiness) and self._reports is not None:
            self._reports.forgotten(live.sandbox)
        self._look(live)

    def changed(self, sandbox: str) -> None:
        """Something of this sandbox may be another now: its guest's rules, its resolver."""
        live = self._live.get(sandbox)
        if live is not None and (live.held or not live.is_open):
            self._look(live)

    def certified(self, sandbox: str) -> None:
        """The certificate can be made for which this sandbox's agent was held."""
        if (live := self._live.get(sandbox)) is not None:
            live.has_certificate()
            self._look(live)

    def configure(self, settings: Settings) -> None:
        """Take over what a configuration says now."""
        self._settings = settings
        for live in list(self._live.values()):
            self._look(live)

    def _look(self, live: PodAtGate) -> None:
        """Notice that a pod's needs are in; let it be tried again if one of its containers was refused."""
        sandbox = live.sandbox
        if not live.is_open and self._decide(live, Asking("")).is_whole:
            live.is_open = True
            live.opened.set()
            is_gated = sandbox.tenant and not sandbox.is_host_network
            if live.began_s is not None and is_gated and self._policy(sandbox) is not Policy.OFF:
                self.metrics.open_seconds.observe(self._loop.time() - live.began_s)
        if not any(isinstance(self._decide(live, asking), Admitted) for asking, _ in live.held.values()):
            return
        _log.info("gate open", waited_s=round(self._loop.time() - live.held_since_s, 3), **live.whose)
        live.held.clear()
        self._confs.hold(sandbox.id, is_held=False)
        live.held_since_s = 0.0
        if self._reports is not None:
            self._reports.opened(sandbox)

    def _decide(self, live: PodAtGate, asking: Asking) -> Admitted | Held:
        sandbox = live.sandbox
        channels = self._channels_of(sandbox)
        driver = self._guests.drivers.get(sandbox.id)
        rules = None if not channels else Rules() if driver is None else rules_of(driver, self._loop.time())
        subject = Subject(
            tenant=sandbox.tenant,
            networks=sandbox.networks,
            is_host_network=sandbox.is_host_network,
            refusal=sandbox.refusal,
            readiness=live.readiness,
            rules=rules,
            resolver=self._confs.given(sandbox.id) or self._confs.said(sandbox.uid),
        )
        return decide(subject, asking, self._policy(sandbox), self._settings.needs)

    def _asking(self, live: PodAtGate, container: Container) -> Asking:
        sandbox = live.sandbox
        has_own = brings_its_own(sandbox.id, points(container.mounts))
        # A name is no proof, and need be none: README, "Our agent's container".
        is_agent = container.name == SIDECAR and "agent" in self._channels_of(sandbox)
        return Asking(container.name, has_own, is_agent and self._guests.accepts_agents)

    def _policy(self, sandbox: Sandbox) -> Policy:
        return self._settings.policy_of(sandbox.namespace)

    # ---- what it says of itself

    def _count_held(self) -> float:
        return float(sum(len(live.held) for live in self._live.values()))

    def tally(self) -> Tally:
        """How many pods wait for long, and for what."""
        return tally(self._live.values(), self._loop.time())

    def status(self) -> dict[str, object]:
        """What /status says of it."""
        now_s = self._loop.time()
        return {
            "policy": self._settings.policy.value,
            "needs": sorted(need.value for need in self._settings.needs),
            "held": [pod.status(now_s) for _, pod in sorted(self._live.items()) if any(pod.held)],
        }
