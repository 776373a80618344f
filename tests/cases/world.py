# SPDX-License-Identifier: Apache-2.0
"""The fixtures of a file of cases as values and files: tenants, pods, who may see which word."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from devkit.kubelet.pods import MACHINE_ID, FakePod, pod_list
from tenancy import keys
from tests.cases.identities import Identities

# Pod names that are words of the protocol as well prove nothing when they turn up in a reply.
_COMMON_WORDS = frozenset({"healthz", "metrics", "pods", "app", "web", "c"})


@dataclass(frozen=True, slots=True)
class FixturePod:
    """One pod of the fixtures: the tenant's name of it and the super cluster's."""

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

    def stand_in(self) -> FakePod:
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
        """Words of the super cluster's side, which no tenant may see."""
        return frozenset({self.super_namespace, self.super_uid, *self.injected})

    def tenant_words(self) -> frozenset[str]:
        """Words that the pod's own tenant may see and nobody else."""
        return frozenset({self.name, self.uid, self.namespace}) - _COMMON_WORDS


@dataclass(frozen=True, slots=True)
class FixtureTenant:
    key: str
    authority: str
    registered: tuple[str, ...]


class RequestFixtures:
    """All fixtures of one file. `pods` is what the kubelet runs now; admin steps change it."""

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
        """The tenant that an identity really is, by the list; None for everybody else."""
        raw = self.identities.raw(identity)
        for tenant in self.tenants.values():
            if raw.get("ca") == tenant.authority and raw.get("cert") in tenant.registered:
                return tenant.key
        return None

    def identity_of(self, tenant: str) -> str:
        """An identity that is this tenant's apiserver."""
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
        """Words that must not reach this tenant: other tenants', the host's, the super side's."""
        own: set[str] = set()
        foreign = {MACHINE_ID}
        for pod in self.all_pods:
            is_own = tenant is not None and pod.tenant == tenant
            (own if is_own else foreign).update(pod.tenant_words())
            if not is_own:
                foreign |= {pod.stand_in().marker, *pod.super_words()}
        foreign |= set(self.tenants) - {tenant}
        return frozenset(word for word in foreign - own - _COMMON_WORDS if len(word) > 3)

    def super_words(self) -> frozenset[str]:
        """Words of the super cluster's side of all pods, the tenant's own ones too."""
        return frozenset(word for pod in self.all_pods for word in pod.super_words())

    def own_words(self, tenant: str | None) -> frozenset[str]:
        words = {tenant} if tenant else set()
        for pod in self.all_pods:
            if pod.tenant == tenant and tenant is not None:
                words |= pod.tenant_words() | pod.super_words() | {pod.stand_in().marker}
        return frozenset(words)

    def write_pods(self, path: Path) -> None:
        """The PodList file that the agent reads in place of the kubelet's `/pods`."""
        text = json.dumps(pod_list(pod.stand_in() for pod in self.pods))
        replace_file(path, text)

    def tenant_text(self, key: str, *, extra: Iterable[str] = (), without: Iterable[str] = ()) -> str:
        """The tenant's file for the directory source."""
        tenant = self.tenants[key]
        leaves = [leaf for leaf in (*tenant.registered, *extra) if leaf not in set(without)]
        document = {
            "apiVersion": keys.API_VERSION,
            "kind": keys.TENANT_KIND,
            "metadata": {"name": key},
            "spec": {
                "certificateAuthority": self.identities.authority(tenant.authority).cert_pem.decode(),
                "clients": [
                    {
                        "spkiSHA256": self.identities.spki(leaf),
                        "role": self._roles.get(leaf, "apiserver"),
                    }
                    for leaf in leaves
                ],
                "clusterDomain": "cluster.local",
            },
        }
        return yaml.safe_dump(document)

    def reset(self) -> None:
        self.pods, self.last_deleted = self.all_pods, None

    def delete_pod(self, super_uid: str) -> FixturePod:
        """Take a pod off the node and return it. Raises KeyError."""
        for pod in self.pods:
            if pod.super_uid == super_uid:
                self.pods = tuple(p for p in self.pods if p is not pod)
                self.last_deleted = pod
                return pod
        raise KeyError(super_uid)

    def add_pod(self, like: FixturePod, *, super_uid: str, tenant: str | None) -> None:
        """Run a pod of the same super name, another uid and perhaps another owner."""
        self.pods = (*self.pods, replace(like, super_uid=super_uid, tenant=tenant))


def replace_file(path: Path, text: str) -> None:
    """Write beside and rename, as the agent must never read half of a file."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def foreign_word(text: str, foreign: Iterable[str], own: Iterable[str] = ()) -> str | None:
    """The first word of `foreign` in `text` that is no part of a longer word of `own`."""
    mine = {word.casefold() for word in own}
    theirs = {word.casefold() for word in foreign} - mine
    longest_first = sorted(mine | theirs, key=len, reverse=True)
    if not theirs:
        return None
    pattern = "|".join(re.escape(word) for word in longest_first)
    for match in re.finditer(rf"(?<![a-z0-9])(?:{pattern})", text.casefold()):
        if match[0] in theirs:
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
