# SPDX-License-Identifier: Apache-2.0
"""What `vcnode init` gives a node: certificates, kubeconfigs, configurations and rights of its daemons.

All that names a daemon's identity on a node stands here: README.md's table, packaging/rbac and examples/
have the same names.
"""

import enum
import hashlib
import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tenancy.names import is_pod_name
from vcnode.terminal import ToolError

CONFIGURATION = "/etc/vcnode"
PKI = f"{CONFIGURATION}/pki"
SCRAPERS_CA = "scrapers-ca.crt"
# Before each of our files: without edits the digest is that of the rest.
_HEADER = "# Written by vcnode init; digest {digest}. After an edit, vcnode init leaves this file as it is.\n"
_HEADER_LINE = re.compile(r"# Written by vcnode init; digest ([0-9a-f]{16})\.[^\n]{0,100}\n")
# The node of packaging/rbac.
_EXAMPLE_NODE = "node-1"
_AGENT_PORT = 10550
_VSOCK_PORT = 1033
# How vn-agent may know tenants.
TENANT_FILES, VIRTUAL_CLUSTERS = "files", "virtualclusters"
# Not with vn-agent's own rights: it reads Secrets of all tenants.
_TENANTS_RIGHTS = "options/vn-agent-tenants.yaml"
# RFC 5280, ub-common-name.
_MAX_SCRAPER_CHARS = 64

Values = Mapping[str, Any]


class NodeDaemon(enum.Enum):
    """The daemons that have an identity on a node."""

    VN_AGENT = "vn-agent"
    KATA_BRIDGE = "kata-bridge"
    KUBEPROXY_EXT = "kubeproxy-ext"
    DNSCONFIG = "dnsconfig"
    VC_SYNCER = "vc-syncer"
    VC_OPERATOR = "vc-operator"

    @property
    def user(self) -> str:
        """Who runs it, and owns its keys."""
        return "root" if self is NodeDaemon.KATA_BRIDGE else self.value

    @property
    def metrics_port(self) -> int:
        """Where scrapers find it: docs/observability.md."""
        return _METRICS_PORTS[self]

    @property
    def has_address(self) -> bool:
        """Whether others connect to it at the node's address."""
        return self in (NodeDaemon.VN_AGENT, NodeDaemon.KATA_BRIDGE)

    @property
    def manifests(self) -> tuple[str, ...]:
        """Its files of packaging/rbac, in the order in which to apply them."""
        restricted = self in (NodeDaemon.KATA_BRIDGE, NodeDaemon.VC_SYNCER, NodeDaemon.VC_OPERATOR)
        return (*((f"{self.value}-policy.yaml",) if restricted else ()), f"{self.value}.yaml")


_METRICS_PORTS = {
    NodeDaemon.VN_AGENT: 10571,
    NodeDaemon.KATA_BRIDGE: 10572,
    NodeDaemon.KUBEPROXY_EXT: 10573,
    NodeDaemon.DNSCONFIG: 10574,
    NodeDaemon.VC_SYNCER: 10575,
    NodeDaemon.VC_OPERATOR: 10577,
}


class Signer(enum.Enum):
    """Who issues a certificate: by whom it is verified."""

    CLIENT = "client"
    """Client certificates for the super cluster's API server."""
    KUBELET_CLIENT = "kubelet-client"
    """Client certificates for the kubelet."""
    SERVING = "serving"
    """vn-agent's serving certificate, which tenants' apiservers verify."""
    METRICS = "metrics"
    """Certificates of scrapers, and of the listeners that they scrape."""


