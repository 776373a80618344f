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
from daemonkit.config.status_config import StatusConfig
from kata_bridge.channels.agent.guest_addresses import Network
from kata_bridge.channels.stock.shim import ROOTS
from kata_bridge.cri.client import TIMEOUT_S as CRI_TIMEOUT_S
from kata_bridge.nri.plugin import SOCKET as NRI_SOCKET
from kata_bridge.sandboxes.core.runtimes import Runtime
from kata_bridge.start_gate.core.decision import Need, Policy, PolicyRule
from tenancy import names

KIND = "KataBridgeConfiguration"
CHANNELS = ("agent", "stock", "netns")
# sockaddr_un.sun_path has 108 bytes with its NUL (unix(7)).
_MAX_SOCKET_BYTES = 107


@dataclass(frozen=True, slots=True)
class Listen:
    """The socket for the daemons of this node."""

    socket: Path = setting(Path("/run/vcnode/kata-bridge.sock"), doc="unix socket of the node API")
    group: str | None = setting(None, doc="group that owns the socket and may use it; root always may")
    users: tuple[str, ...] = setting((), doc="other users that may")

    def problems(self) -> Iterator[str]:
        if len(str(self.socket).encode()) > _MAX_SOCKET_BYTES:
            yield f"socket: more than {_MAX_SOCKET_BYTES} bytes"
        if self.group is not None and self.gid is None:
            yield f"group: there is no group {self.group!r}"
        for user in self.users:
            try:
                pwd.getpwnam(user)
            except KeyError:
                yield f"users: there is no user {user!r}"

    @property
    def gid(self) -> int | None:
        """The group's number; None without a group, or where it does not exist."""
        try:
            return None if self.group is None else grp.getgrnam(self.group).gr_gid
        except KeyError:
            return None

    @property
    def uids(self) -> frozenset[int]:
        return frozenset(pwd.getpwnam(user).pw_uid for user in self.users)


@dataclass(frozen=True, slots=True)
class Nri:
    """Live news of sandboxes from the container runtime."""

    socket: Path = setting(NRI_SOCKET, doc="the runtime's NRI socket")
    name: str = setting("vcnode", doc="of the plugin")
    index: str = setting("50", doc="two digits: plugins are called in this order")

    def problems(self) -> Iterator[str]:
        if len(self.index) != 2 or not (self.index.isascii() and self.index.isdigit()):
            yield f"index: expected two digits, got {self.index!r}"
        if not self.name or not all(
            char.isascii() and (char.isalnum() or char in "_.+-") for char in self.name
        ):
            yield "name: expected letters, digits, '_', '.', '+' and '-'"


@dataclass(frozen=True, slots=True)
class Cri:
    """Lists of sandboxes from the container runtime."""

    socket: Path = setting(Path("/run/containerd/containerd.sock"), doc="the runtime's CRI socket")
    interval_seconds: float = setting(10.0, minimum=0.2, maximum=300.0, doc="between two lists")
    timeout_seconds: float = setting(CRI_TIMEOUT_S, minimum=0.1, maximum=60.0, doc="for one call")


@dataclass(frozen=True, slots=True)
class Sandboxes:
    """Where sandboxes are heard of: any of the three, at least one."""

    nri: Nri | None = setting(None, doc="live events from the container runtime; {} for the defaults")
    cri: Cri | None = setting(None, doc="lists from the container runtime; {} for the defaults")
    directory: Path | None = setting(None, doc="of files that describe guests, instead of a runtime")

    def problems(self) -> Iterator[str]:
        if self.nri is None and self.cri is None and self.directory is None:
            yield "nri: give at least one of nri, cri and directory"


@dataclass(frozen=True, slots=True)
class RuntimeRule:
    """Which ways to try into the guests of some runtime handlers; none: they are left alone."""

    handlers: tuple[str, ...] = setting(doc='patterns of handlers; "" is the default one')
    channels: tuple[str, ...] = setting(
        choices=CHANNELS, doc="how to reach the guests, tried in this order; empty: leave them alone"
    )

    def problems(self) -> Iterator[str]:
        if not self.handlers:
            yield "handlers: at least one"
        if len(set(self.channels)) != len(self.channels):
            yield "channels: one is named twice"


@dataclass(frozen=True, slots=True)
class Agent:
    """How guests' agents reach us."""

    address: str | None = setting(None, doc="IP address that guests dial")
    port: int = setting(10560, minimum=0, maximum=65535, doc="TCP port of `address`; 0 takes any free one")
    socket: Path | None = setting(None, doc="unix socket, for agents in namespaces of this node")
    vsock_port: int | None = setting(None, minimum=1, maximum=0xFFFFFFFE, doc="vsock and hybrid vsock")
    copy_credentials: bool = setting(
        False, doc="put each stock Kata guest's certificate into it, by its stock agent's CopyFile"
    )
    gateways: tuple[str, ...] = setting((), doc="networks out of which guests come by other addresses: NAT")

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
        """What `gateways` says."""
        return tuple(map(ipaddress.ip_network, self.gateways))


@dataclass(frozen=True, slots=True)
class Stock:
    """Guests of stock Kata."""

    shim_directories: tuple[Path, ...] = setting(ROOTS, doc="of the shim in Go and of that in Rust")
    policy_file: Path | None = setting(
        None, doc="whole agent policy to set where iptables calls are refused; never on a pod with its own"
    )

    def problems(self) -> Iterator[str]:
        problem = _policy(self.policy_file)[1]
        if problem:
            yield f"policyFile: {problem}"


