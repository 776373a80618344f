# SPDX-License-Identifier: Apache-2.0
"""What the agent asks of netfilter by netlink: nf_tables' generation, and conntrack entries away.

Every netlink socket lives here. Answers are waited for with a deadline: a kernel that does not
answer is broken, but the agent says so and goes on.
"""

import errno
import os
import socket
from collections.abc import Iterable, Iterator

from bridge_api.messages import Flow
from guest_agent.netlink import nfnetlink as netlink
from guest_agent.netlink.conntrack import Filters, read_entry

_NETLINK_NETFILTER = 12
_ANSWER_S = 5.0
# A dump arrives in pieces of up to 32 KiB (netlink_dump).
_DATAGRAM_BYTES = 1 << 16
# Room for the burst of one dump: too little, and the kernel waits for us to read.
_RECEIVE_BYTES = 1 << 18
_DUMPS = 3
# Never seen by anybody: it goes in the transaction that makes it.
_PROBE = "vcnode-family-probe"


class NetfilterError(Exception):
    """The kernel refused, does not know the subsystem, or did not answer; says which."""


class Netfilter:
    """One netlink socket in the network namespace of the thread that makes it."""

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
        """The generation of nf_tables' rules, which each change of any table moves on.

        None where the kernel has no nf_tables. Costs some 10 us.
        """
        try:
            for message in self._ask(netlink.NFT_GET_GENERATION, 0, socket.AF_UNSPEC):
                found = netlink.generation(message)
                if found is not None:
                    return found
        except NetfilterError:
            return None
        return None

    def tables(self) -> frozenset[tuple[int, str]]:
        """The tables of nf_tables: address family (AF_INET, AF_INET6 and others) and name.

        iptables-nft's are among them, under the names of iptables' tables. Empty where there is
        no nf_tables.
        """
        found = set()
        try:
            for message in self._ask(netlink.NFT_GET_TABLE, netlink.DUMP, socket.AF_UNSPEC):
                name = netlink.table(message)
                if name is not None:
                    found.add((message.family, name))
        except NetfilterError:
            return frozenset()
        return frozenset(found)

    def knows_family(self, family: socket.AddressFamily) -> bool:
        """Whether nf_tables knows an address family: each is an option of its own (CONFIG_NF_TABLES_IPV4).

        Moves the generation on, and leaves nothing behind.
        """
        probe = netlink.table_probe(self._sequence + 1, family, _PROBE)
        try:
            for _ in self._answers(probe, has_end=True):
                pass
        except _UnknownError:
            return False
        except NetfilterError:
            # Something else is wrong, and whoever changes rules hears what.
            return True
        return True

    def delete_flows(self, flows: Iterable[Flow]) -> int:
        """Delete the conntrack entries that `flows` mean; return how many were deleted.

        Raises `NetfilterError`, and `ValueError` for a flow that makes no sense.
        """
        filters = Filters(flows)
        if not filters:
            return 0
        deleted = 0
        for _ in range(_DUMPS):
            doomed, is_whole = [], True
            for message in self._ask(netlink.CT_GET, netlink.DUMP, socket.AF_UNSPEC):
                is_whole = is_whole and not message.was_interrupted
                entry = read_entry(message.payload) if message.type == netlink.CT_NEW else None
                if entry is not None and filters.mean(entry):
                    doomed.append((message.family, entry.key))
            for family, key in doomed:
                deleted += self._delete(family, key)
            # The table was resized while it was listed: something may have been left out.
            if is_whole:
                break
        return deleted

    def _delete(self, family: int, key: bytes) -> bool:
        try:
            for _ in self._ask(netlink.CT_DELETE, netlink.ACK, family, key):
                pass
        except _GoneError:
            return False
        return True

    def _ask(self, kind: int, flags: int, family: int, payload: bytes = b"") -> Iterator[netlink.Message]:
        """Send a request and yield what answers it, up to its end."""
        request = netlink.request(kind, flags, self._sequence + 1, family, payload)
        return self._answers(request, has_end=bool(flags & (netlink.DUMP | netlink.ACK)))

    def _answers(self, request: bytes, *, has_end: bool) -> Iterator[netlink.Message]:
        """Send what has the next sequence number and yield what answers it."""
        self._sequence += 1
        try:
            self._socket.send(request)
            while True:
                # Read whole before anything is made of it: what is left unread would answer the next request.
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
        except netlink.BadNetlink as error:
            raise NetfilterError(f"netlink: {error}") from None


class _GoneError(NetfilterError):
    """What was to be deleted is not there any more."""


class _UnknownError(NetfilterError):
    """The kernel was built without what was asked for."""


def _error(number: int) -> NetfilterError:
    kinds = {errno.ENOENT: _GoneError, errno.EOPNOTSUPP: _UnknownError, errno.EAFNOSUPPORT: _UnknownError}
    return kinds.get(number, NetfilterError)(f"netlink: {os.strerror(number)}")
