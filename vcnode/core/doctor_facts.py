# SPDX-License-Identifier: Apache-2.0
"""What `vcnode doctor` gathers about a node, as values; `vcnode.core.doctor` makes findings of them."""

from dataclasses import dataclass

import msgspec

from daemonkit.remedies import Cause
from vcnode.core.status_report import BadTenant, SourceStatus


class DoctorGuest(msgspec.Struct, rename="camel"):
    """A guest in kata-bridge's /status."""

    pod: str = ""
    tenant: str = ""
    tenant_pod: str = ""
    state: str = ""
    message: str = ""
    channel: str = ""
    version: str = ""
    behind_seconds: float | None = None


class DoctorPage(msgspec.Struct, rename="camel"):
    """The part of a daemon's /status that doctor reads."""

    daemon: str
    pid: int = 0
    runtime: str = ""
    sources: dict[str, SourceStatus] = {}
    bad_tenants: tuple[BadTenant, ...] = ()
    guests: tuple[DoctorGuest, ...] | int | None = None
    start_gate: dict[str, object] | None = None


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A daemon's configuration. `errors` are those of the file itself."""

    daemon: str
    path: str
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A problem of a file that a configuration names, found by the daemon's own loaders."""

    daemon: str
    key: str
    path: str
    message: str
    remedy: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class DaemonAnswer:
    """A daemon's status pages. `problem` is why there are none, `where` its status address."""

    daemon: str
    where: str
    problem: str = ""
    is_ready: bool = False
    why: tuple[str, ...] = ()
    page: DoctorPage | None = None
    version: str = ""


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """A server that a daemon asks, asked with that daemon's own credentials.

    `cause` is None if it answered. `codes` are HTTP status codes by path. `skew_s` is how much its clock is
    ahead of ours, None if unknown.
    """

    daemon: str
    address: str
    key: str
    cause: Cause | None = None
    problem: str = ""
    codes: tuple[tuple[str, int], ...] = ()
    skew_s: float | None = None


@dataclass(frozen=True, slots=True)
class ServedCertificate:
    """What vn-agent shows to tenants. `missing_name` is an address that it listens on and does not name."""

    address: str
    file: str
    is_current: bool = True
    missing_name: str = ""
    untrusted: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ListenPort:
    """A TCP port that a daemon is to have. `holder_pid` 0: free, or its holder is not shown to us."""

    daemon: str
    key: str
    address: str
    port: int
    holder_pid: int = 0
    holder: str = ""


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file of saved state; `age_s` since it was confirmed."""

    daemon: str
    path: str
    age_s: float = 0.0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Space:
    """The file system of a directory; inodes are 0 of 0 where it has no fixed number."""

    what: str
    path: str
    free_bytes: int
    total_bytes: int
    free_inodes: int = 0
    total_inodes: int = 0


@dataclass(frozen=True, slots=True)
class GroupSocket:
    """kata-bridge's socket, and the group that its configuration gives to it (None: root alone)."""

    path: str
    group: str
    group_id: int | None
    owner_group_id: int
    mode: int


@dataclass(frozen=True, slots=True)
class Runtime:
    """The container runtime's NRI, where kata-bridge needs it. `disabled_in` is the file that disables it."""

    nri_socket: str
    has_socket: bool
    disabled_in: str = ""


@dataclass(frozen=True, slots=True)
class KernelState:
    """Conntrack's table, and the lock that programs of iptables share; None where the kernel has none."""

    conntrack_count: int | None = None
    conntrack_max: int | None = None
    lock_problem: str = ""


@dataclass(frozen=True, slots=True)
class DoctorFacts:
    """Everything about one node."""

    version: str
    configs: tuple[ConfigFile, ...] = ()
    files: tuple[NamedFile, ...] = ()
    daemons: tuple[DaemonAnswer, ...] = ()
    kubelet: PeerAnswer | None = None
    api_servers: tuple[PeerAnswer, ...] = ()
    served: ServedCertificate | None = None
    ports: tuple[ListenPort, ...] = ()
    saved: tuple[SavedFile, ...] = ()
    spaces: tuple[Space, ...] = ()
    socket: GroupSocket | None = None
    runtime: Runtime | None = None
    kernel: KernelState = KernelState()
    late: tuple[str, ...] = ()
    """Probes that did not end in time."""
