# SPDX-License-Identifier: Apache-2.0
"""Strips watched objects to the fields that decide something, before they are cached. Pure.

A Service is mostly annotations, and a thousand slices repeat the same ports and names. Fields that are
not read are dropped, and equal values are shared. The result is also saved on disk. (client-go
calls such a function a TransformFunc.)
"""

import sys
from functools import lru_cache

from msgspec.structs import replace

from daemonkit.kube.resources import EXCLUDING_LABELS
from kubeproxy_ext.compute.objects import (
    LAST_CHANGE_TRIGGER_TIME,
    EndpointSliceObject,
    Meta,
    NamespaceObject,
    NodeObject,
    ServiceObject,
    SlicePort,
)
from kubeproxy_ext.compute.packed_slices import pack
from kubeproxy_ext.compute.parse import SERVICE_NAME_LABEL, ZONE_LABEL
from tenancy import keys

_SERVICE_LABELS = (keys.ARKTOS_NETWORK, *EXCLUDING_LABELS)
_SLICE_LABELS = (SERVICE_NAME_LABEL, *EXCLUDING_LABELS)
_OWNERS = (
    keys.CLUSTER,
    keys.NAMESPACE,
    keys.VC_NAME,
    keys.VC_NAMESPACE,
    keys.VC_ROOT_NAMESPACE,
    keys.SERVICE_CIDRS,
)
# Shared by all objects that keep none; never changed.
_NONE: dict[str, str] = {}


def service(item: ServiceObject) -> ServiceObject:
    return replace(item, metadata=_meta(item.metadata, _SERVICE_LABELS, (keys.CLUSTER_IP, keys.CLUSTER_IPS)))


def endpoint_slice(item: EndpointSliceObject) -> EndpointSliceObject:
    return replace(
        pack(item),
        metadata=_meta(item.metadata, _SLICE_LABELS, (LAST_CHANGE_TRIGGER_TIME,)),
        address_type=sys.intern(item.address_type),
        ports=None if item.ports is None else [_port(each) for each in item.ports],
    )


def namespace(item: NamespaceObject) -> NamespaceObject:
    return NamespaceObject(_meta(item.metadata, (), _OWNERS))


def node(item: NodeObject) -> NodeObject:
    return NodeObject(_meta(item.metadata, (ZONE_LABEL,), ()))


def _meta(meta: Meta, labels: tuple[str, ...], annotations: tuple[str, ...]) -> Meta:
    return replace(
        meta,
        namespace=sys.intern(meta.namespace),
        labels=_only(meta.labels, labels),
        annotations=_only(meta.annotations, annotations),
    )


def _only(values: dict[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: values[name] for name in names if name in values} or _NONE


@lru_cache(maxsize=1024)
def _port(item: SlicePort) -> SlicePort:
    return item
