# SPDX-License-Identifier: Apache-2.0
"""Objects of all kinds with every field of Kubernetes' schemas, and what a plan of one looks at beside it.

A policy allows all that a policy can allow: so plans go through all that they do.
"""

import copy
import ipaddress
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from devkit.syncer.fake_view import TENANT
from syncer.core.objects import Object
from syncer.core.pair import Pair
from syncer.core.plan import Create, Wait
from syncer.core.tenant_cluster import TenantCluster
from syncer.core.unknown import Unknown
from syncer.core.view import PodFacts, SyncSettings
from syncer.kinds import network, table
from syncer.kinds.custom_resource import CustomResource, sync_of
from syncer.kinds.port import KindSync, Scope
from syncer.policy.addresses import CountedNetworks
from syncer.policy.patterns import Patterns
from syncer.policy.sync_policy import (
    ClaimPolicy,
    EndpointPolicy,
    HostUsers,
    IngressPolicy,
    MetadataPolicy,
    NetworkPolicyLimits,
    PodPolicy,
    Privileged,
    ServicePolicy,
    SyncPolicy,
)
from tenancy import keys
from tests.pump import ABSENT, CHARS, Schema, Sizes, Text, charge
from tests.unit.syncer.kinds.objects import SUPER_NAMESPACE, super_object


class _All(frozenset[Any]):
    """Every value."""

    def __contains__(self, value: object) -> bool:
        return True

    def __or__(self, other: Any) -> "_All":
        return self


_ALL, _EVERY, _ANYWHERE = _All(), Patterns(("*",)), (ipaddress.ip_network("0.0.0.0/0"),)
_ALLOWING = SyncPolicy(
    pods=PodPolicy(
        runtime_classes=_ALL,
        privileged=Privileged.ALWAYS,
        host_namespaces=_ALL,
        host_users=HostUsers.ALLOW,
        host_ports=_ALL,
        capabilities=_ALL,
        se_linux_types=_ALL,
        sysctls=_EVERY,
        volume_types=_ALL,
        projected_sources=_ALL,
        csi_drivers=_ALL,
        allow_handler_hosts=True,
        allow_node_name=True,
        allow_resource_claims=True,
        schedulers=_ALL,
        extended_resources=_EVERY,
        toleration_keys=_EVERY,
        node_labels=_EVERY,
        priority_classes=_EVERY,
        allowed_annotations=_EVERY,
    ),
    services=ServicePolicy(
        types=_ALL,
        external_cidrs=_ANYWHERE,
        load_balancer_cidrs=_ANYWHERE,
        load_balancer_classes=_ALL,
        external_names=_EVERY,
        allowed_annotations=_EVERY,
    ),
    endpoints=EndpointPolicy(allowed_cidrs=_ANYWHERE),
    claims=ClaimPolicy(attributes_classes=_ALL),
    ingresses=IngressPolicy(hosts=_EVERY, allowed_annotations=_EVERY),
    metadata=MetadataPolicy(allowed_labels=_EVERY, allowed_annotations=_EVERY),
    network_policies=NetworkPolicyLimits(max_peers=10_000),
)

_TENANT = TenantCluster(
    TENANT.key,
    TENANT.vc_namespace,
    TENANT.vc_name,
    TENANT.uid,
    cluster_domain="cluster.local",
    transparent_prefixes=("transparent.example.com",),
    opaque_prefixes=("opaque.example.com",),
)

_METADATA = {
    "metadata.name": "a",
    "metadata.namespace": "ns",
    "metadata.uid": "t-1",
    "metadata.resourceVersion": "1",
    "metadata.generation": 1,
    "metadata.deletionTimestamp": ABSENT,
    "metadata.managedFields": ABSENT,
    "metadata.ownerReferences": [{"name": "o", "uid": "u", "kind": "ReplicaSet"}],
}


def _number(where: str) -> int:
    return int(where.rpartition(".")[2])


