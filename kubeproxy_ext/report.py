# SPDX-License-Identifier: Apache-2.0
"""What the daemon shows of itself: readiness, `/status`, and `/explain` for one guest. Pure."""

from typing import Protocol

from daemonkit.status.server import Query, Readiness, Reply
from kubeproxy_ext.cache.object_cache import tenant_of
from kubeproxy_ext.cache.tenants import TenantSync
from kubeproxy_ext.compute.guest_view import EVERY_NETWORK, GuestRulesResult, ObjectProblem
from kubeproxy_ext.compute.rules_probe import RulesProbe, with_rules_probe
from kubeproxy_ext.delivery.queue import DeliveryStatus
from kubeproxy_ext.delivery.rulesets import GuestSpec, Ineligible
from kubeproxy_ext.sync import Engine
from kubeproxy_ext.watch import Watch
from tenancy import keys


class Connection(Protocol):
    """The part of `push.Pusher` that is shown."""

    is_synced: bool
    problem: str


class Report:
    """Reads what is there; `ages` of sources are in seconds, None before a source was heard."""

    def __init__(self, engine: Engine, watch: Watch, bridge: Connection) -> None:
        self._engine = engine
        self._watch = watch
        self._bridge = bridge
        self.is_draining = False

    # ---- ready

    def readiness(self) -> Readiness:
        """Ready when kata-bridge has told its guests and every tenant here is known, be it from saved
        state: a node without tenants is ready as soon as it knows that."""
        lines = [f"kata-bridge: {self._bridge.problem or 'ok'}"]
        lines += [each.line(name) for name, each in self._watch.freshness().items()]
        unknown = [n for n, tenant in self._engine.tenants.items() if tenant.knowledge in ("unknown", "held")]
        lines += [f"tenant {name}: {self._engine.tenants[name].knowledge}" for name in sorted(unknown)]
        is_known = not unknown and (self._watch.has_listed or bool(self._engine.tenants))
        if self.is_draining:
            lines.append("draining")
        return Readiness(self._bridge.is_synced and is_known and not self.is_draining, tuple(lines))

    # ---- numbers

    def knowledge(self) -> dict[tuple[str, ...], float]:
        """How many tenants there are, by what is known of them."""
        known = [tenant.knowledge for tenant in self._engine.tenants.values()]
        return {(each,): float(known.count(each)) for each in ("heard", "last known", "held", "unknown")}

    def longest_behind_s(self, now: float) -> float:
        """For how long the guest that is behind the longest has been, 0 without one."""
        standings = self._engine.delivery.guests.values()
        return max(
            (now - each.behind_since for each in standings if each.behind_since is not None), default=0.0
        )

    # ---- status

    def status(self, now: float) -> dict[str, object]:
        engine = self._engine
        services, slices = engine.feed.counts()
        return {
            "isDraining": self.is_draining,
            "bridge": {"isSynced": self._bridge.is_synced, "problem": self._bridge.problem},
            "sources": {name: each.document() for name, each in self._watch.freshness().items()},
            "watches": self._watch.count,
            "services": services,
            "endpointSlices": slices,
            "rulesets": len(engine.groups),
            "tenants": {name: _tenant(each, now) for name, each in sorted(engine.tenants.items())},
            "held": [
                {
                    "tenant": held.tenant,
                    "namespace": held.lacking.namespace,
                    "services": sorted(held.names),
                    "isNamespace": held.lacking.kind == "Namespace",
                    "seconds": round(now - held.since, 3),
                }
                for held in engine.brake.held
            ],
            "unreadable": self._watch.unreadable(),
            "problems": [
                {"tenant": p.tenant, "namespace": p.namespace, "service": p.service, "problem": p.text}
                for p in (*engine.world.problems(), *self._too_large())
            ],
            "guests": [self._guest(standing, now) for standing in engine.delivery.guests.values()],
        }

    def _too_large(self) -> list[ObjectProblem]:
        """Objects that are too large, in their tenants' names."""
        found = []
        for (plural, (namespace, name)), reason in sorted(self._watch.too_large().items()):
            known = self._engine.feed.namespaces.get(namespace)
            tenant = "" if known is None else tenant_of(known)
            if known is not None and tenant:
                own = known.metadata.annotations.get(keys.NAMESPACE, namespace)
                what = "all of it" if plural == "services" else f"EndpointSlice {name}"
                found.append(ObjectProblem(tenant, own, name, f"{what}: {reason}"))
        return found

    def _guest(self, standing: DeliveryStatus, now: float) -> dict[str, object]:
        guest, wanted = standing.guest, standing.wanted
        capabilities = guest.capabilities
        return {
            "id": guest.id,
            "tenant": guest.tenant,
            "pod": f"{guest.namespace}/{guest.name}",
            "tenantPod": f"{guest.tenant_namespace}/{guest.tenant_name}" if guest.tenant_name else "",
            "networks": guest.networks,
            "channel": "" if capabilities is None else capabilities.channel,
            "digest": standing.has,
            "generation": guest.generation,
            "wantedDigest": None if wanted is None else wanted.digest,
            "wantedGeneration": None if wanted is None else wanted.ruleset.generation,
            "behindSeconds": (
                None if standing.behind_since is None else round(now - standing.behind_since, 3)
            ),
            "problem": self._problem(standing),
        }

    def _problem(self, standing: DeliveryStatus) -> str:
        guest_spec = self._engine.asked.get(standing.guest.id)
        if isinstance(guest_spec, Ineligible):
            return guest_spec.reason
        if standing.wanted is None:
            tenant = self._engine.tenants.get(standing.guest.tenant)
            return f"the tenant's Services: {'unknown' if tenant is None else tenant.knowledge}"
        return standing.problem

    # ---- explain

    def explain(self, query: Query, now: float) -> Reply:
        """The rules of one guest: `guest=ID`, or `pod=NAMESPACE/NAME` in the super cluster's names, or
        the tenant's with `tenant=KEY`. With `address=IP` also the tenant's Services that have that
        address in networks where the guest is not."""
        found = [standing for standing in self._engine.delivery.guests.values() if _is_asked(standing, query)]
        if not query.keys() & {"guest", "pod"}:
            return Reply(400, b"guest=ID or pod=NAMESPACE/NAME is needed\n")
        if len(found) != 1:
            return Reply(404, b"no such guest\n" if not found else b"more than one guest is called so\n")
        (standing,) = found
        tenant = self._engine.tenants.get(standing.guest.tenant)
        wanted = standing.wanted
        results = () if wanted is None else wanted.results
        return Reply.json(
            {
                "guest": self._guest(standing, now),
                "ips": standing.guest.ips,
                "tenant": None if tenant is None else _tenant(tenant, now),
                "held": [
                    held.lacking.namespace
                    for held in self._engine.brake.held
                    if held.tenant == standing.guest.tenant
                ],
                "namespaces": self._namespaces(standing.guest.tenant),
                "elsewhere": self._elsewhere(standing, query.get("address", "")),
                "models": [_model(result, self._engine.groups.canary) for result in results],
                "documents": [
                    {
                        "family": document.family.value,
                        "backend": document.backend.value,
                        "text": document.text(),
                    }
                    for document in (() if wanted is None else wanted.ruleset.documents)
                ],
            }
        )

    def _elsewhere(self, standing: DeliveryStatus, ip: str) -> list[dict[str, str]]:
        guest_spec = self._engine.asked.get(standing.guest.id)
        if not isinstance(guest_spec, GuestSpec) or not ip:
            return []
        networks = {EVERY_NETWORK, *(name for view in guest_spec.views for name in view.networks)}
        services_with_address = self._engine.world.services_with_address(standing.guest.tenant, ip)
        return [{"service": name, "network": where} for name, where in services_with_address if where not in networks]

    def _namespaces(self, tenant: str) -> dict[str, str]:
        """A tenant's own names of its super namespaces, as far as these tell them."""
        cache = self._engine.feed
        annotations = {
            name: cache.namespaces[name].metadata.annotations for name in cache.tenants.get(tenant, ())
        }
        return {name: each[keys.NAMESPACE] for name, each in annotations.items() if keys.NAMESPACE in each}


def _tenant(tenant: TenantSync, now: float) -> dict[str, object]:
    restored = tenant.restored
    return {
        "knowledge": tenant.knowledge,
        "serviceCIDRs": tenant.ranges,
        "lastKnownAgeSeconds": (
            None if restored is None else round(restored.age_s + now - tenant.restored_at, 3)
        ),
    }


def _model(result: GuestRulesResult, canary: RulesProbe | None) -> dict[str, object]:
    """What one family's document was rendered from."""
    rules = with_rules_probe(result.rules, canary)
    return {"family": rules.family.value, "rules": rules, "serving": result.serving}


def _is_asked(standing: DeliveryStatus, query: Query) -> bool:
    guest = standing.guest
    if "guest" in query:
        return guest.id == query["guest"]
    if "tenant" in query:
        own = f"{guest.tenant_namespace}/{guest.tenant_name}"
        return guest.tenant == query["tenant"] and own == query.get("pod")
    return f"{guest.namespace}/{guest.name}" == query.get("pod")