@dataclass(frozen=True, slots=True)
class CertificateSpec:
    """One certificate of one daemon, or of a scraper, which is no daemon of a node.

    `name` is its directory in a bundle and the name of its Secret.
    """

    name: str
    daemon: NodeDaemon | None
    stem: str
    signer: Signer
    common_name: str
    organization: str | None = None
    dns_names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    @property
    def is_serving(self) -> bool:
        return bool(self.dns_names or self.addresses)

    @property
    def user(self) -> str:
        """Who owns its key."""
        return "root" if self.daemon is None else self.daemon.user

    @property
    def certificate_path(self) -> str:
        return f"{self._directory}/{self.stem}.crt"

    @property
    def key_path(self) -> str:
        return f"{self._directory}/{self.stem}.key"

    @property
    def _directory(self) -> str:
        return self.name if self.daemon is None else f"{PKI}/{self.daemon.value}"


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What the operator says of a node.

    `server` is the URL of the super cluster's API server, `names` are further names and addresses of
    vn-agent's certificate, `scrapers` the names that may read metrics from other machines. With
    `virtual_clusters` vn-agent knows tenants by these objects of the super cluster, not by files.
    """

    node_name: str
    address: str
    server: str
    daemons: tuple[NodeDaemon, ...]
    names: tuple[str, ...] = ()
    service_cidrs: tuple[str, ...] = ()
    resolv_conf: str = "/etc/resolv.conf"
    scrapers: tuple[str, ...] = ()
    virtual_clusters: bool = False

    def has_kubeconfig(self, daemon: NodeDaemon) -> bool:
        """Whether the daemon asks the super cluster's API server."""
        return daemon is not NodeDaemon.VN_AGENT or self.virtual_clusters

    @property
    def needs_server(self) -> bool:
        """Whether one of its daemons asks the super cluster's API server."""
        return any(map(self.has_kubeconfig, self.daemons))

    @property
    def needs_address(self) -> bool:
        """Whether another machine connects to one of its daemons."""
        return bool(self.scrapers) or any(daemon.has_address for daemon in self.daemons)

    def problems(self) -> Iterator[str]:
        """What cannot be used, with the option that gave it."""
        # Node names follow the same rule as the names of pods: RFC 1123 subdomains.
        if not is_pod_name(self.node_name):
            yield f"--node-name: expected the name of a node, got {self.node_name!r}"
        address = _address(self.address)
        is_needed = bool(self.address) or self.needs_address
        if is_needed and (address is None or address.is_unspecified or address.is_loopback):
            yield f"--address: expected an IP address of the node, got {self.address!r}"
        for name in self.names:
            if _address(name) is None and not is_pod_name(name):
                yield f"--name: expected a DNS name or an IP address, got {name!r}"
        if self.needs_server and not _is_server(self.server):
            yield f"--server: expected https://HOST:PORT, got {self.server!r}"
        for cidr in self.service_cidrs:
            try:
                ipaddress.ip_network(cidr)
            except ValueError:
                yield f"--service-cidr: expected an address range, got {cidr!r}"
        if not self.resolv_conf.startswith("/") or not self.resolv_conf.isprintable():
            yield f"--resolv-conf: expected an absolute path, got {self.resolv_conf!r}"
        for each in self.scrapers:
            if not is_scraper(each):
                yield f"--scraper: expected at most {_MAX_SCRAPER_CHARS} printable characters, got {each!r}"
        if not self.daemons:
            yield "--daemons: expected at least one"

    def certificates(self) -> tuple[CertificateSpec, ...]:
        """The certificates of its daemons."""
        return tuple(spec for daemon in self.daemons for spec in self._certificates(daemon))

    def _certificates(self, daemon: NodeDaemon) -> Iterator[CertificateSpec]:
        user = f"vcnode:{daemon.value}:{self.node_name}"
        if self.scrapers:
            own = (self.node_name, self.address)
            yield self._serving(f"{daemon.value}-metrics", daemon, "metrics", Signer.METRICS, own)
        if daemon is NodeDaemon.VN_AGENT:
            names = (self.node_name, self.address, *self.names)
            yield self._serving("vn-agent-serving", daemon, "serving", Signer.SERVING, names)
            yield CertificateSpec(
                "vn-agent-kubelet-client", daemon, "kubelet-client", Signer.KUBELET_CLIENT, user
            )
        if self.has_kubeconfig(daemon):
            group = f"vcnode:{daemon.value}s"
            name = f"{daemon.value}-client"
            yield CertificateSpec(name, daemon, "client", Signer.CLIENT, user, group)

    def _serving(
        self, name: str, daemon: NodeDaemon, stem: str, signer: Signer, names: Sequence[str]
    ) -> CertificateSpec:
        once = dict.fromkeys(names)
        return CertificateSpec(
            name,
            daemon,
            stem,
            signer,
            self.node_name,
            dns_names=tuple(each for each in once if _address(each) is None),
            addresses=tuple(str(address) for each in once if (address := _address(each)) is not None),
        )

    def signers(self) -> frozenset[Signer]:
        return frozenset(spec.signer for spec in self.certificates())

    def manifests(self) -> tuple[str, ...]:
        """The files of packaging/rbac that the node's daemons need."""
        of_daemons = tuple(name for daemon in self.daemons for name in daemon.manifests)
        reads_tenants = self.virtual_clusters and NodeDaemon.VN_AGENT in self.daemons
        return (*of_daemons, _TENANTS_RIGHTS) if reads_tenants else of_daemons


