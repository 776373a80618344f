# SPDX-License-Identifier: Apache-2.0
"""What a plan may look at beside its own object: one tenant's world, read only. Pure."""

import enum
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from syncer.core.objects import Object
from syncer.core.plan import Wait
from syncer.core.tenant_cluster import TenantCluster
from syncer.core.unknown import Unknown

if TYPE_CHECKING:
    from syncer.policy.addresses import CountedNetworks
    from syncer.policy.sync_policy import SyncPolicy


class PodDns(enum.Enum):
    """Who gives pods their resolver.

    SYNCER writes the tenant's DNS address into the pod, as upstream does; NODE leaves `ClusterFirst` to
    dnsconfig, which follows changes of that address.
    """

    SYNCER = "syncer"
    NODE = "node"


class SyncSettings(msgspec.Struct, frozen=True):
    """The operator's choices that plans depend on."""

    opaque_domains: tuple[str, ...] = ("kubernetes.io", "k8s.io")
    pod_dns: PodDns = PodDns.SYNCER
    dns_options: tuple[tuple[str, str | None], ...] = (("ndots", "5"),)
    required_plugins: tuple[str, ...] = ()
    """NRI plugins that a node must have for the pod to start: kata-bridge's gate."""
    custom_resources: tuple[str, ...] = msgspec.field(default=())
    """Kinds of the configuration: their Events come up too."""
    hides_nodes: bool = False
    """Whether vNodes have other addresses than the super nodes."""


class PodFacts(msgspec.Struct, frozen=True):
    """A super pod as others refer to it. `addresses` are those that it holds now in its own network.

    They are kept beside each cached pod: hundreds of pods may be looked up for one object.
    """

    namespace: str
    uid: str
    node: str
    addresses: tuple[str, ...]


class View(Protocol):
    """One tenant's objects on both sides, by the names that the tenant uses.

    Look-ups give copies. Whatever a plan has looked up is watched for it. For what is there and cannot be
    read they give `Unknown`: that is not None, and a plan that looked it up is held (`syncer.core.unknown`).
    """

    @property
    def tenant(self) -> TenantCluster: ...
    @property
    def policy(self) -> "SyncPolicy":
        """The policy, or the last that was known; the built-in one while none has been (`policy_wait`)."""

    @property
    def policy_wait(self) -> Wait | None:
        """What objects wait for while no policy has been known. Then `policy` proves nothing about them."""

    @property
    def settings(self) -> SyncSettings: ...

    def in_tenant(self, kind: str, namespace: str, name: str) -> Object | Unknown | None:
        """The tenant's object; None if there is none."""

    def tenant_uid(self, kind: str, namespace: str, name: str) -> str | Unknown | None:
        """The UID of the tenant's object, which is not read; None if there is none."""

    def tenant_keys(self, kind: str, namespace: str, name: str) -> Collection[str] | Unknown | None:
        """The keys of `data` of a tenant's ConfigMap or Secret; None if there is none.

        Those of a plan have a bound together, beyond which further ones are `Unknown`.
        """

    def in_super(self, kind: str, namespace: str, name: str) -> Object | Unknown | None:
        """The super object by its tenant namespace (empty: cluster-scoped); None if there is none."""

    def super_pod(self, namespace: str, name: str) -> PodFacts | None:
        """The super pod of a tenant's pod; None if there is none that can be read.

        It proves whose an address is, and unknown is no proof: no plan waits for it.
        """

    def super_services(self, namespace: str) -> Iterable[Object]:
        """The Services of the super namespace that stands for a tenant's, in order of names.

        None of more than a pod's variables can have: a step has no time for so many.
        """

    def pod_addresses(self, namespace: str) -> Collection[str]:
        """The addresses that the tenant's super pods of a namespace hold now.

        One that has ended holds none: they may be another pod's.
        """

    def api_server_addresses(self) -> Collection[str]:
        """Where the tenant's API server is by others' word than the tenant's, as text of `ipaddress`."""

    def cluster_networks(self) -> "CountedNetworks":
        """What is known to be the super cluster's own: its nodes' addresses and networks of pods, and its API
        server's addresses. Read only: they are shared."""

    def others_hold(self, address: str) -> bool:
        """Whether another tenant's pod has this address now; it is in canonical form."""

    def drain_seconds(self, namespace: str) -> float:
        """For how long one of the nodes that run pods of a namespace has been cordoned; 0 if none is."""

    def tenant_text(self, text: str, own: Collection[str] = ()) -> str:
        """A text of the super cluster as the tenant may read it; `own` are words that the tenant gave.

        Its namespaces have its own names, and those of others are hidden (`tenancy.super_names`).
        """

    def tenant_namespace(self, super_namespace: str) -> str | None:
        """The tenant's namespace for which a super namespace stands; None if it is not this tenant's."""

    def is_reserved_name(self, super_namespace: str) -> bool:
        """Whether the name of a super namespace is another tenant's, by all tenants' keys."""

    def vnode_labels(self, name: str) -> Mapping[str, str] | Unknown | None:
        """All labels of the tenant's vNode of this name; None if there is none."""

    def vnode_addresses(self, name: str) -> tuple[str, ...] | Unknown | None:
        """The addresses of the tenant's vNode of this name; None if there is none.

        For what comes up alone: nothing that goes down is held while they are unknown.
        """

    def super_namespace(self, namespace: str) -> str | Unknown | None:
        """The super namespace of a tenant's namespace, once it exists and is known to be the tenant's."""
