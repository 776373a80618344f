# SPDX-License-Identifier: Apache-2.0
"""Listeners that report to each client the address and port that its packet had on arrival."""

import selectors
import socket
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from ruleset.model import Endpoint
from tests.cases.services import sctp
from tests.cases.services.namespace import ThreadedNamespace

_MAX_ASSOCIATIONS = 4096
_BACKLOG = 256
_IP_PKTINFO = 8  # linux/in.h; Python's socket module has no name for it before 3.14
_IPV6_PKTINFO = struct.Struct("16si")
_IN_PKTINFO = struct.Struct("i4s4s")


@dataclass(frozen=True, slots=True)
class Arrival:
    """`where` is the namespace; `source` the address that the other end saw as the sender's."""

    where: str
    ip: str
    port: int
    source: str

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.ip, self.port)

    def line(self) -> bytes:
        return f"{self.where} {self.ip} {self.port} {self.source}\n".encode()


def parse_arrival(line: bytes) -> Arrival:
    where, ip, port, source = line.decode().split()
    return Arrival(where, ip, int(port), source)


@dataclass(frozen=True, slots=True)
class _ResponderSocket:
    socket: socket.socket
    kind: str
    where: str
    port: int


class Responder:
    """Answers on ports of namespaces, all from one thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._associations: OrderedDict[int, Arrival] = OrderedDict()
        self._seen = threading.Condition()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._serve, name="responder", daemon=True)
        self._thread.start()

    def listen(
        self, namespace: ThreadedNamespace, family: socket.AddressFamily, ports: Iterable[int]
    ) -> list[socket.socket]:
        """Answer TCP and UDP on these ports of every address, and record SCTP on all.

        Close them with `forget`: the namespace lives as long as they do.
        """
        listeners = namespace.call(_listeners, namespace.name, family, sorted(set(ports)))
        for listener in listeners:
            self._selector.register(listener.socket, selectors.EVENT_READ, listener)
        return [listener.socket for listener in listeners]

    def forget(self, listeners: Iterable[socket.socket]) -> None:
        """Stop answering on these."""
        for one in listeners:
            self._selector.unregister(one)
            one.close()

    def close(self) -> None:
        self._wake.close()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _ResponderSocket):
                key.data.socket.close()
        self._woken.close()
        self._selector.close()

    def association(self, source_port: int, wait_s: float) -> Arrival | None:
        """Where the SCTP packet from that port ended; None if none came within `wait_s`."""
        with self._seen:
            self._seen.wait_for(lambda: source_port in self._associations, wait_s)
            return self._associations.pop(source_port, None)

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    return
                listener: _ResponderSocket = key.data
                try:
                    self._answer(listener)
                except OSError:
                    # The client or the listener is gone, or no route leads back: the client reports it.
                    continue

    def _answer(self, listener: _ResponderSocket) -> None:
        if listener.kind == "tcp":
            connection, peer = listener.socket.accept()
            with connection:
                local = connection.getsockname()
                connection.sendall(Arrival(listener.where, local[0], local[1], peer[0]).line())
        elif listener.kind == "udp":
            data, control, _, peer = listener.socket.recvmsg(2048, 256)
            address, reply = _destination(control)
            reached = Arrival(listener.where, address, listener.port, peer[0])
            listener.socket.sendmsg([data, b" ", reached.line()], reply, 0, peer)
        else:
            data, control, _, peer = listener.socket.recvmsg(2048, 256)
            address, _ = _destination(control)
            if listener.socket.family == socket.AF_INET:
                data = data[(data[0] & 15) * 4 :]
            found = sctp.ports(data)
            if found is not None:
                self._note(found[0], Arrival(listener.where, address, found[1], peer[0]))

    def _note(self, source_port: int, reached: Arrival) -> None:
        with self._seen:
            self._associations[source_port] = reached
            if len(self._associations) > _MAX_ASSOCIATIONS:
                self._associations.popitem(last=False)
            self._seen.notify_all()


def _listeners(where: str, family: socket.AddressFamily, ports: list[int]) -> list[_ResponderSocket]:
    """Made in the namespace."""
    found = []
    any_address = "::" if family == socket.AF_INET6 else "0.0.0.0"  # noqa: S104 - within the namespace
    for port in ports:
        for kind, of in (("tcp", socket.SOCK_STREAM), ("udp", socket.SOCK_DGRAM)):
            one = socket.socket(family, of)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _set_up(one, family)
            one.bind((any_address, port))
            if kind == "tcp":
                one.listen(_BACKLOG)
            found.append(_ResponderSocket(one, kind, where, port))
    raw = socket.socket(family, socket.SOCK_RAW, sctp.PROTOCOL)
    _set_up(raw, family)
    found.append(_ResponderSocket(raw, "sctp", where, 0))
    return found


def _set_up(one: socket.socket, family: socket.AddressFamily) -> None:
    if family == socket.AF_INET6:
        if one.type != socket.SOCK_RAW:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
    else:
        one.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)


def _destination(
    control: list[tuple[int, int, bytes]],
) -> tuple[str, list[tuple[int, int, bytes]]]:
    """The address that a packet came to, and the control message that makes the reply come from there."""
    for level, kind, data in control:
        if (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO):
            _, _, destination = _IN_PKTINFO.unpack(data[: _IN_PKTINFO.size])
            reply = _IN_PKTINFO.pack(0, destination, bytes(4))
            return socket.inet_ntop(socket.AF_INET, destination), [(level, kind, reply)]
        if (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):
            address, _ = _IPV6_PKTINFO.unpack(data[: _IPV6_PKTINFO.size])
            reply = _IPV6_PKTINFO.pack(address, 0)
            return socket.inet_ntop(socket.AF_INET6, address), [(level, kind, reply)]
    return "?", []
