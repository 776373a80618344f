# SPDX-License-Identifier: Apache-2.0
"""vc-syncer's configuration: `kind: SyncerConfiguration`, one file, all errors at once."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from daemonkit.config import binding
from daemonkit.config.binding import setting
from daemonkit.config.logging_config import LoggingConfig
from daemonkit.config.scrape_config import ScrapeConfig
from daemonkit.config.status_config import StatusConfig
from syncer.core.memory import MIN_LIMIT_BYTES
from syncer.core.view import PodDns, SyncSettings
from syncer.kinds import table
from syncer.kinds.custom_resource import CustomResource, Direction
from syncer.networks.objects import IMAGE, NetworkSettings
from syncer.vnodes.desired import AgentAddress
from tenancy import names
from tenancy.tenant import DEFAULT_CLUSTER_DOMAIN

KIND = "SyncerConfiguration"
VN_AGENT_PORT = 10550
PATROL_INTERVAL_S = 60
# etcd's quota is 2 GiB unless set, and a server that fills it is rare.
MAX_CACHE_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class SuperClusterAccess:
    kubeconfig_file: Path | None = setting(
        None, doc="of the super cluster's API server; without it the pod's service account"
    )


@dataclass(frozen=True, slots=True)
class VirtualClustersConfig:
    kubeconfig_file: Path | None = setting(
        None, doc="of the cluster that has the VirtualClusters; without it the super cluster"
    )


@dataclass(frozen=True, slots=True)
class TenantsConfig:
    """Where tenants come from: VirtualCluster objects, or a directory of kubeconfigs."""

    virtual_clusters: VirtualClustersConfig | None = setting(
        None, doc="tenants are the running VirtualClusters of a cluster"
    )
    directory: Path | None = setting(None, doc="tenants are its files, `<cluster key>.kubeconfig`")
    max_cache_bytes: int = setting(
        MAX_CACHE_BYTES,
        minimum=1 << 20,
        maximum=1 << 40,
        doc="what one tenant's objects may take in memory; what is beyond it is not synced",
    )

    def problems(self) -> Iterator[str]:
        if (self.virtual_clusters is None) == (self.directory is None):
            yield "virtualClusters: give either virtualClusters or directory"


@dataclass(frozen=True, slots=True)
class VnAgentConfig:
    port: int = setting(VN_AGENT_PORT, minimum=1, maximum=65535, doc="vn-agent's port on each node")
    address: AgentAddress = setting(AgentAddress.NODE, doc="the address that vNodes show")
    service: str = setting(
        "vc-manager/vn-agent", minimum_length=1, doc="namespace and name of the Service, for `service`"
    )
    pod_selector: str = setting("app=vn-agent", doc="labels of vn-agent's pods, for `podIP`")
    pod_namespace: str = setting("vc-manager", doc="their namespace")

    def problems(self) -> Iterator[str]:
        namespace, slash, name = self.service.partition("/")
        if not (slash and names.is_dns_label(namespace) and names.is_dns_label(name)):
            yield f"service: expected NAMESPACE/NAME, got {self.service!r}"


@dataclass(frozen=True, slots=True)
class CustomResourceConfig:
    """A custom resource that tenants make, or that the super cluster publishes to them."""

    group: str = setting(minimum_length=1, doc="API group, such as `example.com`")
    version: str = setting(minimum_length=1, doc="version, such as `v1`")
    resource: str = setting(minimum_length=1, doc="plural name in paths, such as `widgets`")
    kind: str = setting(minimum_length=1, doc="name in objects, such as `Widget`")
    direction: Direction = setting(
        Direction.DOWN,
        doc="`down`: tenants make them, namespaced; `up`: the super cluster publishes them by label",
    )
    has_status: bool = setting(True, doc="whether it has the status subresource")

    @property
    def entry(self) -> CustomResource:
        return CustomResource(
            self.group, self.version, self.resource, self.kind, self.direction, self.has_status
        )

    def problems(self) -> Iterator[str]:
        if not names.is_pod_name(self.group):
            yield f"group: expected a DNS name, got {self.group!r}"
        for key, value in (("version", self.version), ("resource", self.resource)):
            if not names.is_dns_label(value):
                yield f"{key}: expected a DNS label, got {value!r}"


@dataclass(frozen=True, slots=True)
class PatrolConfig:
    interval_seconds: int = setting(
        PATROL_INTERVAL_S, minimum=1, maximum=86_400, doc="time between two comparisons of both sides"
    )


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    namespace: str = setting(minimum_length=1, doc="namespace of the replicas' Leases")
    name: str = setting(minimum_length=1, doc="what the Leases' names begin with")

    def problems(self) -> Iterator[str]:
        for key, value in (("namespace", self.namespace), ("name", self.name)):
            if not names.is_dns_label(value):
                yield f"{key}: expected a DNS label, got {value!r}"


@dataclass(frozen=True, slots=True)
class ShardingConfig:
    lease: LeaseConfig = setting(doc="the Leases by which replicas divide the tenants")


@dataclass(frozen=True, slots=True)
class PodsConfig:
    dns: PodDns = setting(
        PodDns.SYNCER, doc="`syncer` writes the tenant's DNS address into pods, `node` leaves it to dnsconfig"
    )
    required_plugins: tuple[str, ...] = setting(
        (), minimum_length=1, doc="NRI plugins without which no node starts a tenant's pod: vcnode's gate"
    )


@dataclass(frozen=True, slots=True)
class NetworksConfig:
    """Networks of tenants: those of type `flat` get a DNS server, others are their providers'."""

    enabled: bool = setting(True, doc="whether Networks are served in tenants that have their definition")
    installs_definition: bool = setting(
        False, doc="whether the CustomResourceDefinition is installed in tenants that lack it"
    )
    makes_default: bool = setting(True, doc="whether the `default` Network is made where there is none")
    image: str = setting(IMAGE, minimum_length=1, doc="CoreDNS, 1.11 or newer")
    upstream: tuple[str, ...] = setting(
        ("/etc/resolv.conf",), minimum_length=1, doc="resolvers of other names: addresses or files"
    )

    def settings(self, cluster_domain: str) -> NetworkSettings:
        """The settings for a tenant of this domain."""
        return NetworkSettings(
            cluster_domain=cluster_domain or DEFAULT_CLUSTER_DOMAIN,
            image=self.image,
            upstream=self.upstream,
            installs_crd=self.installs_definition,
            makes_default=self.makes_default,
        )