def _address(where: str) -> str:
    return f"10.{_number(where) >> 16 & 255}.{_number(where) >> 8 & 255}.{_number(where) & 255}"


def _target(path: str) -> dict[str, Any]:
    return {
        f"{path}.kind": "Pod",
        f"{path}.namespace": "ns",
        f"{path}.name": lambda where: f"pod-{_number(where)}",
    }


CONTAINER_LISTS = ("spec.containers", "spec.initContainers", "spec.ephemeralContainers")
_CONTAINERS = tuple(f"{each}[]" for each in CONTAINER_LISTS)
# Of what is all or nothing: the values with which an object goes down, and goes through the longer branches.
_VALUES: Mapping[str, Mapping[str, Any]] = {
    "Pod": {
        "spec.nodeName": ABSENT,
        "spec.overhead": ABSENT,
        "spec.enableServiceLinks": True,
        "spec.hostNetwork": ABSENT,
        "spec.dnsPolicy": "ClusterFirst",
        "spec.securityContext.windowsOptions": ABSENT,
        "spec.securityContext.seLinuxOptions": ABSENT,
        "spec.securityContext.seccompProfile": ABSENT,
        **{
            f"{each}.securityContext.{name}": ABSENT
            for each in _CONTAINERS
            for name in ("windowsOptions", "seLinuxOptions", "seccompProfile")
        },
        **{f"{each}.env[].value": lambda where: Text("$(A) $(B)") for each in _CONTAINERS},
        **{f"{each}.env[].valueFrom.fieldRef.fieldPath": "metadata.annotations['x']" for each in _CONTAINERS},
        "spec.volumes[].ephemeral.volumeClaimTemplate.spec.dataSourceRef": ABSENT,
        "spec.volumes[].projected.sources[].podCertificate": ABSENT,
        "spec.volumes[].downwardAPI.items[].fieldRef.fieldPath": "metadata.annotations",
        "spec.volumes[].projected.sources[].downwardAPI.items[].fieldRef.fieldPath": "metadata.labels",
        "spec.volumes[].secret.optional": True,
        **{
            f"spec.affinity.nodeAffinity.{each}.matchFields[].key": "metadata.name"
            for each in (
                "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[]",
                "preferredDuringSchedulingIgnoredDuringExecution[].preference",
            )
        },
        "status.phase": "Running",
    },
    "Service": {
        "spec.clusterIP": "10.0.0.1",
        "spec.clusterIPs": ["10.0.0.1"],
        "spec.externalIPs[]": _address,
        "spec.loadBalancerIP": "10.0.0.2",
        "spec.type": "LoadBalancer",
    },
    "Endpoints": {
        "subsets[].addresses[].ip": _address,
        "subsets[].notReadyAddresses[].ip": _address,
        **_target("subsets[].addresses[].targetRef"),
        **_target("subsets[].notReadyAddresses[].targetRef"),
    },
    "EndpointSlice": {
        "metadata.labels": lambda where: {"kubernetes.io/service-name": "svc"},
        "addressType": "IPv4",
        "endpoints[].addresses[]": _address,
        **_target("endpoints[].targetRef"),
    },
    "PersistentVolumeClaim": {
        "spec.dataSourceRef": ABSENT,
        "spec.volumeName": ABSENT,
        "status.phase": "Bound",
    },
    "PodDisruptionBudget": {"spec.minAvailable": ABSENT, "status.observedGeneration": 1},
    "PersistentVolume": {
        "spec.claimRef.namespace": SUPER_NAMESPACE,
        "spec.claimRef.name": "claim",
        "spec.claimRef.uid": "s-1",
        "status.phase": "Bound",
    },
    "Event": {
        "involvedObject.kind": "Pod",
        "involvedObject.namespace": SUPER_NAMESPACE,
        "involvedObject.name": "pod-0",
        "involvedObject.uid": "s-1",
    },
}
_CUSTOM = sync_of(CustomResource("example.com", "v1", "widgets", "Widget"))
# Any kind may stand for one: nothing in it is known.
_SCHEMA_OF_CUSTOM = "CustomResourceDefinition"

