# SPDX-License-Identifier: Apache-2.0
"""Work in other network namespaces, without a process for it.

A network namespace belongs to a thread (setns(2), namespaces(7)): what a thread opens, and what it
starts, is in the namespace that it is in at that moment. So a few threads of ours enter a guest's
namespace, do a piece of work and come back; everything that calls setns lives here.
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

# The work is done by processes of the node; more at once only makes each of them later.
THREADS = 4

_CLONE_NEWNET = 0x40000000  # linux/sched.h
# The path of the calling thread: that of the process is its first thread's.
_OWN = "/proc/thread-self/ns/net"

T = TypeVar("T")

_log = logs.get(__name__)


class NetnsExecutor:
    """The threads. Only root, or who has CAP_SYS_ADMIN, gets anywhere."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._home = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        self._threads = ThreadPoolExecutor(THREADS, "netns")

    def close(self) -> None:
        """End when what is under way has ended; it is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        os.close(self._home)

    def begin(self, path: str, work: Callable[[], T]) -> asyncio.Future[T]:
        """Begin `work` in the namespace at `path`; the future has what it returns or raises.

        It has `Unreachable` where there is no such namespace (any more) and `NotInjectable` where
        it may not or must not be entered. Work that has begun cannot be ended: shield the future.
        """
        return asyncio.get_running_loop().run_in_executor(self._threads, self._within, path, work)

    def _within(self, path: str, work: Callable[[], T]) -> T:
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
                if self._libc.setns(self._home, _CLONE_NEWNET):
                    # Harmless but for the namespace that lives on: the next work enters its own first.
                    _log.error("a thread cannot leave a namespace", path=path, errno=ctypes.get_errno())
        finally:
            os.close(namespace)

    def _check(self, path: str, namespace: int) -> None:
        """The host's own rules are never a guest's."""
        there, home = os.fstat(namespace), os.fstat(self._home)
        if (there.st_dev, there.st_ino) == (home.st_dev, home.st_ino):
            raise NotInjectable(f"{path} is the host's own network: the host's own rules apply to this pod")

    def _enter(self, path: str, namespace: int) -> None:
        if not self._libc.setns(namespace, _CLONE_NEWNET):
            return
        number = ctypes.get_errno()
        if number == errno.EPERM:
            raise NotInjectable(f"{path}: kata-bridge may not enter it; it needs CAP_SYS_ADMIN")
        if number == errno.EINVAL:
            raise NotInjectable(f"{path} is no network namespace")
        raise Unreachable(f"network namespace {path}: {os.strerror(number)}")
