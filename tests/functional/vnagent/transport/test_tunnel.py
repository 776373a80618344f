# SPDX-License-Identifier: Apache-2.0
"""Tunnel over real sockets and TLS: either side may be slow, split, stall or leave, and no byte is lost."""

import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from daemonkit.fairness.lease import Lease
from tests.functional.vnagent.connection_links import SMALL, connected_link, iterate, run, until
from tests.functional.vnagent.tls_peer import End, TlsPeer
from vnagent.transport.poller import SocketPoller
from vnagent.transport.tls_connection import CLOSE_S
from vnagent.transport.tunnel import Tunnel


@dataclass
class Joined:
    """A tunnel between two far ends: the tenant's client and the kubelet."""

    client: TlsPeer
    kubelet: TlsPeer
    tunnel: Tunnel
    closed: list[Tunnel]

    def pull_both(self) -> None:
        self.client.pull()
        self.kubelet.pull()

    def push_both(self) -> None:
        self.client.push()
        self.kubelet.push()


@contextlib.asynccontextmanager
async def joined(
    poller: SocketPoller, client_buffer: int | None = None, kubelet_buffer: int | None = None
) -> AsyncIterator[Joined]:
    """All four ends are closed at the end."""
    async with (
        connected_link(poller, is_server=True, buffer_bytes=client_buffer) as client,
        connected_link(poller, is_server=False, buffer_bytes=kubelet_buffer) as kubelet,
    ):
        closed: list[Tunnel] = []
        tunnel = Tunnel(client.transport, kubelet.transport, Lease(lambda: None), None, closed.append)
        yield Joined(client.far, kubelet.far, tunnel, closed)


def test_a_stalled_client_keeps_the_tail_of_an_ended_stream() -> None:
    """`kubectl exec ... | less`: longer than a closed connection is waited for, and still counted."""

    async def body(poller: SocketPoller) -> None:
        async with joined(poller, SMALL, SMALL) as both:
            sent = os.urandom(200_000)
            both.kubelet.write(sent)
            both.kubelet.finish(with_notify=True)
            await until(lambda: both.kubelet.end is not None, both.kubelet.push, both.kubelet.pull)
            for transport in list(poller.by_fd.values()):
                if transport.deadline is not None and transport.deadline < poller.now + 5 * CLOSE_S:
                    transport.expire()
            assert both.closed == []
            await until(lambda: both.client.end is not None, lambda: both.client.pull(2000))
            assert bytes(both.client.received) == sent
            assert both.client.end is End.CLOSE_NOTIFY
            assert both.closed == [both.tunnel]

    run(body)


@pytest.mark.parametrize("slow", ["client", "kubelet"])
def test_a_slow_end_gets_all_data_after_the_others_end(slow: str) -> None:
    """Lost tails of output: kubernetes/kubernetes 124571."""

    async def body(poller: SocketPoller) -> None:
        async with joined(poller, SMALL, SMALL) as both:
            near, far = (both.client, both.kubelet) if slow == "client" else (both.kubelet, both.client)
            sent = os.urandom(900_000)
            far.write(sent)
            far.finish(with_notify=True)
            await until(lambda: near.end is not None, far.push, lambda: near.pull(2000))
            assert bytes(near.received) == sent
            assert near.end is End.CLOSE_NOTIFY
            assert both.closed == [both.tunnel]

    run(body)


def test_a_client_still_sending_gets_all_output() -> None:
    """The client sends SPDY pings all the time. The kubelet's kernel responds to those after its end with
    RST. The client must still get all bytes from before the end."""

    async def body(poller: SocketPoller) -> None:
        async with joined(poller, SMALL) as both:
            sent = os.urandom(1_000_000)
            both.kubelet.write(sent)
            both.kubelet.finish(with_notify=True)
            # The client reads just as much as it takes to get the rest into the agent and its kernel.
            await until(
                lambda: both.kubelet.push() and both.kubelet.has_arrived, lambda: both.client.pull(2000)
            )
            both.kubelet.close()
            assert both.client.end is None
            for _ in range(5):
                both.client.write(b"ping")
                both.client.push()
                await iterate(20)
            await until(lambda: both.client.end is not None, lambda: both.client.pull(20_000))
            assert bytes(both.client.received) == sent

    run(body)


