# SPDX-License-Identifier: Apache-2.0
"""vn-agent's configuration: `kind: VnAgentConfiguration`, one file, all errors at once."""

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from daemonkit.config import binding
from daemonkit.config.binding import setting
from daemonkit.config.ip_addresses import is_address
from daemonkit.config.logging_config import LoggingConfig
from daemonkit.config.scrape_config import ScrapeConfig
from daemonkit.config.status_config import StatusConfig
from tenancy.names import is_pod_name
from vnagent.core.limits import Limits

KIND = "VnAgentConfiguration"
DEFAULT_PORT = 10550
KUBELET_PORT = 10250
# systemd passes 64 listening sockets to a process (daemonkit/run/service_manager.py), one for certificates.
MAX_TOKEN_LISTENERS = 63
# vcnode's own containers in tenants' pods (packaging/guest/sidecar.yaml). An exec into one could read
# its certificate: no tenant may have one, whatever else is configured.
OWN_CONTAINERS = frozenset({"vcnode-guest-agent"})

# SPIFFE-ID, 2.1.
_TRUST_DOMAIN = re.compile(r"[a-z0-9._-]{1,255}")


@dataclass(frozen=True, slots=True)
class Listen:
    """Where tenants' apiservers connect."""

    address: str = setting("0.0.0.0", minimum_length=1, doc="IP address that tenants' apiservers dial")  # noqa: S104 - it serves a network
    port: int = setting(DEFAULT_PORT, minimum=0, maximum=65535, doc="0 takes any; /status tells which")

    def problems(self) -> Iterator[str]:
        if not is_address(self.address):
            yield f"address: expected an IP address, got {self.address!r}"


@dataclass(frozen=True, slots=True)
class Serving:
    """The certificate that tenants' apiservers verify; SAN = every address that a vNode shows."""

    certificate_file: Path = setting(doc="PEM, leaf first; its names are all addresses that vNodes show")
    key_file: Path = setting(doc="PEM, without a passphrase")


@dataclass(frozen=True, slots=True)
class Kubelet:
    """The node's kubelet and vn-agent's least-privilege credential for it."""

    ca_file: Path = setting(doc="PEM of the authority of the kubelet's serving certificate")
    client_certificate_file: Path = setting(doc="PEM of vn-agent's client certificate for this kubelet")
    client_key_file: Path = setting(doc="PEM, without a passphrase")
    address: str = setting("127.0.0.1", minimum_length=1, doc="IP address of the kubelet, or localhost")
    port: int = setting(KUBELET_PORT, minimum=1, maximum=65535, doc="of the kubelet's HTTPS API")
    server_name: str | None = setting(
        None,
        minimum_length=1,
        doc="name in the kubelet's certificate; default: the address. Prefer a DNS name: a kubelet shows a"
        " renewed certificate only to clients that name it (SNI)",
    )

    def problems(self) -> Iterator[str]:
        # A name would have to be resolved at each dial, and nothing else could be served meanwhile.
        if not is_address(self.address) and self.address != "localhost":
            yield f"address: expected an IP address, got {self.address!r}"
        name = self.server_name
        if name is not None and not is_address(name) and not is_pod_name(name.lower()):
            yield f"serverName: expected a DNS name or an IP address, got {name!r}"


@dataclass(frozen=True, slots=True)
class SuperApiserver:
    """The super cluster's API server, for nodes that hide their kubelet. It asks the kubelet then."""

    kubeconfig_file: Path = setting(
        doc="server, CA and credential of vn-agent; packaging/rbac/options/vn-agent-apiserver*.yaml"
    )


@dataclass(frozen=True, slots=True)
class Tenants:
    """Where tenants come from: files in a directory, or VirtualCluster objects."""

    directory: Path | None = setting(None, doc="of Tenant files, as `vcnode tenant add` writes them")
    kubeconfig_file: Path | None = setting(None, doc="of the cluster that has VirtualCluster objects")

    def problems(self) -> Iterator[str]:
        if (self.directory is None) == (self.kubeconfig_file is None):
            yield "directory: give exactly one of directory and kubeconfigFile"


