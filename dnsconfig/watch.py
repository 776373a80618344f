# SPDX-License-Identifier: Apache-2.0
"""Follows the super cluster: this node's pods, and what their tenants' resolvers are made of.

Always the pods that are bound to this node, Namespaces, and VirtualClusters; and of each tenant that
has a pod here the Services and Networks of one namespace, its kube-system. With very many tenants
these are asked for in the whole cluster instead.

The role that this needs: packaging/rbac/dnsconfig.yaml.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from daemonkit.kube.freshness import Freshness, freshness_of
from daemonkit.kube.reflector import Reflector, Timing, Transport
from daemonkit.kube.resources import NAMESPACES, PODS, SERVICES, VIRTUAL_CLUSTERS, Identity
from daemonkit.kube.store import Change, Deleted, Modified, UndecodableDeleted
from daemonkit.tasks import Tasks
from dnsconfig.cluster import transform
from dnsconfig.cluster.objects import (
    NETWORKS,
    NamespaceObject,
    NetworkObject,
    PodObject,
    ServiceObject,
    VirtualClusterObject,
    is_dns_service,
)
from dnsconfig.cluster.snapshot import Picture, Place, dns_namespaces, tenants_of
from dnsconfig.cluster.state import Absence
from tenancy import keys

# Two connections each, 0.1 MB a connection. From there on it is two for the whole cluster, which
# sends all Services for the few that are kept.
MAX_NAMESPACES = 32
# For how long a tenant is followed after its last pod has gone: jobs come and go.
LINGER_S = 120.0
PAGE_SIZE = 200

_EVERYWHERE = ""


class _Followed:
    """The two reflectors of one namespace, or of the whole cluster."""

    def __init__(self, namespace: str, watch: "Watch") -> None:
        where = namespace or None
        self._changed = watch.told
        # Namespaces of which an event said that their last server was deleted. A list only lacks it.
        self._emptied: set[str] = set()
        self._places: tuple[object, dict[str, Place]] = (None, {})
        self.services: Reflector[ServiceObject] = watch.reflector(
            SERVICES,
            ServiceObject,
            transform=transform.service,
            namespace=where,
            include=_is_a_server,
            on_change=self._told_services,
        )
        self.networks: Reflector[NetworkObject] = watch.reflector(
            NETWORKS, NetworkObject, transform=transform.network, namespace=where
        )
        self.unwanted_since: float | None = None
        self.ends: list[asyncio.Task[None]] = []

    @property
    def is_synced(self) -> bool:
        return self.services.synced.is_set() and self.networks.synced.is_set()

    def _told_services(self, changes: Sequence[Change[ServiceObject]]) -> None:
        # What became unreadable was deleted from what is known, and not from the API server.
        left = {change.key[0] for change in changes if isinstance(change, Deleted | UndecodableDeleted)}
        here = (
            {where for where, _ in (*self.services.objects, *self.services.decode_failures)}
            if left
            else set()
        )
        self._emptied -= {
            change.key[0] for change in changes if not isinstance(change, Deleted | UndecodableDeleted)
        }
        if not self.services.is_relisting:
            self._emptied |= left - here
        self._changed(changes)

    def place(self, namespace: str) -> Place:
        """What there is in a namespace: gone through again only when something of it has changed.

        Every change of any pod asks for all namespaces, and how much a tenant has in its own is its choice.
        """
        state = tuple((each.resource_version, each.lists) for each in (self.services, self.networks))
        if self._places[0] != state:
            self._places = state, self._grouped()
        return self._places[1].get(namespace) or Place(absence=self._absence(namespace))

    def _grouped(self) -> dict[str, Place]:
        services, networks = _by_namespace(self.services), _by_namespace(self.networks)
        spoiled = {where for where, _ in self.services.decode_failures}
        return {
            where: Place(
                services.get(where, {}),
                networks.get(where, {}),
                Absence.TOLD if where in services or where in spoiled else self._absence(where),
            )
            for where in services.keys() | networks.keys() | spoiled
        }

    def _absence(self, namespace: str) -> Absence:
        return Absence.TOLD if namespace in self._emptied else Absence.DOUBTED


def _is_a_server(metadata: Identity) -> bool:
    return is_dns_service(metadata.name)


def _is_the_same(change: Change[Any]) -> bool:
    if not isinstance(change, Modified):
        return False
    version = change.value.metadata.resource_version
    return bool(
        replace(change.old, metadata=replace(change.old.metadata, resource_version=version)) == change.value
    )


def _by_namespace(reflector: Reflector[Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for (where, name), value in reflector.objects.items():
        found.setdefault(where, {})[name] = value
    return found


class Watch:
    """What the super cluster says. `changed` is called after whatever was told, and must not block."""

    def __init__(
        self,
        client: Transport,
        node_name: str,
        changed: Callable[[], None],
        tasks: Tasks,
        *,
        has_clusters: bool,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._changed = changed
        self._tasks = tasks
        self._timing = timing or Timing(page_size=PAGE_SIZE)
        self._clock = clock
        self._pods: Reflector[PodObject] = self.reflector(
            PODS, PodObject, transform=transform.pod, field_selector=f"spec.nodeName={node_name}"
        )
        self._namespaces: Reflector[NamespaceObject] = self.reflector(
            NAMESPACES, NamespaceObject, transform=transform.namespace, on_change=self._told_namespaces
        )
        self._clusters: Reflector[VirtualClusterObject] | None = None
        if has_clusters:
            self._clusters = self.reflector(
                VIRTUAL_CLUSTERS,
                VirtualClusterObject,
                transform=transform.virtual_cluster,
                may_be_absent=True,
            )
        self._followed: dict[str, _Followed] = {}
        self._wanted: frozenset[str] = frozenset()
        self._owned: dict[str, dict[str, NamespaceObject]] = {}

    def reflector(self, resource: Any, kind: Any, **how: Any) -> Any:
        """One reflector of ours; it tells `changed`."""
        how.setdefault("on_change", self.told)
        return Reflector(self._client, resource, kind, timing=self._timing, clock=self._clock, **how)

    def start(self) -> None:
        for each in self._always():
            self._tasks.spawn(each.run(), f"watch {each.name}")

    # ---- what is followed

    def follow(self, saved_pods: Mapping[Any, PodObject]) -> float | None:
        """Follow the tenants of this node's pods, and of `saved_pods` while pods were not listed.

        Returns when this has to be asked again, as something need not be followed any more.
        """
        pods = self._pods.objects if self._pods.synced.is_set() else saved_pods
        tenants = tenants_of(pods)
        namespaces = {name: item for tenant in tenants for name, item in self._owned.get(tenant, {}).items()}
        wanted = dns_namespaces(namespaces, tenants)
        self._wanted = wanted
        targets = wanted if len(wanted) <= MAX_NAMESPACES else frozenset({_EVERYWHERE})
        for namespace in sorted(targets - self._followed.keys()):
            self._begin(namespace)
        return self._end_unwanted(targets)

    def _begin(self, namespace: str) -> None:
        followed = self._followed[namespace] = _Followed(namespace, self)
        where = f"in {namespace}" if namespace else "in all namespaces"
        for each in (followed.services, followed.networks):
            followed.ends.append(self._tasks.spawn(each.run(), f"watch {each.name} {where}"))
        followed.ends.append(self._tasks.spawn(self._arrival(followed), f"lists {where}"))

    async def _arrival(self, followed: _Followed) -> None:
        """Tell when both have listed once: their handlers are called a little before that."""
        await followed.services.synced.wait()
        await followed.networks.synced.wait()
        self._changed()

    def _end_unwanted(self, targets: frozenset[str]) -> float | None:
        now, ends = self._clock(), []
        for namespace, followed in list(self._followed.items()):
            if namespace in targets:
                followed.unwanted_since = None
                continue
            if followed.unwanted_since is None:
                followed.unwanted_since = now
            end = followed.unwanted_since + LINGER_S
            if end > now:
                ends.append(end)
                continue
            del self._followed[namespace]
            for task in followed.ends:
                task.cancel()
        return min(ends, default=None)

    def told(self, changes: Sequence[Change[Any]]) -> None:
        """Something of what is followed has changed, or has been heard for the first time."""
        # A pod's status is written all the time, and nothing that is kept of it is another then.
        if not changes or not all(_is_the_same(change) for change in changes):
            self._changed()

    def _told_namespaces(self, _changes: Sequence[Change[NamespaceObject]]) -> None:
        owned: dict[str, dict[str, NamespaceObject]] = {}
        for (_, name), item in self._namespaces.objects.items():
            tenant = item.metadata.annotations.get(keys.CLUSTER)
            if tenant:
                owned.setdefault(tenant, {})[name] = item
        self._owned = owned
        self._changed()

    @property
    def wanted(self) -> frozenset[str]:
        """The namespaces whose Services and Networks are followed."""
        return self._wanted

    # ---- what is heard

    def picture(self) -> Picture:
        """What has been heard, of the tenants that are followed."""
        pods = dict(self._pods.objects) if self._pods.synced.is_set() else None
        spoiled = dict(self._pods.decode_failures)
        namespaces = None
        if self._namespaces.synced.is_set():
            tenants = tenants_of(self._pods.objects)
            namespaces = {n: item for tenant in tenants for n, item in self._owned.get(tenant, {}).items()}
            # A pod that was not decoded says of no tenant, but its Namespace does.
            for name, _ in spoiled:
                if (item := self._namespaces.objects.get(("", name))) is not None:
                    namespaces[name] = item
        clusters: Any = {}
        if self._clusters is not None:
            # Without the resource there are none, and each tenant has the default cluster domain.
            clusters = dict(self._clusters.objects) if self._clusters.synced.is_set() else None
        return Picture(namespaces, pods, clusters, self._places(), self.unreadable(), spoiled)

    def _places(self) -> dict[str, Place]:
        found = {}
        for namespace in self._wanted:
            for where in (namespace, _EVERYWHERE):
                followed = self._followed.get(where)
                if followed is not None and followed.is_synced:
                    found[namespace] = followed.place(namespace)
                    break
        return found

    def unreadable(self) -> dict[tuple[str, tuple[str, str]], str]:
        """Objects that exist and do not decode, by kind and key, with the reason."""
        kinds: list[tuple[str, Reflector[Any]]] = [("Pod", self._pods), ("Namespace", self._namespaces)]
        if self._clusters is not None:
            kinds.append(("VirtualCluster", self._clusters))
        for each in self._followed.values():
            kinds += [("Service", each.services), ("Network", each.networks)]
        return {(kind, key): why for kind, each in kinds for key, why in each.unreadable.items()}

    # ---- what is shown

    def freshness(self) -> dict[str, Freshness]:
        """How current each kind is, as a whole."""
        kinds: dict[str, list[Reflector[Any]]] = {"pods": [self._pods], "namespaces": [self._namespaces]}
        if self._clusters is not None:
            kinds["virtualClusters"] = [self._clusters]
        followed = [each for each in self._followed.values() if each.unwanted_since is None]
        if followed:
            kinds["services"] = [each.services for each in followed]
            kinds["networks"] = [each.networks for each in followed]
        now = self._clock()
        return {name: freshness_of(reflectors, now) for name, reflectors in kinds.items()}

    def ages(self) -> dict[str, float | None]:
        """Seconds since each kind was last confirmed as a whole; None before it was."""
        return {name: each.age_s for name, each in self.freshness().items()}

    @property
    def count(self) -> int:
        """How many watches there are."""
        return len(self._always()) + 2 * len(self._followed)

    def _always(self) -> list[Reflector[Any]]:
        always: list[Reflector[Any]] = [self._pods, self._namespaces]
        return always if self._clusters is None else [*always, self._clusters]
