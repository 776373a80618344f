# SPDX-License-Identifier: Apache-2.0
"""The attacks on vn-agent, each a coroutine: `python -m tests.bench.attacks.attacker NAME OPTIONS`.

A process of its own, so that the measurement does not wait for the attack. It prints `ready` when all of the
attack is under way, and fails if that is not so within SETUP_S. It continues until its standard input ends,
and then prints its counts as one JSON object.

An attack is a function `async def attack(target: AttackTarget) -> None` in `ATTACKS`. It calls
`target.report_under_way()` once and never returns by itself; `target.count(...)` adds to the counts. Most
attacks are `many` of one kind of connection; each calls `target.begin()`.

All of it goes to one loopback address that the bench serves, with a tenant's credential that the bench has
issued, or with none.
"""

import argparse
import asyncio
import json
import resource
import ssl
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from daemonkit.tasks import Tasks
from tests.bench import handshakes

# A tenant may read slowly; unread bytes stay in buffers.
_CHUNK = 1 << 16
_PIPELINED = 100
_PAUSE_S = 0.05
_SETTLE_S = 2.0
# An idle process opens 500 connections in 5 s where vn-agent has a core, and slower where others use it too.
SETUP_S = 60.0


class SetUpError(Exception):
    """An attack is not under way as a whole; the message has what happened."""


