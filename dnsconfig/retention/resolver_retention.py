# SPDX-License-Identifier: Apache-2.0
"""What pods were given, what they keep of it, and when they lose it. Pure: time comes in.

What a pod was given is for the networks that its sandbox was attached to then (`attachments`), and for
another sandbox in another network it is nothing: it is neither kept there nor what is left of it.

A pod that has had a resolver keeps it when none can be decided for it, with one exception: an
address that is not its network's any more. The API server may give a cluster IP that no Service
holds to a Service of any tenant, at once. So where the Service is known not to hold it, and there is
no other server for the pod, the pod's file is written without it, and containers that start wait:

- after `LOSS_S`: a Service that is deleted and made again (`helm upgrade --force`, a syncer that
  repairs) is back within seconds, and its pods' files shall change once and not twice. No longer than
  that, as nobody waits with giving the address away; no shorter than the saved state takes to be
  written, so that a restart in the middle does not begin anew.
- after `HOLD_S` where only a list says so that has none of the tenant's DNS Services. A backup that
  was restored, or a broken cache, says the same of each tenant at once; what brings Services down
  from tenants makes them again within minutes. kubeproxy-ext holds such a list back for as long, and
  guests have the Services of before until then.

What is not known takes nothing away, and gives nothing back either.
"""

from dataclasses import dataclass, replace

from dnsconfig.resolve.decision import MAX_TEXT_BYTES, Decision
from dnsconfig.resolve.network import Origin
from dnsconfig.retention.desired import Wanted
from dnsconfig.retention.revoked_servers import bare, is_lost

LOSS_S = 15.0
HOLD_S = 600.0


@dataclass(frozen=True, slots=True)
class Loss:
    """A pod's network has lost the address that the pod has: since when, and by whose word.

    `bare` is what the pod has instead, empty while it keeps what it has.
    """

    since: float
    is_told: bool
    bare: str = ""

    @property
    def is_taken(self) -> bool:
        return bool(self.bare)

    @property
    def ends_at(self) -> float:
        """When the address is taken from the pod."""
        return self.since + (LOSS_S if self.is_told else HOLD_S)


class Keeping:
    """All by the pods' UIDs: texts, which networks they are for, where their cluster IPs are from, losses."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.networks: dict[str, tuple[str, ...]] = {}
        self.origins: dict[str, Origin] = {}
        self.losses: dict[str, Loss] = {}

    def remember(self, uid: str, wanted: Wanted) -> None:
        """The pod has been given this."""
        if not wanted.text or wanted.is_bare:
            return  # what is left of a text is none to go back to
        self.given[uid] = wanted.text
        self.networks[uid] = wanted.networks
        self.origins.pop(uid, None)
        if wanted.origin is not None:
            self.origins[uid] = wanted.origin

    def forget(self, uid: str) -> None:
        for each in (self.given, self.networks, self.origins, self.losses):
            each.pop(uid, None)

    def is_for(self, uid: str, networks: tuple[str, ...]) -> bool:
        """Whether the pod was given something that is for exactly these networks."""
        return bool(networks) and uid in self.given and set(self.networks.get(uid, ())) == set(networks)

    def had(self, uid: str) -> str:
        """The network whose Service's addresses the pod has; empty where it has none of that kind."""
        origin = self.origins.get(uid)
        return "" if origin is None else origin.network

    def look(self, uid: str, decision: Decision, now: float, *, is_host_network: bool) -> Loss | None:
        """Whether the pod is losing what it has; call it for each decision, made with `had`."""
        loss = self._known(uid, decision, now)
        if loss is None:
            self.losses.pop(uid, None)
            return None
        ips = decision.cluster_ips
        # Of what was taken more goes when more is known to be lost; unknown, it stays as it is.
        is_due = ips is not None or (loss.is_told and not loss.is_taken)
        if is_due and loss.ends_at <= now:
            origin, still = self.origins[uid], () if ips is None else ips.addresses
            gone = tuple(ip for ip in origin.cluster_ips if ip not in still)
            lost = replace(origin, cluster_ips=gone)
            text = bare(self.given[uid], lost, MAX_TEXT_BYTES, is_host_network=is_host_network)
            loss = replace(loss, bare=text)
        self.losses[uid] = loss
        return loss

    def _known(self, uid: str, decision: Decision, now: float) -> Loss | None:
        had, loss, ips = self.origins.get(uid), self.losses.get(uid), decision.cluster_ips
        if had is None or uid not in self.given or decision.text is not None:
            return None
        if ips is None:
            return loss
        if not is_lost(had.cluster_ips, ips):
            return None
        is_told = not ips.is_doubted
        if loss is None or (is_told and not loss.is_told):
            # A list that was held back may be followed by the Services, one by one.
            return replace(loss or Loss(now, is_told), since=now, is_told=is_told)
        return loss

    def ends(self) -> list[float]:
        """When pods lose what they keep, if nothing happens."""
        return [loss.ends_at for loss in self.losses.values() if not loss.is_taken]
