# SPDX-License-Identifier: Apache-2.0
"""Queries a DNS server from a pod's network namespace: over UDP, and over TCP if the answer is truncated."""

import asyncio
import secrets
import socket
import struct
import time

from kata_bridge.channels.netns.executor import NetnsExecutor
from kata_bridge.channels.port import NotInjectable, Unreachable
from vcnode.core.dns_message import DnsAnswer, Malformed, QueryResult, RecordType, decode, question

PORT = 53
# A resolver waits 5 s and tries twice (resolv.conf(5)); a person at a terminal waits less.
TIMEOUT_S = 2.0
TRIES = 2
_MAX_BYTES = 65_535


def ask_all(
    names: tuple[str, ...], type_: RecordType, servers: tuple[str, ...], netns: str | None, port: int = PORT
) -> list[QueryResult]:
    """Query as a C library does: for each name the servers in turn, until one has a record.

    `netns` is the path of the pod's network namespace, None for the host's. Raises
    `dns_message.BadName`.
    """
    return asyncio.run(_ask_all(names, type_, servers, netns, port))


async def _ask_all(
    names: tuple[str, ...], type_: RecordType, servers: tuple[str, ...], netns: str | None, port: int
) -> list[QueryResult]:
    found: list[QueryResult] = []
    namespaces = NetnsExecutor()
    try:
        for name in names:
            data = question(name, type_, secrets.randbelow(1 << 16))
            for server in servers:
                result = await _ask(namespaces, name, (server, port), data, netns)
                found.append(result)
                if result.answer is not None and result.answer.records:
                    return found
                if result.answer is not None and result.answer.code in ("NOERROR", "NXDOMAIN"):
                    break  # an authoritative no: try the next name
            else:
                return found  # no server answers, so none will answer for the next name
    finally:
        namespaces.close()
    return found


async def _ask(
    namespaces: NetnsExecutor, name: str, server: tuple[str, int], data: bytes, netns: str | None
) -> QueryResult:
    started = time.monotonic()
    answer, problem = None, ""
    try:
        if netns is None:
            answer = await asyncio.to_thread(_exchange, server, data)
        else:
            answer = await namespaces.submit(netns, lambda: _exchange(server, data))
    except TimeoutError:
        problem = f"no answer within {TIMEOUT_S * TRIES:.0f} s"
    except OSError as error:
        problem = error.strerror or type(error).__name__
    except (Malformed, Unreachable, NotInjectable) as error:
        problem = str(error)
    return QueryResult(name, server[0], answer, problem, time.monotonic() - started)


def _exchange(server: tuple[str, int], data: bytes) -> DnsAnswer:
    """Raises OSError, TimeoutError, Malformed."""
    family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
    for number in range(TRIES):
        try:
            answer = _by_udp(family, server, data)
        except TimeoutError:
            if number == TRIES - 1:
                raise
            continue
        return _by_tcp(family, server, data) if answer.is_truncated else answer
    raise TimeoutError


def _by_udp(family: socket.AddressFamily, server: tuple[str, int], data: bytes) -> DnsAnswer:
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.settimeout(TIMEOUT_S)
        # A connected socket drops other senders' answers, and reports a closed port.
        client.connect(server)
        client.send(data)
        return decode(client.recv(_MAX_BYTES), data)


def _by_tcp(family: socket.AddressFamily, server: tuple[str, int], data: bytes) -> DnsAnswer:
    end_s = time.monotonic() + TIMEOUT_S
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(TIMEOUT_S)
        client.connect(server)
        client.sendall(struct.pack("!H", len(data)) + data)
        (length,) = struct.unpack("!H", _exactly(client, 2, end_s))
        return decode(_exactly(client, length, end_s), data)


def _exactly(client: socket.socket, size: int, end_s: float) -> bytes:
    """Raises TimeoutError at `end_s`, also if bytes keep trickling in."""
    found = b""
    while len(found) < size:
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        client.settimeout(left_s)
        data = client.recv(size - len(found))
        if not data:
            raise Malformed("the answer is cut short")
        found += data
    return found