# What a plan looks at, as further places to pump.
_SERVICES, _PODS, _PORTS, _KEYS = "view:services", "view:pods", "view:ports", "view:keys"
# Such as are called `kubernetes-NETWORK`.
_OF_NETWORKS = "view:services of networks"
OTHERS = (_SERVICES, _PODS, _PORTS, _KEYS, _OF_NETWORKS)


@dataclass(slots=True)
class SizedView:
    """What is there beside the object; a look-up costs what the copy costs, as with the syncer's caches."""

    sizes: Sizes
    tenant: TenantCluster = _TENANT
    policy: SyncPolicy = _ALLOWING
    policy_wait: Wait | None = None
    settings: SyncSettings = field(
        default_factory=lambda: SyncSettings(required_plugins=("a", "b"), hides_nodes=True)
    )

    keys: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.keys = {Text(f"key-{n}"): "" for n in range(self._size(_KEYS))}

    def _size(self, place: str) -> int:
        return max(1, self.sizes.get(place, 0))

    def in_tenant(self, kind: str, namespace: str, name: str) -> Object | Unknown | None:
        # Each is looked up once: what it has is read here, and not copied.
        return self._tenant_object(kind, name)

    def tenant_uid(self, kind: str, namespace: str, name: str) -> str | Unknown | None:
        found = self.in_tenant(kind, namespace, name)
        return found if found is None or isinstance(found, Unknown) else str(found["metadata"].get("uid", ""))

    def tenant_keys(self, kind: str, namespace: str, name: str) -> Collection[str] | Unknown | None:
        found = self.in_tenant(kind, namespace, name)
        return found if found is None or isinstance(found, Unknown) else (found.get("data") or {}).keys()

    def in_super(self, kind: str, namespace: str, name: str) -> Object | Unknown | None:
        return copy.deepcopy(self._super_object(kind, name))

    def _tenant_object(self, kind: str, name: str) -> Object | None:
        if kind in ("ConfigMap", "Secret") and name:
            # The first alone is pumped, as of all that is a list.
            is_first = name.rstrip("xy").endswith(".0")
            return {"kind": kind, "metadata": {"name": name}, "data": self.keys if is_first else {}}
        if kind == "PersistentVolumeClaim":
            return {"kind": kind, "metadata": {"name": name, "namespace": "ns", "uid": "t-1"}}
        return None

    def _super_object(self, kind: str, name: str) -> Object | None:
        match kind:
            case "Service":
                return _service(name, 1)
            case "Pod" if int(name.rpartition("-")[2]) < self._size(_PODS):
                return _pod(name)
            case "PersistentVolumeClaim":
                return super_object(kind, name)
            case _:
                return None

    def super_services(self, namespace: str) -> Iterable[Object]:
        return [
            _service(f"service-{n}", self._size(_PORTS) if n == 0 else 1)
            for n in range(self._size(_SERVICES))
        ] + [_service(f"kubernetes-{n}", 1) for n in range(self._size(_OF_NETWORKS))]

    def pod_addresses(self, namespace: str) -> Collection[str]:
        return {each["ip"] for n in range(self._size(_PODS)) for each in _pod(f"pod-{n}")["status"]["podIPs"]}

    def super_pod(self, namespace: str, name: str) -> PodFacts | None:
        if int(name.rpartition("-")[2]) >= self._size(_PODS):
            return None
        return PodFacts(SUPER_NAMESPACE, "s-1", "node", (_address(name.replace("-", ".")),))

    def api_server_addresses(self) -> Collection[str]:
        return ()

    def cluster_networks(self) -> CountedNetworks:
        return CountedNetworks()

    def others_hold(self, address: str) -> bool:
        return False

    def drain_seconds(self, namespace: str) -> float:
        return 0.0

    def tenant_text(self, text: str, own: Collection[str] = ()) -> str:
        charge(1 + len(text) // CHARS)
        return str(text)

    def is_reserved_name(self, super_namespace: str) -> bool:
        return False

    def tenant_namespace(self, super_namespace: str) -> str | None:
        return "ns" if super_namespace == SUPER_NAMESPACE else None

    def vnode_labels(self, name: str) -> Mapping[str, str] | Unknown | None:
        return {}

    def vnode_addresses(self, name: str) -> tuple[str, ...] | Unknown | None:
        return ("192.0.2.1",)

    def super_namespace(self, namespace: str) -> str | Unknown | None:
        found = self.tenant.super_namespace(namespace) if namespace else ""
        return found if isinstance(found, str) else None


def _service(name: str, ports: int) -> Object:
    return super_object(
        "Service", name, spec={"clusterIP": "10.0.0.1", "ports": [{"port": n} for n in range(ports)]}
    )


def _pod(name: str) -> Object:
    ips = [{"ip": _address(name.replace("-", "."))}]
    return super_object("Pod", name, spec={"nodeName": "node"}, status={"phase": "Running", "podIPs": ips})


SYNCS: tuple[KindSync, ...] = (
    *table.kinds(sorted(table.optional_names())),
    network.SYNC,
    _CUSTOM,
)


def schema(sync: KindSync) -> Schema:
    kind = sync.kind.kind
    name = {"Widget": _SCHEMA_OF_CUSTOM, "Network": "Namespace"}.get(kind, kind)
    values: dict[str, Any] = _METADATA | dict(_VALUES.get(kind, {}))
    if not sync.kind.resource.is_namespaced or sync.scope is Scope.SYSTEM:
        values["metadata.namespace"] = ABSENT
    return Schema(name, values)


def up(sync: KindSync, value: Object) -> Object:
    """The object as the super cluster's own, for kinds that come up."""
    value["metadata"] |= {"uid": "s-1", "namespace": SUPER_NAMESPACE}
    value["metadata"]["labels"] = dict(value["metadata"]["labels"]) | {keys.SUPER_PUBLIC: "true"}
    return value


def is_from_above(sync: KindSync) -> bool:
    return sync.scope in (Scope.PUBLISHED, Scope.CLAIMED) or sync.kind.kind == "Event"


def _created(sync: KindSync, objects: Pair[Object], view: SizedView) -> Object:
    plan = sync.plan(key_of(sync), objects, view)
    creations = [each for each in plan.actions if isinstance(each, Create)]
    assert len(creations) == 1, (sync.kind.kind, plan.refusals, plan.wait, plan.conflict)
    return creations[0].body


def key_of(sync: KindSync) -> tuple[str, str]:
    is_namespaced = sync.kind.resource.is_namespaced and sync.scope is not Scope.SYSTEM
    return ("ns" if is_namespaced else "", "a")


def _other_text(text: str) -> str:
    """Another value at each place where a change is possible."""
    return Text(text if text.isalpha() else f"{text}y")


def pair(sync: KindSync, situation: str, sizes: Sizes) -> Pair[Object]:
    """The tenant's object and the super object of one situation."""
    shape, above = schema(sync), is_from_above(sync)
    first = shape.object(sizes)
    body = _created(sync, _sided(sync, first, None), SizedView(sizes))
    if situation == "created":
        return _sided(sync, shape.object(sizes), None)
    meta = body["metadata"]
    meta.setdefault("uid", "t-1" if above else "s-1")
    meta["resourceVersion"] = "7"
    if "status" in first and not above:
        body["status"] = copy.deepcopy(first["status"])
    if situation == "equal":
        return _sided(sync, shape.object(sizes), body)
    changed = shape.object(sizes, text=_other_text)
    return _sided(sync, changed, body)


def _sided(sync: KindSync, own: Object, made: Object | None) -> Pair[Object]:
    """What a side has of itself, and what a plan has made of it on the other side."""
    return Pair(made, up(sync, own)) if is_from_above(sync) else Pair(own, made)
