# SPDX-License-Identifier: Apache-2.0
"""Network namespaces of the ring, and sockets inside them from this process."""

from __future__ import annotations

import ctypes
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from tests.k8s.ring.processes import run

_CLONE_NEWNET = 0x40000000
_NAMED = Path("/run/netns")


@dataclass(frozen=True, slots=True)
class NetworkNamespace:
    """A named network namespace with one address on a link to its peer."""

    name: str
    address: str

    @property
    def path(self) -> Path:
        """The file that holds it open."""
        return _NAMED / self.name

    @property
    def enter(self) -> list[str]:
        """The command prefix that runs a program in it.

        Not `ip netns exec`: that mounts a new /sys and hides the control groups. The program gets
        SIGKILL when the thread that started it ends, so that nothing outlives a killed test run.
        """
        return ["nsenter", f"--net={self.path}", "setpriv", "--pdeathsig", "KILL"]

    def connect(self, address: str, port: int, *, timeout_s: float = 10.0) -> socket.socket:
        """A TCP connection made from inside.

        A socket belongs to the namespace that its thread is in when it is made, so the thread
        enters, makes it, and leaves again. `os.setns` exists from Python 3.12 on only.

        Raises:
            OSError: as `socket.connect`.
        """
        with Path("/proc/thread-self/ns/net").open() as own, self.path.open() as inside:
            _setns(inside.fileno())
            try:
                made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            finally:
                _setns(own.fileno())
        made.settimeout(timeout_s)
        try:
            made.connect((address, port))
        except OSError:
            made.close()
            raise
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made


def create_pair(one: NetworkNamespace, other: NetworkNamespace, *, more: list[str]) -> None:
    """Make two namespaces, one link between them, and `more` addresses in the first.

    Each is the other's default route: without one an apiserver refuses to start.
    """
    commands = [
        *(f"netns add {n.name}" for n in (one, other)),
        f"link add name eth0 netns {one.name} type veth peer name eth0 netns {other.name}",
    ]
    run(["ip", "-batch", "-"], stdin="\n".join(commands).encode())
    for here, there in ((one, other), (other, one)):
        extra = more if here is one else []
        commands = [
            "link set lo up",
            *(f"addr add {a}/24 dev eth0" for a in [here.address, *extra]),
            "link set eth0 up",
            f"route add default via {there.address}",
        ]
        run(["ip", "-n", here.name, "-batch", "-"], stdin="\n".join(commands).encode())


def delete(names: list[str]) -> None:
    """Remove those namespaces that exist."""
    names = [n for n in names if (_NAMED / n).exists()]
    if names:
        lines = "\n".join(f"netns delete {n}" for n in names)
        run(["ip", "-force", "-batch", "-"], stdin=lines.encode())


def _setns(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")
