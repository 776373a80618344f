# SPDX-License-Identifier: Apache-2.0
"""Network namespaces with a name: programs and sockets in them."""

import ctypes
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

NAMED = Path("/run/netns")
DEADLINE_S = 60.0

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NamedNamespace:
    name: str

    @property
    def path(self) -> Path:
        """The file that holds it open."""
        return NAMED / self.name

    @property
    def enter(self) -> list[str]:
        """The command prefix that runs a program in it.

        Not `ip netns exec`: that mounts a new /sys and hides the control groups. The program gets
        SIGKILL when the thread that started it ends, so that nothing outlives a killed test run.
        """
        return ["nsenter", f"--net={self.path}", "setpriv", "--pdeathsig", "KILL"]

    def inside(self, function: Callable[[], T]) -> T:
        """Call `function` on a thread in the namespace. `os.setns` exists from Python 3.12 on only."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._enter_and_call, function).result(DEADLINE_S)

    def _enter_and_call(self, function: Callable[[], T]) -> T:
        with self.path.open() as inside:
            if _libc.setns(inside.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        return function()

    def socket(self, family: socket.AddressFamily, kind: socket.SocketKind) -> socket.socket:
        """A socket of the namespace that its thread was in when it was made, wherever it is used."""
        return self.inside(lambda: socket.socket(family, kind))