class PodSource(enum.Enum):
    KUBELET = "kubelet"
    SUPER_CLUSTER = "superCluster"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Pods:
    """Where the node's pods and their owners come from."""

    source: PodSource = setting(PodSource.KUBELET, doc="where the node's pods are read")
    file: Path | None = setting(None, doc="a v1 PodList, for source: file")
    kubeconfig_file: Path | None = setting(None, doc="for source: superCluster; default: that of tenants")
    interval_seconds: float = setting(
        5.0,
        minimum=0.2,
        maximum=300.0,
        doc="between reads of the kubelet's /pods; a request for an unknown name causes a read sooner",
    )
    trust_containers_annotation: bool = setting(
        False, doc="trust vcnode.io/containers; only where the syncer owns that key"
    )

    @property
    def is_read_on_demand(self) -> bool:
        """Whether the pods can be read for a request."""
        return self.source is PodSource.KUBELET

    def problems(self) -> Iterator[str]:
        if (self.source is PodSource.FILE) != (self.file is not None):
            yield "file: goes with source: file, and only with it"


@dataclass(frozen=True, slots=True)
class Audit:
    """The log of what was served and refused."""

    file: Path = setting(Path("-"), doc="path of the audit log, JSON lines; - is stderr; reopened at SIGHUP")
    required: bool = setting(
        True, doc="refuse exec, attach and portForward (503) while their lines cannot be kept"
    )

    @property
    def path(self) -> Path | None:
        """The file, or None for stderr."""
        return None if self.file.name == "-" else self.file


class NodeFigures(enum.Enum):
    OWN_PODS = "ownPods"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class Pages:
    """The kubelet's pages, in each tenant's part."""

    max_age_seconds: float = setting(
        2.0, minimum=0.0, maximum=60.0, doc="tenants share one read of a kubelet page for so long; 0: never"
    )
    node_figures: NodeFigures = setting(
        NodeFigures.OWN_PODS,
        doc="what a vNode's processor time and memory are: sums over the tenant's own pods, or the node's,"
        " which show what its neighbours use",
    )


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """Per tenant; 0 means none. README.md has the reason for each default."""

    connections_per_tenant: int = setting(1024, minimum=0, doc="open connections; 0: no limit")
    tunnels_per_tenant: int = setting(1024, minimum=0, doc="exec, attach and portForward; 0: no limit")
    requests_per_second_per_tenant: int = setting(
        1000, minimum=0, doc="above it requests are queued, some answered 429; 0: no limit"
    )
    buffered_bytes_per_tenant: int = setting(
        64 << 20,
        minimum=0,
        doc="unread bytes of the tenant's clients above which its sources are paused; 0: no limit",
    )
    log_follows_per_tenant: int = setting(64, minimum=0, doc="logs followed at once; 0: no limit")

    def limits(self) -> Limits:
        """The same, as decisions take them."""
        return Limits(
            self.connections_per_tenant,
            self.tunnels_per_tenant,
            self.requests_per_second_per_tenant,
            self.buffered_bytes_per_tenant,
            self.log_follows_per_tenant,
        )


@dataclass(frozen=True, slots=True)
class Spiffe:
    """Accept leaves of the super cluster's own authority that name the tenant in a URI."""

    ca_file: Path = setting(doc="PEM of the authority that signs them")
    trust_domain: str = setting(minimum_length=1, doc="as in spiffe://TRUST-DOMAIN/tenant/KEY/apiserver")

    def problems(self) -> Iterator[str]:
        if _TRUST_DOMAIN.fullmatch(self.trust_domain) is None:
            yield "trustDomain: lower-case letters, digits, dots, dashes and underscores, no scheme or path"


@dataclass(frozen=True, slots=True)
class TokenListener:
    """A port on which one tenant's scrapers show a bearer token, and no certificate."""

    tenant: str = setting(minimum_length=1, doc="key of the tenant, whose pages the port serves")
    port: int = setting(minimum=1, maximum=65535, doc="of this tenant alone, on listen.address")
    issuer: str = setting(minimum_length=1, doc="iss of its tokens: the tenant's --service-account-issuer")
    audience: str = setting(minimum_length=1, doc="one that aud has; not that of the tenant's API server")
    jwks_file: Path = setting(doc="keys of the issuer: kubectl get --raw /openid/v1/jwks")
    subjects: tuple[str, ...] = setting(
        minimum_length=1, doc="sub of its tokens, such as system:serviceaccount:NAMESPACE:NAME"
    )

    def problems(self) -> Iterator[str]:
        if not self.subjects:
            yield "subjects: expected at least one"