@dataclass(frozen=True, slots=True)
class Drift:
    check_seconds: float = setting(
        30.0, minimum=0.2, maximum=3600.0, doc="how often a guest is asked whether it has what it was given"
    )


@dataclass(frozen=True, slots=True)
class Drain:
    seconds: float = setting(5.0, minimum=0.0, maximum=300.0, doc="for calls under way after SIGTERM")


@dataclass(frozen=True, slots=True)
class NamespacePolicy:
    """The gate's policy for some namespaces of the super cluster."""

    namespaces: tuple[str, ...] = setting(doc="patterns of super namespaces")
    policy: Policy = setting(doc="of these namespaces")

    def problems(self) -> Iterator[str]:
        if not self.namespaces:
            yield "namespaces: at least one"


@dataclass(frozen=True, slots=True)
class SuperCluster:
    """Who is told of pods that wait, and that they need not any more."""

    kubeconfig_file: Path = setting(doc="of the super cluster's API server, with this daemon's rights")
    node_name: str = setting(doc="name of the Node that this daemon runs on")

    def problems(self) -> Iterator[str]:
        if not names.is_pod_name(self.node_name):
            yield f"nodeName: expected the name of a node, got {self.node_name!r}"


@dataclass(frozen=True, slots=True)
class Gate:
    """What the containers of tenants' pods wait for."""

    policy: Policy = setting(Policy.ENFORCE, doc="of namespaces that no entry of `namespaces` names")
    namespaces: tuple[NamespacePolicy, ...] = setting((), doc="the first entry that names it decides")
    needs: tuple[Need, ...] = setting(
        (Need.RULES, Need.RESOLVER), doc="leave out resolver where no dnsconfig runs"
    )
    directory: Path = setting(
        Path("/run/vcnode/pods"), doc="of resolv.confs: on the node's own tmpfs, it lives as long as pods"
    )
    super_cluster: SuperCluster | None = setting(None, doc="where Events are posted and pods are nudged")

    def problems(self) -> Iterator[str]:
        if len(set(self.needs)) != len(self.needs):
            yield "needs: one is named twice"

    def policy_rules(self) -> tuple[PolicyRule, ...]:
        """The policies as the core has them."""
        return tuple(PolicyRule(each.namespaces, each.policy) for each in self.namespaces)


_KATA = (RuntimeRule(("kata*",), ("agent", "stock")),)


@dataclass(frozen=True, slots=True)
class KataBridgeConfiguration:
    state_directory: Path = setting(doc="of the authority and the certificates of guests; for root alone")
    sandboxes: Sandboxes = setting(doc="where sandboxes are found: at least one of the three")
    listen: Listen = field(default_factory=Listen)
    lock_file: Path = setting(Path("/run/vcnode/kata-bridge.lock"), doc="held while running: one a node")
    runtimes: tuple[RuntimeRule, ...] = setting(_KATA, doc="the first rule that names the handler decides")
    agent: Agent | None = setting(None, doc="for guests that run vcnode-guest-agent")
    stock: Stock = field(default_factory=Stock)
    drift: Drift = field(default_factory=Drift)
    status: StatusConfig = field(default_factory=StatusConfig)
    drain: Drain = field(default_factory=Drain)
    gate: Gate | None = setting(None, doc="hold containers back until their pod's needs are in")

    def problems(self) -> Iterator[str]:
        # Its path goes to other programs, for whom our working directory means nothing.
        if not self.state_directory.is_absolute():
            yield "stateDirectory: expected an absolute path"
        if len(str(self.inner_socket).encode()) > _MAX_SOCKET_BYTES:
            yield f"stateDirectory: too long, {self.inner_socket} has more than {_MAX_SOCKET_BYTES} bytes"
        if self.gate is not None and self.sandboxes.nri is None:
            yield "gate: needs sandboxes.nri"

    def shared_directories(self) -> Iterator[Path]:
        """Where others find our sockets and files, and must not put any."""
        yield self.lock_file.parent
        yield self.listen.socket.parent
        if self.agent is not None and self.agent.socket is not None:
            yield self.agent.socket.parent
        yield from self.status.directories()

    def directories(self) -> Iterator[Path]:
        """Where we keep files: `--check-config` looks at them."""
        yield self.state_directory
        yield from self.shared_directories()
        if self.gate is not None:
            yield self.gate.directory

    @property
    def inner_socket(self) -> Path:
        """Where the gRPC server is, behind the front."""
        return self.state_directory / "run" / "bridge.sock"

    def rules(self) -> tuple[Runtime, ...]:
        """The runtimes as the core has them."""
        return tuple(Runtime(rule.handlers, rule.channels) for rule in self.runtimes)


def load(path: Path) -> KataBridgeConfiguration:
    """Read and check the file. Raises ConfigError with everything that is wrong."""
    return binding.load(path, KataBridgeConfiguration, kind=KIND)


def policy_of(loaded: KataBridgeConfiguration) -> tuple[str | None, str]:
    """The policy's text, or None; and empty, or why it cannot be read."""
    return _policy(loaded.stock.policy_file)


def _policy(path: Path | None) -> tuple[str | None, str]:
    if path is None:
        return None, ""
    try:
        return path.read_text(), ""
    except (OSError, UnicodeDecodeError) as error:
        return None, f"{path}: {getattr(error, 'strerror', None) or error}"
