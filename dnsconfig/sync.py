# SPDX-License-Identifier: Apache-2.0
"""Between what is known and what kata-bridge is told. Pure: time comes in, pushes and events go out.

Each turn decides for all pods of the node anew, from the whole picture: a node has a few hundred at
most, and nothing is left over from an order of events. What counts longer than a turn is little:

- a pod is in the network that its sandbox is attached to (`attachments`), and before there is one in
  that of its label.
- a pod that has had its resolver keeps it, in the network that it is for. When that is lost from
  sight or is not ready any more, the text that it has stays in its containers and in those that
  start again; only what has never had one waits. Where the network's Service is known not to have
  the address any more, it is taken out of the text after a moment (`keeping`): nobody's resolver
  becomes another by keeping it.
- what is not known yet is told to nobody for a moment (`GRACE_S`): most of it is on its way.
- a pod that is gone from the API server is withdrawn from kata-bridge after a while (`FORGET_S`): its
  containers end by the kubelet's hand, not by a list that lacked it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from bridge_api.messages import Guest, GuestResult
from daemonkit import logs
from daemonkit.kube.resources import Key, ObjectMeta
from dnsconfig.cluster.objects import PodObject
from dnsconfig.cluster.snapshot import Picture
from dnsconfig.delivery.guests_without_pod import strangers, why
from dnsconfig.delivery.queue import Delivery, Push, Target
from dnsconfig.metrics import Metrics
from dnsconfig.resolve.decision import Decision, Node, Resolvers, decide, held
from dnsconfig.resolve.network import Origin, networks_of
from dnsconfig.resolve.resolver import PodEvent
from dnsconfig.resolve.waiting import Cause, Waits
from dnsconfig.retention.desired import WITHDRAWN, Wanted
from dnsconfig.retention.resolver_retention import Keeping, Loss
from dnsconfig.retention.sandbox_networks import Attachments

GRACE_S = 2.0
FORGET_S = 600.0
# The bridge takes 4 096; what an object does not decode for may quote much of it.
MAX_REASON_CHARACTERS = 1_000
# A file of nothing, for the bridge: an empty text is none. A resolver reads both alike.
EMPTY_FILE = "\n"

_log = logs.get(__name__)


class Sources(Protocol):
    """The part of `watch.Watch` that is asked."""

    def follow(self, saved_pods: Mapping[Key, PodObject]) -> float | None: ...
    def picture(self) -> Picture: ...
    @property
    def wanted(self) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True)
class Settings:
    """What of the configuration decides."""

    default_domain: str
    domains: Mapping[str, str]
    has_plain_dns: bool = False


@dataclass(frozen=True, slots=True)
class PodState:
    """One tenant's pod and what was decided for it.

    `is_kept`: it has an older text than that. `loss`: an address in that text is not its network's
    any more; once it `is_taken` the pod has what is left of the text, and keeps none.
    """

    pod: PodObject
    decision: Decision
    target: Target
    wanted: Wanted
    is_kept: bool = False
    loss: Loss | None = None
    waits_since: float | None = None

    @property
    def has_lost(self) -> bool:
        return self.loss is not None and self.loss.is_taken

    def has_waited(self, now: float, seconds: float) -> bool:
        return self.waits_since is not None and now - self.waits_since >= seconds


class Engine:
    """All times are of one monotonic clock. `send` gets pushes, `tell` Events for a pod."""

    def __init__(
        self,
        sources: Sources,
        settings: Settings,
        node: Callable[[], Node],
        metrics: Metrics,
        *,
        now: Callable[[], float],
        wake: Callable[[], None],
        send: Callable[[Push], None],
        tell: Callable[[PodObject, PodEvent, str], None],
    ) -> None:
        self._sources = sources
        self._settings = settings
        self._node = node
        self._metrics = metrics
        self._now = now
        self._wake = wake
        self._send = send
        self._tell = tell
        self._saved = Picture()
        self._saved_ends_at: float | None = None
        self.picture = Picture()
        self.guests: dict[str, Guest] = {}
        self.pods: dict[Key, PodState] = {}
        # Guests of tenants of whose pods nothing is known, and since when.
        self.strangers: dict[str, float] = {}
        self.keeping = Keeping()
        self.attachments = Attachments()
        self._resolvers = Resolvers()
        # Pods that kata-bridge was told of by their UID, and since when such a pod is gone.
        self._spoken_for: set[str] = set()
        self._gone: dict[str, float] = {}
        self._told: dict[str, tuple[PodEvent, ...]] = {}
        # Pods of tenants that were not decoded, of which the name and UID are known.
        self._too_large: list[tuple[PodObject, str]] = []
        self._logged: dict[str, tuple[Wanted, bool, bool]] = {}
        self.delivery = Delivery()

    # ---- what comes in

    def causes(self) -> list[Cause]:
        """Why each of the pods that wait does."""
        found = (_waits(state) for state in self.pods.values())
        return [waits.cause for waits in found if waits is not None]

    def restore(
        self, picture: Picture, keeping: Keeping, attachments: Attachments, ends_at: float | None = None
    ) -> None:
        """What was saved, before anything else is told.

        The picture counts until the API server has told, or until it is too old, at `ends_at`.
        """
        self._saved, self._saved_ends_at = picture, ends_at
        self.keeping, self.attachments = keeping, attachments
        self._wake()

    @property
    def is_restored(self) -> bool:
        """Whether some of what counts is of the saved state."""
        return self._saved != Picture()

    def present(self, guest: Guest) -> None:
        self.delivery.connected()
        self.guests[guest.id] = guest
        self._wake()

    def gone(self, guest_id: str) -> None:
        self.guests.pop(guest_id, None)
        self._wake()

    def synced(self) -> None:
        self.delivery.synced()
        self._wake()

    def lost(self) -> None:
        """The bridge is away; guests that went meanwhile will not be told when it is back."""
        self.delivery.lost()
        self.guests.clear()
        self._wake()

    def answered(self, push: Push, result: GuestResult) -> None:
        now = self._now()
        self._metrics.pushes.labels(result.code.name.lower()).inc()
        if self.delivery.answered(push, result, now):
            self._metrics.delivery_seconds.observe(now - push.changed_at)
            if push.text:
                self._remember(push)
        else:
            self._log_failure(push, "kata-bridge did not take a resolver", result.message)
        self._wake()

    def failed(self, push: Push, reason: str) -> None:
        self._metrics.failed_pushes.inc()
        self.delivery.failed(push, reason, self._now())
        self._log_failure(push, "kata-bridge did not answer", reason)
        self._wake()

    def _log_failure(self, push: Push, message: str, reason: str) -> None:
        """The first of a row: the next tries say the same."""
        standing = self.delivery.standings.get(push.target)
        if standing is not None and standing.failures == 1:
            _log.warning(message, **_named(push), reason=reason)

    def _remember(self, push: Push) -> None:
        uid = push.target.pod_uid
        if uid and any(state.target == push.target for state in self.pods.values()):
            self.keeping.remember(uid, push.wanted)
            self.attachments.given(uid, push.wanted.networks)

    # ---- a turn

    def turn(self) -> float | None:
        """Decide and send; returns when the next turn is due if nothing happens."""
        now = self._now()
        next_follow = self._sources.follow(self._saved.pods or {})
        heard = self._sources.picture()
        if self.is_restored and heard.is_whole and self._sources.wanted <= heard.places.keys():
            _log.info("the API server has told; what was saved counts no more")
            self._saved = Picture()
        if self.is_restored and self._saved_ends_at is not None and self._saved_ends_at <= now:
            _log.warning("what was saved is too old by now and counts no more")
            self._saved = Picture()
        self.picture = heard.over(self._saved)
        self._decide(now)
        targets = {state.target: state.wanted for state in self.pods.values() if _is_told(state, now)}
        self._spoken_for |= {target.pod_uid for target in targets if not target.guest}
        self.delivery.want(targets | self._of_strangers(now) | self._withdrawn(now), now)
        for push in tuple(self.delivery.due(now)):
            self._send(push)
        self._tell_pods()
        self._metrics.turn_seconds.observe(self._now() - now)
        return min(filter(None, (next_follow, self._next_at(now), self.delivery.next_at())), default=None)

    def _decide(self, now: float) -> None:
        settings = self._settings
        world = self.picture.world(
            settings.default_domain, settings.domains, has_plain_dns=settings.has_plain_dns
        )
        node = self._node()
        guests = _by_pod(self.guests.values())
        before, self.pods = self.pods, {}
        for key, pod in self.picture.live_pods().items():
            guest = guests.get(pod.metadata.uid) or guests.get("/".join(key))
            attached = self.attachments.look(pod, guest, has_all_guests=self.delivery.is_synced)
            had = self.keeping.had(pod.metadata.uid)
            decision = decide(pod, world, node, attached, had, self._resolvers)
            if decision is None:
                continue
            known = before.get(key)
            if known is not None and known.pod.metadata.uid != pod.metadata.uid:
                known = None  # another pod of the same name
            target = Target("" if guest is None else guest.id, pod.metadata.uid)
            networks = networks_of(pod.metadata.labels, attached)
            self.pods[key] = self._state(pod, decision, target, networks, known, now)
            self._log_change(self.pods[key], now)
        alive = {state.pod.metadata.uid for state in self.pods.values()}
        self._logged = {uid: said for uid, said in self._logged.items() if uid in alive}
        self._resolvers.keep(alive)
        self._too_large = [
            (PodObject(ObjectMeta(key[1], key[0], spoiled.uid)), owner.tenant)
            for key, spoiled in self.picture.spoiled_pods.items()
            if spoiled.is_too_large and (owner := world.owner(key[0])) is not None
        ]

    def _state(
        self,
        pod: PodObject,
        decision: Decision,
        target: Target,
        networks: tuple[str, ...],
        known: PodState | None,
        now: float,
    ) -> PodState:
        uid, text, waits = pod.metadata.uid, decision.text, decision.waits
        origin = _origin(decision)
        loss = self.keeping.look(uid, decision, now, is_host_network=pod.spec.host_network)
        if not self.keeping.is_for(uid, networks):
            loss = None  # what it was given is of another sandbox, in another network
        is_bare, is_kept = loss is not None and loss.is_taken, False
        if loss is not None and is_bare:
            text = loss.bare
        elif text is None and self.keeping.is_for(uid, networks):
            is_kept = True
            text, waits = self.keeping.given[uid], held(pod)
            origin = self.keeping.origins.get(uid)
        file = "" if text is None else text or EMPTY_FILE
        since = None
        if waits is not None:
            since = known.waits_since if known is not None and known.waits_since is not None else now
        reason = "" if waits is None else waits.reason[:MAX_REASON_CHARACTERS]
        wanted = Wanted(file, reason, origin, is_bare, networks)
        return PodState(pod, decision, target, wanted, is_kept, loss, since)

    def _of_strangers(self, now: float) -> dict[Target, Wanted]:
        ours = strangers(self.guests.values(), self.picture, self.keeping.given)
        self.strangers = {name: self.strangers.get(name, now) for name in ours}
        found = {}
        for name, since in self.strangers.items():
            if now - since >= GRACE_S:
                guest = ours[name]
                reason = why(guest, self.picture)[:MAX_REASON_CHARACTERS]
                found[Target(name, guest.uid)] = Wanted(waits=reason, networks=guest.networks)
        return found

    def _withdrawn(self, now: float) -> dict[Target, Wanted]:
        """Pods that are gone from the API server for so long that nobody speaks for them any more."""
        if self.picture.pods is None:
            return {}
        alive = {pod.metadata.uid for pod in self.picture.pods.values()}
        alive |= {spoiled.uid for spoiled in self.picture.spoiled_pods.values()}
        found = {}
        spoken_for = self.keeping.given.keys() | self._spoken_for
        for uid in spoken_for | self.attachments.known.keys():
            if uid in alive:
                self._gone.pop(uid, None)
                continue
            since = self._gone.setdefault(uid, now)
            standing = self.delivery.standings.get(Target(pod_uid=uid))
            is_done = standing is not None and standing.has == WITHDRAWN
            is_done = is_done or (uid not in spoken_for and since + FORGET_S <= now)
            if is_done or since + 2 * FORGET_S <= now:
                del self._gone[uid]
                self.keeping.forget(uid)
                self.attachments.forget(uid)
                self._spoken_for.discard(uid)
            elif since + FORGET_S <= now:
                found[Target(pod_uid=uid)] = WITHDRAWN
        return found

    def _next_at(self, now: float) -> float | None:
        """When somebody's grace ends, somebody loses an address, or is to be forgotten."""
        waiting = [state.waits_since for state in self.pods.values() if state.waits_since is not None]
        times = [since + GRACE_S for since in waiting]
        times += [since + GRACE_S for since in self.strangers.values()]
        times += [since + after for since in self._gone.values() for after in (FORGET_S, 2 * FORGET_S)]
        times += self.keeping.ends()
        if self.is_restored and self._saved_ends_at is not None:
            times.append(self._saved_ends_at)
        return min((at for at in times if at > now), default=None)

    # ---- what is said

    def _tell_pods(self) -> None:
        """Events of what was cut, and of pods that are too large, each once for a pod and text.

        What a pod waits for is told by kata-bridge, which holds its containers.
        """
        before, self._told = self._told, {}
        for state in self.pods.values():
            uid, events = state.pod.metadata.uid, state.decision.events
            if events and events != before.get(uid):
                self._metrics.cut.inc()
            owner = state.decision.owner
            self._tell_pod(state.pod, events, before, "" if owner is None else owner.tenant)
        for pod, tenant in self._too_large:
            reason = self.picture.spoiled_pods[pod.metadata.namespace, pod.metadata.name].reason
            self._tell_pod(
                pod, (PodEvent("ObjectTooLarge", f"{reason}: it gets no resolver"),), before, tenant
            )

    def _tell_pod(
        self,
        pod: PodObject,
        events: tuple[PodEvent, ...],
        before: Mapping[str, tuple[PodEvent, ...]],
        tenant: str,
    ) -> None:
        if events:
            uid = pod.metadata.uid
            self._told[uid] = events
            for event in events:
                if event not in before.get(uid, ()):
                    self._tell(pod, event, tenant)

    def _log_change(self, state: PodState, now: float) -> None:
        """One line for each change of what a pod is told, not for what is on its way here."""
        meta, decision = state.pod.metadata, state.decision
        said = (state.wanted, state.is_kept, state.loss is not None and state.loss.is_told)
        is_certain = self.delivery.is_synced or bool(state.target.guest)
        if not (is_certain and _is_told(state, now)) or self._logged.get(meta.uid) == said:
            return
        self._logged[meta.uid] = said
        fields: dict[str, object] = {"pod": f"{meta.namespace}/{meta.name}"}
        if decision.owner is not None:
            fields["tenant"] = decision.owner.tenant
        if decision.network is not None:
            fields["network"] = decision.network.network
        reason = "" if decision.waits is None else decision.waits.reason
        if state.loss is not None and state.loss.is_taken:
            _log.warning("the address of a pod's DNS server is taken from it", **fields, reason=reason)
        elif state.is_kept and state.loss is not None:
            takes = {"takes_in_s": round(state.loss.ends_at - now), "is_doubted": not state.loss.is_told}
            _log.warning("a pod keeps its resolver for a while", **fields, **takes, reason=reason)
        elif state.is_kept:
            _log.warning("a pod keeps its resolver", **fields, reason=reason)
        elif state.wanted.waits:
            _log.info("a pod waits", **fields, reason=state.wanted.waits)
        else:
            servers = () if decision.server is None else decision.server.addresses
            _log.info("a pod has a resolver", **fields, servers=" ".join(servers))


def _is_told(state: PodState, now: float) -> bool:
    """Whether kata-bridge is told: not yet of what is on its way here."""
    waits = _waits(state)
    if waits is None or waits.cause is not Cause.UNHEARD:
        return True
    return state.has_waited(now, GRACE_S)


def _origin(decision: Decision) -> Origin | None:
    """Where the cluster IPs in a decision's text come from; None where there are none."""
    server, network = decision.server, decision.network
    if decision.lines is None or server is None or network is None or not server.is_cluster_ip:
        return None
    return Origin(network.network, server.addresses)


def _waits(state: PodState) -> Waits | None:
    """What a pod's containers wait for now."""
    return held(state.pod) if state.is_kept else state.decision.waits


def _by_pod(guests: Iterable[Guest]) -> dict[str, Guest]:
    """Guests by their pod's UID, or where the bridge knows none by `namespace/name`."""
    return {guest.uid or f"{guest.namespace}/{guest.name}": guest for guest in guests}


def _named(push: Push) -> dict[str, object]:
    if push.target.guest:
        return {"guest": push.target.guest}
    return {"uid": push.target.pod_uid}
