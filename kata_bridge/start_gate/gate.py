# SPDX-License-Identifier: Apache-2.0
"""The start gate of the node: answers the runtime from memory, and notices when a blocked pod may start.

`core/decision.py` decides; this keeps the state of pods, and acts.

The kubelet retries a refused container by itself after some seconds, and at once when its pod changes: for
that, `GateReporter.unblocked` annotates the pod.

Everything here is synchronous but `wait_briefly`, because all pods of the node wait during a call. A refusal
costs a pod half a second and more. The rules of a young pod are applied in some 30 ms.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from daemonkit import logs
from kata_bridge.guests.registry import GuestRegistry
from kata_bridge.nri.dispatch import Deny
from kata_bridge.nri.messages import Container, ContainerAdjustment, ContainerState, Mount, PodSandbox
from kata_bridge.nri.session import NriSnapshot
from kata_bridge.sandboxes.core.sandbox import Sandbox, sandbox_of
from kata_bridge.sandboxes.core.tracker import GRACE_S
from kata_bridge.sandboxes.nri_source import AGENT_CONTAINER, observation_of
from kata_bridge.start_gate.core.decision import (
    RESOLV_CONF,
    Allowed,
    Blocked,
    Blocker,
    ContainerFacts,
    PodFacts,
    Policy,
    Reason,
    RulesState,
    StartDecision,
    StartGateSettings,
    SubmittedResolver,
    decide,
    has_own_resolv_conf,
    is_complete,
    is_only_resolv_conf,
)
from kata_bridge.start_gate.core.node_condition import BlockedPods, count_blocked
from kata_bridge.start_gate.gated_pod import GatedPod, mount_points, rules_state
from kata_bridge.start_gate.metrics import StartGateMetrics
from kata_bridge.start_gate.resolv_conf import ResolvConfs
from tenancy import keys

# How long the runtime waits for a sandbox that is younger than YOUNG_S, and the share of all time that such
# waiting may take: guests that are never reached must not delay the node's other pods.
WAIT_S, YOUNG_S = 0.1, 2.0
WAIT_SHARE, WAIT_BURST_S = 0.1, 1.0
# Containers that were allowed and not validated yet: the runtime's calls are serial for the whole node.
MAX_PENDING = 256

_ALIVE = (
    ContainerState.CONTAINER_CREATED,
    ContainerState.CONTAINER_RUNNING,
    ContainerState.CONTAINER_PAUSED,
)
_MOUNT_OPTIONS = ("rbind", "ro", "rprivate")
_UNWRITABLE = Blocker(Reason.RESOLVER, "its resolv.conf cannot be written on the node")
_ANY_CONTAINER = ContainerFacts("")

_log = logs.get(__name__)


class GateReporter(Protocol):
    """Port through which the gate reports to the super cluster. Each call starts work and does not wait."""

    def blocked(self, sandbox: Sandbox, blockers: tuple[Blocker, ...]) -> None:
        """A container of this pod was blocked."""

    def unblocked(self, sandbox: Sandbox) -> None:
        """A blocked container of this pod may start now: have the kubelet try again."""

    def started_ungated(self, sandbox: Sandbox, container: str) -> None:
        """A container of this pod started without a decision of the gate."""


class StartGate:
    """One gate for all sandboxes of the node; `channels_of` returns none for those that are not guests.

    Without a `reporter` nothing reads the annotations of pods again.
    """

    def __init__(
        self,
        settings: StartGateSettings,
        guests: GuestRegistry,
        channels_of: Callable[[Sandbox], tuple[str, ...]],
        resolv_confs: ResolvConfs,
        metrics: StartGateMetrics,
        reporter: GateReporter | None = None,
    ) -> None:
        self._settings = settings
        self._guests = guests
        self._channels_of = channels_of
        self._resolv_confs = resolv_confs
        self._metrics = metrics
        self._reporter = reporter
        self._loop = asyncio.get_running_loop()
        self._pods: dict[str, GatedPod] = {}
        # By container: whether it was allowed with our resolv.conf.
        self._pending: dict[str, bool] = {}
        self._wait = BoundedWait(WAIT_S, WAIT_SHARE, WAIT_BURST_S)
        metrics.watch_blocked(lambda: float(sum(len(pod.blocked_containers) for pod in self._pods.values())))

    # ---- sandboxes

    def sandbox_started(self, pod: PodSandbox) -> Deny | None:
        """Observe a new sandbox. Deny it only if its network is not ready and no API server tells when it is.

        The runtime keeps the annotations that a pod had when its sandbox was made. Where nothing reads them
        again, a pod whose network is not ready needs a new sandbox for each try.
        """
        now_s = self._loop.time()
        gated = self._observe(pod, now_s)
        is_enforced = self._policy(gated.sandbox) is Policy.ENFORCE
        if is_enforced and self._reporter is None and gated.waits_for_network:
            decision = self._decide(gated, _ANY_CONTAINER)
            self.sandbox_stopped(pod.id)
            return Deny(decision.message) if isinstance(decision, Blocked) else None
        gated.started_s = now_s
        self._evaluate(gated)
        return None

    def sandbox_stopped(self, sandbox: str) -> None:
        self._pods.pop(sandbox, None)
        self._resolv_confs.remove_sandbox(sandbox)

    def synchronize(self, snapshot: NriSnapshot) -> None:
        """Take in what is there after a reconnect, and report the containers that started ungated."""
        now_s = self._loop.time()
        living: dict[str, list[Container]] = {}
        for container in snapshot.containers:
            if container.state in _ALIVE:
                living.setdefault(container.pod_sandbox_id, []).append(container)
        alive = {pod.id: pod for pod in snapshot.pods if observation_of(pod).is_alive}
        for known in list(self._pods.values()):
            # containerd reports a new sandbox before its own list has it.
            if known.sandbox.id not in alive and now_s - known.observed_s >= GRACE_S:
                self.sandbox_stopped(known.sandbox.id)
        self._resolv_confs.retain(alive.keys() | self._pods.keys())
        for pod in alive.values():
            gated = self._observe(pod, now_s)
            containers = living.get(pod.id, [])
            for container in containers:
                self._report_if_ungated(gated, container)
            may_wait = not containers or self._resolv_confs.was_blocked(pod.id)
            if may_wait and self._policy(gated.sandbox) is Policy.ENFORCE:
                # A container was blocked, or may have been while we were away.
                gated.blocked_containers.setdefault("", (_ANY_CONTAINER, None))
                gated.blocked_since_s = gated.blocked_since_s or now_s
            self._evaluate(gated)

    def _observe(self, pod: PodSandbox, now_s: float) -> GatedPod:
        sandbox = sandbox_of(observation_of(pod))
        gated = self._pods.get(pod.id)
        if gated is None:
            readiness = pod.annotations.get(keys.NETWORK_READINESS)
            gated = self._pods[pod.id] = GatedPod(sandbox, readiness, None, now_s)
        gated.sandbox = sandbox
        try:
            self._resolv_confs.add_sandbox(pod.id, sandbox.uid, sandbox.networks)
        except OSError as error:
            _log.error("cannot write a pod's resolv.conf", reason=error, **gated.log_fields)
        return gated

    def _report_if_ungated(self, gated: GatedPod, container: Container) -> None:
        """Report a running container on which the gate never decided, once."""
        sandbox = gated.sandbox
        is_gated = bool(sandbox.tenant) and not sandbox.is_host_network
        if not is_gated or self._policy(sandbox) is Policy.OFF:
            return
        if self._resolv_confs.was_allowed(sandbox.id, container.id):
            return
        self._record_allowed(sandbox.id, container.id)
        self._metrics.ungated.inc()
        source = str(self._resolv_confs.path(sandbox.id))
        _log.warning(
            "container started ungated",
            container=container.name,
            has_resolver=any(mount.source == source for mount in container.mounts),
            **gated.log_fields,
        )
        if self._reporter is not None:
            self._reporter.started_ungated(sandbox, container.name)

    # ---- containers

    async def wait_briefly(self, pod: PodSandbox, container: Container) -> None:
        """Wait for a moment if that may spare a new container a refusal."""
        now_s = self._loop.time()
        gated = self._observe(pod, now_s)
        is_young = gated.started_s is not None and now_s - gated.started_s < YOUNG_S
        if not is_young or gated.needs_met.is_set():
            return
        if not is_complete(self._decide(gated, self._facts(gated, container))):
            await self._wait.wait(gated.needs_met)

    def create_container(
        self, pod: PodSandbox, container: Container, *, lacks_certificate: bool = False
    ) -> ContainerAdjustment | Deny:
        """Decide whether a container may be created, and with which resolv.conf."""
        gated = self._observe(pod, self._loop.time())
        sandbox = gated.sandbox
        facts = replace(self._facts(gated, container), lacks_certificate=lacks_certificate)
        decision = self._decide(gated, facts)
        if isinstance(decision, Allowed) and decision.mounts_resolv_conf:
            try:
                self._resolv_confs.prepare(pod.id, sandbox.uid, sandbox.networks)
            except (OSError, ValueError) as error:
                _log.error("cannot write a pod's resolv.conf", reason=error, **gated.log_fields)
                is_enforced = self._policy(sandbox) is Policy.ENFORCE
                missing = (*decision.missing, _UNWRITABLE)
                decision = Blocked((_UNWRITABLE,)) if is_enforced else Allowed(False, missing)
        if isinstance(decision, Blocked):
            return self._block(gated, facts, decision)
        return self._allow(gated, container, decision)

    def _block(self, gated: GatedPod, container: ContainerFacts, decision: Blocked) -> Deny:
        for blocker in decision.blockers:
            self._metrics.blocked.labels(blocker.reason.value).inc()
        if not gated.blocked_containers:
            gated.blocked_since_s = self._loop.time()
        before = gated.blocked_containers.get(container.name)
        gated.blocked_containers.pop("", None)
        gated.blocked_containers[container.name] = (container, decision)
        gated.not_allowed.add(container.name)
        self._resolv_confs.set_blocked(gated.sandbox.id, is_blocked=True)
        if before is None or before[1] != decision:
            _log.info(
                "container start blocked",
                container=container.name,
                reason=decision.message,
                **gated.log_fields,
            )
        if self._reporter is not None:
            self._reporter.blocked(gated.sandbox, decision.blockers)
        return Deny(decision.message)

    def _allow(self, gated: GatedPod, container: Container, decision: Allowed) -> ContainerAdjustment:
        sandbox = gated.sandbox
        was_blocked = container.name in gated.not_allowed
        gated.not_allowed.discard(container.name)
        gated.blocked_containers.pop(container.name, None)
        self._resolv_confs.set_blocked(sandbox.id, is_blocked=bool(gated.blocked_containers))
        self._pending[container.id] = decision.mounts_resolv_conf
        while len(self._pending) > MAX_PENDING:
            del self._pending[next(iter(self._pending))]
        self._record_allowed(sandbox.id, container.id)
        if sandbox.tenant:
            self._metrics.allowed.inc()
            _log.info(
                "container start allowed",
                container=container.name,
                has_resolver=decision.mounts_resolv_conf,
                was_blocked=was_blocked,
                **gated.log_fields,
            )
        for blocker in decision.missing:
            self._metrics.warned.labels(blocker.reason.value).inc()
        if decision.missing:
            _log.warning(
                "container start allowed by policy warn although needs are missing",
                container=container.name,
                missing="; ".join(blocker.message for blocker in decision.missing),
                **gated.log_fields,
            )
        if not decision.mounts_resolv_conf:
            return ContainerAdjustment()
        source = str(self._resolv_confs.path(sandbox.id))
        return ContainerAdjustment(mounts=(Mount(RESOLV_CONF, "bind", source, _MOUNT_OPTIONS),))

    def validate(self, pod: PodSandbox, container: Container, adjustment: ContainerAdjustment) -> Deny | None:
        """Check a container again after all plugins have adjusted it."""
        gated = self._observe(pod, self._loop.time())
        sandbox = gated.sandbox
        facts = self._facts(gated, container)
        decision = self._decide(gated, facts)
        has_mount = self._pending.pop(container.id, None)
        if isinstance(decision, Blocked):
            self._metrics.rejected.inc()
            return self._block(gated, facts, decision)
        if has_mount is None:  # create_container was not called: take what it would have returned
            has_mount = decision.mounts_resolv_conf
        source = str(self._resolv_confs.path(sandbox.id))
        if not has_mount or is_only_resolv_conf(source, mount_points(adjustment.mounts)):
            return None
        self._metrics.rejected.inc()
        _log.error(
            "another NRI plugin replaced a container's resolv.conf",
            container=container.name,
            **gated.log_fields,
        )
        if self._policy(sandbox) is not Policy.ENFORCE or not sandbox.tenant:
            return None
        return Deny("waiting: another NRI plugin of the node replaced its resolv.conf")

    def _record_allowed(self, sandbox: str, container: str) -> None:
        try:
            self._resolv_confs.record_allowed(sandbox, container)
        except OSError as error:
            # After a restart the container is reported as ungated, which harms nothing.
            _log.error("cannot record an allowed container", sandbox=sandbox, reason=error)

    # ---- the needs of pods

    def set_resolver(self, uid: str, resolver: SubmittedResolver | None) -> bool:
        """Set or withdraw (None) a pod's resolver; return whether that changed anything.

        Raises `OSError` and `ValueError`.
        """
        try:
            return self._resolv_confs.set_resolver(uid, resolver)
        finally:
            for sandbox in self._resolv_confs.sandboxes(uid):
                self.reevaluate(sandbox)

    def sandbox(self, sandbox: str) -> Sandbox | None:
        """The sandbox of that id, None for one that is unknown."""
        gated = self._pods.get(sandbox)
        return gated.sandbox if gated is not None else None

    def resolv_conf_text(self, sandbox: str) -> str:
        """The text for the resolv.conf in a guest; empty while there is none."""
        resolver = self._resolv_confs.applied(sandbox) if sandbox in self._pods else None
        return resolver.text if resolver is not None else ""

    def waiting_for_network(self) -> list[Sandbox]:
        """The sandboxes whose pods are annotated that their network is not ready."""
        return [gated.sandbox for gated in self._pods.values() if gated.waits_for_network]

    def set_readiness(self, sandbox: str, readiness: str | None) -> None:
        """Take in the pod's annotation network-readiness as the API server has it now."""
        if (gated := self._pods.get(sandbox)) is not None:
            gated.readiness = readiness
            self._evaluate(gated)

    def set_certificate_available(self, sandbox: str) -> None:
        """The certificate that this sandbox's agent lacked can be issued now."""
        if (gated := self._pods.get(sandbox)) is not None:
            gated.set_certificate_available()
            self._evaluate(gated)

    def reevaluate(self, sandbox: str) -> None:
        """Decide again: the rules of the sandbox's guest or its resolver may have changed."""
        gated = self._pods.get(sandbox)
        if gated is not None and (gated.blocked_containers or not gated.needs_met.is_set()):
            self._evaluate(gated)

    def configure(self, settings: StartGateSettings) -> None:
        self._settings = settings
        for gated in list(self._pods.values()):
            self._evaluate(gated)

    def _evaluate(self, gated: GatedPod) -> None:
        """Notice that a pod's needs are met, and report it if one of its containers was blocked."""
        sandbox = gated.sandbox
        if not gated.needs_met.is_set() and is_complete(self._decide(gated, _ANY_CONTAINER)):
            gated.needs_met.set()
            is_gated = sandbox.tenant and not sandbox.is_host_network
            if gated.started_s is not None and is_gated and self._policy(sandbox) is not Policy.OFF:
                self._metrics.needs_met_seconds.observe(self._loop.time() - gated.started_s)
        decisions = (self._decide(gated, container) for container, _ in gated.blocked_containers.values())
        if not any(isinstance(decision, Allowed) for decision in decisions):
            return
        waited_s = round(self._loop.time() - gated.blocked_since_s, 3)
        _log.info("a blocked container of the pod may start", waited_s=waited_s, **gated.log_fields)
        gated.blocked_containers.clear()
        self._resolv_confs.set_blocked(sandbox.id, is_blocked=False)
        gated.blocked_since_s = 0.0
        if self._reporter is not None:
            self._reporter.unblocked(sandbox)

    def _decide(self, gated: GatedPod, container: ContainerFacts) -> StartDecision:
        sandbox = gated.sandbox
        rules = None
        if self._channels_of(sandbox):
            driver = self._guests.drivers.get(sandbox.id)
            rules = RulesState() if driver is None else rules_state(driver, self._loop.time())
        pod = PodFacts(
            tenant=sandbox.tenant,
            networks=sandbox.networks,
            is_host_network=sandbox.is_host_network,
            ownership_problem=sandbox.ownership_problem,
            readiness=gated.readiness,
            rules=rules,
            resolver=self._resolv_confs.applied(sandbox.id) or self._resolv_confs.latest(sandbox.uid),
        )
        return decide(pod, container, self._policy(sandbox), self._settings.needs)

    def _facts(self, gated: GatedPod, container: Container) -> ContainerFacts:
        sandbox = gated.sandbox
        has_own = has_own_resolv_conf(sandbox.id, mount_points(container.mounts))
        # Any author may name a container so: README, "Our agent's container".
        is_agent = container.name == AGENT_CONTAINER and "agent" in self._channels_of(sandbox)
        return ContainerFacts(container.name, has_own, is_agent and self._guests.accepts_agents)

    def _policy(self, sandbox: Sandbox) -> Policy:
        return self._settings.policy_of(sandbox.namespace)

    # ---- status

    def blocked_pods(self) -> BlockedPods:
        """The pods that the node's condition reports."""
        now_s = self._loop.time()
        return count_blocked((now_s - pod.blocked_since_s, pod.reasons) for pod in self._pods.values())

    def status(self) -> dict[str, object]:
        """The part `startGate` of /status."""
        now_s = self._loop.time()
        return {
            "policy": self._settings.default_policy.value,
            "needs": sorted(need.value for need in self._settings.needs),
            "blocked": [
                pod.status(now_s) for _, pod in sorted(self._pods.items()) if any(pod.blocked_containers)
            ],
        }


class BoundedWait:
    """Waits at most `each_s` at a time, `burst_s` in a row, and `share` of the time in the long run."""

    def __init__(self, each_s: float, share: float, burst_s: float) -> None:
        self._each_s = each_s
        self._share = share
        self._burst_s = burst_s
        self._loop = asyncio.get_running_loop()
        self._left_s, self._at_s = burst_s, self._loop.time()

    async def wait(self, event: asyncio.Event) -> None:
        """Wait for `event` within these bounds."""
        now_s = self._loop.time()
        self._left_s = min(self._burst_s, self._left_s + (now_s - self._at_s) * self._share)
        self._at_s = now_s
        if self._left_s < self._each_s:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._each_s):
                await event.wait()
        self._left_s -= self._loop.time() - now_s
