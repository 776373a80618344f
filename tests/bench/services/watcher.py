# SPDX-License-Identifier: Apache-2.0
"""Detects when an endpoint is in a packet filter, without a process and without a packet.

It reads the kernel's state, not the daemons'. nf_tables notifies listeners of each transaction: the
notifications are searched for the four bytes of the address. Legacy tables have no notifications: their size
is polled (2 us), and when it changes the entries are read and searched. So a change of legacy tables must
change the number of rules to be detected at once. Neither detects a removed endpoint: nf_tables does not name
the elements of a map that is deleted with its rule.
"""

import ctypes
import errno
import os
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from tests.bench.processes import RunError
from tests.lab.namespaces import LabNamespace

# Between two polls of all guests: the resolution of the measurement.
POLL_S = 0.0005

_NETLINK_NETFILTER, _NFTABLES_GROUP = 12, 7
_SO_RCVBUFFORCE = 33
_RECEIVE_BYTES = 16 << 20
_DATAGRAM_BYTES = 1 << 18
_MESSAGE = struct.Struct("=IHHII")
# Of linux/netfilter/nf_tables.h, subsystem 10: NFT_MSG_NEWRULE, NFT_MSG_NEWSETELEM.
_NEW = (10 << 8 | 6, 10 << 8 | 12)

_GET_INFO, _GET_ENTRIES = 64, 65
_INFO = struct.Struct("=32s I 5I 5I II")
_ENTRIES_OFFSET = 40
# A simultaneous change by another program may leave the size unchanged.
_SEARCH_EVERY_S = 0.1


class EndpointWatcher(Protocol):
    """Watches one namespace. `arm` it with the next address, then `poll` until it is installed."""

    def arm(self, address: str) -> None: ...
    def poll(self) -> bool: ...
    def last_seen(self) -> str:
        """What it has seen since it was armed, for the message of a failed wait."""
        ...

    def close(self) -> None: ...


class NftWatcher:
    """Of nf_tables: nft and iptables-nft, ours and kube-proxy's."""

    def __init__(self, namespace: LabNamespace) -> None:
        self._socket = namespace.inside(_listen)
        self._name = namespace.name
        self._address = ""
        self._needle = b""
        self._notifications = 0
        self._with_address = 0

    def close(self) -> None:
        self._socket.close()

    def arm(self, address: str) -> None:
        self._address, self._needle = address, socket.inet_aton(address)
        while self._read() is not None:
            pass
        self._notifications = self._with_address = 0

    def poll(self) -> bool:
        while (data := self._read()) is not None:
            self._notifications += 1
            if self._needle in data:
                self._with_address += 1
                if self._adds_endpoint(data):
                    return True
        return False

    def last_seen(self) -> str:
        return (
            f"{self._name}: {self._notifications} notifications of nf_tables, of these {self._with_address}"
            f" with {self._address}, none that adds it"
        )

    def _read(self) -> bytes | None:
        while True:
            try:
                return self._socket.recv(_DATAGRAM_BYTES)
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise

    def _adds_endpoint(self, data: bytes) -> bool:
        position = 0
        while position + _MESSAGE.size <= len(data):
            length, kind, *_ = _MESSAGE.unpack_from(data, position)
            if length < _MESSAGE.size:
                raise RunError("netlink: a message is cut")
            if kind in _NEW and self._needle in data[position : position + length]:
                return True
            position += (length + 3) & ~3
        return False


class LegacyWatcher:
    """Of the nat table of legacy iptables. Reading it creates it, as iptables itself does."""

    def __init__(self, namespace: LabNamespace) -> None:
        self._socket = namespace.inside(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._name = namespace.name
        self._address = ""
        self._needle = b""
        self._size = self._armed_size = (0, 0)
        self._searched_s = 0.0

    def close(self) -> None:
        self._socket.close()

    def arm(self, address: str) -> None:
        self._address, self._needle = address, socket.inet_aton(address)
        self._size = self._armed_size = self._info()
        self._searched_s = time.monotonic()

    def poll(self) -> bool:
        size, now = self._info(), time.monotonic()
        if size == self._size and now - self._searched_s < _SEARCH_EVERY_S:
            return False
        self._size, self._searched_s = size, now
        entries = self._entries(size[1])
        return entries is not None and self._needle in entries

    def last_seen(self) -> str:
        (before, _), (now, _) = self._armed_size, self._info()
        entries = f"{now} entries ({before} before)"
        return f"{self._name}: the legacy table nat has {entries}, none with {self._address}"

    def _info(self) -> tuple[int, int]:
        buffer = ctypes.create_string_buffer(_INFO.size)
        struct.pack_into("32s", buffer, 0, b"nat")
        self._getsockopt(_GET_INFO, buffer)
        *_, count, size = _INFO.unpack(buffer.raw)
        return int(count), int(size)

    def _entries(self, size: int) -> bytes | None:
        """The table; None if it has changed by now."""
        buffer = ctypes.create_string_buffer(_ENTRIES_OFFSET + size)
        struct.pack_into("=32sI", buffer, 0, b"nat", size)
        with suppress(BlockingIOError):
            self._getsockopt(_GET_ENTRIES, buffer)
            return buffer.raw
        self._size = (0, 0)
        return None

    def _getsockopt(self, option: int, buffer: "ctypes.Array[ctypes.c_char]") -> None:
        length = ctypes.c_uint(len(buffer))
        descriptor, level = self._socket.fileno(), socket.IPPROTO_IP
        if self._libc.getsockopt(descriptor, level, option, buffer, ctypes.byref(length)):
            number = ctypes.get_errno()
            if number == errno.EINVAL:  # the table has another size now (net/ipv4/netfilter)
                number = errno.EAGAIN
            raise OSError(number, os.strerror(number))


def wait_for_all(watchers: Sequence[EndpointWatcher], timeout_s: float) -> list[float]:
    """When each armed watcher found its address, of `time.monotonic`. Raises RunError."""
    seen = [0.0] * len(watchers)
    waiting = dict(enumerate(watchers))
    deadline_s = time.monotonic() + timeout_s
    while waiting:
        for number in [number for number, watcher in waiting.items() if watcher.poll()]:
            seen[number] = time.monotonic()
            del waiting[number]
        if time.monotonic() > deadline_s:
            found = "\n  ".join(watcher.last_seen() for watcher in waiting.values())
            late = f"{len(waiting)} of {len(seen)} guests within {timeout_s:g} s"
            raise RunError(f"a change was not live in {late}:\n  {found}")
        if waiting:
            time.sleep(POLL_S)  # pace: polls would take a processor from what is measured
    return seen


def _listen() -> socket.socket:
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BYTES)
    made.bind((0, 1 << (_NFTABLES_GROUP - 1)))
    made.setblocking(False)
    return made
