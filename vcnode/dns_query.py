# SPDX-License-Identifier: Apache-2.0
"""Queries a DNS server from a pod's network namespace: over UDP, and over TCP if the answer is truncated."""

import asyncio
import contextlib
import secrets
import socket
import time

import dns.exception
import dns.flags
import dns.message
import dns.query

from kata_bridge.channels.netns.executor import NetnsExecutor
from kata_bridge.channels.port import NotInjectable, Unreachable
from vcnode.core.dns_message import DnsAnswer, QueryResult, RecordType, answer, question

PORT = 53
# A resolver waits 5 s and tries twice (resolv.conf(5)); a person at a terminal waits less.
TIMEOUT_S = 2.0
TRIES = 2


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
            query = question(name, type_, secrets.randbelow(1 << 16))
            for server in servers:
                result = await _ask(namespaces, name, (server, port), query, netns)
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
    namespaces: NetnsExecutor,
    name: str,
    server: tuple[str, int],
    query: dns.message.QueryMessage,
    netns: str | None,
) -> QueryResult:
    started = time.monotonic()
    found, problem = None, ""
    try:
        if netns is None:
            found = await asyncio.to_thread(_exchange, server, query)
        else:
            found = await namespaces.submit(netns, lambda: _exchange(server, query))
    except TimeoutError:
        problem = f"no answer within {TIMEOUT_S * TRIES:.0f} s"
    except OSError as error:
        problem = error.strerror or type(error).__name__
    except (dns.exception.DNSException, EOFError) as error:
        problem = f"malformed answer: {str(error) or type(error).__name__}"
    except (Unreachable, NotInjectable) as error:
        problem = str(error)
    return QueryResult(name, server[0], found, problem, time.monotonic() - started)


def _exchange(server: tuple[str, int], query: dns.message.QueryMessage) -> DnsAnswer:
    """Raises OSError, TimeoutError, `dns.exception.DNSException` for what is no answer to this question."""
    for _ in range(TRIES):
        with contextlib.suppress(dns.exception.Timeout):
            return answer(_response(server, query))
    raise TimeoutError


def _response(server: tuple[str, int], query: dns.message.QueryMessage) -> dns.message.Message:
    address, port = server
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        # Of a connected socket the kernel reports a closed port.
        client.connect(server)
        client.setblocking(False)
        response = dns.query.udp(query, address, TIMEOUT_S, port, sock=client, ignore_trailing=True)
    if response.flags & dns.flags.TC:
        return dns.query.tcp(query, address, TIMEOUT_S, port)
    return response
