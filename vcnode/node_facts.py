# SPDX-License-Identifier: Apache-2.0
"""Gathers the facts of `vcnode check`: kernel, runtime, kubelet, accounts, ports, clock, disks."""

import asyncio
import ctypes
import grp
import os
import pwd
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemonkit.config import yaml_values
from daemonkit.config.yaml_values import YamlError
from vcnode import machine
from vcnode.config_checks import DAEMONS, InstalledDaemon
from vcnode.core.doctor_facts import ListenPort, Space
from vcnode.core.node_check import KERNEL_PARTS, ContainerRuntime, KubeletState, NodeFacts, PortState
from vcnode.node_probes import LOG_DIRECTORY, listen_ports, load_all, run_probes
from vcnode.peer_probes import TIMEOUT_S, handshake_problem

CRI_SOCKET = Path("/run/containerd/containerd.sock")
NRI_SOCKET = Path("/var/run/nri/nri.sock")
KUBELET = ("127.0.0.1", 10250)
STATE_DIRECTORY = Path("/var/lib/vcnode")
GROUPS = ("vcnode",)
_KUBELET_CONFIG = Path("/var/lib/kubelet/config.yaml")
_MAX_CONFIG_BYTES = 1 << 20
_DEADLINE_S = 6.0
# The ports that daemons have without a configuration of their own.
_DEFAULT_PORTS = (
    ListenPort("vn-agent", "listen.port", "0.0.0.0", 10550),  # noqa: S104 - as its default
    ListenPort("kata-bridge", "agent.port", "0.0.0.0", 10560),  # noqa: S104
)
_SERVICE_PROXIES = frozenset({"kube-proxy", "cilium-agent", "kube-router"})
# linux/timex.h
_UNSYNCHRONIZED = 0x40
_TIME_ERROR = 5


@dataclass(frozen=True, slots=True)
class Places:
    """Where the node's other programs are."""

    cri_socket: Path = CRI_SOCKET
    nri_socket: Path = NRI_SOCKET
    kubelet: tuple[str, int] = KUBELET


def gather(places: Places, daemons: Mapping[InstalledDaemon, Path]) -> NodeFacts:
    """All facts, in bounded time. `daemons` are those that have a configuration."""
    configs = load_all(daemons)
    agent = configs.get("vn-agent")
    kubelet = None if agent is None else agent.kubelet
    address = places.kubelet if kubelet is None else (kubelet.address, kubelet.port)
    probes: dict[str, Callable[[], Any]] = {
        "runtime": lambda: container_runtime(places.cri_socket),
        "kubelet": lambda: kubelet_state(address),
        "ports": lambda: tuple(port_states(configs)),
    }
    results, _ = run_probes(probes, _DEADLINE_S)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    proxies, agents = _others()
    return NodeFacts(
        python=sys.version_info[:2],
        kernel={name: kernel_part(name) for name in KERNEL_PARTS},
        runtime=results.get("runtime", ContainerRuntime(str(places.cri_socket), problem="no answer in time")),
        nri=machine.nri(places.nri_socket),
        kubelet=results.get("kubelet"),
        missing_users=tuple(_missing_users()),
        missing_groups=tuple(_missing_groups()),
        ports=results.get("ports", ()),
        is_clock_synchronized=is_clock_synchronized(),
        spaces=tuple(_spaces()),
        descriptors=sys.maxsize if limit == resource.RLIM_INFINITY else limit,
        service_proxies=proxies,
        old_agents=agents,
    )


def kernel_part(name: str, root: Path = Path("/")) -> bool | None:
    """Whether the kernel has this module, loaded, built in or on disk; None where the disk has no list."""
    if (root / "sys" / "module" / name).exists():
        return True
    modules = root / "lib" / "modules" / os.uname().release
    is_listed = False
    for file in ("modules.builtin", "modules.dep"):
        try:
            text = (modules / file).read_text(errors="replace")
        except OSError:
            continue
        is_listed = True
        if f"/{name}.ko" in text or f"/{name.replace('_', '-')}.ko" in text:
            return True
    return False if is_listed else None


