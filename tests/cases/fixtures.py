# SPDX-License-Identifier: Apache-2.0
"""The fixtures of a case file: tenants, pods, and the words that each tenant may see."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from devkit.files import replace_file
from devkit.kubelet.pods import MACHINE_ID, FakePod, pod_list
from tenancy import keys
from tests.cases.agent_files import tenant_document
from tests.cases.identities import Identities

# Pod names that are also words of the protocol: a reply with one proves nothing.
_COMMON_WORDS = frozenset({"healthz", "metrics", "pods", "app", "web", "c"})


@dataclass(frozen=True, slots=True)
class FixturePod:
    """One pod with its names in the tenant's and in the super cluster."""

    tenant: str | None
    namespace: str
    name: str
    uid: str
    super_namespace: str
    super_uid: str
    containers: tuple[str, ...]
    init: tuple[str, ...] = ()
    ephemeral: tuple[str, ...] = ()
    injected: tuple[str, ...] = ()

    def fake_pod(self) -> FakePod:
        """The pod as the kubelet runs it, with the annotations of the syncer."""
        annotations = {}
        if self.tenant is not None:
            annotations = {
                keys.CLUSTER: self.tenant,
                keys.NAMESPACE: self.namespace,
                keys.UID: self.uid,
                keys.CONTAINERS: ",".join((*self.containers, *self.init, *self.ephemeral)),
            }
        return FakePod(
            self.super_namespace,
            self.name,
            self.super_uid,
            self.containers,
            self.init,
            self.ephemeral,
            self.injected,
            annotations,
        )

    def super_words(self) -> frozenset[str]:
        """Words of the super cluster, which no tenant may see."""
        return frozenset({self.super_namespace, self.super_uid, *self.injected})

    def tenant_words(self) -> frozenset[str]:
        """Words that only the pod's own tenant may see."""
        return frozenset({self.name, self.uid, self.namespace}) - _COMMON_WORDS


@dataclass(frozen=True, slots=True)
class FixtureTenant:
    key: str
    authority: str
    registered: tuple[str, ...]


