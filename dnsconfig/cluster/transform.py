# SPDX-License-Identifier: Apache-2.0
"""Transforms of watched objects: memory and disk keep only the fields that decide something.

To carry one more label or annotation: keep it here, and use it in `resolve`. For any other field: decode it
in `objects`, bound it in `daemonkit.kube.object_limits`, and use it in `resolve`.
"""

from msgspec.structs import replace

from daemonkit.kube.resources import EXCLUDING_LABELS, ObjectMeta
from dnsconfig.cluster.objects import (
    MIRROR,
    SANDBOX_READY,
    NamespaceObject,
    NetworkObject,
    PodObject,
    ServiceObject,
    VirtualClusterObject,
)
from tenancy import keys

_POD_ANNOTATIONS = (keys.CLUSTER, keys.NAMESPACE, keys.UID, keys.NETWORK_READINESS)
_OWNERS = (keys.CLUSTER, keys.NAMESPACE)
_NETWORK = (keys.ARKTOS_NETWORK,)
_SERVICE_LABELS = (*_NETWORK, *EXCLUDING_LABELS)


def pod(item: PodObject) -> PodObject:
    conditions = [each for each in item.status.conditions or () if each.type == SANDBOX_READY]
    status = replace(item.status, conditions=conditions or None)
    meta = _meta(item.metadata, _NETWORK, _POD_ANNOTATIONS)
    if MIRROR in item.metadata.annotations:
        meta.annotations[MIRROR] = ""  # without its value, which the pod's author may choose
    return replace(item, metadata=meta, status=status)


def service(item: ServiceObject) -> ServiceObject:
    return replace(item, metadata=_meta(item.metadata, _SERVICE_LABELS, (keys.CLUSTER,)))


def network(item: NetworkObject) -> NetworkObject:
    return replace(item, metadata=_meta(item.metadata, (), (keys.CLUSTER,)))


def namespace(item: NamespaceObject) -> NamespaceObject:
    return NamespaceObject(_meta(item.metadata, (), _OWNERS))


def virtual_cluster(item: VirtualClusterObject) -> VirtualClusterObject:
    return replace(item, metadata=_meta(item.metadata, (), ()))


def _meta(meta: ObjectMeta, labels: tuple[str, ...], annotations: tuple[str, ...]) -> ObjectMeta:
    return replace(meta, labels=_only(meta.labels, labels), annotations=_only(meta.annotations, annotations))


def _only(values: dict[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: values[name] for name in names if name in values}
