# SPDX-License-Identifier: Apache-2.0
"""kata-bridge's configuration: `kind: KataBridgeConfiguration`, one file, all errors at once."""

import grp
import ipaddress
import pwd
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from daemonkit.config import binding
from daemonkit.config.binding import setting
from daemonkit.config.logging_config import LoggingConfig
from daemonkit.config.scrape_config import ScrapeConfig
from daemonkit.config.status_config import StatusConfig
from kata_bridge.channels.agent.guest_addresses import Network
from kata_bridge.channels.settings import ChannelSettings
from kata_bridge.channels.stock.policy_file import read_policy
from kata_bridge.channels.stock.shim import ROOTS
from kata_bridge.cri.client import TIMEOUT_S as CRI_TIMEOUT_S
from kata_bridge.nri.plugin import SOCKET as NRI_SOCKET
from kata_bridge.sandboxes.core.runtimes import CHANNELS, HandlerChannels
from kata_bridge.start_gate.core.decision import Need, Policy, PolicyRule, StartGateSettings
from tenancy import names

KIND = "KataBridgeConfiguration"
# sockaddr_un.sun_path has 108 bytes with its NUL (unix(7)).
_MAX_SOCKET_BYTES = 107


@dataclass(frozen=True, slots=True)
class NodeApiConfig:
    """The socket for the daemons of this node."""

    socket: Path = setting(Path("/run/vcnode/kata-bridge.sock"), doc="unix socket of the node API")
    group: str | None = setting(
        None, minimum_length=1, doc="group that owns the socket and may use it; root always may"
    )
    users: tuple[str, ...] = setting((), minimum_length=1, doc="other users that may")

    def problems(self) -> Iterator[str]:
        if len(str(self.socket).encode()) > _MAX_SOCKET_BYTES:
            yield f"socket: more than {_MAX_SOCKET_BYTES} bytes"
        if self.group is not None and self.gid is None:
            yield f"group: unknown group {self.group!r}; create it (groupadd --system), or name another"
        for user in self.users:
            try:
                pwd.getpwnam(user)
            except KeyError:
                yield f"users: unknown user {user!r}; create it (useradd --system), or name another"

    @property
    def gid(self) -> int | None:
        """The group's number; None without a group, or for an unknown one."""
        try:
            return None if self.group is None else grp.getgrnam(self.group).gr_gid
        except KeyError:
            return None

    @property
    def uids(self) -> frozenset[int]:
        return frozenset(pwd.getpwnam(user).pw_uid for user in self.users)


@dataclass(frozen=True, slots=True)
class NriConfig:
    """Live reports of sandboxes by the container runtime."""

    socket: Path = setting(NRI_SOCKET, doc="the runtime's NRI socket")
    name: str = setting("vcnode", minimum_length=1, doc="name of the plugin")
    index: str = setting("50", minimum_length=1, doc="two digits: plugins are called in this order")

    def problems(self) -> Iterator[str]:
        if len(self.index) != 2 or not (self.index.isascii() and self.index.isdigit()):
            yield f"index: expected two digits, got {self.index!r}"
        if not self.name or not all(
            char.isascii() and (char.isalnum() or char in "_.+-") for char in self.name
        ):
            yield "name: expected letters, digits, '_', '.', '+' and '-'"


@dataclass(frozen=True, slots=True)
class CriConfig:
    """Lists of sandboxes from the container runtime."""

    socket: Path = setting(Path("/run/containerd/containerd.sock"), doc="the runtime's CRI socket")
    interval_seconds: float = setting(10.0, minimum=0.2, maximum=300.0, doc="time between two lists")
    timeout_seconds: float = setting(CRI_TIMEOUT_S, minimum=0.1, maximum=60.0, doc="limit for one call")


@dataclass(frozen=True, slots=True)
class SandboxSources:
    """The sources of sandboxes: at least one of the three."""

    nri: NriConfig | None = setting(None, doc="live events from the container runtime; {} for the defaults")
    cri: CriConfig | None = setting(None, doc="lists from the container runtime; {} for the defaults")
    directory: Path | None = setting(
        None, doc="directory of files that describe guests, instead of a runtime"
    )

    def problems(self) -> Iterator[str]:
        if self.nri is None and self.cri is None and self.directory is None:
            yield "nri: give at least one of nri, cri and directory"


