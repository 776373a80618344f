# SPDX-License-Identifier: Apache-2.0
"""Sends real packets out of a guest and reports where they arrived, or how they failed."""

import errno
import itertools
import select
import socket
import struct
import time
from contextlib import ExitStack
from dataclasses import dataclass

from ruleset.model import Protocol
from tests.cases.services import sctp
from tests.cases.services.namespace import ThreadedNamespace
from tests.cases.services.responder import Arrival, Responder, parse_arrival

# Long enough for the slowest machine; a packet with a reply does not wait so long.
TIMEOUT_S = 10.0
# A packet that is dropped in OUTPUT reaches no tap on any interface. So a short wait is enough, and a
# slow machine cannot look like a drop.
DROP_S = 0.25
_ETH_P_ALL = 3
_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH)
_FIRST_PORT, _LAST_PORT = 32000, 60999
# The responder identifies associations by this port alone, for all guests.
_sctp_ports = itertools.cycle(range(_FIRST_PORT, _LAST_PORT))


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What became of one packet: where it arrived, or else a verdict in the case files' words."""

    reached: Arrival | None
    verdict: str
    took_s: float


class Probe:
    """Sends from one guest. `mark` is put on packets (SO_MARK), as a mesh's own proxy does."""

    def __init__(self, guest: ThreadedNamespace, responder: Responder, source: str) -> None:
        self._guest = guest
        self._responder = responder
        self._source = source
        self._family = socket.AF_INET6 if ":" in source else socket.AF_INET
        # Each packet has a source port of its own: with one that was used before, connection tracking
        # would take a UDP packet for one of an older flow, and send it where that went.
        self._ports = iter(range(_FIRST_PORT, _LAST_PORT))

    def send(
        self,
        protocol: Protocol,
        destination: str,
        port: int,
        timeout_s: float = TIMEOUT_S,
        mark: int = 0,
        *,
        is_watched: bool = False,
    ) -> ProbeResult:
        """Open one flow to a destination.

        A packet without a reply within `timeout_s` is "unanswered", or "drop" if the guest is watched
        and none of its interfaces had the packet. Watching costs some milliseconds.
        """
        source = destination if destination.startswith("127.") or destination == "::1" else self._source
        begin = time.monotonic()
        with ExitStack() as stack:
            one = stack.enter_context(self._guest.call(_make_socket, self._family, protocol, mark))
            tap = stack.enter_context(self._guest.call(_open_tap)) if is_watched else None
            try:
                reached = self._sent(one, protocol, (source, destination, port), timeout_s)
            except OSError as problem:
                return ProbeResult(None, _verdict(problem), time.monotonic() - begin)
            took_s = time.monotonic() - begin
            if reached is not None:
                is_itself = (reached.ip, reached.port) == (destination, port)
                return ProbeResult(reached, "pass" if is_itself else "endpoint", took_s)
            is_dropped = tap is not None and not _find_packet_of(tap, protocol, one)
            return ProbeResult(None, "drop" if is_dropped else "unanswered", took_s)

    def _sent(
        self, one: socket.socket, protocol: Protocol, flow: tuple[str, str, int], timeout_s: float
    ) -> Arrival | None:
        source, destination, port = flow
        if protocol is Protocol.SCTP:
            return self._sent_sctp(one, destination, port, timeout_s)
        one.settimeout(timeout_s)
        self._bind(one, source)
        try:
            one.connect((destination, port))
            if protocol is Protocol.TCP:
                return parse_arrival(_receive_all(one))
            return exchange_datagram(one, b"x")
        except TimeoutError:
            return None

    def _bind(self, one: socket.socket, source: str) -> None:
        for port in self._ports:
            try:
                return one.bind((source, port))
            except OSError as problem:
                if problem.errno != errno.EADDRINUSE:  # one that the guest listens on
                    raise
        raise OSError(errno.EADDRNOTAVAIL, "this guest has used all its source ports")

    def _sent_sctp(self, one: socket.socket, destination: str, port: int, timeout_s: float) -> Arrival | None:
        one.connect((destination, 0))
        source_port = next(_sctp_ports)
        _send(one, sctp.init(source_port, port), timeout_s)
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            found = self._responder.association(source_port, min(0.02, left))
            if found is not None:
                return found
            number = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                raise OSError(number, "reported by ICMP")
        return None


def exchange_datagram(one: socket.socket, data: bytes) -> Arrival | None:
    """Send on a connected UDP socket, and read where it arrived, as the other end reports it."""
    timeout_s = one.gettimeout() or TIMEOUT_S
    _send(one, data, timeout_s)
    try:
        reply = one.recv(2048)
    except TimeoutError:
        return None
    return parse_arrival(reply.removeprefix(data).strip())


def _send(one: socket.socket, data: bytes, timeout_s: float) -> None:
    """Send. On EPERM, wait for the ICMP error that tells REJECT from DROP.

    The hook returns EPERM for both.
    """
    try:
        one.send(data)
    except PermissionError:
        poll = select.poll()
        poll.register(one, select.POLLERR)
        poll.poll(timeout_s * 1000)
        number = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        raise OSError(number or errno.EPERM, "refused by the packet filter") from None


def _verdict(problem: OSError) -> str:
    match problem.errno:
        case errno.ECONNREFUSED:
            return "reject"
        case errno.EPERM:
            return "drop"
        case number if number in _UNREACHABLE:
            return "unreach"
    return f"error: {problem}"


def _make_socket(family: socket.AddressFamily, protocol: Protocol, mark: int) -> socket.socket:
    """Made in the guest."""
    match protocol:
        case Protocol.TCP:
            one = socket.socket(family, socket.SOCK_STREAM)
        case Protocol.UDP:
            one = socket.socket(family, socket.SOCK_DGRAM)
        case _:
            one = socket.socket(family, socket.SOCK_RAW, sctp.PROTOCOL)
    if mark:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
    return one


def _open_tap() -> socket.socket:
    """Made in the guest: sees every packet on every interface of it."""
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_ALL))
    tap.setblocking(False)
    return tap


def _find_packet_of(tap: socket.socket, protocol: Protocol, one: socket.socket) -> bool:
    """Whether a packet of this socket left the guest, by its source port."""
    if protocol is Protocol.SCTP:
        numbers, expected = b"\x84", None
    else:
        numbers, expected = (b"\x06" if protocol is Protocol.TCP else b"\x11"), one.getsockname()[1]
    while True:
        try:
            packet = tap.recv(2048)
        except BlockingIOError:
            return False
        is_six = packet[:1] and packet[0] >> 4 == 6
        number = packet[6:7] if is_six else packet[9:10]
        body = packet[40:] if is_six else packet[(packet[0] & 15) * 4 :]
        if number == numbers and len(body) >= 4:
            (source_port,) = struct.unpack("!H", body[:2])
            if expected in (None, source_port):
                return True


def _receive_all(one: socket.socket) -> bytes:
    data = b""
    while more := one.recv(2048):
        data += more
    return data
