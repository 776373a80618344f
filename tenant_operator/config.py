# SPDX-License-Identifier: Apache-2.0
"""vc-operator's configuration: `kind: OperatorConfiguration`, one file, all errors at once."""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from daemonkit.config import binding
from daemonkit.config.binding import setting
from daemonkit.config.logging_config import LoggingConfig
from daemonkit.config.scrape_config import ScrapeConfig
from daemonkit.config.status_config import StatusConfig
from tenancy import names
from tenant_operator.model.names import ETCD_PORT

KIND = "OperatorConfiguration"
NAMESPACE = "vcnode-system"


@dataclass(frozen=True, slots=True)
class SuperClusterSettings:
    kubeconfig_file: Path | None = setting(
        None, doc="of the super cluster's API server; without it the pod's service account"
    )
    service_cidrs: tuple[str, ...] = setting(
        (), minimum_length=1, doc="of its Services, which no tenant's range may overlap"
    )
    pod_cidrs: tuple[str, ...] = setting((), minimum_length=1, doc="of its pods")
    node_cidrs: tuple[str, ...] = setting(
        (), minimum_length=1, doc="of its nodes: where a tenant's API server may reach vn-agent"
    )

    def problems(self) -> Iterator[str]:
        for key, cidrs in (
            ("serviceCidrs", self.service_cidrs),
            ("podCidrs", self.pod_cidrs),
            ("nodeCidrs", self.node_cidrs),
        ):
            yield from _network_problems(key, cidrs)


def _network_problems(key: str, cidrs: tuple[str, ...]) -> Iterator[str]:
    for cidr in cidrs:
        try:
            ipaddress.ip_network(cidr)
        except ValueError:
            yield f"{key}: expected a network such as 10.96.0.0/16, got {cidr!r}"


@dataclass(frozen=True, slots=True)
class FenceConfig:
    """Whom a control plane reaches, and who reaches it, beyond what each needs: none by default."""

    dns_cidrs: tuple[str, ...] = setting(
        (),
        minimum_length=1,
        doc="of DNS servers that are no pods of kube-system, such as a cache on each node",
    )
    client_cidrs: tuple[str, ...] = setting(
        (),
        minimum_length=1,
        doc="of clients outside of the super cluster that reach tenants' API servers by their cluster IPs",
    )
    store_cidrs: tuple[str, ...] = setting(
        (), minimum_length=1, doc="of shared datastores: the servers of kine-postgresql and shared-etcd"
    )

    def problems(self) -> Iterator[str]:
        yield from _network_problems("dnsCidrs", self.dns_cidrs)
        yield from _network_problems("clientCidrs", self.client_cidrs)
        yield from _network_problems("storeCidrs", self.store_cidrs)


@dataclass(frozen=True, slots=True)
class SharedEtcdConfig:
    """The etcd of ClusterVersions with `datastore.type: shared-etcd`."""

    endpoints: tuple[str, ...] = setting(minimum_length=1, doc="URLs of its members: https://HOST:2379")

    def problems(self) -> Iterator[str]:
        if not self.endpoints:
            yield "endpoints: expected at least one"
        for each in self.endpoints:
            try:
                url = urlsplit(each)
                is_usable = (url.scheme, url.port, url.path) == ("https", ETCD_PORT, "") and url.hostname
            except ValueError:
                is_usable = None
            if not is_usable:
                # The fence opens this port alone.
                yield f"endpoints: expected a URL such as https://192.0.2.7:{ETCD_PORT}, got {each!r}"


@dataclass(frozen=True, slots=True)
class NodesConfig:
    """vn-agent on the nodes, as tenants' API servers dial it."""

    serving_ca_file: Path = setting(
        doc="authority of vn-agent's serving certificates: tenants' API servers verify nodes by it"
    )
    port: int = setting(10550, minimum=1, maximum=65535, doc="vn-agent's port on each node")


@dataclass(frozen=True, slots=True)
class LeaderElectionConfig:
    namespace: str = setting(NAMESPACE, minimum_length=1, doc="namespace of the Lease")
    name: str = setting("vc-operator", minimum_length=1, doc="name of the Lease")

    def problems(self) -> Iterator[str]:
        for key, value in (("namespace", self.namespace), ("name", self.name)):
            if not names.is_dns_label(value):
                yield f"{key}: expected a DNS label, got {value!r}"


@dataclass(frozen=True, slots=True)
class OperatorConfiguration:
    nodes: NodesConfig = setting(doc="vn-agent on the nodes")
    super_cluster: SuperClusterSettings = field(default_factory=SuperClusterSettings)
    fence: FenceConfig = field(default_factory=FenceConfig)
    shared_etcd: SharedEtcdConfig | None = setting(
        None, doc="an etcd that tenants share; without it no ClusterVersion can have shared-etcd"
    )
    max_rolling: int = setting(
        5, minimum=1, maximum=100_000, doc="tenants whose control planes get other pods at a time"
    )
    max_starting: int = setting(
        4,
        minimum=1,
        maximum=100_000,
        doc="control planes that start at a time: new ones, and those that wake",
    )
    namespace: str = setting(
        NAMESPACE, minimum_length=1, doc="namespace of ConfigMaps and Secrets that ClusterVersions name"
    )
    leader_election: LeaderElectionConfig | None = setting(
        None, doc="Lease by which one of several replicas works; without it a single process works"
    )
    status: StatusConfig = field(default_factory=StatusConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    metrics: ScrapeConfig = field(default_factory=ScrapeConfig)

    def problems(self) -> Iterator[str]:
        if self.shared_etcd is not None and not self.fence.store_cidrs:
            yield "fence.storeCidrs: required with sharedEtcd: API servers reach nothing that is not in it"

    def directories(self) -> Iterator[tuple[str, Path]]:
        """The directories that `--check-config` examines."""
        yield from self.status.directories()


def load(path: Path) -> OperatorConfiguration:
    """Read and check the file. Raises ConfigError with all problems."""
    return binding.load(path, OperatorConfiguration, kind=KIND)