@dataclass(frozen=True, slots=True)
class RuntimeRule:
    """The channels to try for the guests of some runtime handlers; none: they stay unmanaged."""

    handlers: tuple[str, ...] = setting(doc='patterns of runtime handlers; "" is the default handler')
    channels: tuple[str, ...] = setting(
        choices=CHANNELS, doc="how to reach the guests, tried in this order; empty: they stay unmanaged"
    )

    def problems(self) -> Iterator[str]:
        if not self.handlers:
            yield "handlers: at least one"
        if len(set(self.channels)) != len(self.channels):
            yield "channels: the same channel twice"


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Where guests' agents reach kata-bridge."""

    address: str | None = setting(None, minimum_length=1, doc="IP address that guests dial")
    port: int = setting(10560, minimum=0, maximum=65535, doc="TCP port of `address`; 0 takes any free one")
    socket: Path | None = setting(None, doc="unix socket, for agents in namespaces of this node")
    vsock_port: int | None = setting(None, minimum=1, maximum=0xFFFFFFFE, doc="vsock and hybrid vsock")
    copy_credentials: bool = setting(
        False, doc="copy the certificate of each stock Kata guest into it, by its stock agent's CopyFile"
    )
    gateways: tuple[str, ...] = setting(
        (), minimum_length=1, doc="networks from which guests connect by another address than their own: NAT"
    )

    def problems(self) -> Iterator[str]:
        if self.address is None and self.socket is None and self.vsock_port is None:
            yield "address: give at least one of address, socket and vsockPort"
        if self.address is not None:
            try:
                ipaddress.ip_address(self.address)
            except ValueError:
                yield f"address: expected an IP address, got {self.address!r}"
        if self.socket is not None and len(str(self.socket).encode()) > _MAX_SOCKET_BYTES:
            yield f"socket: more than {_MAX_SOCKET_BYTES} bytes"
        for index, gateway in enumerate(self.gateways):
            try:
                ipaddress.ip_network(gateway)
            except ValueError:
                yield f"gateways[{index}]: expected an address or a network, got {gateway!r}"

    @property
    def gateway_networks(self) -> tuple[Network, ...]:
        return tuple(map(ipaddress.ip_network, self.gateways))


@dataclass(frozen=True, slots=True)
class StockConfig:
    """Guests of stock Kata."""

    shim_directories: tuple[Path, ...] = setting(
        ROOTS, doc="directories of the shim in Go and of the shim in Rust"
    )
    policy_file: Path | None = setting(
        None,
        doc="complete agent policy, set where the agent refuses iptables calls; never on a pod with its own",
    )

    def problems(self) -> Iterator[str]:
        problem = read_policy(self.policy_file)[1]
        if problem:
            yield f"policyFile: {problem}; correct the file or its path"


@dataclass(frozen=True, slots=True)
class DriftConfig:
    check_seconds: float = setting(
        30.0, minimum=0.2, maximum=3600.0, doc="how often each guest is checked for drift"
    )


@dataclass(frozen=True, slots=True)
class DrainConfig:
    seconds: float = setting(5.0, minimum=0.0, maximum=300.0, doc="limit for calls in flight after SIGTERM")


@dataclass(frozen=True, slots=True)
class NamespacePolicy:
    """The start gate's policy for some namespaces of the super cluster."""

    namespaces: tuple[str, ...] = setting(doc="patterns of super namespaces")
    policy: Policy = setting(doc="policy of these namespaces")

    def problems(self) -> Iterator[str]:
        if not self.namespaces:
            yield "namespaces: at least one"


@dataclass(frozen=True, slots=True)
class SuperClusterConfig:
    """The API server that gets nudges, Events and the node's condition."""

    kubeconfig_file: Path = setting(
        doc="kubeconfig for the super cluster's API server, with this daemon's rights"
    )
    node_name: str = setting(minimum_length=1, doc="name of the Node that this daemon runs on")

    def problems(self) -> Iterator[str]:
        if not names.is_pod_name(self.node_name):
            yield f"nodeName: expected the name of a node, got {self.node_name!r}"


