# SPDX-License-Identifier: Apache-2.0
"""What operators and authors read about pods: one log line for each change, and each Event once."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from daemonkit.kube.resources import ObjectMeta
from dnsconfig.delivery.pod_resolvers import PodResolver
from dnsconfig.resolve.resolver import PodEvent
from dnsconfig.retention.desired import DesiredResolver


@dataclass(frozen=True, slots=True)
class LogLine:
    message: str
    is_warning: bool = False
    fields: Mapping[str, object] = field(default_factory=dict)


class PodLog:
    """Which state of each pod was logged last, by UID."""

    def __init__(self) -> None:
        self._logged: dict[str, tuple[DesiredResolver, bool, bool]] = {}

    def changes(self, pods: Iterable[PodResolver], now: float) -> Iterator[LogLine]:
        """A line for each of these pods that is in another state than the logged one."""
        for pod in pods:
            uid = pod.pod.metadata.uid
            state = (pod.desired, pod.is_retained, pod.revoked is not None and pod.revoked.is_confirmed)
            if self._logged.get(uid) != state:
                self._logged[uid] = state
                yield _line(pod, now)

    def retain(self, uids: Collection[str]) -> None:
        """Forget all pods but these."""
        self._logged = {uid: state for uid, state in self._logged.items() if uid in uids}


def _line(pod: PodResolver, now: float) -> LogLine:
    meta, decision, revoked = pod.pod.metadata, pod.decision, pod.revoked
    fields: dict[str, object] = {"pod": f"{meta.namespace}/{meta.name}"}
    if decision.owner is not None:
        fields["tenant"] = decision.owner.tenant
    if decision.network is not None:
        fields["network"] = decision.network.network
    reason = "" if decision.waiting is None else decision.waiting.message
    if pod.is_server_removed:
        return LogLine("revoked DNS server removed from the pod", True, fields | {"reason": reason})
    if pod.is_retained and revoked is not None:
        fields |= {"removed_in_s": round(pod.removal_at - now), "is_confirmed": revoked.is_confirmed}
        return LogLine("pod retains a revoked DNS server for now", True, fields | {"reason": reason})
    if pod.is_retained:
        return LogLine("pod retains its resolver", True, fields | {"reason": reason})
    if pod.desired.wait_message:
        return LogLine("pod waits for its resolver", False, fields | {"reason": pod.desired.wait_message})
    servers = () if decision.server is None else decision.server.addresses
    return LogLine("pod has a resolver", False, fields | {"servers": " ".join(servers)})


@dataclass(frozen=True, slots=True)
class PodEvents:
    """The Events about one pod; `tenant` is the one that its Namespace names."""

    pod: ObjectMeta
    events: tuple[PodEvent, ...]
    tenant: str


class EventLog:
    """Which Events each pod had at the last sync, by UID."""

    def __init__(self) -> None:
        self._recorded: dict[str, tuple[PodEvent, ...]] = {}

    def changes(self, pods: Iterable[PodEvents]) -> Iterator[PodEvents]:
        """The pods whose Events differ from the record's, with the new Events; then record all."""
        before, self._recorded = self._recorded, {}
        for each in pods:
            uid = each.pod.uid
            known = before.get(uid, ())
            if each.events:
                self._recorded[uid] = each.events
            if each.events and each.events != known:
                new = tuple(event for event in each.events if event not in known)
                yield PodEvents(each.pod, new, each.tenant)
