# SPDX-License-Identifier: Apache-2.0
"""Syncs the pods of this node with kata-bridge: from changes to requests.

`sync` names the order: take a snapshot, evaluate all pods, take what is due, report. It runs on the
event loop without an await, so that it sees one state. The packages below decide; this module acts.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from bridge_api.messages import Guest, GuestResult
from daemonkit import logs
from daemonkit.kube.resources import Key, ObjectMeta
from dnsconfig.cluster.objects import PodObject
from dnsconfig.cluster.snapshot import Snapshot
from dnsconfig.cluster.state import ClusterState, ResolverSettings
from dnsconfig.delivery.guests_without_pod import guests_without_pod, wait_message
from dnsconfig.delivery.pod_reports import EventLog, PodEvents, PodLog
from dnsconfig.delivery.pod_resolvers import GRACE_S, MAX_MESSAGE_CHARACTERS, PodResolver, PodResolvers
from dnsconfig.delivery.queue import ResolverDelivery, ResolverPush, ResolverTarget
from dnsconfig.delivery.withdrawals import Withdrawals
from dnsconfig.metrics import DnsConfigMetrics
from dnsconfig.resolve.decision import NodeDns
from dnsconfig.resolve.resolver import PodEvent, ResolverEventReason
from dnsconfig.resolve.waiting import WaitReason
from dnsconfig.retention.desired import WITHDRAWN, DesiredResolver
from dnsconfig.retention.resolver_retention import ResolverRetention
from dnsconfig.retention.sandbox_networks import SandboxNetworks

# The first change is synced at once; in a burst of changes, syncs are at least this far apart.
MIN_SYNC_PERIOD_S = 0.02

_log = logs.get(__name__)

Desired = dict[ResolverTarget, DesiredResolver]


class ClusterSource(Protocol):
    """The part of `watch.Watch` that a sync uses."""

    def follow(self, saved_pods: Mapping[Key, PodObject]) -> float | None: ...
    def snapshot(self) -> Snapshot: ...
    @property
    def dns_namespaces(self) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True)
class SyncActions:
    """What a sync asks for: requests to submit now, and when to sync again if nothing changes."""

    pushes: tuple[ResolverPush, ...]
    next_at: float | None


class ResolverController:
    """All times are of one monotonic clock. `wake` asks for a sync;
    `record` posts an Event about a pod of a tenant."""

    def __init__(
        self,
        source: ClusterSource,
        settings: ResolverSettings,
        node: Callable[[], NodeDns],
        metrics: DnsConfigMetrics,
        *,
        hold_s: float,
        now: Callable[[], float],
        wake: Callable[[], None],
        record: Callable[[ObjectMeta, PodEvent, str], None],
    ) -> None:
        self._source = source
        self._settings = settings
        self._node = node
        self._metrics = metrics
        self._now = now
        self._wake = wake
        self._record = record
        self._saved = Snapshot()
        self._saved_expires_at: float | None = None
        self.snapshot = Snapshot()
        self.guests: dict[str, Guest] = {}
        self.pods = PodResolvers(ResolverRetention(hold_s), SandboxNetworks())
        self.delivery = ResolverDelivery()
        # Since when a guest of a tenant is without a known pod, by its id.
        self.guests_without_pod: dict[str, float] = {}
        self._withdrawals = Withdrawals()
        self._pod_log = PodLog()
        self._truncated, self._too_large = EventLog(), EventLog()

    def restore(
        self,
        snapshot: Snapshot,
        retention: ResolverRetention,
        sandbox_networks: SandboxNetworks,
        expires_at: float | None = None,
    ) -> None:
        """Take up the saved state, before the first sync.

        The snapshot replaces unsynced sources until `expires_at`.
        """
        self._saved, self._saved_expires_at = snapshot, expires_at
        self.pods = PodResolvers(retention, sandbox_networks)
        self._wake()

    @property
    def is_restored(self) -> bool:
        """Whether saved objects are in use."""
        return self._saved != Snapshot()

    def wait_reasons(self) -> list[WaitReason]:
        found = (each.waiting for each in self.pods.by_pod.values())
        return [waiting.reason for waiting in found if waiting is not None]

    # ---- guests, from kata-bridge

    def present(self, guest: Guest) -> None:
        self.delivery.on_connected()
        self.guests[guest.id] = guest
        self._wake()

    def gone(self, guest_id: str) -> None:
        self.guests.pop(guest_id, None)
        self._wake()

    def synced(self) -> None:
        self.delivery.on_synced()
        self._wake()

    def disconnected(self) -> None:
        """The session ended; the next one reports all guests again, without those that are gone."""
        self.delivery.on_disconnect()
        self.guests.clear()
        self._wake()

    # ---- responses, from kata-bridge

    def answered(self, push: ResolverPush, result: GuestResult) -> None:
        now = self._now()
        self._metrics.pushes.labels(result.code.name.lower()).inc()
        if self.delivery.on_result(push, result, now):
            self._metrics.delivery_seconds.observe(now - push.changed_at)
            self.pods.record_applied(push.target, push.desired)
        else:
            self._log_failure(push, "kata-bridge refused a resolver, retrying", result.message)
        self._wake()

    def failed(self, push: ResolverPush, message: str) -> None:
        self._metrics.failed_pushes.inc()
        self.delivery.on_failure(push, message, self._now())
        self._log_failure(push, "kata-bridge did not respond, retrying", message)
        self._wake()

    def _log_failure(self, push: ResolverPush, line: str, reason: str) -> None:
        """Only the first failure of a row: retries fail alike."""
        status = self.delivery.statuses.get(push.target)
        if status is not None and status.failures == 1:
            target = push.target
            named = {"guest": target.guest} if target.guest else {"uid": target.pod_uid}
            _log.warning(line, **named, reason=reason)

    # ---- the sync

    def sync(self) -> SyncActions:
        """Evaluate all pods, and return what is due."""
        now = self._now()
        next_follow = self._source.follow(self._saved.pods or {})
        self._update_snapshot(now)
        state = self._cluster_state()
        self.pods.evaluate(
            self.snapshot.live_pods(),
            state,
            self._node(),
            self.guests.values(),
            now,
            has_all_guests=self.delivery.has_synced,
        )
        desired = self._desired_of_pods(now)
        desired |= self._desired_without_pod(now) | self._desired_withdrawals(now)
        self.delivery.set_desired(desired, now)
        pushes = tuple(self.delivery.take_due(now))
        self._log_changes(now)
        self._record_events(state)
        self._metrics.sync_seconds.observe(self._now() - now)
        times = (next_follow, self._next_at(now), self.delivery.next_retry_at())
        return SyncActions(pushes, min(filter(None, times), default=None))

    def _update_snapshot(self, now: float) -> None:
        found = self._source.snapshot()
        if self.is_restored and found.has_synced and self._source.dns_namespaces <= found.contents.keys():
            _log.info("all sources synced; saved state is not used any more")
            self._saved = Snapshot()
        expires_at = self._saved_expires_at
        if self.is_restored and expires_at is not None and expires_at <= now:
            _log.warning("saved state expired; pods without a resolver wait for the API server")
            self._saved = Snapshot()
        self.snapshot = found.completed_from(self._saved)

    def _cluster_state(self) -> ClusterState:
        return self.snapshot.cluster_state(self._settings)

    def _desired_of_pods(self, now: float) -> Desired:
        pods = self.pods.by_pod.values()
        desired = {each.target: each.desired for each in pods if each.is_submittable(now)}
        self._withdrawals.record_submitted({target.pod_uid for target in desired if not target.guest})
        return desired

    def _desired_without_pod(self, now: float) -> Desired:
        guests = guests_without_pod(self.guests.values(), self.snapshot, self.pods.retention.texts)
        before = self.guests_without_pod
        self.guests_without_pod = {name: before.get(name, now) for name in guests}
        desired = {}
        for name, since in self.guests_without_pod.items():
            if now - since >= GRACE_S:
                guest = guests[name]
                message = wait_message(guest, self.snapshot)[:MAX_MESSAGE_CHARACTERS]
                desired[ResolverTarget(name, guest.uid)] = DesiredResolver(
                    wait_message=message, networks=guest.networks
                )
        return desired

    def _desired_withdrawals(self, now: float) -> Desired:
        snapshot, pods = self.snapshot, self.pods
        if snapshot.pods is None:
            return {}
        alive = {pod.metadata.uid for pod in snapshot.pods.values()}
        alive |= {undecoded.uid for undecoded in snapshot.undecoded_pods.values()}
        withdrawn = {
            status.target.pod_uid
            for status in self.delivery.statuses.values()
            if not status.target.guest and status.applied == WITHDRAWN
        }
        to_withdraw, to_forget = self._withdrawals.evaluate(
            alive, pods.retention.texts.keys(), pods.sandbox_networks.known.keys(), withdrawn, now
        )
        pods.forget(to_forget)
        return {ResolverTarget(pod_uid=uid): WITHDRAWN for uid in to_withdraw}

    def _next_at(self, now: float) -> float | None:
        """When a grace period ends, an address is removed, or a pod is forgotten."""
        times = self.pods.times() + self._withdrawals.times()
        times += [since + GRACE_S for since in self.guests_without_pod.values()]
        if self.is_restored and self._saved_expires_at is not None:
            times.append(self._saved_expires_at)
        return min((at for at in times if at > now), default=None)

    # ---- reports

    def _log_changes(self, now: float) -> None:
        """What pods get, as soon as it is certain: kata-bridge has reported the pod's guest, or all."""

        def is_certain(each: PodResolver) -> bool:
            return (self.delivery.has_synced or bool(each.target.guest)) and each.is_submittable(now)

        for line in self._pod_log.changes(filter(is_certain, self.pods.by_pod.values()), now):
            (_log.warning if line.is_warning else _log.info)(line.message, **line.fields)
        self._pod_log.retain(self.pods.uids)

    def _record_events(self, state: ClusterState) -> None:
        """Events about truncated resolvers and pods that are too large, once for each text.

        What a pod waits for is reported by kata-bridge, which blocks its containers.
        """
        for each in self._truncated.changes(self._truncated_pods()):
            self._metrics.truncated.inc()
            self._record_all(each)
        for each in self._too_large.changes(self._too_large_pods(state)):
            self._record_all(each)

    def _record_all(self, pod: PodEvents) -> None:
        for event in pod.events:
            self._record(pod.pod, event, pod.tenant)

    def _truncated_pods(self) -> list[PodEvents]:
        return [
            PodEvents(
                each.pod.metadata,
                each.decision.events,
                "" if each.decision.owner is None else each.decision.owner.tenant,
            )
            for each in self.pods.by_pod.values()
        ]

    def _too_large_pods(self, state: ClusterState) -> list[PodEvents]:
        """Pods of tenants that were not decoded: their name and UID are known."""
        found = []
        for (namespace, name), undecoded in self.snapshot.undecoded_pods.items():
            owner = state.owner(namespace)
            if undecoded.is_too_large and owner is not None:
                event = PodEvent(
                    ResolverEventReason.OBJECT_TOO_LARGE, f"{undecoded.reason}: it gets no resolver"
                )
                found.append(PodEvents(ObjectMeta(name, namespace, undecoded.uid), (event,), owner.tenant))
        return found


async def run_sync_loop(
    controller: ResolverController,
    push: Callable[[ResolverPush], None],
    woken: asyncio.Event,
    now: Callable[[], float],
) -> None:
    """Sync whenever something has changed or is due; runs until cancelled."""
    while True:
        woken.clear()
        actions = controller.sync()
        for each in actions.pushes:
            push(each)
        await asyncio.sleep(MIN_SYNC_PERIOD_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(
                None if actions.next_at is None else max(0.0, actions.next_at - now())
            ):
                await woken.wait()
