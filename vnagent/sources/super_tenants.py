# SPDX-License-Identifier: Apache-2.0
"""The super cluster as the source of tenants: a watch of VirtualClusters and of what goes with them.

Four watches for the whole cluster, whatever the number of tenants. Secrets and ConfigMaps are selected
by `metadata.name`, which the API server takes as the name that a role has to allow
(k8s.io/apiserver, request/requestinfo.go). So RBAC can be limited with `resourceNames`:
packaging/rbac/options/vn-agent-tenants.yaml.

Still, that role reads the tenants' private keys, as RBAC has no fields. For nodes that must not,
configure tenants by files.

A DELETED event, another object of its name, or a phase that is not served confirm the removal of a
VirtualCluster. A relist that lacks it does not: `tenancy.removals` judges that, and for
ConfigMaps likewise. Without its Secret a tenant is invalid, and keeps its last good state.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from daemonkit import logs
from daemonkit.kube.reflector import Reflector, Transport
from daemonkit.kube.reflector_policy import Timing
from daemonkit.kube.resources import CONFIG_MAPS, SECRETS, VIRTUAL_CLUSTERS, Key, KubeObject
from daemonkit.kube.store import Change, Deleted, UndecodableDeleted
from daemonkit.remedies import Hop, HopKind
from tenancy.names import Refused
from tenancy.registry import Bad
from tenancy.tenant import Role, Tenant
from vnagent.core.source_status import Failure
from vnagent.sources.port import PublishTenants
from vnagent.tenants.reading import TenantsReading
from vnagent.tenants.rotation import OVERLAP_S, Registered, Rotation, rotate, tenant_of
from vnagent.tenants.virtualcluster import (
    APISERVER_CERTIFICATE,
    CLIENTS,
    ROOT_CA,
    CertificateSecret,
    ClientsConfigMap,
    RegisteredCluster,
    is_served,
    key_of,
    key_of_source,
    read,
    source_of,
)

_NOT_FOUND = 404
HOP = Hop(
    HopKind.API_SERVER,
    "super cluster",
    "tenants.kubeconfigFile",
    "packaging/rbac/options/vn-agent-tenants.yaml",
)

_log = logs.get(__name__)

T = TypeVar("T", bound=KubeObject)

# A VirtualCluster, its two Secrets and its ConfigMap; a text is a decoding error.
_Inputs = tuple[
    RegisteredCluster,
    CertificateSecret | str | None,
    CertificateSecret | str | None,
    ClientsConfigMap | str | None,
]
# The registration of one source, with its objects.
_Reading = tuple[_Inputs, Registered | Bad]


class SuperTenants:
    """Publishes all tenants of the super cluster, named `<namespace>/<name>/<uid>` of the VirtualCluster.

    Nothing is published before all four lists are in. `overlap_s` 0 ends a replaced certificate's
    registration at once. `rotations` are those of before a restart.
    """

    def __init__(
        self,
        client: Transport,
        publish: PublishTenants,
        *,
        overlap_s: float = OVERLAP_S,
        rotations: Mapping[str, Rotation] | None = None,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._publish = publish
        self._overlap_s = overlap_s
        self._clock = clock
        self._changed = asyncio.Event()
        self._is_published = False
        self._read: dict[str, _Reading] = {}
        self._rotations: dict[str, Rotation] = dict(rotations or {})
        # The last published source of each VirtualCluster: an undecodable object has no UID.
        self._names: dict[Key, str] = {key_of_source(source): source for source in self._rotations}
        self._deleted: set[str] = set()
        self._deleted_lists: set[Key] = set()

        def follow(
            resource: Any,
            kind: type[T],
            name: str = "",
            on_change: Callable[[Sequence[Change[T]]], None] | None = None,
        ) -> Reflector[T]:
            return Reflector(
                client,
                resource,
                kind,
                field_selector=f"metadata.name={name}" if name else "",
                on_change=on_change or (lambda _: self._changed.set()),
                timing=timing,
                clock=clock,
            )

        self._clusters = follow(VIRTUAL_CLUSTERS, RegisteredCluster, on_change=self._clusters_changed)
        self._authorities = follow(SECRETS, CertificateSecret, ROOT_CA)
        self._certificates = follow(SECRETS, CertificateSecret, APISERVER_CERTIFICATE)
        self._clients = follow(CONFIG_MAPS, ClientsConfigMap, CLIENTS, self._clients_changed)
        self._all: tuple[Reflector[Any], ...] = (
            self._clusters,
            self._authorities,
            self._certificates,
            self._clients,
        )

    def age_s(self) -> float | None:
        """Seconds since all published tenants were last confirmed; None before that."""
        ages = [reflector.age_s() for reflector in self._all]
        known = [age for age in ages if age is not None]
        return max(known) if self._is_published and len(known) == len(ages) else None

    def failure(self) -> Failure | None:
        """Why one of the four watches has failed, with the remedy where there is one."""
        for reflector in self._all:
            failure = reflector.failure
            if failure is None:
                continue
            fault = failure.fault(HOP, reflector.name)
            if reflector is self._clusters and failure.code == _NOT_FOUND:
                # API servers answer this with a text instead of a Status.
                fault = replace(
                    fault,
                    error=f"{reflector.name}: 404, VirtualClusters are not installed",
                    remedy="apply packaging/crds/virtualclusters.yaml, or give tenants by tenants.directory",
                )
            return Failure(fault, self._clock() - failure.since)
        return None

    async def run(self) -> None:
        """Watch the super cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._all:
                group.create_task(reflector.run(), name=f"super_tenants.{reflector.name}")
            await self._publish_changes()

    async def _publish_changes(self) -> None:
        for reflector in self._all:
            await reflector.synced.wait()
        while True:
            self._changed.clear()
            now_s = self._clock()
            tenants = self._tenants(now_s)
            not_served = {source_of(each) for each in self._clusters.objects.values() if not is_served(each)}
            deleted = frozenset(self._deleted | not_served) - tenants.keys()
            self._drop_past_rotations(tenants, deleted)
            lists, deleted_lists = self._client_lists()
            is_used = self._publish(
                TenantsReading(tenants, deleted, dict(self._rotations), lists, deleted_lists)
            )
            if is_used is not False:
                self._deleted.clear()
                self._deleted_lists.clear()
            self._is_published = True
            # Invalid tenants are published again when they change, not when a rotation ends.
            good = [r for source, r in self._rotations.items() if isinstance(tenants.get(source), Tenant)]
            ends = [r.next_end_s for r in good if r.next_end_s is not None]
            try:
                # Changes come one object at a time; all that have arrived are published together.
                async with asyncio.timeout(max(0.0, min(ends) - now_s) if ends else None):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _clusters_changed(self, changes: Sequence[Change[RegisteredCluster]]) -> None:
        """Note confirmed deletions. A relist that lacks an object does not confirm one."""
        is_event = not self._clusters.is_relisting
        for change in changes:
            if isinstance(change, Deleted):
                is_replaced = change.key in self._clusters.objects
                if is_replaced or (is_event and change.key not in self._clusters.undecodable):
                    self._deleted.add(source_of(change.old))
                    self._names.pop(change.key, None)
            elif isinstance(change, UndecodableDeleted) and is_event and change.key in self._names:
                self._deleted.add(self._names.pop(change.key))
        self._changed.set()

    def _clients_changed(self, changes: Sequence[Change[ClientsConfigMap]]) -> None:
        """Note confirmed deletions of ConfigMaps, as for VirtualClusters."""
        if not self._clients.is_relisting:
            self._deleted_lists.update(
                each.key for each in changes if isinstance(each, Deleted | UndecodableDeleted)
            )
        self._changed.set()

    def _client_lists(self) -> tuple[Mapping[str, Mapping[str, Role]], frozenset[str]]:
        """What each ConfigMap adds to its source's tenant, and the sources whose ConfigMap is deleted."""
        lists: dict[str, Mapping[str, Role]] = {}
        deleted: set[str] = set()
        for source, ((cluster, _, _, clients), registered) in self._read.items():
            key = key_of(cluster)
            if clients is None and (key, CLIENTS) in self._deleted_lists:
                deleted.add(source)
            elif clients is not None and isinstance(registered, Registered):
                lists[source] = registered.extra
        return lists, frozenset(deleted)

    def _tenants(self, now_s: float) -> Mapping[str, Tenant | Bad]:
        found: dict[str, Tenant | Bad] = {
            self._names.get(key, "/".join(key)): Bad(f"VirtualCluster does not decode: {reason}")
            for key, reason in self._clusters.undecodable.items()
        }
        read_now: dict[str, _Reading] = {}
        for key, cluster in self._clusters.objects.items():
            if not is_served(cluster):
                continue
            source = self._names[key] = source_of(cluster)
            read_now[source] = self._registered(source, cluster)
            found[source] = self._with_overlap(source, read_now[source][1], now_s)
        self._read = read_now
        return found

    def _drop_past_rotations(self, tenants: Mapping[str, Tenant | Bad], deleted: frozenset[str]) -> None:
        """Drop ended rotations. A tenant that is invalid or missing for a while keeps its rotation."""
        now_s = self._clock()
        self._rotations = {
            source: r
            for source, r in self._rotations.items()
            if source in tenants
            or (source not in deleted and r.next_end_s is not None and r.next_end_s > now_s)
        }

    def _registered(self, source: str, cluster: RegisteredCluster) -> _Reading:
        key = key_of(cluster)
        home = "" if isinstance(key, Refused) else key
        authority = _at(self._authorities, home, ROOT_CA)
        certificate = _at(self._certificates, home, APISERVER_CERTIFICATE)
        clients = _at(self._clients, home, CLIENTS)
        inputs = (cluster, authority, certificate, clients)
        before = self._read.get(source)
        # One tenant's change parses that tenant alone.
        if before is not None and all(a is b for a, b in zip(before[0], inputs, strict=True)):
            return before
        return inputs, read(cluster, authority, certificate, clients)

    def _with_overlap(self, source: str, current: Registered | Bad, now_s: float) -> Tenant | Bad:
        if isinstance(current, Bad):
            return current
        before = self._rotations.get(source, Rotation())
        after = rotate(before, current, now_s, self._overlap_s)
        self._rotations[source] = after
        if before.key == after.key and before.apiserver_spki != after.apiserver_spki:
            _log.info(
                "apiserver's certificate was replaced, the old one stays registered for a while",
                tenant=after.key,
                old=before.apiserver_spki,
                new=after.apiserver_spki,
                overlap_s=self._overlap_s,
            )
        return tenant_of(current, after)


def _at(reflector: Reflector[T], namespace: str, name: str) -> T | str | None:
    key = (namespace, name)
    return reflector.objects.get(key) or reflector.undecodable.get(key)
