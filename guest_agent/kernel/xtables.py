# SPDX-License-Identifier: Apache-2.0
"""Reads the kernel's rules of legacy iptables without a process.

Only this module knows the layout of `struct ipt_getinfo`, `ipt_get_entries`, `ipt_entry` and their
IPv6 counterparts (linux/netfilter_ipv4/ip_tables.h, linux/netfilter_ipv6/ip6_tables.h). Rules are
compared byte by byte, without decoding them.
"""

import ctypes
import errno
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from ruleset.model import Family

TABLES = ("filter", "nat")
# The policies of built-in chains and the end of a table are entries too.
_EMPTY_ENTRIES = {"filter": 4, "nat": 5}

_GET_INFO, _GET_ENTRIES = 64, 65
_INFO = struct.Struct("=32s I 5I 5I II")
_HEAD = struct.Struct("=32sI")
# After name and size (4 bytes) the entries follow, aligned to 8.
_ENTRIES_OFFSET = 40
# A table that changes between two calls has another size than requested: EAGAIN.
_READS = 5
# 10 000 Services x 2 without dispatch chains are 30 000 rules of 400 bytes.
_MAX_TABLE_BYTES = 1 << 27


class XtablesError(Exception):
    """The kernel has no such table, or it cannot be read."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """The layout of an entry, and the socket option to read it."""

    family: socket.AddressFamily
    level: int
    names: Path
    next_offset: int
    counters: int
    entry_bytes: int


_LAYOUTS = {
    Family.IPV4: _Layout(
        socket.AF_INET, socket.IPPROTO_IP, Path("/proc/thread-self/net/ip_tables_names"), 90, 96, 112
    ),
    Family.IPV6: _Layout(
        socket.AF_INET6, socket.IPPROTO_IPV6, Path("/proc/thread-self/net/ip6_tables_names"), 142, 152, 168
    ),
}
_COUNTER_BYTES = 16
_STEP = struct.Struct("=H")


@dataclass(frozen=True, slots=True)
class _TableSnapshot:
    """A table as read last: `struct ipt_get_entries`, and its fingerprint.

    `form` is that of `all_but_counters`, once it was needed.
    """

    entries: ctypes.Array[ctypes.c_char]
    form: struct.Struct | None
    fingerprint: int


def all_but_counters(
    entries: bytes | ctypes.Array[ctypes.c_char], start: int, family: Family
) -> struct.Struct:
    """The struct that unpacks a table's entries without their counters, which packets change.

    The entries begin at `start` and reach to the end of `entries`. Raises `XtablesError`.
    """
    layout = _LAYOUTS[family]
    counters, next_offset, tail = layout.counters, layout.next_offset, layout.counters + _COUNTER_BYTES
    # Called for thousands of rules after each change, so it does as little as possible.
    step_at = _STEP.unpack_from
    form, position, end, pending = [], start, len(entries), 0
    while position < end:
        if position + layout.entry_bytes > end:
            raise XtablesError("an entry is shorter than its header, or cut short")
        (step,) = step_at(entries, position + next_offset)
        if step < layout.entry_bytes or position + step > end:
            raise XtablesError("an entry is shorter than its header, or cut short")
        form.append(f"{pending + counters}s{_COUNTER_BYTES}x")
        pending = step - tail
        position += step
    return struct.Struct(f"={''.join(form)}{pending}s")


class Xtables:
    """Reads legacy tables of the network namespace of the thread that creates it."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._sockets: dict[Family, socket.socket] = {}
        self._snapshots: dict[tuple[Family, str], _TableSnapshot] = {}
        self._last_fingerprint = 0
        self._complete: dict[Family, list[str]] = {}
        """Families with all of `TABLES`. Tables disappear only with their module and all rules."""

    def close(self) -> None:
        for each in self._sockets.values():
            each.close()

    def existing_tables(self, family: Family) -> frozenset[str]:
        """The tables that exist here. A request for another one would create it."""
        try:
            return frozenset(_LAYOUTS[family].names.read_text().split())
        except OSError:
            return frozenset()

    def create_tables(self, family: Family) -> None:
        """Load and create `TABLES`. Raises `XtablesError` if the kernel has none."""
        for table in TABLES:
            self._info(family, table)

    def detect_rules(self, family: Family) -> bool:
        """Whether `TABLES` have any rule or chain, of anyone. Remembers the tables that exist."""
        try:
            return any(
                self._info(family, table)[0] > _EMPTY_ENTRIES[table] for table in self._present(family)
            )
        except XtablesError:
            return True

    def quick_fingerprint(self, family: Family) -> str:
        """Rules and bytes of each table: differs after most changes. Raises `XtablesError`."""
        return " ".join(f"{table} {self._info(family, table)}" for table in self._present(family))

    def _present(self, family: Family) -> list[str]:
        if family in self._complete:
            return self._complete[family]
        present = sorted(self.existing_tables(family) & set(TABLES))
        if len(present) == len(TABLES):
            self._complete[family] = present
        return present

    def fingerprint(self, family: Family, *, is_changed: bool = False) -> str:
        """Differs after every change of the rules in `TABLES`, counters left out.

        Comparable only with fingerprints of this object. Rules that are restored may get another one
        than before. With `is_changed` nothing is compared, and all get another one. Raises
        `XtablesError`.
        """
        present = self._present(family)
        return " ".join(
            f"{table} {self._table_fingerprint(family, table, is_changed=is_changed)}" for table in present
        )

    def _table_fingerprint(self, family: Family, table: str, *, is_changed: bool) -> int:
        """A number that grows with each change that is seen.

        Usually nothing has changed, or the length has. Otherwise it may be counters only. To leave
        them out, the entries of the snapshot are walked. If the rules differ now, some entry may have
        another length; but that length is among the compared bytes, so the comparison still sees it.
        """
        last = None if is_changed else self._snapshots.get((family, table))
        if last is None:
            entries = self._entries(family, table, None)
        else:
            entries = self._entries(family, table, len(last.entries) - _ENTRIES_OFFSET)
            if len(entries) == len(last.entries):
                if not self._libc.memcmp(entries, last.entries, ctypes.c_size_t(len(entries))):
                    return last.fingerprint
                form = last.form or all_but_counters(last.entries, _ENTRIES_OFFSET, family)
                before, now = (form.unpack_from(each, _ENTRIES_OFFSET) for each in (last.entries, entries))
                if before == now:
                    self._snapshots[family, table] = _TableSnapshot(entries, form, last.fingerprint)
                    return last.fingerprint
        self._last_fingerprint += 1
        self._snapshots[family, table] = _TableSnapshot(entries, None, self._last_fingerprint)
        return self._last_fingerprint

    def _entries(self, family: Family, table: str, size: int | None) -> ctypes.Array[ctypes.c_char]:
        """`struct ipt_get_entries`. `size` is the expected size of the entries, if known."""
        for _ in range(_READS):
            if size is None:
                _, size = self._info(family, table)
            buffer = ctypes.create_string_buffer(_ENTRIES_OFFSET + size)
            _HEAD.pack_into(buffer, 0, table.encode(), size)
            number = self._getsockopt(family, _GET_ENTRIES, buffer)
            if not number:
                return buffer
            if number not in (errno.EAGAIN, errno.EINVAL):
                raise XtablesError(f"{table}: {os.strerror(number)}")
            size = None
        raise XtablesError(f"{table}: changes too often")

    def _info(self, family: Family, table: str) -> tuple[int, int]:
        """The number of a table's entries, and their size in bytes."""
        buffer = ctypes.create_string_buffer(_INFO.size)
        struct.pack_into("32s", buffer, 0, table.encode())
        number = self._getsockopt(family, _GET_INFO, buffer)
        if number:
            raise XtablesError(f"{table}: {os.strerror(number)}")
        *_, count, size = _INFO.unpack(buffer.raw)
        if size > _MAX_TABLE_BYTES:
            raise XtablesError(f"{table}: {size} bytes of rules exceed the limit")
        return int(count), int(size)

    def _getsockopt(self, family: Family, option: int, buffer: ctypes.Array[ctypes.c_char]) -> int:
        """Call getsockopt(2); return its errno, or 0. Python's own allows only small output buffers."""
        layout = _LAYOUTS[family]
        if family not in self._sockets:
            try:
                # iptables uses a raw socket, which needs CAP_NET_RAW. This one needs only CAP_NET_ADMIN.
                self._sockets[family] = socket.socket(layout.family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            except OSError as error:
                return error.errno or errno.EIO
        length = ctypes.c_uint(len(buffer))
        descriptor = self._sockets[family].fileno()
        failed = self._libc.getsockopt(descriptor, layout.level, option, buffer, ctypes.byref(length))
        return ctypes.get_errno() if failed else 0
