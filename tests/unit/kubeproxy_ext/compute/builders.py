# SPDX-License-Identifier: Apache-2.0
"""Objects for the tests of the service state, and a way to put them into one."""

from collections.abc import Mapping, Sequence

from daemonkit.kube.resources import Key
from kubeproxy_ext.compute import objects
from kubeproxy_ext.compute.service_state import ServiceState


def put(state: ServiceState, item: objects.AnyObject) -> None:
    match item:
        case objects.ServiceObject():
            state.put_service(item)
        case objects.EndpointSliceObject():
            state.put_slice(item)
        case objects.NamespaceObject():
            state.put_namespace(item)
        case objects.NodeObject():
            state.put_node(item)


def remove(state: ServiceState, item: objects.AnyObject) -> None:
    key: Key = (item.metadata.namespace, item.metadata.name)
    match item:
        case objects.ServiceObject():
            state.remove_service(key)
        case objects.EndpointSliceObject():
            state.remove_slice(key)
        case objects.NamespaceObject():
            state.remove_namespace(key[1])
        case objects.NodeObject():
            state.remove_node(key[1])


def namespace(name: str, tenant: str | None = None, called: str | None = None) -> objects.NamespaceObject:
    """`called` is the tenant's own name for it."""
    annotations = {"tenancy.x-k8s.io/cluster": tenant, "tenancy.x-k8s.io/namespace": called}
    known = {key: value for key, value in annotations.items() if value is not None}
    return objects.NamespaceObject(metadata=objects.Meta(name=name, annotations=known))


def service(
    reference: str,
    ip: str | Sequence[str],
    *,
    own_ip: str | None = None,
    network: str | None = None,
    created: str = "",
    protocol: str = "TCP",
    labels: Mapping[str, str] | None = None,
    external: Sequence[str] = (),
    balancer: Sequence[str] = (),
    ranges: Sequence[str] = (),
    internal: str = "Cluster",
) -> objects.ServiceObject:
    """A Service of one port, `p` 80."""
    ips = [ip] if isinstance(ip, str) else list(ip)
    named = dict(labels or {}) | ({} if network is None else {"arktos.futurewei.com/network": network})
    return objects.ServiceObject(
        metadata=objects.Meta(
            namespace=reference.partition("/")[0],
            name=reference.partition("/")[2],
            labels=named,
            annotations={} if own_ip is None else {"tenancy.x-k8s.io/clusterIP": own_ip},
            creation_timestamp=created,
        ),
        spec=objects.ServiceSpec(
            cluster_ip=ips[0],
            cluster_ips=ips,
            ip_families=["IPv6" if ":" in one else "IPv4" for one in ips],
            external_ips=list(external),
            load_balancer_source_ranges=list(ranges),
            ports=[objects.ServicePort(name="p", protocol=protocol, port=80)],
            internal_traffic_policy=internal,
        ),
        status=objects.ServiceStatus(
            load_balancer=objects.LoadBalancer(ingress=[objects.Ingress(ip=one) for one in balancer])
        ),
    )


def endpoint_slice(
    reference: str,
    *ips: str,
    number: int = 1,
    node: str | None = None,
    protocol: str = "TCP",
    zones: Sequence[str] = (),
    annotations: Mapping[str, str] | None = None,
) -> objects.EndpointSliceObject:
    """A slice of ready endpoints, port `p` 8080."""
    namespace_name, _, name = reference.partition("/")
    hints = objects.Hints(for_zones=[objects.Hint(name=zone) for zone in zones]) if zones else None
    return objects.EndpointSliceObject(
        metadata=objects.Meta(
            namespace=namespace_name,
            name=f"{name}-{number}",
            labels={"kubernetes.io/service-name": name},
            annotations=dict(annotations or {}),
        ),
        address_type="IPv6" if ips and ":" in ips[0] else "IPv4",
        endpoints=[objects.SliceEndpoint(addresses=[ip], node_name=node, hints=hints) for ip in ips],
        ports=[objects.SlicePort(name="p", protocol=protocol, port=8080)],
    )


def node(name: str, zone: str) -> objects.NodeObject:
    return objects.NodeObject(metadata=objects.Meta(name=name, labels={"topology.kubernetes.io/zone": zone}))