def test_both_sides_flood_before_they_read() -> None:
    async def body(poller: SocketPoller) -> None:
        async with joined(poller, SMALL, SMALL) as both:
            up, down = os.urandom(700_000), os.urandom(700_000)
            both.client.write(up)
            both.kubelet.write(down)
            for _ in range(200):
                both.push_both()
                await iterate(2)
            await until(
                lambda: len(both.client.received) == len(down) and len(both.kubelet.received) == len(up),
                both.push_both,
                both.pull_both,
            )
            assert bytes(both.kubelet.received) == up
            assert bytes(both.client.received) == down
            both.tunnel.close()

    run(body)


@pytest.mark.parametrize("act", ["close", "abort"])
def test_ending_a_tunnel_twice_calls_back_once(act: str) -> None:
    async def body(poller: SocketPoller) -> None:
        async with joined(poller) as both:
            getattr(both.tunnel, act)()
            both.tunnel.close()
            both.tunnel.abort()
            assert both.closed == [both.tunnel]
            await until(lambda: both.client.end is not None and both.kubelet.end is not None, both.pull_both)

    run(body)


# What happens on a tunnel: who, does what, how much.
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["client", "kubelet"]), st.just("say"), st.integers(1, 60_000)),
        st.tuples(st.sampled_from(["client", "kubelet"]), st.just("push"), st.integers(1, 30_000)),
        st.tuples(st.sampled_from(["client", "kubelet"]), st.just("pull"), st.integers(1, 30_000)),
        st.tuples(st.just("loop"), st.just("turn"), st.integers(1, 8)),
    ),
    max_size=25,
)
_ENDS = st.sampled_from(
    [
        *("client closes", "client finishes", "client resets"),
        *("kubelet closes", "kubelet finishes", "kubelet resets"),
        *("agent closes", "agent aborts"),
    ]
)


@pytest.mark.timeout(600)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_STEPS, _ENDS, st.sampled_from([SMALL, None]))
@example([("kubelet", "say", 60_000)] * 5, "kubelet closes", SMALL)
@example([("client", "say", 60_000)] * 5, "client closes", SMALL)
def test_no_byte_is_lost_or_reordered(
    steps: list[tuple[str, str, int]], end: str, buffer_bytes: int | None
) -> None:
    async def body(poller: SocketPoller) -> None:
        async with joined(poller, buffer_bytes, buffer_bytes) as both:
            ends = {"client": both.client, "kubelet": both.kubelet}
            sent = {"client": bytearray(), "kubelet": bytearray()}
            for number, (who, act, size) in enumerate(steps):
                if act == "turn":
                    await iterate(size)
                elif act == "say":
                    data = bytes([number]) * size
                    sent[who] += data
                    ends[who].write(data)
                elif act == "push":
                    ends[who].push(size)
                else:
                    ends[who].pull(size)
            await _end(both, end)
            for each, other in (("client", "kubelet"), ("kubelet", "client")):
                assert sent[other].startswith(ends[each].received), "bytes in order, none invented"
            if end.startswith("client") and "reset" not in end:
                assert both.kubelet.received == sent["client"]
            if end.startswith("kubelet") and "reset" not in end:
                assert both.client.received == sent["kubelet"]
            both.client.close()
            both.kubelet.close()
            await until(lambda: poller.by_fd == {})
            assert both.closed == [both.tunnel]

    run(body)


async def _end(both: Joined, end: str) -> None:
    """Carry out the end, and move everybody until the others have noticed."""
    who, _, how = end.partition(" ")
    if who == "agent":
        getattr(both.tunnel, "close" if how == "closes" else "abort")()
        await until(
            lambda: both.client.end is not None and both.kubelet.end is not None,
            both.push_both,
            both.pull_both,
        )
        return
    leaver, other = (both.client, both.kubelet) if who == "client" else (both.kubelet, both.client)
    if how == "resets":
        leaver.reset()
    else:
        leaver.finish(with_notify=how == "closes")
    # The one that leaves reads on, slowly, as one that waits for its peer's end does.
    await until(lambda: other.end is not None, leaver.push, other.push, other.pull, lambda: leaver.pull(999))
