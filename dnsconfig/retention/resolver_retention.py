# SPDX-License-Identifier: Apache-2.0
"""Which resolvers pods retain, and when a revoked server address is removed from them.

A resolver is for the networks of the pod's sandbox at that time (`sandbox_networks`). A sandbox in
other networks does not retain it.

A pod retains its resolver while none can be decided for it, with one exception. The API server may
give a free cluster IP to a Service of any tenant at once. So if the network's Service has given up
the address and no new resolver can be computed for the pod, the pod's text loses the address and
starting containers wait:

- after `REVOCATION_DELAY_S`. A Service that is deleted and created again (`helm upgrade --force`, a
  syncer that repairs) is back within seconds, and the pods' files shall change once, not twice. A
  longer delay is useless, as the address may have a new owner at once. A shorter one would end
  before the saved state is written, and a restart would begin anew.
- after `holdSeconds` while only a distrusted relist reports it (`daemonkit.kube.relist_guard`). A
  restored backup or a broken cache lacks the DNS Services of all tenants at once; syncers create
  them again within minutes. kubeproxy-ext keeps the guests' Services for as long, but for the
  exceptions of decision 24.

Unknown state neither removes nor restores an address.
"""

from dataclasses import dataclass, replace

from daemonkit.kube.relist_guard import trusted_at
from dnsconfig.resolve.decision import MAX_TEXT_BYTES, ResolverDecision
from dnsconfig.resolve.network import RevocableAddresses
from dnsconfig.retention.desired import DesiredResolver
from dnsconfig.retention.revoked_servers import has_revoked, without_revoked

REVOCATION_DELAY_S = 15.0


@dataclass(frozen=True, slots=True)
class RevokedAddress:
    """A pod's network has given up an address that the pod has: since when, and whether confirmed.

    `reduced_text` is what the pod has instead; empty while it retains its text.
    """

    since: float
    is_confirmed: bool
    reduced_text: str = ""

    @property
    def is_removed(self) -> bool:
        return bool(self.reduced_text)


class ResolverRetention:
    """By the UIDs of pods: texts, their networks, their cluster IPs, and what of these is revoked."""

    def __init__(self, hold_s: float) -> None:
        self._hold_s = hold_s
        self.texts: dict[str, str] = {}
        self.networks: dict[str, tuple[str, ...]] = {}
        self.revocable: dict[str, RevocableAddresses] = {}
        self.revoked: dict[str, RevokedAddress] = {}

    def record_applied(self, uid: str, desired: DesiredResolver) -> None:
        """The pod has this resolver now."""
        if not desired.text or desired.is_reduced:
            return  # a reduced text is never restored
        self.texts[uid] = desired.text
        self.networks[uid] = desired.networks
        self.revocable.pop(uid, None)
        if desired.revocable is not None:
            self.revocable[uid] = desired.revocable

    def forget(self, uid: str) -> None:
        for each in (self.texts, self.networks, self.revocable, self.revoked):
            each.pop(uid, None)

    def is_retained_for(self, uid: str, networks: tuple[str, ...]) -> bool:
        """Whether the pod has a resolver for exactly these networks."""
        return bool(networks) and uid in self.texts and set(self.networks.get(uid, ())) == set(networks)

    def previous_network(self, uid: str) -> str:
        """The network of the pod's last resolver; empty if that has no cluster IP of a Service."""
        revocable = self.revocable.get(uid)
        return "" if revocable is None else revocable.network

    def removal_at(self, revoked: RevokedAddress) -> float:
        """When the address is removed from the pod's text."""
        delay_s = REVOCATION_DELAY_S
        if not revoked.is_confirmed:
            # Also with a shorter holdSeconds: a confirmed removal is not faster either.
            delay_s = max(delay_s, self._hold_s)
        return trusted_at(revoked.since, delay_s)

    def evaluate(
        self, uid: str, decision: ResolverDecision, now: float, *, is_host_network: bool
    ) -> RevokedAddress | None:
        """Update the pod's revoked address; the decision was made with `previous_network`."""
        revoked = self._observed(uid, decision, now)
        if revoked is None:
            self.revoked.pop(uid, None)
            return None
        ips = decision.cluster_ips
        # A further address of the pod may be revoked later; while that is unknown, the text stays.
        is_due = ips is not None or (revoked.is_confirmed and not revoked.is_removed)
        if is_due and self.removal_at(revoked) <= now:
            revocable, remaining = self.revocable[uid], () if ips is None else ips.addresses
            gone = tuple(ip for ip in revocable.cluster_ips if ip not in remaining)
            text = without_revoked(
                self.texts[uid],
                replace(revocable, cluster_ips=gone),
                MAX_TEXT_BYTES,
                is_host_network=is_host_network,
            )
            revoked = replace(revoked, reduced_text=text)
        self.revoked[uid] = revoked
        return revoked

    def removal_times(self) -> list[float]:
        """When addresses are removed, if nothing changes."""
        return [self.removal_at(revoked) for revoked in self.revoked.values() if not revoked.is_removed]

    def _observed(self, uid: str, decision: ResolverDecision, now: float) -> RevokedAddress | None:
        revocable, revoked, ips = self.revocable.get(uid), self.revoked.get(uid), decision.cluster_ips
        if revocable is None or uid not in self.texts or decision.text is not None:
            return None
        if ips is None:
            return revoked
        if not has_revoked(revocable.cluster_ips, ips):
            return None
        if revoked is None or (ips.is_confirmed and not revoked.is_confirmed):
            # After a distrusted relist, the Services may be deleted one by one.
            return replace(revoked or RevokedAddress(now, False), since=now, is_confirmed=ips.is_confirmed)
        return revoked