def container_runtime(socket: Path) -> ContainerRuntime:
    """Name and version of what answers at the CRI socket."""
    from kata_bridge.cri.client import CriClient, CriError

    async def ask_version() -> ContainerRuntime:
        async with CriClient(socket, timeout_s=TIMEOUT_S) as cri:
            found = await cri.version()
            return ContainerRuntime(str(socket), found.runtime_name, found.runtime_version)

    if not socket.exists():
        return ContainerRuntime(str(socket), problem="no such socket")
    try:
        return asyncio.run(ask_version())
    except CriError as error:
        return ContainerRuntime(str(socket), problem=str(error).removeprefix(f"{socket}: "))


def kubelet_state(address: tuple[str, int], config: Path = _KUBELET_CONFIG) -> KubeletState:
    """Whether a TLS server answers there, and what the kubelet's configuration has."""
    where = f"{address[0]}:{address[1]}"
    return KubeletState(where, handshake_problem(address), _has_tls_bootstrap(config), str(config))


def _has_tls_bootstrap(config: Path) -> bool | None:
    try:
        with config.open("rb") as file:
            document = yaml_values.decode(file.read(_MAX_CONFIG_BYTES).decode())
    except (OSError, YamlError, UnicodeDecodeError):
        return None
    return isinstance(document, dict) and document.get("serverTLSBootstrap") is True


def port_states(configs: Mapping[str, Any]) -> Iterator[PortState]:
    """The ports of the configurations; without a configuration the defaults."""
    named = tuple(ListenPort(*each) for each in listen_ports(configs))
    ports = named or tuple(port for port in _DEFAULT_PORTS if port.daemon not in configs)
    try:
        held = machine.port_holders(ports)
    except ModuleNotFoundError:  # psutil is not installed: who holds a port stays unknown
        held = ports
    for port in held:
        is_free = machine.is_port_free(port.address, port.port)
        yield PortState(port, is_free, not is_free and _is_daemon(port.holder_pid, port.daemon))


def _is_daemon(pid: int, daemon: str) -> bool:
    try:
        command = (machine.PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    package = next((each.package for each in DAEMONS if each.name == daemon), daemon)
    # The launcher of a package, or `python -m PACKAGE`.
    words = {word.rpartition(b"/")[2] for word in command[:6]}
    return daemon.encode() in words or package.encode() in words


class _Timex(ctypes.Structure):
    """The begin of struct timex; with `modes` 0 the kernel changes nothing."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),
    )


def is_clock_synchronized() -> bool | None:
    """As adjtimex(2) tells, which any user may ask; None where it does not."""
    found = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(found))
    except (OSError, AttributeError):
        return None
    if state < 0:
        return None
    return state != _TIME_ERROR and not found.status & _UNSYNCHRONIZED


def _missing_users() -> Iterator[str]:
    for name in dict.fromkeys(
        daemon.user for daemon in DAEMONS if daemon.user and daemon.name not in ("vc-syncer", "vc-operator")
    ):
        try:
            pwd.getpwnam(name)
        except KeyError:
            yield name


def _missing_groups() -> Iterator[str]:
    for name in GROUPS:
        try:
            grp.getgrnam(name)
        except KeyError:
            yield name


def _spaces() -> Iterator[Space]:
    for what, path in (("state", STATE_DIRECTORY), ("logs", LOG_DIRECTORY), ("sockets", Path("/run/vcnode"))):
        found = machine.space(what, path)
        if found is not None:
            yield found


def _others(proc: Path = machine.PROC) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Service proxies that run here, and vn-agents of another project."""
    deadline = time.monotonic() + TIMEOUT_S
    proxies: dict[str, None] = {}
    agents: dict[str, None] = {}
    for entry in proc.iterdir():
        if not entry.name.isdigit() or time.monotonic() > deadline:
            continue
        try:
            name = (entry / "comm").read_text().strip()
            if name in _SERVICE_PROXIES:
                proxies[name] = None
            elif name == "vn-agent" and not _is_daemon(int(entry.name), "vn-agent"):
                agents[f"{name}, pid {entry.name}"] = None
        except OSError:
            continue
    return tuple(proxies), tuple(agents)
