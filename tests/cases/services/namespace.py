# SPDX-License-Identifier: Apache-2.0
"""Network namespaces without a name: nothing of them is left when their last thread ends, however
this process ends."""

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_CLONE_NEWNET = 0x40000000
_COMMAND_S = 30.0
_T = TypeVar("_T")


class NamespaceError(Exception):
    """A namespace could not be made, or a command in it failed."""


class ThreadedNamespace:
    """One network namespace and the one thread that lives in it.

    Sockets and processes made on that thread belong to the namespace, wherever they are used.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"netns-{name}")
        self.path = self._thread.submit(_leave).result()

    def call(self, function: Callable[..., _T], *arguments: object) -> _T:
        """Call `function` in the namespace."""
        return self._thread.submit(function, *arguments).result()

    def run(self, *command: str, text: str = "") -> str:
        """Run a command in the namespace and return its output. Raises NamespaceError with its message."""
        done = self.call(_run, command, text)
        if done.returncode != 0:
            message = done.stderr.strip() or done.stdout.strip()
            raise NamespaceError(f"{' '.join(command)} in {self.name}: {message}")
        return done.stdout

    def tries(self, *command: str, text: str = "") -> "subprocess.CompletedProcess[str]":
        """Run a command that may fail."""
        return self.call(_run, command, text)

    def close(self) -> None:
        self._thread.shutdown()


def _leave() -> str:
    """Take this thread into a new namespace; its path for other programs."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise NamespaceError(f"unshare: {os.strerror(number)}")
    return f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net"


def _run(command: Sequence[str], text: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=_COMMAND_S, check=False
    )
