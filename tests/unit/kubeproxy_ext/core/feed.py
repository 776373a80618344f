# SPDX-License-Identifier: Apache-2.0
"""Objects for the tests of the world, and a way to tell a world of any of them."""

from collections.abc import Mapping, Sequence

from daemonkit.kube.resources import Key
from kubeproxy_ext.core import wire
from kubeproxy_ext.core.world import World


def put(world: World, item: wire.AnyObject) -> None:
    match item:
        case wire.ServiceObject():
            world.put_service(item)
        case wire.EndpointSliceObject():
            world.put_slice(item)
        case wire.NamespaceObject():
            world.put_namespace(item)
        case wire.NodeObject():
            world.put_node(item)


def remove(world: World, item: wire.AnyObject) -> None:
    key: Key = (item.metadata.namespace, item.metadata.name)
    match item:
        case wire.ServiceObject():
            world.remove_service(key)
        case wire.EndpointSliceObject():
            world.remove_slice(key)
        case wire.NamespaceObject():
            world.remove_namespace(key[1])
        case wire.NodeObject():
            world.remove_node(key[1])


def namespace(name: str, tenant: str | None = None, called: str | None = None) -> wire.NamespaceObject:
    """`called` is the tenant's own name for it."""
    annotations = {"tenancy.x-k8s.io/cluster": tenant, "tenancy.x-k8s.io/namespace": called}
    known = {key: value for key, value in annotations.items() if value is not None}
    return wire.NamespaceObject(metadata=wire.Meta(name=name, annotations=known))


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
) -> wire.ServiceObject:
    """A Service of one port, `p` 80."""
    ips = [ip] if isinstance(ip, str) else list(ip)
    named = dict(labels or {}) | ({} if network is None else {"arktos.futurewei.com/network": network})
    return wire.ServiceObject(
        metadata=wire.Meta(
            namespace=reference.partition("/")[0],
            name=reference.partition("/")[2],
            labels=named,
            annotations={} if own_ip is None else {"tenancy.x-k8s.io/clusterIP": own_ip},
            creation_timestamp=created,
        ),
        spec=wire.ServiceSpec(
            cluster_ip=ips[0],
            cluster_ips=ips,
            ip_families=["IPv6" if ":" in one else "IPv4" for one in ips],
            external_ips=list(external),
            load_balancer_source_ranges=list(ranges),
            ports=[wire.ServicePort(name="p", protocol=protocol, port=80)],
            internal_traffic_policy=internal,
        ),
        status=wire.ServiceStatus(
            load_balancer=wire.LoadBalancer(ingress=[wire.Ingress(ip=one) for one in balancer])
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
) -> wire.EndpointSliceObject:
    """A slice of ready endpoints, port `p` 8080."""
    namespace_name, _, name = reference.partition("/")
    hints = wire.Hints(for_zones=[wire.Hint(name=zone) for zone in zones]) if zones else None
    return wire.EndpointSliceObject(
        metadata=wire.Meta(
            namespace=namespace_name,
            name=f"{name}-{number}",
            labels={"kubernetes.io/service-name": name},
            annotations=dict(annotations or {}),
        ),
        address_type="IPv6" if ips and ":" in ips[0] else "IPv4",
        endpoints=[wire.SliceEndpoint(addresses=[ip], node_name=node, hints=hints) for ip in ips],
        ports=[wire.SlicePort(name="p", protocol=protocol, port=8080)],
    )


def node(name: str, zone: str) -> wire.NodeObject:
    return wire.NodeObject(metadata=wire.Meta(name=name, labels={"topology.kubernetes.io/zone": zone}))
