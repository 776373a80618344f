# SPDX-License-Identifier: Apache-2.0
"""What the daemon reports: readiness, `/status`, and `/explain` for one guest."""

from collections.abc import Iterator, Mapping

from bridge_api.session import SessionState, session_document, session_fault, session_line
from daemonkit.status.server import Query, Readiness, Reply
from kubeproxy_ext.cache.tenants import DISTRUSTED, LAST_KNOWN, NOT_SYNCED, SYNC_STATES, SYNCED, TenantSync
from kubeproxy_ext.compute.guest_view import EVERY_NETWORK, GuestRulesResult, ObjectProblem
from kubeproxy_ext.compute.rules_probe import RulesProbe, with_rules_probe
from kubeproxy_ext.delivery.queue import DeliveryStatus
from kubeproxy_ext.delivery.rulesets import GuestSpec, Ineligible
from kubeproxy_ext.sync import RulesetController
from kubeproxy_ext.watch import Watch
from tenancy import keys

_WORDS = {SYNCED: "synced", LAST_KNOWN: "last known", DISTRUSTED: "distrusted", NOT_SYNCED: "not synced"}


class Report:
    """Reads the state of the controller, the watches and the session with kata-bridge."""

    def __init__(self, controller: RulesetController, watch: Watch, bridge: SessionState) -> None:
        self._controller = controller
        self._watch = watch
        self._bridge = bridge
        self.is_draining = False

    # ---- readiness

    def readiness(self) -> Readiness:
        """Ready when kata-bridge has listed its guests and no tenant of theirs is without Services.

        Saved Services count. A node without tenants is ready as soon as that is known.
        """
        lines = [session_line(self._bridge)]
        lines += [each.line(name) for name, each in self._watch.freshness().items()]
        states = {name: tenant.sync_state for name, tenant in sorted(self._controller.tenants.items())}
        missing = {name: state for name, state in states.items() if state in (NOT_SYNCED, DISTRUSTED)}
        lines += [f"tenant {name}: {_WORDS[state]}" for name, state in missing.items()]
        has_services = not missing and (self._watch.has_base_synced or bool(states))
        if self.is_draining:
            lines.append("draining")
        is_ready = self._bridge.is_synced and has_services and not self.is_draining
        return Readiness(is_ready, tuple(lines), "" if is_ready else "; ".join(self._reasons(missing)))

    def _reasons(self, missing: Mapping[str, str]) -> Iterator[str]:
        """Why the daemon is not ready, without ages; `missing` are the tenants without Services."""
        if self.is_draining:
            yield "draining"
        if (fault := session_fault(self._bridge)) is not None:
            yield f"guests not synced: {fault.text}"
        yield from filter(None, (each.wait_reason(name) for name, each in self._watch.freshness().items()))
        yield from (f"tenant {name}: {_WORDS[state]}" for name, state in missing.items())

    # ---- metrics

    def sync_states(self) -> dict[tuple[str, ...], float]:
        """The number of tenants in each sync state."""
        states = [tenant.sync_state for tenant in self._controller.tenants.values()]
        return {(each,): float(states.count(each)) for each in SYNC_STATES}

    def longest_behind_s(self, now: float) -> float:
        """The longest time that a guest has been without its desired ruleset, 0 if there is none."""
        guests = self._controller.delivery.guests.values()
        return max((now - each.behind_since for each in guests if each.behind_since is not None), default=0.0)

    # ---- status

    def status(self, now: float) -> dict[str, object]:
        controller = self._controller
        services, slices = controller.cache.counts()
        return {
            "isDraining": self.is_draining,
            "bridge": session_document(self._bridge),
            "sources": {name: each.document() for name, each in self._watch.freshness().items()},
            "watches": self._watch.count,
            "services": services,
            "endpointSlices": slices,
            "rulesets": len(controller.rulesets),
            "tenants": {name: _tenant(each, now) for name, each in sorted(controller.tenants.items())},
            "distrustedRelists": [
                {
                    "tenant": removal.tenant,
                    "namespace": removal.lacking.namespace,
                    "services": sorted(removal.names),
                    "isNamespace": removal.lacking.kind == "Namespace",
                    "seconds": round(now - removal.since, 3),
                }
                for removal in controller.distrusted
            ],
            "unreadable": self._watch.undecodable(),
            "problems": [
                {"tenant": p.tenant, "namespace": p.namespace, "service": p.service, "problem": p.text}
                for p in (*controller.state.problems(), *self._too_large())
            ],
            "guests": [self._guest(status, now) for status in controller.delivery.guests.values()],
        }

    def _too_large(self) -> list[ObjectProblem]:
        """Objects that are too large, in their tenants' names."""
        found = []
        for (plural, (namespace, name)), reason in sorted(self._watch.too_large().items()):
            known, tenant = (
                self._controller.cache.namespaces.get(namespace),
                self._controller.cache.tenant(namespace),
            )
            if known is not None and tenant:
                own = known.metadata.annotations.get(keys.NAMESPACE, namespace)
                what = "all of it" if plural == "services" else f"EndpointSlice {name}"
                found.append(ObjectProblem(tenant, own, name, f"{what}: {reason}"))
        return found

    def _guest(self, status: DeliveryStatus, now: float) -> dict[str, object]:
        guest, desired = status.guest, status.desired
        capabilities = guest.capabilities
        return {
            "id": guest.id,
            "tenant": guest.tenant,
            "pod": f"{guest.namespace}/{guest.name}",
            "tenantPod": f"{guest.tenant_namespace}/{guest.tenant_name}" if guest.tenant_name else "",
            "networks": guest.networks,
            "channel": "" if capabilities is None else capabilities.channel,
            "digest": status.applied,
            "generation": guest.generation,
            "desiredDigest": None if desired is None else desired.digest,
            "desiredGeneration": None if desired is None else desired.ruleset.generation,
            "behindSeconds": None if status.behind_since is None else round(now - status.behind_since, 3),
            "problem": self._problem(status),
        }

    def _problem(self, status: DeliveryStatus) -> str:
        spec = self._controller.guest_specs.get(status.guest.id)
        if isinstance(spec, Ineligible):
            return spec.reason
        if status.desired is None:
            tenant = self._controller.tenants.get(status.guest.tenant)
            state = NOT_SYNCED if tenant is None else tenant.sync_state
            return f"the tenant's Services: {_WORDS[state]}"
        return status.problem

    # ---- explain

    def explain(self, query: Query, now: float) -> Reply:
        """The rules of one guest: `guest=ID`, or `pod=NAMESPACE/NAME` in the super cluster's names, or
        the tenant's with `tenant=KEY`. With `address=IP` also the tenant's Services that have that
        address in networks where the guest is not."""
        found = [status for status in self._controller.delivery.guests.values() if _matches(status, query)]
        if not query.keys() & {"guest", "pod"}:
            return Reply(400, b"guest=ID or pod=NAMESPACE/NAME is required\n")
        if len(found) != 1:
            return Reply(404, b"no such guest\n" if not found else b"more than one guest has this name\n")
        (status,) = found
        tenant = self._controller.tenants.get(status.guest.tenant)
        desired = status.desired
        results = () if desired is None else desired.results
        return Reply.json(
            {
                "guest": self._guest(status, now),
                "ips": status.guest.ips,
                "tenant": None if tenant is None else _tenant(tenant, now),
                "distrustedRelists": [
                    removal.lacking.namespace
                    for removal in self._controller.distrusted
                    if removal.tenant == status.guest.tenant
                ],
                "namespaces": self._namespaces(status.guest.tenant),
                "elsewhere": self._elsewhere(status, query.get("address", "")),
                "models": [_model(result, self._controller.rulesets.rules_probe) for result in results],
                "documents": [
                    {
                        "family": document.family.value,
                        "backend": document.backend.value,
                        "text": document.text(),
                    }
                    for document in (() if desired is None else desired.ruleset.documents)
                ],
            }
        )

    def _elsewhere(self, status: DeliveryStatus, ip: str) -> list[dict[str, str]]:
        spec = self._controller.guest_specs.get(status.guest.id)
        if not isinstance(spec, GuestSpec) or not ip:
            return []
        networks = {EVERY_NETWORK, *(name for view in spec.views for name in view.networks)}
        found = self._controller.state.services_with_address(status.guest.tenant, ip)
        return [{"service": name, "network": where} for name, where in found if where not in networks]

    def _namespaces(self, tenant: str) -> dict[str, str]:
        """A tenant's own names of its super namespaces, where they are annotated."""
        cache = self._controller.cache
        annotations = {
            name: cache.namespaces[name].metadata.annotations for name in cache.tenants.get(tenant, ())
        }
        return {name: each[keys.NAMESPACE] for name, each in annotations.items() if keys.NAMESPACE in each}


def _tenant(tenant: TenantSync, now: float) -> dict[str, object]:
    restored = tenant.restored
    return {
        "syncState": tenant.sync_state,
        "serviceCIDRs": tenant.service_cidrs,
        "lastKnownAgeSeconds": (
            None if restored is None else round(restored.age_s + now - tenant.restored_at, 3)
        ),
    }


def _model(result: GuestRulesResult, rules_probe: RulesProbe | None) -> dict[str, object]:
    """What one family's document was rendered from."""
    rules = with_rules_probe(result.rules, rules_probe)
    return {"family": rules.family.value, "rules": rules, "serving": result.serving}


def _matches(status: DeliveryStatus, query: Query) -> bool:
    guest = status.guest
    if "guest" in query:
        return guest.id == query["guest"]
    if "tenant" in query:
        own = f"{guest.tenant_namespace}/{guest.tenant_name}"
        return guest.tenant == query["tenant"] and own == query.get("pod")
    return f"{guest.namespace}/{guest.name}" == query.get("pod")
