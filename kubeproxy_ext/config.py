# SPDX-License-Identifier: Apache-2.0
"""kubeproxy-ext's configuration: `kind: KubeproxyExtConfiguration`."""

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from daemonkit.config import binding
from daemonkit.config.binding import setting
from daemonkit.config.logging_config import LoggingConfig
from daemonkit.config.scrape_config import ScrapeConfig
from daemonkit.config.status_config import StatusConfig
from daemonkit.kube.relist_guard import RelistGuardSettings
from kubeproxy_ext.compute import rules_probe
from kubeproxy_ext.compute.addresses import canonical_cidr, canonical_ip, family_of
from ruleset.model import Family
from tenancy import names

KIND = "KubeproxyExtConfiguration"
BRIDGE_SOCKET = Path("/run/vcnode/kata-bridge.sock")


@dataclass(frozen=True, slots=True)
class SuperClusterConfig:
    """The cluster that has the Services."""

    kubeconfig_file: Path = setting(doc="of the super cluster's API server, with this daemon's rights")


@dataclass(frozen=True, slots=True)
class BridgeConfig:
    socket: Path = setting(BRIDGE_SOCKET, doc="kata-bridge's unix socket: its `listen.socket`")


@dataclass(frozen=True, slots=True)
class TenantRanges:
    """The service CIDRs of one tenant's control plane; else its root namespace's annotation counts."""

    key: str = setting(minimum_length=1, doc="the tenant's cluster key")
    service_cidrs: tuple[str, ...] = setting(
        key="serviceCIDRs", minimum_length=1, doc="`--service-cluster-ip-range` of its API server"
    )

    def problems(self) -> Iterator[str]:
        refused = names.check_key(self.key)
        if refused is not None:
            yield f"key: {refused.reason}"
        yield from _bad_cidrs(self.service_cidrs)


@dataclass(frozen=True, slots=True)
class RulesProbeSettings:
    """Reserved addresses that lead a guest to its own loopback while a ruleset is applied."""

    ipv4_address: str | None = setting(
        None, key="ipv4Address", minimum_length=1, doc="an address that nothing else has"
    )
    ipv6_address: str | None = setting(
        None, key="ipv6Address", minimum_length=1, doc="an address that nothing else has"
    )
    port: int = setting(
        10561, minimum=1, maximum=65535, doc="the port of the address, and of the listener in the guest"
    )

    def problems(self) -> Iterator[str]:
        if self.ipv4_address is None and self.ipv6_address is None:
            yield "ipv4Address: give at least one of ipv4Address and ipv6Address"
        for name, address, family in (
            ("ipv4Address", self.ipv4_address, Family.IPV4),
            ("ipv6Address", self.ipv6_address, Family.IPV6),
        ):
            if address is not None and (canonical_ip(address) != address or family_of(address) is not family):
                yield f"{name}: expected a canonical address of this family, got {address!r}"

    def value(self) -> rules_probe.RulesProbe:
        """As the pure packages have it."""
        return rules_probe.RulesProbe(self.ipv4_address, self.ipv6_address, self.port)


class LastKnownPolicy(enum.Enum):
    """What a new guest gets while its tenant has not synced."""

    APPLY = "apply"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class KubeproxyExtConfiguration(RelistGuardSettings):
    node_name: str = setting(minimum_length=1, doc="name of the Node that this daemon runs on")
    super_cluster: SuperClusterConfig = setting(doc="where the objects are read")
    bridge: BridgeConfig = field(default_factory=BridgeConfig)
    service_cidrs: tuple[str, ...] = setting(
        (),
        key="serviceCIDRs",
        minimum_length=1,
        doc="the super cluster's service ranges; addresses in them that no Service has are rejected",
    )
    tenants: tuple[TenantRanges, ...] = setting((), doc="the service ranges of tenants' control planes")
    last_known: LastKnownPolicy = setting(
        LastKnownPolicy.APPLY,
        doc="what new guests get while their tenant has not synced: saved Services, or nothing",
    )
    state_directory: Path | None = setting(None, doc="where the saved state is; without it new guests wait")
    status: StatusConfig = field(default_factory=StatusConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    metrics: ScrapeConfig = field(default_factory=ScrapeConfig)
    rules_probe: RulesProbeSettings | None = setting(
        None, key="canary", doc="the rules probe, for init containers that wait for a ruleset"
    )

    def directories(self) -> Iterator[tuple[str, Path]]:
        """The directories that `--check-config` checks."""
        if self.state_directory is not None:
            yield "stateDirectory", self.state_directory
        yield from self.status.directories()

    def problems(self) -> Iterator[str]:
        # Node names and pod names follow the same rule: RFC 1123 subdomains.
        if not names.is_pod_name(self.node_name):
            yield f"nodeName: expected the name of a node, got {self.node_name!r}"
        yield from _bad_cidrs(self.service_cidrs)
        yield from binding.repeated("tenants", (tenant.key for tenant in self.tenants))


def _bad_cidrs(cidrs: tuple[str, ...]) -> Iterator[str]:
    for cidr in cidrs:
        if canonical_cidr(cidr) is None:
            yield f"serviceCIDRs: expected an address range, got {cidr!r}"


def load(path: Path) -> KubeproxyExtConfiguration:
    """Read and check the file. Raises ConfigError with everything that is wrong."""
    return binding.load(path, KubeproxyExtConfiguration, kind=KIND)