def certificate_names() -> tuple[str, ...]:
    """The names of all certificates that a node may have."""
    every = NodeSettings(
        "node", "192.0.2.1", "https://host", tuple(NodeDaemon), scrapers=("any",), virtual_clusters=True
    )
    return tuple(spec.name for spec in every.certificates())


def scraper(name: str) -> CertificateSpec:
    """The client certificate of a scraper. `name` has been checked: `is_scraper`."""
    return CertificateSpec("scraper", None, "tls", Signer.METRICS, name)


def is_scraper(name: str) -> bool:
    """Whether a scraper's certificate may have this common name."""
    return 0 < len(name) <= _MAX_SCRAPER_CHARS and name.isascii() and name.isprintable()


# What has its default is left out: earlier versions read the file if no newer setting is used.
class _SavedSettings(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    node_name: str
    address: str
    server: str = ""
    daemons: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    service_cidrs: tuple[str, ...] = ()
    resolv_conf: str = "/etc/resolv.conf"
    scrapers: tuple[str, ...] = ()
    virtual_clusters: bool = False


def settings_json(node: NodeSettings) -> bytes:
    """The node for a bundle; `read_settings` reads it."""
    saved = _SavedSettings(
        node.node_name,
        node.address,
        node.server,
        tuple(daemon.value for daemon in node.daemons),
        node.names,
        node.service_cidrs,
        node.resolv_conf,
        node.scrapers,
        node.virtual_clusters,
    )
    return msgspec.json.format(msgspec.json.encode(saved)) + b"\n"


def read_settings(data: bytes) -> dict[str, Any]:
    """The arguments of `NodeSettings` that a bundle has. Raises ToolError; values are not checked."""
    try:
        saved = msgspec.json.decode(data, type=_SavedSettings)
        daemons = daemons_of(saved.daemons)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
        raise ToolError("the bundle's node.json is not one of vcnode init bundle") from None
    return {**{name: getattr(saved, name) for name in _SavedSettings.__struct_fields__}, "daemons": daemons}


def manifest(text: str, node_name: str) -> str:
    """A file of packaging/rbac for one node. `node_name` has been checked."""
    return text.replace(_EXAMPLE_NODE, node_name)


def kubeconfig(daemon: NodeDaemon, node: NodeSettings) -> str:
    """/etc/vcnode/DAEMON.kubeconfig, as examples/kubeconfig.yaml: paths count from its directory."""
    name = daemon.value
    own = f"pki/{name}/client"
    return f"""\
apiVersion: v1
kind: Config
clusters:
  - name: super
    cluster: {{server: "{node.server}", certificate-authority: pki/super-ca.crt}}
users:
  - name: {name}
    user: {{client-certificate: {own}.crt, client-key: {own}.key}}
contexts:
  - name: super
    context: {{cluster: super, user: {name}}}
current-context: super
"""


def configuration(daemon: NodeDaemon, node: NodeSettings) -> Values:
    """The keys that are set in /etc/vcnode/DAEMON.yaml; all others have their defaults."""
    own = _configuration(daemon, node)
    return {**own, "metrics": _metrics(daemon, node)} if node.scrapers else own


def _metrics(daemon: NodeDaemon, node: NodeSettings) -> Values:
    directory = f"{PKI}/{daemon.value}"
    return {
        "address": node.address,
        "port": daemon.metrics_port,
        "certificateFile": f"{directory}/metrics.crt",
        "keyFile": f"{directory}/metrics.key",
        "clientCAFile": f"{PKI}/{SCRAPERS_CA}",
        "clientNames": list(node.scrapers),
    }


def _configuration(daemon: NodeDaemon, node: NodeSettings) -> Values:
    name = daemon.value
    shared: dict[str, Any] = {
        "stateDirectory": f"/var/lib/vcnode/{name}",
        "status": {"socket": f"/run/vcnode/{name}/status.sock"},
    }
    kubeconfig_file = f"{CONFIGURATION}/{name}.kubeconfig"
    if daemon is NodeDaemon.VN_AGENT:
        return {**_vn_agent(node), **shared}
    if daemon is NodeDaemon.KATA_BRIDGE:
        return {
            **shared,
            "status": {"socket": "/run/vcnode/kata-bridge-status.sock"},
            "listen": {"group": "vcnode"},
            "sandboxes": {"nri": {}, "cri": {}},
            "agent": {"vsockPort": _VSOCK_PORT, "address": node.address},
            "gate": {
                "policy": "enforce",
                "superCluster": {"kubeconfigFile": kubeconfig_file, "nodeName": node.node_name},
            },
        }
    if daemon is NodeDaemon.VC_SYNCER:
        return {
            "superCluster": {"kubeconfigFile": kubeconfig_file},
            "tenants": {"virtualClusters": {}},
            "status": shared["status"],
        }
    if daemon is NodeDaemon.VC_OPERATOR:
        return {
            "superCluster": {
                "kubeconfigFile": kubeconfig_file,
                **({"serviceCidrs": list(node.service_cidrs)} if node.service_cidrs else {}),
            },
            "nodes": {"servingCaFile": f"{PKI}/vn-agent-ca.crt"},
            "leaderElection": {},
            "status": shared["status"],
        }
    shared |= {"nodeName": node.node_name, "superCluster": {"kubeconfigFile": kubeconfig_file}}
    if daemon is NodeDaemon.DNSCONFIG:
        return {**shared, "resolvConf": node.resolv_conf}
    return {**shared, "serviceCIDRs": list(node.service_cidrs)} if node.service_cidrs else shared


def _vn_agent(node: NodeSettings) -> Values:
    name = NodeDaemon.VN_AGENT.value
    directory = f"{PKI}/{name}"
    by_files = {"directory": f"{CONFIGURATION}/tenants"}
    by_objects = {"kubeconfigFile": f"{CONFIGURATION}/{name}.kubeconfig"}
    return {
        "nodeName": node.node_name,
        "listen": {"address": node.address, "port": _AGENT_PORT},
        "serving": {"certificateFile": f"{directory}/serving.crt", "keyFile": f"{directory}/serving.key"},
        "kubelet": {
            "address": node.address,
            "caFile": f"{PKI}/kubelet-ca.crt",
            "serverName": node.node_name,
            "clientCertificateFile": f"{directory}/kubelet-client.crt",
            "clientKeyFile": f"{directory}/kubelet-client.key",
        },
        "tenants": by_objects if node.virtual_clusters else by_files,
        "pods": {"source": "kubelet"},
        "audit": {"file": "/var/log/vcnode/vn-agent/audit.log"},
    }


def marked(text: str) -> str:
    """Our file with a header, by which `is_as_written` recognizes it."""
    return _HEADER.format(digest=_digest(text)) + text


def is_as_written(text: str) -> bool:
    """Whether `init` wrote this text and it is unedited since."""
    header = _HEADER_LINE.match(text)
    return header is not None and header[1] == _digest(text[header.end() :])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def daemons_of(names: Sequence[str]) -> tuple[NodeDaemon, ...]:
    """Daemons by name, each once, in the order of `NodeDaemon`. Raises ValueError with an unknown name."""
    for name in names:
        if name not in (daemon.value for daemon in NodeDaemon):
            raise ValueError(name)
    return tuple(daemon for daemon in NodeDaemon if daemon.value in names)


def _is_server(text: str) -> bool:
    # It stands between quotes in a kubeconfig.
    if not text.isprintable() or any(char in text for char in '"\\ '):
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme == "https" and bool(parts.hostname) and (parts.port or 443) > 0
    except ValueError:
        return False


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
