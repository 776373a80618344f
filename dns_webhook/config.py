# SPDX-License-Identifier: Apache-2.0
"""The webhook's configuration: `kind: DnsWebhookConfiguration`, one file, all errors at once."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from daemonkit.config import binding
from daemonkit.config.binding import setting
from daemonkit.config.ip_addresses import is_address
from daemonkit.config.logging_config import LoggingConfig
from daemonkit.config.scrape_config import ScrapeConfig
from daemonkit.config.status_config import StatusConfig
from dnsconfig.config import ResolverConfig, SuperCluster
from tenancy import names

KIND = "DnsWebhookConfiguration"


@dataclass(frozen=True, slots=True)
class Listen:
    """Where API servers send reviews, and the names that they use."""

    names: tuple[str, ...] = setting(minimum_length=1, doc="DNS names and addresses of the certificate")
    address: str = setting("0.0.0.0", minimum_length=1, doc="IP address that API servers dial")  # noqa: S104 - API servers ask from other machines
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
class Serving:
    """A certificate that another program issues and renews, as cert-manager does."""

    certificate_file: Path = setting(doc="PEM, leaf first; its names are those by which API servers dial")
    key_file: Path = setting(doc="PEM, without a passphrase")


@dataclass(frozen=True, slots=True)
class DnsWebhookConfiguration(ResolverConfig):
    super_cluster: SuperCluster
    listen: Listen
    state_directory: Path | None = setting(
        None,
        doc="where its own authority and certificate are kept; needed, and used, without `serving` alone",
    )
    serving: Serving | None = setting(
        None, doc="a certificate that another program issues; then the webhook writes no registration"
    )
    status: StatusConfig = field(default_factory=StatusConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    metrics: ScrapeConfig = field(default_factory=ScrapeConfig)

    def problems(self) -> Iterator[str]:
        yield from ResolverConfig.problems(self)
        if self.state_directory is None and self.serving is None:
            yield "expected stateDirectory or serving"


def load(path: Path) -> DnsWebhookConfiguration:
    """Read and check the file. Raises ConfigError with all problems."""
    return binding.load(path, DnsWebhookConfiguration, kind=KIND)
