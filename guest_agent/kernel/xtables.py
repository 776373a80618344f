# SPDX-License-Identifier: Apache-2.0
"""The rules of legacy iptables as the kernel holds them, read without a process.

Everything that knows the layout of `struct ipt_getinfo`, `ipt_get_entries`, `ipt_entry` and their
IPv6 counterparts (linux/netfilter_ipv4/ip_tables.h, linux/netfilter_ipv6/ip6_tables.h) lives here.
To see that nothing changed one need not understand the rules: they are compared byte by byte.
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
# The policies of built-in chains and the end of the table are entries too.
_EMPTY_ENTRIES = {"filter": 4, "nat": 5}

_GET_INFO, _GET_ENTRIES = 64, 65
_INFO = struct.Struct("=32s I 5I 5I II")
_HEAD = struct.Struct("=32sI")
# After the name comes the size (4 bytes), and the entries are aligned to 8.
_ENTRIES_OFFSET = 40
# A table that changes while it is read has another size than it was asked for: EAGAIN.
_READS = 5
# 10 000 Services x 2 in the flat shape are 30 000 rules of 400 bytes.
_MAX_TABLE_BYTES = 1 << 27


class XtablesError(Exception):
    """The kernel has no such table, or does not let us read it."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where things stand in an entry, and how to ask for it."""

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
class _Seen:
    """A table as it was read last: `struct ipt_get_entries`, and the number of its rules.

    `form` is that of `all_but_counters`, once it was needed.
    """

    entries: ctypes.Array[ctypes.c_char]
    form: struct.Struct | None
    number: int


def all_but_counters(
    entries: bytes | ctypes.Array[ctypes.c_char], start: int, family: Family
) -> struct.Struct:
    """What to read of a table's entries to have all but their counters, which move by themselves.

    They begin at `start` and go up to the end of `entries`. Raises `XtablesError`.
    """
    layout = _LAYOUTS[family]
    counters, next_offset, tail = layout.counters, layout.next_offset, layout.counters + _COUNTER_BYTES
    # Thousands of rules are walked after each change: a look at each, and no more.
    step_at = _STEP.unpack_from
    form, position, end, pending = [], start, len(entries), 0
    while position < end:
        if position + layout.entry_bytes > end:
            raise XtablesError("an entry is shorter than its head, or cut")
        (step,) = step_at(entries, position + next_offset)
        if step < layout.entry_bytes or position + step > end:
            raise XtablesError("an entry is shorter than its head, or cut")
        form.append(f"{pending + counters}s{_COUNTER_BYTES}x")
        pending = step - tail
        position += step
    return struct.Struct(f"={''.join(form)}{pending}s")


class Xtables:
    """Reads legacy tables of the network namespace of the thread that makes it."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._sockets: dict[Family, socket.socket] = {}
        self._seen: dict[tuple[Family, str], _Seen] = {}
        self._last = 0
        self._whole: dict[Family, list[str]] = {}
        """Families that have all of `TABLES`. They do not go, but with their module and all rules."""

    def close(self) -> None:
        for each in self._sockets.values():
            each.close()

    def instantiated(self, family: Family) -> frozenset[str]:
        """The tables that exist here. Merely asking for another one would make it."""
        try:
            return frozenset(_LAYOUTS[family].names.read_text().split())
        except OSError:
            return frozenset()

    def make(self, family: Family) -> None:
        """Load and instantiate the tables that we use. Raises `XtablesError` where there are none."""
        for table in TABLES:
            self._info(family, table)

    def has_rules(self, family: Family) -> bool:
        """Whether there is any rule or chain, whoever's, in our tables."""
        try:
            return any(
                self._info(family, table)[0] > _EMPTY_ENTRIES[table] for table in self._present(family)
            )
        except XtablesError:
            return True

    def sizes(self, family: Family) -> str:
        """Rules and bytes of each of our tables: others after nearly every change. Raises `XtablesError`."""
        return " ".join(f"{table} {self._info(family, table)}" for table in self._present(family))

    def _present(self, family: Family) -> list[str]:
        if family in self._whole:
            return self._whole[family]
        present = sorted(self.instantiated(family) & set(TABLES))
        if len(present) == len(TABLES):
            self._whole[family] = present
        return present

    def states(self, family: Family, *, is_changed: bool = False) -> str:
        """Which rules `TABLES` have, whoever's: another text when they are others, but for counters.

        To be compared with what the same object said before: rules that come back may have another
        text than they had, and after `is_changed`, which compares nothing, all have. Raises
        `XtablesError`.
        """
        present = self._present(family)
        return " ".join(f"{table} {self._state(family, table, is_changed=is_changed)}" for table in present)

    def _state(self, family: Family, table: str, *, is_changed: bool) -> int:
        """The number of a table's rules: the next one when they are others than last time.

        Mostly nothing at all has moved, or all is of another length. Where neither, counters may
        be all that moved. To find them one must walk the entries, of those that are known already:
        should the rules be others now, the walk would have gone another way from the first entry
        with another length; that length is part of what is compared, so it is seen as well.
        """
        seen = None if is_changed else self._seen.get((family, table))
        if seen is None:
            entries = self._entries(family, table, None)
        else:
            entries = self._entries(family, table, len(seen.entries) - _ENTRIES_OFFSET)
            if len(entries) == len(seen.entries):
                if not self._libc.memcmp(entries, seen.entries, ctypes.c_size_t(len(entries))):
                    return seen.number
                form = seen.form or all_but_counters(seen.entries, _ENTRIES_OFFSET, family)
                before, now = (form.unpack_from(each, _ENTRIES_OFFSET) for each in (seen.entries, entries))
                if before == now:
                    self._seen[family, table] = _Seen(entries, form, seen.number)
                    return seen.number
        self._last += 1
        self._seen[family, table] = _Seen(entries, None, self._last)
        return self._last

    def _entries(self, family: Family, table: str, size: int | None) -> ctypes.Array[ctypes.c_char]:
        """`struct ipt_get_entries` as the kernel fills it, which are `size` bytes as far as is known."""
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
        raise XtablesError(f"{table}: does not stand still")

    def _info(self, family: Family, table: str) -> tuple[int, int]:
        """How many entries a table has, and how many bytes they are."""
        buffer = ctypes.create_string_buffer(_INFO.size)
        struct.pack_into("32s", buffer, 0, table.encode())
        number = self._getsockopt(family, _GET_INFO, buffer)
        if number:
            raise XtablesError(f"{table}: {os.strerror(number)}")
        *_, count, size = _INFO.unpack(buffer.raw)
        if size > _MAX_TABLE_BYTES:
            raise XtablesError(f"{table}: {size} bytes of rules are too many")
        return int(count), int(size)

    def _getsockopt(self, family: Family, option: int, buffer: ctypes.Array[ctypes.c_char]) -> int:
        """Call getsockopt(2), which Python's own wraps for small, output-only values; the errno or 0."""
        layout = _LAYOUTS[family]
        if family not in self._sockets:
            try:
                # Not a raw socket as iptables has: CAP_NET_ADMIN is enough, without CAP_NET_RAW.
                self._sockets[family] = socket.socket(layout.family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            except OSError as error:
                return error.errno or errno.EIO
        length = ctypes.c_uint(len(buffer))
        descriptor = self._sockets[family].fileno()
        failed = self._libc.getsockopt(descriptor, layout.level, option, buffer, ctypes.byref(length))
        return ctypes.get_errno() if failed else 0