@dataclass(frozen=True, slots=True)
class StartGateConfig:
    """What the containers of tenants' pods wait for."""

    policy: Policy = setting(Policy.ENFORCE, doc="policy of namespaces that no entry of `namespaces` matches")
    namespaces: tuple[NamespacePolicy, ...] = setting(
        (), doc="the first entry that matches a namespace decides"
    )
    needs: tuple[Need, ...] = setting(
        (Need.RULES, Need.RESOLVER),
        doc="leave out resolver where no dnsconfig runs; a wait message of dnsconfig blocks all the same",
    )
    directory: Path = setting(
        Path("/run/vcnode/pods"),
        doc="directory of resolv.confs: on a tmpfs of the node, it lives as long as pods",
    )
    super_cluster: SuperClusterConfig | None = setting(
        None, doc="API server that gets Events, nudges and the node's condition"
    )

    def problems(self) -> Iterator[str]:
        if len(set(self.needs)) != len(self.needs):
            yield "needs: the same need twice"

    def settings(self) -> StartGateSettings:
        """What a reload applies."""
        rules = tuple(PolicyRule(each.namespaces, each.policy) for each in self.namespaces)
        return StartGateSettings(self.policy, rules, frozenset(self.needs))


_KATA = (RuntimeRule(("kata*",), ("agent", "stock")),)


@dataclass(frozen=True, slots=True)
class KataBridgeConfiguration:
    state_directory: Path = setting(
        doc="directory of the authority and the certificates of guests; for root alone"
    )
    sandboxes: SandboxSources = setting(doc="sources of sandboxes: at least one of the three")
    listen: NodeApiConfig = field(default_factory=NodeApiConfig)
    lock_file: Path = setting(
        Path("/run/vcnode/kata-bridge.lock"), doc="locked while kata-bridge runs: one for each node"
    )
    runtimes: tuple[RuntimeRule, ...] = setting(_KATA, doc="the first rule that matches the handler decides")
    agent: AgentConfig | None = setting(None, doc="for guests that run vcnode-guest-agent")
    stock: StockConfig = field(default_factory=StockConfig)
    drift: DriftConfig = field(default_factory=DriftConfig)
    status: StatusConfig = field(default_factory=StatusConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    metrics: ScrapeConfig = field(default_factory=ScrapeConfig)
    drain: DrainConfig = field(default_factory=DrainConfig)
    gate: StartGateConfig | None = setting(None, doc="block containers until the needs of their pod are met")

    def problems(self) -> Iterator[str]:
        # Other programs get its path, and have another working directory.
        if not self.state_directory.is_absolute():
            yield "stateDirectory: expected an absolute path"
        if len(str(self.inner_socket).encode()) > _MAX_SOCKET_BYTES:
            yield f"stateDirectory: too long, {self.inner_socket} has more than {_MAX_SOCKET_BYTES} bytes"
        if self.gate is not None and self.sandboxes.nri is None:
            yield "gate: needs sandboxes.nri"

    def shared_directories(self) -> Iterator[tuple[str, Path]]:
        """Directories of our sockets and files that others read and must not write, with their keys."""
        yield "lockFile", self.lock_file.parent
        yield "listen.socket", self.listen.socket.parent
        if self.agent is not None and self.agent.socket is not None:
            yield "agent.socket", self.agent.socket.parent
        yield from self.status.directories()

    def directories(self) -> Iterator[tuple[str, Path]]:
        """All directories of our files, with their keys: `--check-config` checks them."""
        yield "stateDirectory", self.state_directory
        yield from self.shared_directories()
        if self.gate is not None:
            yield "gate.directory", self.gate.directory

    @property
    def inner_socket(self) -> Path:
        """The socket of the gRPC server, behind `api.peer_auth`."""
        return self.state_directory / "run" / "bridge.sock"

    def channel_settings(self) -> ChannelSettings:
        """What a reload applies."""
        handlers = tuple(HandlerChannels(rule.handlers, rule.channels) for rule in self.runtimes)
        return ChannelSettings(handlers, self.stock.shim_directories, self.stock.policy_file)


def load(path: Path) -> KataBridgeConfiguration:
    """Read and check the file. Raises `ConfigError` with all errors."""
    return binding.load(path, KataBridgeConfiguration, kind=KIND)
