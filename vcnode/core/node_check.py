# SPDX-License-Identifier: Apache-2.0
"""Decides whether a node is fit for vcnode, from facts: one result a check, also where all is well."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from vcnode.core.doctor_daemons import GATE_RUNTIME
from vcnode.core.doctor_facts import ListenPort, Runtime, Space
from vcnode.core.findings import Finding, Level, failed, warning

PYTHON = (3, 11)
# vn-agent takes two descriptors a stream; kata-bridge and the webhook raise their own limit to the hard one.
DESCRIPTORS = 65_536
# Saved state of 128 MiB, the audit log, and room for both to be replaced.
FREE_BYTES = 256 << 20
LOG_BYTES = 64 << 20
_NRI_RUNTIME = (1, 7)
_VERSION = re.compile(r"v?(\d{1,5})\.(\d{1,5})")
# Each with what needs it.
KERNEL_PARTS = {
    "nf_tables": "for guests of this kernel (channel netns): `modprobe nf_tables`",
    "nf_conntrack": "for guests of this kernel (channel netns): `modprobe nf_conntrack`",
    "vhost_vsock": "for Kata guests that are reached by vsock: `modprobe vhost_vsock`",
}


@dataclass(frozen=True, slots=True)
class ContainerRuntime:
    """What answers at the CRI socket; `problem` is why nothing does."""

    socket: str
    name: str = ""
    version: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class KubeletState:
    """The kubelet at `address`, and its configuration; `has_tls_bootstrap` is serverTLSBootstrap."""

    address: str
    problem: str = ""
    has_tls_bootstrap: bool | None = None
    config: str = ""


@dataclass(frozen=True, slots=True)
class PortState:
    """A port that a daemon is to listen on. `is_ours`: the daemon itself holds it already."""

    port: ListenPort
    is_free: bool
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node before or after an installation. None is unknown; in `kernel` for a part without a trace."""

    python: tuple[int, int]
    kernel: Mapping[str, bool | None] = field(default_factory=dict)
    runtime: ContainerRuntime | None = None
    nri: Runtime | None = None
    kubelet: KubeletState | None = None
    missing_users: tuple[str, ...] = ()
    missing_groups: tuple[str, ...] = ()
    ports: tuple[PortState, ...] = ()
    is_clock_synchronized: bool | None = None
    spaces: tuple[Space, ...] = ()
    descriptors: int = DESCRIPTORS
    service_proxies: tuple[str, ...] = ()
    old_agents: tuple[str, ...] = ()


def judge(facts: NodeFacts) -> tuple[Finding, ...]:
    """One or more results a check, in a fixed order."""
    return tuple(_results(facts))


def _results(facts: NodeFacts) -> Iterator[Finding]:
    yield _python(facts.python)
    yield from _kernel(facts.kernel)
    if facts.runtime is not None:
        yield _runtime(facts.runtime)
    if facts.nri is not None:
        yield _nri(facts.nri)
    if facts.kubelet is not None:
        yield from _kubelet(facts.kubelet)
    yield from _accounts(facts)
    yield from map(_port, facts.ports)
    yield _clock(facts.is_clock_synchronized)
    yield from map(_space, facts.spaces)
    yield _descriptors(facts.descriptors)
    yield from _others(facts)


def _ok(check: str, message: str) -> Finding:
    return Finding(check, Level.OK, message)


def _python(version: tuple[int, int]) -> Finding:
    text = f"Python {version[0]}.{version[1]}"
    if version < PYTHON:
        return failed("python", text, f"install Python {PYTHON[0]}.{PYTHON[1]} or newer")
    return _ok("python", text)


def _kernel(parts: Mapping[str, bool | None]) -> Iterator[Finding]:
    for name, is_there in parts.items():
        if is_there:
            yield _ok("kernel", name)
        elif is_there is None:
            remedy = f"look with `modprobe -n {name}`; needed {KERNEL_PARTS[name].partition(':')[0]}"
            yield Finding(
                "kernel", Level.UNKNOWN, f"{name}: this kernel's modules are not listed here", remedy
            )
        else:
            yield warning("kernel", f"{name}: this kernel has no such module", f"needed {KERNEL_PARTS[name]}")


def _runtime(runtime: ContainerRuntime) -> Finding:
    if runtime.problem:
        remedy = "start the container runtime, or name its socket (--cri-socket)"
        return failed("runtime", f"{runtime.socket}: {runtime.problem}", remedy)
    text = f"{runtime.name} {runtime.version}"
    found = _VERSION.match(runtime.version)
    if runtime.name != "containerd" or found is None:
        return warning("runtime", f"{text}: not tested with vcnode", "use containerd 2.2 or newer")
    release = (int(found[1]), int(found[2]))
    if release < _NRI_RUNTIME:
        return failed("runtime", f"{text} has no NRI", "upgrade containerd to 2.2 or newer")
    if release < GATE_RUNTIME:
        message = f"{text}: a container starts if the start gate answers too late"
        return warning("runtime", message, "upgrade containerd to 2.2 or newer, if pods must wait for rules")
    return _ok("runtime", text)