class RequestFixtures:
    """All fixtures of one file. Admin steps change `pods`, which the kubelet runs."""

    def __init__(self, fixtures: Mapping[str, Any], identities: Identities) -> None:
        self.identities = identities
        self.tenants = {
            key: FixtureTenant(key, raw["ca"], tuple(raw.get("registered", ())))
            for key, raw in fixtures["tenants"].items()
        }
        own = [_pod(raw, raw["tenant"]) for raw in fixtures.get("pods", ())]
        host = [_pod(raw, None) for raw in fixtures.get("host_pods", ())]
        self.all_pods = (*own, *host)
        self.pods = self.all_pods
        self.last_deleted: FixturePod | None = None
        self.trust_domain = (fixtures.get("spiffe") or {}).get("trust_domain")
        self.spiffe_authority = (fixtures.get("spiffe") or {}).get("ca")
        self._roles = {
            name: raw.get("role", "apiserver")
            for raw in identities.everything()
            if isinstance(name := raw.get("cert"), str)
        }

    def tenant_of(self, identity: str) -> str | None:
        """The tenant whose registered client this identity is, or None."""
        raw = self.identities.raw(identity)
        for tenant in self.tenants.values():
            if raw.get("ca") == tenant.authority and raw.get("cert") in tenant.registered:
                return tenant.key
        return None

    def identity_of(self, tenant: str) -> str:
        """The identity of this tenant's apiserver. Raises KeyError."""
        for name in self.identities.names():
            raw = self.identities.raw(name)
            is_plain = set(raw) <= {"cert", "ca", "note", "role"}
            if is_plain and raw.get("role", "apiserver") == "apiserver" and self.tenant_of(name) == tenant:
                return name
        raise KeyError(tenant)

    def owner_of(self, super_namespace: str, name: str) -> str | None:
        for pod in self.all_pods:
            if (pod.super_namespace, pod.name) == (super_namespace, name):
                return pod.tenant
        return None

    def foreign_words(self, tenant: str | None) -> frozenset[str]:
        """Words that must not reach this tenant: those of other tenants, the host and the super cluster."""
        own: set[str] = set()
        foreign = {MACHINE_ID}
        for pod in self.all_pods:
            is_own = tenant is not None and pod.tenant == tenant
            (own if is_own else foreign).update(pod.tenant_words())
            if not is_own:
                foreign |= {pod.fake_pod().marker, *pod.super_words()}
        foreign |= set(self.tenants) - {tenant}
        return frozenset(word for word in foreign - own - _COMMON_WORDS if len(word) > 3)

    def super_words(self) -> frozenset[str]:
        """Words of the super cluster about all pods, also the tenant's own."""
        return frozenset(word for pod in self.all_pods for word in pod.super_words())

    def own_words(self, tenant: str | None) -> frozenset[str]:
        words = {tenant} if tenant else set()
        for pod in self.all_pods:
            if pod.tenant == tenant and tenant is not None:
                words |= pod.tenant_words() | pod.super_words() | {pod.fake_pod().marker}
        return frozenset(words)

    def write_pods(self, path: Path) -> None:
        """The PodList file that the agent reads instead of the kubelet's `/pods`."""
        text = json.dumps(pod_list(pod.fake_pod() for pod in self.pods))
        replace_file(path, text)

    def tenant_text(self, key: str, *, extra: Iterable[str] = (), without: Iterable[str] = ()) -> str:
        """The tenant's file for the directory source."""
        tenant = self.tenants[key]
        leaves = [leaf for leaf in (*tenant.registered, *extra) if leaf not in set(without)]
        document = tenant_document(
            key,
            self.identities.authority(tenant.authority).cert_pem,
            ((self.identities.spki(leaf), self._roles.get(leaf, "apiserver")) for leaf in leaves),
            clusterDomain="cluster.local",
        )
        return yaml.safe_dump(document)

    def reset(self) -> None:
        self.pods, self.last_deleted = self.all_pods, None

    def delete_pod(self, super_uid: str) -> FixturePod:
        """Remove a pod from the node and return it. Raises KeyError."""
        for pod in self.pods:
            if pod.super_uid == super_uid:
                self.pods = tuple(p for p in self.pods if p is not pod)
                self.last_deleted = pod
                return pod
        raise KeyError(super_uid)

    def add_pod(self, like: FixturePod, *, super_uid: str, tenant: str | None) -> None:
        """Run a pod with the name of `like` in the super cluster, another UID and perhaps another owner."""
        self.pods = (*self.pods, replace(like, super_uid=super_uid, tenant=tenant))


def foreign_word(text: str, foreign: Iterable[str], own: Iterable[str] = ()) -> str | None:
    """The first word of `foreign` in `text`, unless it is part of a longer word of `own`."""
    allowed = {word.casefold() for word in own}
    forbidden = {word.casefold() for word in foreign} - allowed
    longest_first = sorted(allowed | forbidden, key=len, reverse=True)
    if not forbidden:
        return None
    pattern = "|".join(re.escape(word) for word in longest_first)
    for match in re.finditer(rf"(?<![a-z0-9])(?:{pattern})", text.casefold()):
        if match[0] in forbidden:
            return match[0]
    return None


def _pod(raw: Mapping[str, Any], tenant: str | None) -> FixturePod:
    return FixturePod(
        tenant=tenant,
        namespace=raw.get("ns", raw["super_ns"]),
        name=raw["pod"],
        uid=raw.get("uid", raw["super_uid"]),
        super_namespace=raw["super_ns"],
        super_uid=raw["super_uid"],
        containers=tuple(raw.get("containers", ())),
        init=tuple(raw.get("init", ())),
        ephemeral=tuple(raw.get("ephemeral", ())),
        injected=tuple(raw.get("injected", ())),
    )
