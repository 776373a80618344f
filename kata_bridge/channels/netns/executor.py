# SPDX-License-Identifier: Apache-2.0
"""Runs work in other network namespaces, on threads of this process.

A network namespace belongs to a thread (setns(2), namespaces(7)): sockets that a thread opens, and processes
that it starts, are in its namespace of that moment. So a few threads enter a guest's namespace, do their work
and return. All calls of setns are in this module.
"""

import asyncio
import ctypes
import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from daemonkit import logs
from kata_bridge.channels.port import NotInjectable, Unreachable

# Processes of the node do the work; more at once only makes each slower.
THREADS = 4

_CLONE_NEWNET = 0x40000000  # linux/sched.h
# The calling thread's path; that of the process is its first thread's.
_OWN = "/proc/thread-self/ns/net"

T = TypeVar("T")

_log = logs.get(__name__)


class NetnsExecutor:
    """The threads. They need root or CAP_SYS_ADMIN."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._host = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        self._threads = ThreadPoolExecutor(THREADS, "netns")

    def close(self) -> None:
        """Start no more work. Does not wait for the work in flight."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        os.close(self._host)

    def submit(self, path: str, work: Callable[[], T]) -> asyncio.Future[T]:
        """Start `work` in the namespace at `path`; the future has what it returns or raises.

        It raises `Unreachable` where the namespace does not exist, and `NotInjectable` where entering it is
        forbidden. Work that runs cannot be cancelled: shield the future.
        """
        return asyncio.get_running_loop().run_in_executor(self._threads, self._run_within, path, work)

    def _run_within(self, path: str, work: Callable[[], T]) -> T:
        try:
            namespace = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Unreachable(f"network namespace {path}: {error.strerror}") from None
        try:
            self._check(path, namespace)
            self._enter(path, namespace)
            try:
                return work()
            finally:
                if self._libc.setns(self._host, _CLONE_NEWNET):
                    # The namespace lives on with the thread. The next work enters its own namespace first.
                    _log.error("thread cannot leave a namespace", path=path, errno=ctypes.get_errno())
        finally:
            os.close(namespace)

    def _check(self, path: str, namespace: int) -> None:
        """The host's own namespace is never a guest's."""
        other, host = os.fstat(namespace), os.fstat(self._host)
        if (other.st_dev, other.st_ino) == (host.st_dev, host.st_ino):
            raise NotInjectable(f"{path} is the host's own network: the host's own rules apply to this pod")

    def _enter(self, path: str, namespace: int) -> None:
        if not self._libc.setns(namespace, _CLONE_NEWNET):
            return
        number = ctypes.get_errno()
        if number == errno.EPERM:
            raise NotInjectable(f"{path}: kata-bridge may not enter it; give kata-bridge CAP_SYS_ADMIN")
        if number == errno.EINVAL:
            raise NotInjectable(f"{path} is not a network namespace")
        raise Unreachable(f"network namespace {path}: {os.strerror(number)}")
