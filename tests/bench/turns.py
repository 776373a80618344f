# SPDX-License-Identifier: Apache-2.0
"""How long a step of a request waits behind a busy tenant: `python -m tests.bench.turns`.

In one process: a tenant's streams that are always ready, and a neighbour whose data comes in the middle of
one of their events. A wait is the processor time of the event loop until the neighbour's handler is called,
without the time of the far ends. So it holds on a busy machine, where `make bench-neighbours` does not. Exit
code 0.
"""

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.functional.vnagent.connection_links import ConnectionLink, connected_link, run
from vnagent.transport.handler import NO_USAGE, EndReason
from vnagent.transport.poller import SocketPoller
from vnagent.transport.tls_connection import TlsConnection

# Streams, and bytes of each that come together: followed logs at full output, and echoes.
KINDS = {"follows": (64, 4 * 32_760), "tunnels": (256, 64)}
# So often far ends send and read: all streams are ready when they have.
_FEED_S = 0.002
# Of the busy tenant's events, so many have data of the neighbour behind them.
_EVERY = 10


class LoopClock:
    """Processor time of this thread without that of `outside` blocks."""

    def __init__(self) -> None:
        self._outside_s = 0.0

    def __call__(self) -> float:
        return time.thread_time() - self._outside_s

    @contextlib.contextmanager
    def outside(self) -> Iterator[None]:
        begin_s = time.thread_time()
        yield
        self._outside_s += time.thread_time() - begin_s


@dataclass(slots=True)
class Neighbour:
    """Sends one byte at a time, and measures until it is handled."""

    link: ConnectionLink
    clock: LoopClock
    waits_s: list[float] = field(default_factory=list)
    events: int = 0
    relayed_bytes: int = 0
    _sent_s: float | None = None

    def count_event(self, size: int) -> None:
        """The busy tenant has an event: send in some of them."""
        self.events += 1
        self.relayed_bytes += size
        if self._sent_s is None and self.events % _EVERY == 0:
            with self.clock.outside():
                self.link.far.write(b"x")
                self.link.far.push()
            self._sent_s = self.clock()

    def handle(self) -> None:
        if self._sent_s is not None:
            self.waits_s.append(self.clock() - self._sent_s)
            self._sent_s = None
        self.link.handler.received.clear()


class Relay:
    """A handler that writes what it gets to another connection, as a stream's does."""

    def __init__(self, target: TlsConnection, neighbour: Neighbour) -> None:
        self._target = target
        self._neighbour = neighbour

    def on_handshake(self) -> None: ...

    def on_data(self, data: memoryview) -> None:
        self._target.write(data)
        self._neighbour.count_event(len(data))

    def on_batch_end(self) -> None:
        self._target.flush()

    def on_writable(self) -> None: ...

    def on_end(self, reason: EndReason) -> None: ...

    def on_deadline(self) -> None: ...


async def measure(poller: SocketPoller, count: int, size: int, seconds: float) -> str:
    """One line: quantiles of the waits, and what the busy tenant gets of the processor."""
    clock = LoopClock()
    async with contextlib.AsyncExitStack() as stack:
        streams = []
        for _ in range(count):
            kubelet = await stack.enter_async_context(connected_link(poller, is_server=False))
            client = await stack.enter_async_context(connected_link(poller, is_server=True))
            for link in (kubelet, client):
                link.transport.join(poller.group_of("busy", NO_USAGE))
            streams.append((kubelet, client))
        link = await stack.enter_async_context(connected_link(poller, is_server=True))
        link.transport.join(poller.group_of("neighbour", NO_USAGE))
        neighbour = Neighbour(link, clock)
        link.handler.at_data = neighbour.handle
        for kubelet, client in streams:
            kubelet.transport.set_handler(Relay(client.transport, neighbour))
        poller.clock = clock
        begin_s, end_s = clock(), time.monotonic() + seconds
        while time.monotonic() < end_s:
            with clock.outside():
                for kubelet, client in streams:
                    if kubelet.far.push():
                        kubelet.far.write(bytes(size))
                        kubelet.far.push()
                    client.far.pull(1 << 20)
                    client.far.received.clear()
            await asyncio.sleep(_FEED_S)  # pace: the busy tenant works meanwhile
        spent_s, waits = clock() - begin_s, sorted(neighbour.waits_s)
    p50, p90, p99 = (waits[int(q * (len(waits) - 1))] * 1e6 for q in (0.5, 0.9, 0.99))
    rate = f"{neighbour.events / spent_s:,.0f} events, {neighbour.relayed_bytes / spent_s / 1e6:.0f} MB"
    return (
        f"waits {p50:.0f} us, p90 {p90:.0f}, p99 {p99:.0f} ({len(waits)}); {rate} a second of the processor"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.turns", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each kind")
    seconds = parser.parse_args().seconds
    for kind, (count, size) in KINDS.items():

        async def body(poller: SocketPoller, count: int = count, size: int = size, kind: str = kind) -> None:
            sys.stdout.write(f"{kind:8} {await measure(poller, count, size, seconds)}\n")

        run(body)
    return 0


if __name__ == "__main__":
    sys.exit(main())
