# SPDX-License-Identifier: Apache-2.0
"""What the daemon shows of itself: readiness, `/status`, and `/explain` for one pod. Pure."""

from collections import Counter
from typing import Protocol

from daemonkit.status.server import Query, Readiness, Reply
from dnsconfig.delivery.queue import State
from dnsconfig.node_resolv_conf import NodeFile
from dnsconfig.resolve.decision import Decision
from dnsconfig.resolve.resolv_conf import given_before
from dnsconfig.resolve.waiting import Waits
from dnsconfig.sync import Engine, PodState
from dnsconfig.watch import Watch


class Link(Protocol):
    """The part of `bridge.Connection` that is shown."""

    is_synced: bool
    problem: str


class Report:
    """Reads what is there; ages are in seconds, None before a source was heard."""

    def __init__(self, engine: Engine, watch: Watch, bridge: Link, file: NodeFile) -> None:
        self._engine = engine
        self._watch = watch
        self._bridge = bridge
        self._file = file
        self.is_draining = False

    # ---- ready

    def readiness(self) -> Readiness:
        """Ready when kata-bridge has told its guests, and all that decides is known, be it saved."""
        lines = [f"kata-bridge: {self._bridge.problem or 'ok'}"]
        lines += [each.line(name) for name, each in self._watch.freshness().items()]
        if self._engine.is_restored:
            lines.append("saved state counts for what was not heard yet")
        if self._file.problem:
            lines.append(f"the node's resolver: {self._file.problem}")
        if self.is_draining:
            lines.append("draining")
        is_known = self._engine.picture.is_whole and not isinstance(self._file.node.resolver, Waits)
        return Readiness(self._bridge.is_synced and is_known and not self.is_draining, tuple(lines))

    # ---- status

    def status(self, now: float) -> dict[str, object]:
        engine = self._engine
        return {
            "isDraining": self.is_draining,
            "bridge": {"isSynced": self._bridge.is_synced, "problem": self._bridge.problem},
            "sources": {name: each.document() for name, each in self._watch.freshness().items()},
            "watches": self._watch.count,
            "usesSavedState": engine.is_restored,
            "nodeResolver": {"problem": self._file.problem},
            "unreadable": {
                f"{kind} {key[0]}/{key[1]}": why for (kind, key), why in self._watch.unreadable().items()
            },
            "guests": len(engine.guests),
            "guestsWithoutPod": sorted(engine.strangers),
            "pods": [self._pod(state, now) for _, state in sorted(engine.pods.items())],
        }

    def _pod(self, state: PodState, now: float) -> dict[str, object]:
        meta, decision = state.pod.metadata, state.decision
        standing = self._engine.delivery.standings.get(state.target)
        return {
            "pod": f"{meta.namespace}/{meta.name}",
            "uid": meta.uid,
            "guest": state.target.guest,
            **_named(decision, meta.name),
            "network": None if decision.network is None else decision.network.network,
            "servers": () if decision.server is None else decision.server.addresses,
            "waits": state.wanted.waits,
            "waitsSeconds": None if state.waits_since is None else round(now - state.waits_since, 3),
            "keepsAsOf": decision.waits.reason if state.is_kept and decision.waits is not None else "",
            "hasLostServer": state.has_lost,
            "losesServerInSeconds": (
                round(max(0.0, state.loss.ends_at - now), 3)
                if state.is_kept and state.loss is not None
                else None
            ),
            "state": State.BEHIND.value if standing is None else standing.state.value,
            "problem": "" if standing is None else standing.problem,
        }

    # ---- numbers

    def states(self) -> dict[tuple[str, ...], float]:
        """The pods by where kata-bridge is with them."""
        standings = self._engine.delivery.standings.values()
        found = Counter(standing.state for standing in standings if not standing.is_forgotten)
        return {(state.value,): float(found[state]) for state in State}

    # ---- explain

    def explain(self, query: Query, now: float) -> Reply:
        """One pod: `guest=ID` or `pod=NAMESPACE/NAME`, in the super cluster's names or the tenant's, of
        `tenant=KEY` where two have one of that name."""
        if not query.keys() & {"guest", "pod"}:
            return Reply(400, b"guest=ID or pod=NAMESPACE/NAME is needed\n")
        found = [state for state in self._engine.pods.values() if _is_asked(state, query)]
        if len(found) != 1:
            return Reply(404, b"no such pod\n" if not found else b"more than one pod is called so\n")
        (state,) = found
        decision = state.decision
        return Reply.json(
            {
                "pod": self._pod(state, now),
                "policy": decision.policy,
                "class": decision.dns_class.value,
                "hostNetwork": state.pod.spec.host_network,
                "networks": state.wanted.networks,
                "networkFrom": "" if decision.network is None else decision.network.source,
                "serverFrom": "" if decision.server is None else decision.server.source,
                "domain": "" if decision.domain is None else decision.domain.name,
                "domainFrom": "" if decision.domain is None else decision.domain.source,
                "record": decision.record,
                "cause": "" if decision.waits is None else decision.waits.cause.value,
                "reason": "" if decision.waits is None else decision.waits.reason,
                "text": state.wanted.text,
                "lines": [
                    {
                        "keyword": line.keyword,
                        "values": [{"value": each.value, "source": each.source} for each in line.entries],
                    }
                    for line in (given_before(state.wanted.text) if state.has_lost else decision.lines or ())
                ],
                "cut": [event.message for event in decision.events],
            }
        )


def _named(decision: Decision, name: str) -> dict[str, object]:
    owner = decision.owner
    if owner is None:
        return {"tenant": "", "tenantPod": ""}
    return {"tenant": owner.tenant, "tenantPod": f"{owner.namespace}/{name}"}


def _is_asked(state: PodState, query: Query) -> bool:
    meta, owner = state.pod.metadata, state.decision.owner
    if "tenant" in query and (owner is None or owner.tenant != query["tenant"]):
        return False
    if "guest" in query:
        return bool(state.target.guest) and state.target.guest == query["guest"]
    names = {f"{meta.namespace}/{meta.name}"}
    if owner is not None:
        names.add(f"{owner.namespace}/{meta.name}")
    return query["pod"] in names