@dataclass(slots=True)
class AttackTarget:
    """vn-agent, and the attacker's credentials."""

    host: str
    port: int
    server_name: str
    ca: Path
    certificate: Path
    key: Path
    # A log of the attacker's own.
    log_path: str
    # Where chains of its own authority are, for attacks on handshakes.
    chains: Path
    counted: Counter[str] = field(default_factory=Counter)
    _is_ready: bool = False
    # The tasks of `many` that are under way, and when the last of them is.
    _begun: set[object] = field(default_factory=set)
    _has_changed: asyncio.Event = field(default_factory=asyncio.Event)
    _context: ssl.SSLContext | None = None

    def begin(self) -> None:
        """The connection of the running task is under way."""
        self._begun.add(asyncio.current_task())
        self._has_changed.set()

    def end(self) -> None:
        """The connection of the running task has ended."""
        self._begun.discard(asyncio.current_task())

    async def wait_begun(self, count: int, timeout_s: float = SETUP_S) -> None:
        """Wait until so many connections are under way at once. Raises SetUpError."""
        try:
            async with asyncio.timeout(timeout_s):
                while len(self._begun) < count:
                    self._has_changed.clear()
                    await self._has_changed.wait()
        except TimeoutError:
            what = f"{len(self._begun)} of {count} connections are under way after {timeout_s:g} s"
            raise SetUpError(f"{what}: {dict(self.counted)}") from None

    def report_under_way(self) -> None:
        """Print `ready`, once."""
        if not self._is_ready:
            self._is_ready = True
            _log("ready")

    def count(self, what: str) -> None:
        self.counted[what] += 1

    async def plain(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A TCP connection on which nothing was sent."""
        return await asyncio.open_connection(self.host, self.port)

    async def tls(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection with the tenant's certificate."""
        if self._context is None:
            self._context = ssl.create_default_context(cafile=str(self.ca))
            self._context.load_cert_chain(self.certificate, self.key)
        return await asyncio.open_connection(
            self.host, self.port, ssl=self._context, server_hostname=self.server_name
        )

    def request(self, path: str) -> bytes:
        return f"GET {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n\r\n".encode()


Attack = Callable[[AttackTarget], Awaitable[None]]


async def none(target: AttackTarget) -> None:
    """No attack: how much the neighbour's figures vary by themselves."""
    target.report_under_way()
    await asyncio.Event().wait()


async def pipelined_healthz(target: AttackTarget) -> None:
    """A tenant's 200 connections, each with 100 requests for /healthz in flight."""
    await many(target, 200, _send_ahead)


async def _send_ahead(target: AttackTarget) -> None:
    reader, writer = await target.tls()
    try:
        while True:
            writer.write(target.request("/healthz") * _PIPELINED)
            await writer.drain()
            left = _PIPELINED
            while left:
                chunk = await reader.read(_CHUNK)
                if not chunk:
                    return
                left -= chunk.count(b"HTTP/1.1 ")
                target.count("replies")
                target.begin()
    finally:
        writer.close()


async def unread_pages(target: AttackTarget) -> None:
    """A tenant's 200 connections that request its own pages, one after the other, and read nothing."""
    await many(target, 200, _request_and_never_read)


async def _request_and_never_read(target: AttackTarget) -> None:
    reader, writer = await target.tls()
    cast(asyncio.Transport, writer.transport).pause_reading()
    try:
        while not reader.at_eof():
            writer.write(target.request("/pods"))
            await asyncio.wait_for(writer.drain(), 30)
            target.count("requests")
            target.begin()
            await asyncio.sleep(_PAUSE_S)  # pace: the rate of the attack
    finally:
        writer.close()


async def pages(target: AttackTarget) -> None:
    """A tenant's 8 connections that request its own pages in a closed loop."""
    await many(target, 8, request_pages("/pods"))


async def logs(target: AttackTarget) -> None:
    """A tenant's 8 connections that request a log of its own in a closed loop."""
    await many(target, 8, request_pages(f"{target.log_path}?tailLines=10"))


def request_pages(path: str) -> Attack:
    """One connection that requests `path` in a closed loop, and counts the statuses."""

    async def request_page(target: AttackTarget) -> None:
        reader, writer = await target.tls()
        try:
            while True:
                writer.write(target.request(path))
                head = await reader.readuntil(b"\r\n\r\n")
                target.count(head.split(b" ", 2)[1].decode())
                await _read_body(reader, head.lower())
                target.begin()
        finally:
            writer.close()

    return request_page


async def _read_body(reader: asyncio.StreamReader, head: bytes) -> None:
    if b"transfer-encoding: chunked" in head:
        while (size := int(await reader.readuntil(b"\r\n"), 16)) > 0:
            await reader.readexactly(size + 2)
        await reader.readexactly(2)
        return
    length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
    await reader.readexactly(int(length or b"0"))


async def own_handshakes(target: AttackTarget) -> None:
    """A tenant's own certificate, 4 handshakes at once, each connection closed after its handshake."""

    async def handshake(target: AttackTarget) -> None:
        while True:
            _, writer = await target.tls()
            target.count("handshakes")
            target.begin()
            writer.transport.abort()

    await many(target, 4, handshake)


async def many(target: AttackTarget, count: int, each: Attack) -> None:
    """So many at once; each reconnects after an error. Raises SetUpError."""

    async def again() -> None:
        while True:
            try:
                await each(target)
            except (OSError, EOFError, TimeoutError, ValueError) as problem:
                target.count(type(problem).__name__)
            target.end()
            await asyncio.sleep(_PAUSE_S)  # pace: each may be refused at once

    tasks = Tasks("attack")
    for number in range(count):
        tasks.spawn(again(), str(number))
    await target.wait_begun(count)
    target.report_under_way()
    await asyncio.Event().wait()


def _by_thread(name: str) -> Attack:
    """One of `tests.bench.handshakes`, at its rate."""
    run, rate = handshakes.ATTACKS[name]

    async def attack(target: AttackTarget) -> None:
        # It never ends; a daemon thread does not keep the process alive.
        arguments = (target.port, target.chains, rate)
        threading.Thread(target=run, args=arguments, name=name, daemon=True).start()
        await asyncio.sleep(_SETTLE_S)
        target.report_under_way()
        await asyncio.Event().wait()

    return attack


ATTACKS: dict[str, Attack] = {
    "none": none,
    # Handshakes: silent ones, hellos without an end, and chains that are long or large.
    **{name: _by_thread(name) for name in handshakes.ATTACKS},
    "pipelined-healthz": pipelined_healthz,
    "unread-pages": unread_pages,
    "pages": pages,
    "logs": logs,
    "own-handshakes": own_handshakes,
}


async def _run(name: str, attacks: Mapping[str, Attack], target: AttackTarget) -> None:
    attack = asyncio.ensure_future(attacks[name](target))  # noqa: TID251 - the one task of a program
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    done, _ = await asyncio.wait([attack, ended], return_when=asyncio.FIRST_COMPLETED)
    if attack in done:
        await attack  # its error is the program's
        raise RuntimeError(f"{name} ended by itself")
    attack.cancel()
    _log(json.dumps(target.counted))


def _log(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(prog: str, attacks: Mapping[str, Attack]) -> None:
    """Run the attack that the command line names until standard input ends."""
    parser = argparse.ArgumentParser(prog=prog)
    parser.add_argument("name", choices=sorted(attacks))
    parser.add_argument("--address", required=True)
    parser.add_argument("--server-name", required=True)
    for option in ("--ca", "--certificate", "--key"):
        parser.add_argument(option, required=True, type=Path)
    parser.add_argument("--log-path", required=True)
    parser.add_argument("--chains", required=True, type=Path)
    chosen = parser.parse_args()
    host, _, port = chosen.address.rpartition(":")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    target = AttackTarget(
        host,
        int(port),
        chosen.server_name,
        *(chosen.ca, chosen.certificate, chosen.key),
        chosen.log_path,
        chosen.chains,
    )
    asyncio.run(_run(chosen.name, attacks, target))


if __name__ == "__main__":
    main("python -m tests.bench.attacks.attacker", ATTACKS)
