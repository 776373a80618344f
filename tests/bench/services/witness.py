# SPDX-License-Identifier: Apache-2.0
"""Sees when an endpoint has got into a packet filter, without a process and without a packet.

It asks the kernel, not the daemons. nf_tables tells all who listen what each transaction changed:
that is read, and the four bytes of the address are looked for. Legacy tables tell nobody: their size
is asked for again and again (2 us), and when it moved the entries are read and searched. So a change
that is to be seen at once there has to change the number of rules. That an endpoint goes is told by
neither: nf_tables does not name the elements of a map that goes with its rule.
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

# Between two looks at all guests: the resolution of what is measured.
LOOK_S = 0.0005

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
# Somebody else's change at the same moment may leave the size as it was.
_LOOK_CLOSER_S = 0.1


class Witness(Protocol):
    """Watches one namespace. `arm` with the address that will come, then `look` whether it has."""

    def arm(self, address: str) -> None: ...
    def look(self) -> bool: ...
    def close(self) -> None: ...


class NftWitness:
    """Of nf_tables: nft and iptables-nft, ours and kube-proxy's."""

    def __init__(self, namespace: LabNamespace) -> None:
        self._socket = namespace.inside(_listen)
        self._needle = b""

    def close(self) -> None:
        self._socket.close()

    def arm(self, address: str) -> None:
        self._needle = socket.inet_aton(address)
        while self._read() is not None:
            pass

    def look(self) -> bool:
        while (data := self._read()) is not None:
            if self._needle in data and self._tells(data):
                return True
        return False

    def _read(self) -> bytes | None:
        while True:
            try:
                return self._socket.recv(_DATAGRAM_BYTES)
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise

    def _tells(self, data: bytes) -> bool:
        position = 0
        while position + _MESSAGE.size <= len(data):
            length, kind, *_ = _MESSAGE.unpack_from(data, position)
            if length < _MESSAGE.size:
                raise RunError("netlink: a message is cut")
            if kind in _NEW and self._needle in data[position : position + length]:
                return True
            position += (length + 3) & ~3
        return False


class LegacyWitness:
    """Of the nat table of legacy iptables. Asking for it makes it, as iptables itself does."""

    def __init__(self, namespace: LabNamespace) -> None:
        self._socket = namespace.inside(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._needle = b""
        self._size = (0, 0)
        self._looked_closer_s = 0.0

    def close(self) -> None:
        self._socket.close()

    def arm(self, address: str) -> None:
        self._needle = socket.inet_aton(address)
        self._size = self._info()
        self._looked_closer_s = time.monotonic()

    def look(self) -> bool:
        size, now = self._info(), time.monotonic()
        if size == self._size and now - self._looked_closer_s < _LOOK_CLOSER_S:
            return False
        self._size, self._looked_closer_s = size, now
        entries = self._entries(size[1])
        return entries is not None and self._needle in entries

    def _info(self) -> tuple[int, int]:
        buffer = ctypes.create_string_buffer(_INFO.size)
        struct.pack_into("32s", buffer, 0, b"nat")
        self._ask(_GET_INFO, buffer)
        *_, count, size = _INFO.unpack(buffer.raw)
        return int(count), int(size)

    def _entries(self, size: int) -> bytes | None:
        """The table; None if it is another one by now."""
        buffer = ctypes.create_string_buffer(_ENTRIES_OFFSET + size)
        struct.pack_into("=32sI", buffer, 0, b"nat", size)
        with suppress(BlockingIOError):
            self._ask(_GET_ENTRIES, buffer)
            return buffer.raw
        self._size = (0, 0)
        return None

    def _ask(self, option: int, buffer: "ctypes.Array[ctypes.c_char]") -> None:
        length = ctypes.c_uint(len(buffer))
        descriptor, level = self._socket.fileno(), socket.IPPROTO_IP
        if self._libc.getsockopt(descriptor, level, option, buffer, ctypes.byref(length)):
            number = ctypes.get_errno()
            if number == errno.EINVAL:  # another size than the table has now (net/ipv4/netfilter)
                number = errno.EAGAIN
            raise OSError(number, os.strerror(number))


def wait_for_all(witnesses: Sequence[Witness], timeout_s: float) -> list[float]:
    """When each armed witness saw what it looks for, of `time.monotonic`. Raises RunError."""
    seen = [0.0] * len(witnesses)
    waiting = dict(enumerate(witnesses))
    deadline_s = time.monotonic() + timeout_s
    while waiting:
        for number in [number for number, witness in waiting.items() if witness.look()]:
            seen[number] = time.monotonic()
            del waiting[number]
        if time.monotonic() > deadline_s:
            raise RunError(f"a change was not live in {len(waiting)} of {len(seen)} within {timeout_s:g} s")
        if waiting:
            # Without a pause the looks would take a processor from what is measured.
            time.sleep(LOOK_S)
    return seen


def _listen() -> socket.socket:
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BYTES)
    made.bind((0, 1 << (_NFTABLES_GROUP - 1)))
    made.setblocking(False)
    return made
