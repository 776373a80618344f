# SPDX-License-Identifier: Apache-2.0
"""Reads the state of this machine: ports, file systems, saved state, the kernel's tables. Changes nothing."""

import json
import os
import socket
import stat
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from vcnode.core.doctor_facts import GroupSocket, KernelState, ListenPort, Runtime, SavedFile, Space

PROC = Path("/proc")
XTABLES_LOCK = Path("/run/xtables.lock")
CONTAINERD_CONFIG = Path("/etc/containerd/config.toml")
MAX_STATE_BYTES = 128 << 20
MAX_STATE_FILES = 2_000
_NRI_PLUGIN = "io.containerd.nri.v1.nri"


def port_holders(ports: Iterable[ListenPort]) -> tuple[ListenPort, ...]:
    """Each port with the process that listens on it. Raises ModuleNotFoundError without psutil."""
    # Loaded only when asked: half a megabyte, and of no use to other verbs.
    import psutil

    listening: dict[int, int] = {}
    for each in psutil.net_connections(kind="tcp"):
        if each.status == psutil.CONN_LISTEN and each.laddr and each.pid:
            listening.setdefault(each.laddr.port, each.pid)
    found = []
    for port in ports:
        pid = listening.get(port.port, 0)
        found.append(replace(port, holder_pid=pid, holder=_process_name(pid)) if pid else port)
    return tuple(found)


def _process_name(pid: int) -> str:
    try:
        return (PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def is_port_free(address: str, port: int) -> bool:
    """Whether one could listen there now."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def space(what: str, path: Path) -> Space | None:
    """The file system of a directory, which need not exist yet. None if it cannot be examined."""
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        found = os.statvfs(place)
    except OSError:
        return None
    free_bytes, total_bytes = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    return Space(what, str(path), free_bytes, total_bytes, found.f_favail, found.f_files)


def saved_files(daemon: str, directory: Path, now_s: float) -> tuple[SavedFile, ...]:
    """The files of saved state of a daemon."""
    return tuple(_saved_files(daemon, directory, now_s))


def _saved_files(daemon: str, directory: Path, now_s: float) -> Iterator[SavedFile]:
    try:
        paths = sorted(directory.glob("[!.]*.json"))[:MAX_STATE_FILES]
    except OSError as error:
        yield SavedFile(daemon, str(directory), problem=error.strerror or "cannot be listed")
        return
    left = MAX_STATE_BYTES
    for path in paths:
        found = SavedFile(daemon, str(path))
        try:
            status = path.stat()
            left -= status.st_size
            if left < 0:
                return
            found = replace(found, age_s=now_s - status.st_mtime)
            json.loads(path.read_bytes())
        except OSError as error:
            found = replace(found, problem=error.strerror or "cannot be read")
        except (ValueError, RecursionError):
            found = replace(found, problem="it is damaged: not JSON")
        yield found


def group_socket(path: Path, group: str | None, group_id: int | None) -> GroupSocket | None:
    """kata-bridge's socket; None if it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return GroupSocket(str(path), group or "", group_id, status.st_gid, stat.S_IMODE(status.st_mode))


def nri(socket_path: Path, containerd_config: Path = CONTAINERD_CONFIG) -> Runtime:
    """The runtime's NRI: its socket, and whether containerd's configuration disables it."""
    is_disabled = not socket_path.exists() and _is_nri_disabled(containerd_config)
    return Runtime(str(socket_path), socket_path.exists(), str(containerd_config) if is_disabled else "")


def _is_nri_disabled(config: Path) -> bool:
    try:
        document = tomllib.loads(config.read_text())
    except (OSError, ValueError):
        return False
    plugins = document.get("plugins")
    plugin = plugins.get(_NRI_PLUGIN) if isinstance(plugins, dict) else None
    return isinstance(plugin, dict) and plugin.get("disable") is True


def kernel_state(proc: Path = PROC, lock: Path = XTABLES_LOCK, *, needs_lock: bool = False) -> KernelState:
    """Conntrack's table; and, where kata-bridge runs iptables itself, the lock that it takes."""
    netfilter = proc / "sys" / "net" / "netfilter"
    count, limit = _number(netfilter / "nf_conntrack_count"), _number(netfilter / "nf_conntrack_max")
    return KernelState(count, limit, _lock_problem(lock) if needs_lock else "")


def _lock_problem(lock: Path) -> str:
    # A hostPath volume without a type makes a directory where kube-proxy's lock is to be.
    if lock.is_dir():
        return f"{lock} is a directory; remove it"
    if lock.exists():
        return ""
    if not lock.parent.is_dir():
        return f"{lock.parent} does not exist"
    return "" if os.access(lock.parent, os.W_OK) else f"{lock} is missing, and {lock.parent} is read-only"


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