@dataclass(frozen=True, slots=True)
class SyncerConfiguration:
    tenants: TenantsConfig = setting(doc="where tenants come from")
    super_cluster: SuperClusterAccess = field(default_factory=SuperClusterAccess)
    vn_agent: VnAgentConfig = field(default_factory=VnAgentConfig)
    resources: tuple[str, ...] = setting((), minimum_length=1, doc="kinds to sync beyond the default set")
    custom_resources: tuple[CustomResourceConfig, ...] = setting((), doc="custom resources to sync")
    opaque_meta_domains: tuple[str, ...] = setting(
        ("kubernetes.io", "k8s.io"), minimum_length=1, doc="domains of keys that stay on their side"
    )
    pods: PodsConfig = field(default_factory=PodsConfig)
    networks: NetworksConfig = field(default_factory=NetworksConfig)
    max_memory_bytes: int | None = setting(
        None,
        minimum=MIN_LIMIT_BYTES,
        maximum=1 << 40,
        doc="what the process may take; none: the limit of its cgroup, or 1 GiB if that has none",
    )
    patrol: PatrolConfig = field(default_factory=PatrolConfig)
    sharding: ShardingConfig | None = setting(None, doc="replicas; without it one process, alone")
    status: StatusConfig = field(default_factory=StatusConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    metrics: ScrapeConfig = field(default_factory=ScrapeConfig)

    @property
    def settings(self) -> SyncSettings:
        return SyncSettings(
            opaque_domains=self.opaque_meta_domains,
            pod_dns=self.pods.dns,
            required_plugins=self.pods.required_plugins,
            custom_resources=tuple(each.kind for each in self.custom_resources),
            hides_nodes=self.vn_agent.address is not AgentAddress.NODE,
        )

    def directories(self) -> Iterator[tuple[str, Path]]:
        """The directories that `--check-config` examines."""
        yield from self.status.directories()

    def problems(self) -> Iterator[str]:
        known = table.optional_names()
        for each in self.resources:
            if each not in known:
                yield f"resources: expected some of {', '.join(sorted(known))}, got {each!r}"
        yield from binding.repeated("resources", self.resources)
        # A kind by two versions would be two kinds of the same objects.
        own = [each.kind for each in self.custom_resources]
        built_in = [each.kind.kind for each in table.kinds(known)]
        yield from binding.repeated(
            "customResources: kind", [*own, *(each for each in built_in if each in own)]
        )


def load(path: Path) -> SyncerConfiguration:
    """Read and check the file. Raises ConfigError with all problems."""
    return binding.load(path, SyncerConfiguration, kind=KIND)