@dataclass(frozen=True, slots=True)
class Drain:
    """The end of the daemon."""

    seconds: float = setting(
        10.0, minimum=0.0, maximum=3600.0, doc="how long open streams go on after SIGTERM"
    )


@dataclass(frozen=True, slots=True)
class VnAgentConfiguration:
    """The whole file."""

    node_name: str = setting(minimum_length=1, doc="name of the Node that this daemon runs on")
    serving: Serving = setting(doc="the certificate that tenants' apiservers verify")
    tenants: Tenants = setting(doc="where tenants come from: one of the two")
    kubelet: Kubelet | None = setting(None, doc="the node's kubelet, and the credential for it")
    super_apiserver: SuperApiserver | None = setting(
        None, doc="instead of kubelet: the super cluster's API server, where a node hides its kubelet"
    )
    listen: Listen = field(default_factory=Listen)
    pods: Pods = field(default_factory=Pods)
    injected_containers: tuple[str, ...] = setting(
        (),
        doc="names of containers that the super cluster adds to tenants' pods; vcnode-guest-agent is always"
        " one",
    )
    state_directory: Path | None = setting(None, doc="of the last good state, mode 0700")
    audit: Audit = field(default_factory=Audit)
    status: StatusConfig = field(default_factory=StatusConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    metrics: ScrapeConfig = field(default_factory=ScrapeConfig)
    pages: Pages = field(default_factory=Pages)
    limits: TenantLimits = field(default_factory=TenantLimits)
    spiffe: Spiffe | None = setting(None, doc="accept client certificates that name the tenant in a URI")
    token_listeners: tuple[TokenListener, ...] = setting(
        (), doc="ports for scrapers with bearer tokens; off by default"
    )
    drain: Drain = field(default_factory=Drain)
    workers: int = setting(
        1,
        minimum=1,
        maximum=64,
        doc="processes that serve connections; above 1 they are beside the main process, on a core each",
    )

    def directories(self) -> Iterator[tuple[str, Path]]:
        """The directories of vn-agent's files, for `--check-config`."""
        if self.state_directory is not None:
            yield "stateDirectory", self.state_directory
        yield from self.status.directories()

    def problems(self) -> Iterator[str]:
        # Node names follow the same rules as the names of pods: RFC 1123 subdomains.
        if not is_pod_name(self.node_name):
            yield f"nodeName: expected the name of a node, got {self.node_name!r}"
        if len(self.token_listeners) > MAX_TOKEN_LISTENERS:
            yield f"tokenListeners: more than {MAX_TOKEN_LISTENERS}"
        ports = [self.listen.port, *(each.port for each in self.token_listeners)]
        for port in sorted({each for each in ports if ports.count(each) > 1}):
            yield f"tokenListeners: port {port} is used more than once; listen.port counts too"
        if (self.kubelet is None) == (self.super_apiserver is None):
            yield "kubelet: give exactly one of kubelet and superApiserver"
        is_watched = self.pods.source is PodSource.SUPER_CLUSTER
        if is_watched and self.pods_kubeconfig_file is None:
            yield "pods.kubeconfigFile: needed for source: superCluster"

    @property
    def foreign_containers(self) -> frozenset[str]:
        """The names of containers in tenants' pods that are not the tenants'."""
        return OWN_CONTAINERS.union(self.injected_containers)

    @property
    def pods_kubeconfig_file(self) -> Path | None:
        return self.pods.kubeconfig_file or self.tenants.kubeconfig_file


def load(path: Path) -> VnAgentConfiguration:
    """Read and check the file. Raises ConfigError with everything that is wrong."""
    return binding.load(path, VnAgentConfiguration, kind=KIND)
