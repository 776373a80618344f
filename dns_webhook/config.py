# SPDX-License-Identifier: Apache-2.0
"""The webhook's configuration: `kind: DnsWebhookConfiguration`, one file, all errors at once."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from daemonkit.config import binding
from daemonkit.config.binding import setting
from daemonkit.config.status_config import StatusConfig
from dnsconfig.cluster.state import ResolverSettings
from dnsconfig.config import (
    CLUSTER_DOMAIN,
    RESOLV_CONF,
    SuperCluster,
    TenantDomain,
    is_address,
    resolver_problems,
)
from tenancy import names

KIND = "DnsWebhookConfiguration"


@dataclass(frozen=True, slots=True)
class Listen:
    """Where API servers send reviews, and the names that they use."""

    names: tuple[str, ...] = setting(doc="DNS names and addresses of the certificate")
    address: str = setting("0.0.0.0", doc="IP address that API servers dial")  # noqa: S104 - API servers ask from other machines
    port: int = setting(9443, minimum=0, maximum=65535, doc="0 takes any free one")

    def problems(self) -> Iterator[str]:
        if not self.names:
            yield "names: expected at least one, such as SERVICE.NAMESPACE.svc"
        for name in self.names:
            if not (names.is_pod_name(name) or is_address(name)):
                yield f"names: expected a DNS name or an address, got {name!r}"
        if not is_address(self.address):
            yield f"address: expected an address, got {self.address!r}"


@dataclass(frozen=True, slots=True)
class DnsWebhookConfiguration:
    super_cluster: SuperCluster
    listen: Listen
    state_directory: Path = setting(doc="where its authority and certificate are kept")
    cluster_domain: str = setting(
        CLUSTER_DOMAIN, doc="of tenants without a configured or VirtualCluster's one"
    )
    tenants: tuple[TenantDomain, ...] = setting((), doc="cluster domains of tenants")
    resolv_conf: str = setting(
        RESOLV_CONF, doc="a resolv.conf like all nodes', for its search list; empty: none"
    )
    status: StatusConfig = field(default_factory=StatusConfig)
    plain_kube_dns: bool = setting(
        True, doc="whether Service kube-dns serves the default network where kube-dns-default is not there"
    )

    @property
    def resolver_settings(self) -> ResolverSettings:
        tenant_domains = {tenant.key: tenant.cluster_domain for tenant in self.tenants}
        return ResolverSettings(self.cluster_domain, tenant_domains, self.plain_kube_dns)

    def problems(self) -> Iterator[str]:
        yield from resolver_problems(self.cluster_domain, self.tenants, self.resolv_conf)


def load(path: Path) -> DnsWebhookConfiguration:
    """Read and check the file. Raises ConfigError with all problems."""
    return binding.load(path, DnsWebhookConfiguration, kind=KIND)