def _nri(nri: Runtime) -> Finding:
    if nri.disabled_in:
        remedy = 'set disable = false below [plugins."io.containerd.nri.v1.nri"], and restart containerd'
        return failed("nri", f"NRI is disabled in {nri.disabled_in}", remedy)
    if not nri.has_socket:
        remedy = "start the runtime, with NRI enabled (containerd 2.0 and newer have it on)"
        return failed("nri", f"the container runtime has no NRI socket {nri.nri_socket}", remedy)
    return _ok("nri", nri.nri_socket)


def _kubelet(kubelet: KubeletState) -> Iterator[Finding]:
    if kubelet.problem:
        remedy = "start the kubelet, or name its address (--kubelet)"
        yield failed("kubelet", f"{kubelet.address}: {kubelet.problem}", remedy)
    else:
        yield _ok("kubelet", f"{kubelet.address} answers")
    if kubelet.has_tls_bootstrap:
        yield _ok(
            "kubelet-certificate",
            f"serverTLSBootstrap in {kubelet.config}: kubelet.caFile is the cluster's CA",
        )
    elif kubelet.has_tls_bootstrap is False:
        message = (
            f"no serverTLSBootstrap in {kubelet.config}: the kubelet signs its serving certificate itself"
        )
        remedy = (
            "give vn-agent /var/lib/kubelet/pki/kubelet.crt as kubelet.caFile, or set serverTLSBootstrap:"
        )
        yield warning(
            "kubelet-certificate", message, f"{remedy} true and approve its request (`kubectl get csr`)"
        )


def _accounts(facts: NodeFacts) -> Iterator[Finding]:
    for kind, names, command in (
        ("user", facts.missing_users, "useradd --system --no-create-home"),
        ("group", facts.missing_groups, "groupadd --system"),
    ):
        for name in names:
            remedy = f"install the packages, which create it, or `{command} {name}`"
            yield failed("accounts", f"{kind} {name} does not exist", remedy)
    if not facts.missing_users and not facts.missing_groups:
        yield _ok("accounts", "users and groups exist")


def _port(wanted: PortState) -> Finding:
    port = wanted.port
    text = f"{port.address}:{port.port} for {port.daemon}"
    if wanted.is_free or wanted.is_ours:
        return _ok("port", f"{text} is {'held by it' if wanted.is_ours else 'free'}")
    holder = f"{port.holder or 'a process'}, pid {port.holder_pid}" if port.holder_pid else "another process"
    remedy = f"stop that process, or give {port.daemon} another {port.key}"
    if not port.holder_pid:
        remedy = f"find it with `ss -ltnp sport = :{port.port}`; {remedy}"
    return failed("port", f"{text} is held by {holder}", remedy)


def _clock(is_synchronized: bool | None) -> Finding:
    if is_synchronized is None:
        remedy = "look with `timedatectl`"
        return Finding("clock", Level.UNKNOWN, "the kernel does not tell whether it is synchronized", remedy)
    if not is_synchronized:
        remedy = "start chrony or systemd-timesyncd: certificates and saved state depend on the time"
        return warning("clock", "not synchronized", remedy)
    return _ok("clock", "synchronized")


def _space(space: Space) -> Finding:
    text = f"{space.what} {space.path}: {space.free_bytes >> 20} MiB free"
    remedy = f"free space below {space.path}, or make its file system larger"
    if space.free_bytes < LOG_BYTES:
        return failed("disk", text, remedy)
    if space.total_inodes and not space.free_inodes:
        return failed("disk", f"{space.what} {space.path}: no inodes free", remedy)
    if space.free_bytes < FREE_BYTES:
        return warning("disk", f"{text}, less than {FREE_BYTES >> 20} MiB", remedy)
    return _ok("disk", text)


def _descriptors(limit: int) -> Finding:
    text = f"hard limit of {limit} open files"
    if limit < DESCRIPTORS:
        remedy = f"set LimitNOFILE={DESCRIPTORS} in the units, or DefaultLimitNOFILE in systemd"
        return warning("descriptors", text, remedy)
    return _ok("descriptors", text)


def _others(facts: NodeFacts) -> Iterator[Finding]:
    for name in facts.service_proxies:
        # No conflict: its rules are the node's, ours are in the guests.
        yield _ok("service-proxy", f"{name} runs; it serves the node and pods without rules of their own")
    for name in facts.old_agents:
        remedy = "stop it before vn-agent starts: both listen on one port, and tenants reach either"
        yield failed("old-agent", f"{name} runs", remedy)
