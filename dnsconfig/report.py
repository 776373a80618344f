# SPDX-License-Identifier: Apache-2.0
"""The daemon's status pages: readiness, `/status`, and `/explain` for one pod."""

from collections import Counter
from collections.abc import Iterator

from bridge_api.session import SessionState, session_document, session_fault, session_line
from daemonkit.status.server import Query, Readiness, Reply
from dnsconfig.delivery.pod_resolvers import PodResolver
from dnsconfig.delivery.queue import DeliveryState
from dnsconfig.node_resolv_conf import NodeResolvConf
from dnsconfig.resolve.decision import ResolverDecision
from dnsconfig.resolve.resolv_conf import retained_lines
from dnsconfig.resolve.waiting import PodWaiting
from dnsconfig.sync import ResolverController
from dnsconfig.watch import Watch


class StatusReport:
    """Ages are in seconds, None before a source has synced."""

    def __init__(
        self,
        controller: ResolverController,
        watch: Watch,
        session: SessionState,
        file: NodeResolvConf,
        *,
        hold_s: float,
    ) -> None:
        self._controller = controller
        self._watch = watch
        self._session = session
        self._file = file
        self._hold_s = hold_s
        self._is_draining = False

    def start_draining(self) -> None:
        """Report not ready from now on."""
        self._is_draining = True

    # ---- ready

    def readiness(self) -> Readiness:
        """Ready when kata-bridge has reported its guests, and all sources are synced or restored."""
        lines = [session_line(self._session)]
        lines += [each.line(name) for name, each in self._watch.freshness().items()]
        if self._controller.is_restored:
            lines.append("saved state is used for sources that are not synced")
        if self._file.problem:
            lines.append(f"the node's resolver: {self._file.problem}")
        if self._is_draining:
            lines.append("draining")
        is_known = self._controller.snapshot.has_synced and not isinstance(
            self._file.node.resolver, PodWaiting
        )
        is_ready = self._session.is_synced and is_known and not self._is_draining
        return Readiness(is_ready, tuple(lines), "" if is_ready else "; ".join(self._reasons()))

    def _reasons(self) -> Iterator[str]:
        """Why the daemon is not ready, without ages."""
        if self._is_draining:
            yield "draining"
        if (fault := session_fault(self._session)) is not None:
            yield f"guests not synced: {fault.text}"
        if not self._controller.snapshot.has_synced:
            yield from filter(
                None, (each.wait_reason(name) for name, each in self._watch.freshness().items())
            )
        if isinstance(self._file.node.resolver, PodWaiting):
            yield f"the node's resolver: {self._file.problem or self._file.node.resolver.message}"

    # ---- status

    def status(self, now: float) -> dict[str, object]:
        controller = self._controller
        return {
            "isDraining": self._is_draining,
            "holdSeconds": self._hold_s,
            "bridge": session_document(self._session),
            "sources": {name: each.document() for name, each in self._watch.freshness().items()},
            "watches": self._watch.count,
            "usesSavedState": controller.is_restored,
            "nodeResolver": {"problem": self._file.problem},
            "unreadable": {
                f"{kind} {key[0]}/{key[1]}": reason
                for (kind, key), reason in self._watch.unreadable().items()
            },
            "guests": len(controller.guests),
            "guestsWithoutPod": sorted(controller.guests_without_pod),
            "pods": [self._pod(each, now) for _, each in sorted(controller.pods.by_pod.items())],
        }

    def _pod(self, each: PodResolver, now: float) -> dict[str, object]:
        meta, decision = each.pod.metadata, each.decision
        delivery = self._controller.delivery.statuses.get(each.target)
        return {
            "pod": f"{meta.namespace}/{meta.name}",
            "uid": meta.uid,
            "guest": each.target.guest,
            **_owner(decision, meta.name),
            "network": None if decision.network is None else decision.network.network,
            "servers": () if decision.server is None else decision.server.addresses,
            "waitMessage": each.desired.wait_message,
            "waitSeconds": None if each.waiting_since is None else round(now - each.waiting_since, 3),
            "retainedBecause": (
                decision.waiting.message if each.is_retained and decision.waiting is not None else ""
            ),
            "isServerRemoved": each.is_server_removed,
            "serverRemovedInSeconds": round(max(0.0, each.removal_at - now), 3)
            if each.is_removal_scheduled
            else None,
            "state": (DeliveryState.PENDING if delivery is None else delivery.state).value,
            "problem": "" if delivery is None else delivery.problem,
        }

    # ---- numbers

    def states(self) -> dict[tuple[str, ...], float]:
        """The number of delivery targets in each state: what they are to have may be a wait message."""
        statuses = self._controller.delivery.statuses.values()
        found = Counter(status.state for status in statuses if not status.is_forgotten)
        return {(state.value,): float(found[state]) for state in DeliveryState}

    # ---- explain

    def explain(self, query: Query, now: float) -> Reply:
        """One pod: `guest=ID` or `pod=NAMESPACE/NAME`, in the super cluster's names or the tenant's;
        `tenant=KEY` where two tenants have a pod of that name."""
        if not query.keys() & {"guest", "pod"}:
            return Reply(400, b"guest=ID or pod=NAMESPACE/NAME is needed\n")
        found = [each for each in self._controller.pods.by_pod.values() if _matches(each, query)]
        if len(found) != 1:
            return Reply(404, b"no such pod\n" if not found else b"more than one pod has that name\n")
        (each,) = found
        decision = each.decision
        lines = retained_lines(each.desired.text) if each.is_server_removed else decision.lines or ()
        return Reply.json(
            {
                "pod": self._pod(each, now),
                "policy": decision.policy,
                "class": decision.dns_class.value,
                "hostNetwork": each.pod.spec.host_network,
                "networks": each.desired.networks,
                "networkFrom": "" if decision.network is None else decision.network.source,
                "serverFrom": "" if decision.server is None else decision.server.source,
                "domain": "" if decision.domain is None else decision.domain.name,
                "domainFrom": "" if decision.domain is None else decision.domain.source,
                "record": decision.dns_record,
                "reason": "" if decision.waiting is None else decision.waiting.reason.value,
                "message": "" if decision.waiting is None else decision.waiting.message,
                "text": each.desired.text,
                "lines": [
                    {
                        "keyword": line.keyword,
                        "values": [{"value": value.value, "source": value.source} for value in line.entries],
                    }
                    for line in lines
                ],
                "truncated": [event.message for event in decision.events],
            }
        )


def _owner(decision: ResolverDecision, name: str) -> dict[str, object]:
    owner = decision.owner
    if owner is None:
        return {"tenant": "", "tenantPod": ""}
    return {"tenant": owner.tenant, "tenantPod": f"{owner.namespace}/{name}"}


def _matches(each: PodResolver, query: Query) -> bool:
    meta, owner = each.pod.metadata, each.decision.owner
    if "tenant" in query and (owner is None or owner.tenant != query["tenant"]):
        return False
    if "guest" in query:
        return bool(each.target.guest) and each.target.guest == query["guest"]
    names = {f"{meta.namespace}/{meta.name}"}
    if owner is not None:
        names.add(f"{owner.namespace}/{meta.name}")
    return query["pod"] in names
