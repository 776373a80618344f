# SPDX-License-Identifier: Apache-2.0
"""Evaluates all pods of the node: what each is to have, from one snapshot of the super cluster.

Every sync evaluates all pods anew; a node has some hundreds at most, and no order of events leaves a
trace. Three things outlast a sync:

- A pod is in the networks of its sandbox (`sandbox_networks`), and before it has one in that of its
  label.
- A pod that has a resolver retains it, in the network that it is for. When its network becomes
  unknown or not ready, running and restarting containers keep the text; only a pod without a
  resolver waits. A revoked server address is removed after a delay (`resolver_retention`).
- Decisions that need unsynced data are delayed by `GRACE_S`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from bridge_api.messages import Guest
from daemonkit.kube.resources import Key
from dnsconfig.cluster.objects import PodObject
from dnsconfig.cluster.state import ClusterState
from dnsconfig.delivery.queue import ResolverTarget
from dnsconfig.resolve.decision import NodeDns, ResolverCache, ResolverDecision, decide, readiness_wait
from dnsconfig.resolve.network import RevocableAddresses, networks_of
from dnsconfig.resolve.waiting import PodWaiting, WaitReason
from dnsconfig.retention.desired import DesiredResolver
from dnsconfig.retention.resolver_retention import ResolverRetention, RevokedAddress
from dnsconfig.retention.sandbox_networks import SandboxNetworks

GRACE_S = 2.0
# kata-bridge takes 4 096; a message may quote much of an object that is not decoded.
MAX_MESSAGE_CHARACTERS = 1_000
# kata-bridge takes an empty text for none. C libraries read both alike.
EMPTY_FILE = "\n"


@dataclass(frozen=True, slots=True)
class PodResolver:
    """One tenant's pod, the decision about it, and what it is to have.

    `is_retained`: it keeps an older resolver than the decision's. `revoked`: an address in that text
    is not its network's any more, and is removed at `removal_at`.
    """

    pod: PodObject
    decision: ResolverDecision
    target: ResolverTarget
    desired: DesiredResolver
    is_retained: bool = False
    revoked: RevokedAddress | None = None
    removal_at: float = 0.0
    waiting_since: float | None = None

    @property
    def is_server_removed(self) -> bool:
        return self.revoked is not None and self.revoked.is_removed

    @property
    def is_removal_scheduled(self) -> bool:
        """Whether the address is to be removed at `removal_at`: not while its loss is unknown."""
        if self.revoked is None or not self.is_retained:
            return False
        return self.revoked.is_confirmed or self.decision.cluster_ips is not None

    @property
    def waiting(self) -> PodWaiting | None:
        """Why the pod's containers wait now."""
        return readiness_wait(self.pod) if self.is_retained else self.decision.waiting

    def is_submittable(self, now: float) -> bool:
        """Whether to submit it: a wait for unsynced data is submitted only after `GRACE_S`."""
        waiting = self.waiting
        if waiting is None or waiting.reason is not WaitReason.NOT_SYNCED:
            return True
        return self.waiting_since is not None and now - self.waiting_since >= GRACE_S


class PodResolvers:
    def __init__(self, retention: ResolverRetention, sandbox_networks: SandboxNetworks) -> None:
        self.retention = retention
        self.sandbox_networks = sandbox_networks
        self.by_pod: dict[Key, PodResolver] = {}
        self._cache = ResolverCache()

    def evaluate(
        self,
        pods: Mapping[Key, PodObject],
        state: ClusterState,
        node: NodeDns,
        guests: Iterable[Guest],
        now: float,
        *,
        has_all_guests: bool,
    ) -> None:
        """Decide for each of these pods."""
        guest_of = _by_pod(guests)
        before, self.by_pod = self.by_pod, {}
        for key, pod in pods.items():
            uid = pod.metadata.uid
            guest = guest_of.get(uid) or guest_of.get("/".join(key))
            networks = self.sandbox_networks.observe(pod, guest, has_all_guests=has_all_guests)
            decision = decide(pod, state, node, networks, self.retention.previous_network(uid), self._cache)
            if decision is None:
                continue
            known = before.get(key)
            since = known.waiting_since if known is not None and known.pod.metadata.uid == uid else None
            target = ResolverTarget("" if guest is None else guest.id, uid)
            networks = networks_of(pod.metadata.labels, networks)
            self.by_pod[key] = self._resolver(pod, decision, target, networks, since, now)
        self._cache.retain(self.uids)

    @property
    def uids(self) -> set[str]:
        return {each.pod.metadata.uid for each in self.by_pod.values()}

    def record_applied(self, target: ResolverTarget, desired: DesiredResolver) -> None:
        """kata-bridge has applied this to a pod."""
        uid = target.pod_uid
        if desired.text and uid and any(each.target == target for each in self.by_pod.values()):
            self.retention.record_applied(uid, desired)
            self.sandbox_networks.infer(uid, desired.networks)

    def forget(self, uids: Collection[str]) -> None:
        for uid in uids:
            self.retention.forget(uid)
            self.sandbox_networks.forget(uid)

    def times(self) -> list[float]:
        """When a grace period ends or an address is removed."""
        since = (each.waiting_since for each in self.by_pod.values())
        return [each + GRACE_S for each in since if each is not None] + self.retention.removal_times()

    def _resolver(
        self,
        pod: PodObject,
        decision: ResolverDecision,
        target: ResolverTarget,
        networks: tuple[str, ...],
        waiting_since: float | None,
        now: float,
    ) -> PodResolver:
        uid, text, waiting = pod.metadata.uid, decision.text, decision.waiting
        revocable = _revocable(decision)
        retention = self.retention
        revoked = retention.evaluate(uid, decision, now, is_host_network=pod.spec.host_network)
        if not retention.is_retained_for(uid, networks):
            revoked = None  # its resolver is of another sandbox, in another network
        is_reduced, is_retained = revoked is not None and revoked.is_removed, False
        if revoked is not None and is_reduced:
            text = revoked.reduced_text
        elif text is None and retention.is_retained_for(uid, networks):
            is_retained = True
            text, waiting = retention.texts[uid], readiness_wait(pod)
            revocable = retention.revocable.get(uid)
        file = "" if text is None else text or EMPTY_FILE
        since = None
        if waiting is not None:
            since = now if waiting_since is None else waiting_since
        message = "" if waiting is None else waiting.message[:MAX_MESSAGE_CHARACTERS]
        desired = DesiredResolver(file, message, revocable, is_reduced, networks)
        removal_at = 0.0 if revoked is None else retention.removal_at(revoked)
        return PodResolver(pod, decision, target, desired, is_retained, revoked, removal_at, since)


def _revocable(decision: ResolverDecision) -> RevocableAddresses | None:
    """The cluster IPs in a decision's text; None where it has none."""
    server, network = decision.server, decision.network
    if decision.lines is None or server is None or network is None or not server.is_cluster_ip:
        return None
    return RevocableAddresses(network.network, server.addresses)


def _by_pod(guests: Iterable[Guest]) -> dict[str, Guest]:
    """Guests by their pod's UID, or without one by `namespace/name`."""
    return {guest.uid or f"{guest.namespace}/{guest.name}": guest for guest in guests}
