# SPDX-License-Identifier: Apache-2.0
"""What counts now: what the API server has told, and for the rest what was saved before. Pure."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from daemonkit.kube.resources import Key
from daemonkit.kube.store import DecodeFailed
from dnsconfig.cluster.objects import (
    NamespaceObject,
    NetworkObject,
    PodObject,
    ServiceObject,
    VirtualClusterObject,
)
from dnsconfig.cluster.state import KUBE_SYSTEM, Absence, World
from tenancy import keys

T = TypeVar("T")

# core/v1 PodPhase: no container of such a pod starts again.
_OVER = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Place:
    """The Services and Networks of one namespace, by name; `absence` is of Services that are not there."""

    services: Mapping[str, ServiceObject] = field(default_factory=dict)
    networks: Mapping[str, NetworkObject] = field(default_factory=dict)
    absence: Absence = Absence.UNKNOWN


@dataclass(frozen=True, slots=True)
class Picture:
    """What one source knows. None, and a namespace that is not in `places`, is what it has not heard."""

    namespaces: Mapping[str, NamespaceObject] | None = None
    pods: Mapping[Key, PodObject] | None = None
    clusters: Mapping[Key, VirtualClusterObject] | None = None
    places: Mapping[str, Place] = field(default_factory=dict)
    unreadable: Mapping[tuple[str, Key], str] = field(default_factory=dict)
    # Pods of this node that exist and were not decoded: what they have stays theirs.
    spoiled_pods: Mapping[Key, DecodeFailed] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether everything has been heard that is asked for in any case."""
        return None not in (self.namespaces, self.pods, self.clusters)

    def over(self, saved: "Picture") -> "Picture":
        """This, with what was saved in the place of what has not been heard."""
        return replace(
            self,
            namespaces=saved.namespaces if self.namespaces is None else self.namespaces,
            pods=saved.pods if self.pods is None else self.pods,
            clusters=saved.clusters if self.clusters is None else self.clusters,
            places={**saved.places, **self.places},
        )

    def world(self, default_domain: str, domains: Mapping[str, str], *, has_plain_dns: bool = False) -> World:
        places = self.places.items()
        return World(
            self.namespaces or {},
            _Placed({where: place.services for where, place in places}),
            _Placed({where: place.networks for where, place in places}),
            self.clusters or {},
            self.unreadable,
            heard=frozenset(self.places),
            absences={where: place.absence for where, place in places},
            has_namespaces=self.namespaces is not None,
            has_clusters=self.clusters is not None,
            default_domain=default_domain,
            domains=domains,
            has_plain_dns=has_plain_dns,
        )

    def live_pods(self) -> dict[Key, PodObject]:
        """The pods whose containers may still start."""
        return {key: pod for key, pod in (self.pods or {}).items() if pod.status.phase not in _OVER}


class _Placed(Mapping[Key, T]):
    """Objects by (namespace, name), looked up where they are: nothing is copied for each decision."""

    def __init__(self, places: Mapping[str, Mapping[str, T]]) -> None:
        self._places = places

    def __getitem__(self, key: Key) -> T:
        return self._places[key[0]][key[1]]

    def __iter__(self) -> Iterator[Key]:
        return ((where, name) for where, place in self._places.items() for name in place)

    def __len__(self) -> int:
        return sum(map(len, self._places.values()))


def tenants_of(pods: Mapping[Key, PodObject]) -> frozenset[str]:
    """The tenants that these pods say to be of."""
    found = (pod.metadata.annotations.get(keys.CLUSTER, "") for pod in pods.values())
    return frozenset(filter(None, found))


def dns_namespaces(namespaces: Mapping[str, NamespaceObject], tenants: Collection[str]) -> frozenset[str]:
    """The super namespaces in which the DNS servers of these tenants are."""
    return frozenset(
        name
        for name, item in namespaces.items()
        if item.metadata.annotations.get(keys.NAMESPACE) == KUBE_SYSTEM
        and item.metadata.annotations.get(keys.CLUSTER) in tenants
    )
