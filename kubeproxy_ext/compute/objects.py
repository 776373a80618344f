# SPDX-License-Identifier: Apache-2.0
"""The fields that are read of Kubernetes objects, as Structs that a watch decodes into.

Fields that the API server may leave out or send as null have a default. An object with a field of another
type does not decode. Values of the right type that are malformed (an address, a port) are handled by
`parse`.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from daemonkit.kube.resources import EXCLUDING_LABELS, ObjectMeta, Resource

SERVICES = Resource("", "v1", "services")
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices")
NODES = Resource("", "v1", "nodes", is_namespaced=False)

LAST_CHANGE_TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"
"""Annotation of EndpointSlices: when the change happened for which a controller wrote the slice."""

SELECTOR = ",".join(f"!{label}" for label in EXCLUDING_LABELS)
"""The label selector of the watches of Services and EndpointSlices."""


class _ApiStruct(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Meta(ObjectMeta, frozen=True, rename="camel"):
    creation_timestamp: str | None = None


class ServicePort(_ApiStruct, frozen=True, rename="camel"):
    name: str = ""
    protocol: str = "TCP"
    port: int = 0


class ClientIpConfig(_ApiStruct, frozen=True, rename="camel"):
    timeout_seconds: int | None = None


class AffinityConfig(_ApiStruct, frozen=True):
    client_ip: ClientIpConfig | None = msgspec.field(name="clientIP", default=None)


class ServiceSpec(_ApiStruct, frozen=True):
    type: str = "ClusterIP"
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    cluster_ips: list[str] | None = msgspec.field(name="clusterIPs", default=None)
    ip_families: list[str] | None = None
    external_ips: list[str] | None = msgspec.field(name="externalIPs", default=None)
    load_balancer_source_ranges: list[str] | None = None
    ports: list[ServicePort] | None = None
    internal_traffic_policy: str | None = None
    session_affinity: str = "None"
    session_affinity_config: AffinityConfig | None = None


class Ingress(_ApiStruct, frozen=True, rename="camel"):
    ip: str = ""
    ip_mode: str | None = None


class LoadBalancer(_ApiStruct, frozen=True):
    ingress: list[Ingress] | None = None


class ServiceStatus(_ApiStruct, frozen=True, rename="camel"):
    load_balancer: LoadBalancer | None = None


class ServiceObject(_ApiStruct, frozen=True):
    metadata: Meta = Meta()
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus | None = None


class SlicePort(_ApiStruct, frozen=True):
    """`name` and `port` may be null, which differs from "" and 0."""

    name: str | None = None
    protocol: str | None = None
    port: int | None = None


class Conditions(_ApiStruct, frozen=True):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Hint(_ApiStruct, frozen=True):
    name: str = ""


class Hints(_ApiStruct, frozen=True, rename="camel"):
    for_zones: list[Hint] | None = None
    for_nodes: list[Hint] | None = None


class SliceEndpoint(_ApiStruct, frozen=True, rename="camel"):
    addresses: list[str] | None = None
    conditions: Conditions | None = None
    node_name: str | None = None
    hints: Hints | None = None


class EndpointSliceObject(_ApiStruct, frozen=True, rename="camel"):
    """A discovery.k8s.io/v1 EndpointSlice. `endpoints` and `ports` are null when there is none."""

    metadata: Meta = Meta()
    address_type: str = ""
    endpoints: list[SliceEndpoint] | None = None
    ports: list[SlicePort] | None = None


class NamespaceObject(_ApiStruct, frozen=True):
    """A v1 Namespace: its annotations name the tenant."""

    metadata: Meta = Meta()


class NodeObject(_ApiStruct, frozen=True):
    """A v1 Node: a label names its zone."""

    metadata: Meta = Meta()


AnyObject = ServiceObject | EndpointSliceObject | NamespaceObject | NodeObject

_KINDS: Mapping[tuple[str, str], type[AnyObject]] = {
    ("v1", "Service"): ServiceObject,
    ("discovery.k8s.io/v1", "EndpointSlice"): EndpointSliceObject,
    ("v1", "Namespace"): NamespaceObject,
    ("v1", "Node"): NodeObject,
}


class UnreadableError(ValueError):
    """An object does not decode as its kind. Only `render` uses this; a watch reports a `DecodeFailed`."""


def read(item: Mapping[str, Any]) -> AnyObject | None:
    """Decode one JSON object by its `apiVersion` and `kind`; None for a kind that is not used.

    Raises UnreadableError, which names the object and the field.
    """
    kind = _KINDS.get((str(item.get("apiVersion")), str(item.get("kind"))))
    if kind is None:
        return None
    try:
        return msgspec.convert(item, kind)
    except msgspec.ValidationError as error:
        metadata = item.get("metadata")
        name = (
            "/".join(str(metadata.get(key, "")) for key in ("namespace", "name"))
            if isinstance(metadata, Mapping)
            else "?"
        )
        raise UnreadableError(f"{item.get('kind')} {name.strip('/')}: {error}") from error
