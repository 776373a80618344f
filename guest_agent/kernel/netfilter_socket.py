# SPDX-License-Identifier: Apache-2.0
"""Requests to netfilter over netlink: nf_tables' generation and tables, deletion of conntrack entries.

Only this module opens netlink sockets. Each answer has a deadline, after which the agent reports the
kernel and goes on.
"""

import errno
import os
import socket
from collections.abc import Iterable, Iterator

from bridge_api.messages import Flow
from guest_agent.netlink import nfnetlink as netlink
from guest_agent.netlink.conntrack import FlowFilters, read_entry

_NETLINK_NETFILTER = 12
_ANSWER_S = 5.0
# A dump comes in datagrams of up to 32 KiB (netlink_dump).
_DATAGRAM_BYTES = 1 << 16
# For the burst of one dump. With less the kernel waits until we read.
_DUMPS = 3
# Never visible: the transaction that creates it deletes it.
_PROBE = "vcnode-family-probe"


class NetfilterError(Exception):
    """The kernel refused, lacks the subsystem, or did not answer."""


class NetfilterSocket:
    """A netlink socket in the network namespace of the thread that creates it."""

    def __init__(self) -> None:
        """Raises `NetfilterError`."""
        try:
            self._socket = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER
            )
            self._socket.bind((0, 0))
        except OSError as error:
            raise NetfilterError(f"netlink: {error.strerror}") from None
        self._socket.settimeout(_ANSWER_S)
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def generation(self) -> int | None:
        """The generation of nf_tables' rules: each change of any table increments it.

        None if the kernel has no nf_tables. Costs some 10 us.
        """
        try:
            for message in self._request(netlink.NFT_GET_GENERATION, 0, socket.AF_UNSPEC):
                found = netlink.generation(message)
                if found is not None:
                    return found
        except NetfilterError:
            return None
        return None

    def tables(self) -> frozenset[tuple[int, str]]:
        """The tables of nf_tables, by address family (AF_INET, AF_INET6 and others) and name.

        Those of iptables-nft are among them, under iptables' names. Empty without nf_tables.
        """
        found = set()
        try:
            for message in self._request(netlink.NFT_GET_TABLE, netlink.DUMP, socket.AF_UNSPEC):
                name = netlink.table(message)
                if name is not None:
                    found.add((message.family, name))
        except NetfilterError:
            return frozenset()
        return frozenset(found)

    def probe_family(self, family: socket.AddressFamily) -> bool:
        """Whether nf_tables has an address family: each is a kernel option (CONFIG_NF_TABLES_IPV4).

        Increments the generation, and leaves nothing behind.
        """
        probe = netlink.table_probe(self._sequence + 1, family, _PROBE)
        try:
            for _ in self._send(probe, has_end=True):
                pass
        except _UnsupportedError:
            return False
        except NetfilterError:
            # Another error. The next change of rules reports it.
            return True
        return True

    def delete_flows(self, flows: Iterable[Flow]) -> int:
        """Delete the conntrack entries that match `flows`; return how many.

        Raises `NetfilterError`, and `ValueError` for an invalid flow.
        """
        filters = FlowFilters(flows)
        if not filters:
            return 0
        deleted = 0
        for _ in range(_DUMPS):
            matching, is_whole = [], True
            for message in self._request(netlink.CT_GET, netlink.DUMP, socket.AF_UNSPEC):
                is_whole = is_whole and not message.was_interrupted
                entry = read_entry(message.payload) if message.type == netlink.CT_NEW else None
                if entry is not None and filters.match(entry):
                    matching.append((message.family, entry.key))
            for family, key in matching:
                deleted += self._delete(family, key)
            # The table was resized during the dump, which may lack entries.
            if is_whole:
                break
        return deleted

    def _delete(self, family: int, key: bytes) -> bool:
        try:
            for _ in self._request(netlink.CT_DELETE, netlink.ACK, family, key):
                pass
        except _NotFoundError:
            return False
        return True

    def _request(
        self, kind: int, flags: int, family: int, payload: bytes = b""
    ) -> Iterator[netlink.NetlinkMessage]:
        """Send a request and yield its answers."""
        request = netlink.request(kind, flags, self._sequence + 1, family, payload)
        return self._send(request, has_end=bool(flags & (netlink.DUMP | netlink.ACK)))

    def _send(self, request: bytes, *, has_end: bool) -> Iterator[netlink.NetlinkMessage]:
        """Send a request with the next sequence number and yield its answers."""
        self._sequence += 1
        try:
            self._socket.send(request)
            while True:
                # Decode all first: a message left over would answer the next request.
                for message in list(netlink.messages(self._socket.recv(_DATAGRAM_BYTES))):
                    if message.sequence != self._sequence:
                        continue
                    if message.error:
                        raise _error(message.error)
                    if message.is_last:
                        return
                    yield message
                    if not has_end:
                        return
        except TimeoutError:
            raise NetfilterError("the kernel does not answer on netlink") from None
        except OSError as error:
            raise NetfilterError(f"netlink: {error.strerror}") from None
        except netlink.NetlinkFormatError as error:
            raise NetfilterError(f"netlink: {error}") from None


class _NotFoundError(NetfilterError):
    """The entry to delete does not exist any more."""


class _UnsupportedError(NetfilterError):
    """The kernel was built without the feature."""


def _error(number: int) -> NetfilterError:
    kinds = {
        errno.ENOENT: _NotFoundError,
        errno.EOPNOTSUPP: _UnsupportedError,
        errno.EAFNOSUPPORT: _UnsupportedError,
    }
    return kinds.get(number, NetfilterError)(f"netlink: {os.strerror(number)}")
