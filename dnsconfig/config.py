# SPDX-License-Identifier: Apache-2.0
"""dnsconfig's configuration: `kind: DnsConfigConfiguration`, one file, all errors at once."""

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from daemonkit.config import binding
from daemonkit.config.binding import setting
from daemonkit.config.ip_addresses import is_address
from daemonkit.config.logging_config import LoggingConfig
from daemonkit.config.scrape_config import ScrapeConfig
from daemonkit.config.status_config import StatusConfig
from daemonkit.kube.relist_guard import RelistGuardSettings
from dnsconfig.cluster.state import ResolverSettings
from tenancy import names

KIND = "DnsConfigConfiguration"
BRIDGE_SOCKET = Path("/run/vcnode/kata-bridge.sock")
# The kubelet's own default (--resolv-conf).
RESOLV_CONF = "/etc/resolv.conf"
CLUSTER_DOMAIN = "cluster.local"


@dataclass(frozen=True, slots=True)
class SuperCluster:
    """The cluster that has the pods, Networks and Services."""

    kubeconfig_file: Path = setting(doc="of the super cluster's API server, with this daemon's rights")
    has_virtual_clusters: bool = setting(
        True, doc="whether VirtualClusters are watched where they are installed, for cluster domains"
    )


@dataclass(frozen=True, slots=True)
class BridgeConfig:
    socket: Path = setting(BRIDGE_SOCKET, doc="kata-bridge's unix socket: its `listen.socket`")


@dataclass(frozen=True, slots=True)
class TenantDomain:
    """The cluster domain of one tenant, which replaces its VirtualCluster's."""

    key: str = setting(minimum_length=1, doc="the tenant's cluster key")
    cluster_domain: str = setting(minimum_length=1, doc="its DNS domain")

    def problems(self) -> Iterator[str]:
        refused = names.check_key(self.key)
        if refused is not None:
            yield f"key: {refused.reason}"
        yield from _domain_problems(self.cluster_domain)


# Without slots: a class has one base with slots, and DnsConfigConfiguration has RelistGuardSettings.
@dataclass(frozen=True, kw_only=True)
class ResolverConfig:
    """The keys that decide the texts of resolvers, shared by dnsconfig and its webhook.

    A key of only one of the two is a field of that one's configuration.
    """

    cluster_domain: str = setting(
        CLUSTER_DOMAIN, minimum_length=1, doc="of tenants without a configured or VirtualCluster's one"
    )
    tenants: tuple[TenantDomain, ...] = setting((), doc="cluster domains of tenants")
    resolv_conf: str = setting(
        RESOLV_CONF,
        doc="the kubelet's resolvConf: the node's own resolver, to the webhook its search list; empty: none",
    )
    plain_kube_dns: bool = setting(
        True, doc="whether Service kube-dns serves the default network where kube-dns-default is not there"
    )

    @property
    def resolver_settings(self) -> ResolverSettings:
        tenant_domains = {tenant.key: tenant.cluster_domain for tenant in self.tenants}
        return ResolverSettings(self.cluster_domain, tenant_domains, self.plain_kube_dns)

    def problems(self) -> Iterator[str]:
        yield from _domain_problems(self.cluster_domain)
        if self.resolv_conf and not self.resolv_conf.startswith("/"):
            yield f"resolvConf: expected an absolute path or nothing, got {self.resolv_conf!r}"
        yield from binding.repeated("tenants", (tenant.key for tenant in self.tenants))


class LastKnownPolicy(enum.Enum):
    """What decides while the API server is not synced after a start."""

    APPLY = "apply"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class DnsConfigConfiguration(RelistGuardSettings, ResolverConfig):
    node_name: str = setting(minimum_length=1, doc="name of the Node that this daemon runs on")
    super_cluster: SuperCluster = setting(doc="where the objects are read")
    bridge: BridgeConfig = field(default_factory=BridgeConfig)
    node_ips: tuple[str, ...] = setting(
        (), key="nodeIPs", minimum_length=1, doc="the kubelet's --node-ip, if set"
    )
    last_known: LastKnownPolicy = setting(
        LastKnownPolicy.APPLY, doc="while the API server is away after a start: use what is saved, or wait"
    )
    state_directory: Path | None = setting(None, doc="where the last known state is kept")
    events: bool = setting(
        True, doc="whether Events are posted: about truncated lists and pods that are too large"
    )
    status: StatusConfig = field(default_factory=StatusConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    metrics: ScrapeConfig = field(default_factory=ScrapeConfig)

    def directories(self) -> Iterator[tuple[str, Path]]:
        """The directories that `--check-config` examines."""
        if self.state_directory is not None:
            yield "stateDirectory", self.state_directory
        yield from self.status.directories()

    def problems(self) -> Iterator[str]:
        # Node names follow the same rules as the names of pods: RFC 1123 subdomains.
        if not names.is_pod_name(self.node_name):
            yield f"nodeName: expected the name of a node, got {self.node_name!r}"
        yield from ResolverConfig.problems(self)
        for ip in self.node_ips:
            if not is_address(ip):
                yield f"nodeIPs: expected an address, got {ip!r}"


def _domain_problems(text: str) -> Iterator[str]:
    if not names.is_pod_name(text):
        yield f"clusterDomain: expected a domain, got {text!r}"


def load(path: Path) -> DnsConfigConfiguration:
    """Read and check the file. Raises ConfigError with all problems."""
    return binding.load(path, DnsConfigConfiguration, kind=KIND)
