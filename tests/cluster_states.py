# SPDX-License-Identifier: Apache-2.0
"""A state of the cluster, as dnsconfig decides with it, of objects that are written out as JSON."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from daemonkit.kube.resources import Key
from dnsconfig.cluster.objects import (
    AnyObject,
    NamespaceObject,
    NetworkObject,
    PodObject,
    ServiceObject,
    VirtualClusterObject,
)
from dnsconfig.cluster.state import Absence, ClusterState, ResolverSettings

_KINDS: Mapping[tuple[str, str], type[AnyObject]] = {
    ("v1", "Pod"): PodObject,
    ("v1", "Service"): ServiceObject,
    ("v1", "Namespace"): NamespaceObject,
    ("arktos.futurewei.com/v1", "Network"): NetworkObject,
    ("tenancy.x-k8s.io/v1alpha1", "VirtualCluster"): VirtualClusterObject,
}


class ObjectDecodeError(ValueError):
    """A JSON object has not the fields of its kind."""


def decode_object(item: Mapping[str, Any]) -> AnyObject | None:
    """Decode one JSON object by its `apiVersion` and `kind`; None for any other kind.

    Raises ObjectDecodeError.
    """
    kind = _KINDS.get((str(item.get("apiVersion")), str(item.get("kind"))))
    if kind is None:
        return None
    try:
        return msgspec.convert(item, kind)
    except msgspec.ValidationError as error:
        raise ObjectDecodeError(f"{item.get('kind')}: {error}") from error


def cluster_state_of(
    items: Iterable[Mapping[str, Any]], settings: ResolverSettings | None = None
) -> ClusterState:
    """A fully synced state of JSON objects. Raises ObjectDecodeError."""
    found: dict[type[AnyObject], dict[Key, Any]] = {}
    for item in items:
        value = decode_object(item)
        if value is not None:
            meta = value.metadata
            found.setdefault(type(value), {})[meta.namespace, meta.name] = value
    namespaces = {name: value for (_, name), value in found.get(NamespaceObject, {}).items()}
    return ClusterState(
        namespaces,
        found.get(ServiceObject, {}),
        found.get(NetworkObject, {}),
        found.get(VirtualClusterObject, {}),
        synced_namespaces=frozenset(namespaces),
        absences=dict.fromkeys(namespaces, Absence.CONFIRMED),
        settings=ResolverSettings() if settings is None else settings,
    )
