# SPDX-License-Identifier: Apache-2.0
"""TlsChannel and Tunnel over real sockets and real TLS: who may be slow, split, stall or leave, and
no byte is lost, no wake-up and no descriptor."""

import contextlib
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from daemonkit.testing.pki import Authority
from tests.functional.vnagent.far_end import End, FarEnd, loopback_pair
from tests.functional.vnagent.links import (
    SMALL,
    Link,
    Recorder,
    both_sides,
    contexts,
    descriptors,
    make_link,
    run,
    shaken_link,
    turns,
    until,
)
from vnagent.channel import CLOSE_S, TlsChannel
from vnagent.channels import Channels
from vnagent.cipher import RECEIVE_BYTES
from vnagent.core.limits import Use
from vnagent.tunnel import Tunnel

# ---- lost wake-ups


def test_data_that_comes_in_one_piece_with_the_handshakes_end() -> None:
    """Ciphertext behind the handshake has been received already: epoll never announces it."""

    async def body(channels: Channels) -> None:
        link = make_link(channels, is_server=True)
        link.channel.start()
        link.far.shake()
        link.far.push()
        await until(lambda: link.far.is_handshaken, link.far.pull)
        link.far.say(b"a" * 100_000)  # behind Finished, not pushed yet
        await until(lambda: len(link.owner.received) == 100_000, link.far.push)
        link.far.close()
        await until(lambda: link.owner.ends != [])
        link.channel.abort()

    run(body)


@both_sides
def test_resume_hands_over_what_waits_in_the_kernel(is_server: bool) -> None:
    async def body(channels: Channels) -> None:
        link = await shaken_link(channels, is_server=is_server)
        link.owner.at_data = link.channel.pause
        for number in range(20):
            link.far.say(bytes([number]) * 20_000)
        await until(lambda: link.owner.received != b"", link.far.push)
        while len(link.owner.received) < 20 * 20_000:
            before = len(link.owner.received)
            await turns(5)
            assert len(link.owner.received) == before  # paused means paused
            link.channel.resume()
            await until(partial(link.has_more_than, before), link.far.push)
        assert bytes(link.owner.received) == b"".join(bytes([n]) * 20_000 for n in range(20))
        assert link.owner.ends == []
        link.far.close()
        link.channel.resume()
        await until(lambda: link.owner.ends != [])
        link.channel.abort()

    run(body)


@both_sides
def test_the_end_that_came_while_paused_is_told_after_the_data(is_server: bool) -> None:
    async def body(channels: Channels) -> None:
        link = await shaken_link(channels, is_server=is_server)
        link.channel.pause()
        link.far.say(b"last words")
        link.far.finish(with_notify=True)
        await turns(50)
        assert link.owner.ends == []
        link.channel.resume()
        await until(lambda: link.owner.ends != [])
        assert (bytes(link.owner.received), link.owner.ends) == (b"last words", ["closed"])
        link.channel.abort()
        link.far.close()

    run(body)


@both_sides
def test_the_end_that_came_with_data_is_told_when_the_owner_reads_on(is_server: bool) -> None:
    """Who is paused by the data may not have got rid of it when the end is told."""

    async def body(channels: Channels) -> None:
        link = await shaken_link(channels, is_server=is_server)
        link.owner.at_data = link.channel.pause
        link.far.say(b"last words")
        link.far.finish(with_notify=True)
        await until(lambda: link.owner.received != b"")
        await turns(50)
        assert link.owner.ends == []
        link.channel.resume()
        await until(lambda: link.owner.ends != [])
        assert (bytes(link.owner.received), link.owner.ends) == (b"last words", ["closed"])
        link.channel.abort()
        link.far.close()

    run(body)


# ---- what all channels share

NO_RECORD = b"\x17\x03\x03\x00\x20" + b"no record" * 4000


def speaks_no_tls(far: FarEnd) -> None:
    far.say_raw(NO_RECORD)


def goes_on_behind_its_end(far: FarEnd) -> None:
    far.finish(with_notify=True, behind=NO_RECORD)


@both_sides
@pytest.mark.parametrize(
    ("leave", "is_shaken"),
    [(speaks_no_tls, False), (speaks_no_tls, True), (goes_on_behind_its_end, True)],
)
def test_what_one_peer_leaves_behind_reaches_no_other(
    is_server: bool, leave: Callable[[FarEnd], None], is_shaken: bool
) -> None:
    async def body(channels: Channels) -> None:
        other = await shaken_link(channels, is_server=is_server)
        link = make_link(channels, is_server=is_server)
        link.channel.start()
        if is_shaken:
            await until(lambda: link.owner.events == ["handshake"] and link.far.is_handshaken, *link.movers)
        sent = os.urandom(10_000)
        other.channel.write(sent)  # and is not flushed before the one beside it has ended
        leave(link.far)
        await until(lambda: link.owner.ends != [], link.far.push)
        link.channel.close()
        other.channel.flush()
        other.far.say(sent)
        await until(lambda: other.has_received(len(sent)), *other.movers)
        await until(lambda: len(other.far.received) == len(sent), other.far.pull)
        assert (bytes(other.owner.received), bytes(other.far.received)) == (sent, sent)
        assert other.owner.ends == []
        for each in (link, other):
            each.channel.abort()
            each.far.close()

    run(body)


@both_sides
def test_the_owner_may_close_another_channel_within_on_data(is_server: bool) -> None:
    """A good-bye reads what its peer has said: never what another one has."""

    async def body(channels: Channels) -> None:
        link = await shaken_link(channels, is_server=is_server)
        other = await shaken_link(channels, is_server=is_server)
        link.owner.at_data = other.channel.close
        sent = os.urandom(RECEIVE_BYTES * 2)
        link.far.say(sent)
        await until(lambda: link.has_received(len(sent)), link.far.push)
        await until(lambda: other.far.end is not None, other.far.pull)
        assert (bytes(link.owner.received), link.owner.ends) == (sent, [])
        assert other.far.end is End.CLOSE_NOTIFY
        for each in (link, other):
            each.channel.abort()
            each.far.close()

    run(body)


@both_sides
@pytest.mark.parametrize("act", ["pause", "close", "abort"])
def test_the_owner_may_act_within_on_data(is_server: bool, act: str) -> None:
    """Closing one end may close the other inside its own read loop."""

    async def body(channels: Channels) -> None:
        link = await shaken_link(channels, is_server=is_server)
        link.owner.at_data = getattr(link.channel, act)
        for _ in range(5):
            link.far.say(b"a" * 60_000)
        await until(lambda: link.owner.received != b"", link.far.push)
        await turns(20)
        # One piece: what one receive brings, with the record that the one before it left incomplete.
        assert len(link.owner.received) <= RECEIVE_BYTES + 16_384
        assert link.owner.ends == []
        link.far.close()
        link.channel.abort()

    run(body)


@pytest.mark.parametrize("act", ["close", "abort"])
def test_the_owner_may_act_within_on_handshake(act: str) -> None:
    async def body(channels: Channels) -> None:
        link = make_link(channels, is_server=True)
        link.owner.at_handshake = getattr(link.channel, act)
        link.channel.start()
        await until(lambda: link.far.end is not None, link.far.push, link.far.pull)
        assert link.owner.events == ["handshake"]
        link.far.close()
        await until(lambda: channels.by_fd == {})

    run(body)


# ---- the end


@both_sides
def test_close_sends_all_that_is_due_to_a_slow_reader(is_server: bool) -> None:
    async def body(channels: Channels) -> None:
        link = await shaken_link(channels, is_server=is_server, buffer_bytes=SMALL)
        sent = os.urandom(300_000)
        link.channel.write(sent)
        link.channel.flush()
        link.channel.close()
        await until(lambda: link.far.end is not None, lambda: link.far.pull(3000))
        assert bytes(link.far.received) == sent
        assert link.far.end is End.CLOSE_NOTIFY
        link.far.close()
        await until(lambda: channels.by_fd == {})
        assert link.owner.events == ["handshake"]  # nothing is told after close

    run(body)


@both_sides
@pytest.mark.parametrize("with_notify", [True, False])
def test_close_sends_all_that_is_due_to_a_peer_that_has_finished(is_server: bool, with_notify: bool) -> None:
    """A peer that says nothing more may still be reading, whether it says so before or after us."""

    async def body(channels: Channels) -> None:
        link = await shaken_link(channels, is_server=is_server, buffer_bytes=SMALL)
        sent = os.urandom(200_000)
        link.channel.write(sent)
        link.channel.flush()
        link.channel.close()
        link.far.finish(with_notify=with_notify)
        await turns(50)
        await until(lambda: link.far.end is not None, lambda: link.far.pull(3000))
        assert bytes(link.far.received) == sent
        link.far.close()
        await until(lambda: channels.by_fd == {})

    run(body)


@both_sides
def test_close_reads_and_forgets_so_that_a_reply_is_not_destroyed(is_server: bool) -> None:
    """Unread bytes make the kernel answer with RST, which takes back what was sent before."""

    async def body(channels: Channels) -> None:
        link = await shaken_link(channels, is_server=is_server)
        link.channel.pause()
        link.far.say(b"a" * 200_000)
        link.far.push()
        link.channel.write(b"refused")
        link.channel.flush()
        link.channel.close()
        await until(lambda: link.far.end is not None, link.far.push, lambda: link.far.pull(10))
        assert (bytes(link.far.received), link.far.end) == (b"refused", End.CLOSE_NOTIFY)
        link.far.close()
        await until(lambda: channels.by_fd == {})

    run(body)


@both_sides
def test_a_peer_that_never_closes_is_not_waited_for_for_ever(is_server: bool) -> None:
    async def body(channels: Channels) -> None:
        link = await shaken_link(channels, is_server=is_server)
        link.channel.close()
        await until(lambda: channels.by_fd == {})  # LINGER_S
        link.far.close()

    run(body)


@both_sides
def test_a_reset_is_told_once_while_reading(is_server: bool) -> None:
    async def body(channels: Channels) -> None:
        link = await shaken_link(channels, is_server=is_server)
        link.far.reset()
        await until(lambda: link.owner.ends != [])
        await turns(20)
        assert link.owner.ends == ["reset"]
        link.channel.abort()

    run(body)


def test_a_paused_tenant_that_resets_is_noticed() -> None:
    async def body(channels: Channels) -> None:
        link = await shaken_link(channels, is_server=True)
        link.channel.pause()
        link.far.reset()
        await until(lambda: link.owner.ends != [])
        link.channel.abort()

    run(body)


def test_a_paused_tenant_that_leaves_has_a_deadline() -> None:
    """What it said is delivered if the kubelet takes it, but not for ever."""

    async def body(channels: Channels) -> None:
        link = await shaken_link(channels, is_server=True)
        link.channel.pause()
        link.far.finish(with_notify=True)
        await until(lambda: link.channel.deadline is not None)
        assert link.owner.ends == []
        link.channel.abort()
        link.far.close()

    run(body)


@both_sides
def test_writing_to_a_peer_that_has_reset_ends_the_channel(is_server: bool) -> None:
    async def body(channels: Channels) -> None:
        link = await shaken_link(channels, is_server=is_server)
        link.far.reset()
        for _ in range(3):
            link.channel.write(b"a" * 20_000)
            link.channel.flush()
        await until(lambda: link.owner.ends != [])
        await turns(20)
        assert len(link.owner.ends) == 1
        link.channel.abort()
        link.channel.write(b"dropped")
        link.channel.flush()
        link.channel.resume()
        link.channel.pause()
        link.channel.close()

    run(body)


@both_sides
def test_what_a_peer_did_not_take_is_off_the_account_when_it_is_gone(is_server: bool) -> None:
    """Or each such end would bring the tenant closer to its limit for good."""

    async def body(channels: Channels) -> None:
        link = await shaken_link(channels, is_server=is_server, buffer_bytes=SMALL)
        account = link.channel.account = Use()
        link.channel.write(b"a" * 200_000)
        link.channel.flush()
        assert account.unsent_bytes > 0
        link.far.reset()
        await until(lambda: link.owner.ends != [])
        link.channel.abort()
        assert account.unsent_bytes == 0

    run(body)


@both_sides
@pytest.mark.parametrize(
    "data", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\x80" * 300]
)
def test_a_peer_that_speaks_no_tls(is_server: bool, data: bytes) -> None:
    async def body(channels: Channels) -> None:
        server, client = contexts()
        near, far = loopback_pair()
        owner = Recorder()
        context = server if is_server else client
        channel = TlsChannel(
            channels,
            near,
            context,
            owner,
            is_server=is_server,
            server_hostname=None if is_server else "far",
        )
        channel.start()
        far.send(data)
        far.close()
        await until(lambda: owner.ends != [])
        assert owner.events == ["end"]
        channel.abort()

    run(body)


def test_a_kubelet_of_another_authority_or_name_is_not_trusted() -> None:
    async def body(channels: Channels) -> None:
        for authority, name in ((Authority.create("ca"), "far"), (None, "near")):
            server, client = contexts()
            if authority is not None:
                server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                authority.issue("far", sans_dns=["far"]).load_into(server)
            near, far_sock = loopback_pair()
            owner = Recorder()
            channel = TlsChannel(channels, near, client, owner, is_server=False, server_hostname=name)
            far = FarEnd(far_sock, server, is_server=True)
            channel.start()
            link = Link(channel, owner, far)
            with contextlib.suppress(ssl.SSLError):  # the alert that tells it why
                await until(link.has_ended, far.pull, far.push)
            await until(link.has_ended)
            assert owner.ends == ["untrusted"]
            channel.abort()
            far.close()

    run(body)


def test_a_deadline_is_told_once_and_the_channel_lives_on() -> None:
    async def body(channels: Channels) -> None:
        link = await shaken_link(channels, is_server=True)
        link.channel.deadline = channels.now
        await until(lambda: "deadline" in link.owner.events)
        link.far.say(b"still here")
        await until(lambda: bytes(link.owner.received) == b"still here", link.far.push)
        assert link.owner.events == ["handshake", "deadline"]
        link.channel.abort()
        link.far.close()

    run(body)


# ---- back-pressure


@both_sides
def test_many_small_writes_to_a_peer_that_reads_nothing_for_a_while(is_server: bool) -> None:
    """A quiet log's lines are flushed one by one; they may wait by the thousand."""

    async def body(channels: Channels) -> None:
        link = await shaken_link(channels, is_server=is_server, buffer_bytes=SMALL)
        sent = b""
        while not link.channel.is_congested():
            line = b"%06d\n" % len(sent)
            sent += line
            link.channel.write(line)
            link.channel.flush()
        await until(lambda: "writable" in link.owner.events, link.far.pull)
        link.channel.close()
        await until(lambda: link.far.end is not None, link.far.pull)
        assert bytes(link.far.received) == sent
        assert link.owner.ends == []
        link.far.close()

    run(body)


@both_sides
def test_who_is_congested_is_told_once_when_it_is_over(is_server: bool) -> None:
    async def body(channels: Channels) -> None:
        link = await shaken_link(channels, is_server=is_server, buffer_bytes=SMALL)
        for _ in range(2):
            link.owner.events.clear()
            while not link.channel.is_congested():
                link.channel.write(b"a" * 10_000)
                link.channel.flush()
            await until(lambda: link.owner.events != [], link.far.pull)
            await until(lambda: not link.channel.is_congested(), link.far.pull)
            await turns(20)
            assert link.owner.events == ["writable"]
        link.channel.abort()
        link.far.close()

    run(body)


# ---- tunnels


@dataclass
class Joined:
    """A tunnel between two far ends: the tenant's client and the kubelet."""

    channels: Channels
    client: FarEnd
    kubelet: FarEnd
    tunnel: Tunnel
    closed: list[Tunnel]

    def pull_both(self) -> None:
        self.client.pull()
        self.kubelet.pull()

    def push_both(self) -> None:
        self.client.push()
        self.kubelet.push()


async def joined(
    channels: Channels, client_buffer: int | None = None, kubelet_buffer: int | None = None
) -> Joined:
    client = await shaken_link(channels, is_server=True, buffer_bytes=client_buffer)
    kubelet = await shaken_link(channels, is_server=False, buffer_bytes=kubelet_buffer)
    closed: list[Tunnel] = []
    tunnel = Tunnel(client.channel, kubelet.channel, "caller", closed.append)
    return Joined(channels, client.far, kubelet.far, tunnel, closed)


def test_a_client_that_stands_still_keeps_the_tail_of_what_has_ended() -> None:
    """`kubectl exec ... | less`: longer than a closed connection is waited for, and still counted."""

    async def body(channels: Channels) -> None:
        both = await joined(channels, SMALL, SMALL)
        sent = os.urandom(200_000)
        both.kubelet.say(sent)
        both.kubelet.finish(with_notify=True)
        await until(lambda: both.kubelet.end is not None, both.kubelet.push, both.kubelet.pull)
        for channel in list(channels.by_fd.values()):
            if channel.deadline is not None and channel.deadline < channels.now + 5 * CLOSE_S:
                channel.expire()
        assert both.closed == []
        await until(lambda: both.client.end is not None, lambda: both.client.pull(2000))
        assert bytes(both.client.received) == sent
        assert both.client.end is End.CLOSE_NOTIFY
        both.client.close()
        both.kubelet.close()
        assert both.closed == [both.tunnel]

    run(body)


def test_output_reaches_a_slow_client_whole_though_the_kubelet_has_closed() -> None:
    """Lost tails of output: kubernetes/kubernetes 124571."""

    async def body(channels: Channels) -> None:
        both = await joined(channels, SMALL, SMALL)
        sent = os.urandom(900_000)
        both.kubelet.say(sent)
        both.kubelet.finish(with_notify=True)
        await until(lambda: both.client.end is not None, both.kubelet.push, lambda: both.client.pull(2000))
        assert bytes(both.client.received) == sent
        assert both.client.end is End.CLOSE_NOTIFY
        both.client.close()
        both.kubelet.close()
        assert both.closed == [both.tunnel]

    run(body)


def test_output_reaches_a_client_that_goes_on_talking_to_a_kubelet_that_is_gone() -> None:
    """SPDY pings go up all the time. The kubelet's kernel answers those that come after its end with
    RST, which must not cost the client what was sent before the end."""

    async def body(channels: Channels) -> None:
        both = await joined(channels, SMALL)
        sent = os.urandom(1_000_000)
        both.kubelet.say(sent)
        both.kubelet.finish(with_notify=True)
        # The client reads just as much as it takes to get the rest into the agent and its kernel.
        await until(lambda: both.kubelet.push() and both.kubelet.has_arrived, lambda: both.client.pull(2000))
        both.kubelet.close()
        assert both.client.end is None
        for _ in range(5):
            both.client.say(b"ping")
            both.client.push()
            await turns(20)
        await until(lambda: both.client.end is not None, lambda: both.client.pull(20_000))
        assert bytes(both.client.received) == sent
        both.client.close()

    run(body)


def test_input_reaches_a_slow_kubelet_whole_though_the_client_has_closed() -> None:
    async def body(channels: Channels) -> None:
        both = await joined(channels, SMALL, SMALL)
        sent = os.urandom(900_000)
        both.client.say(sent)
        both.client.finish(with_notify=True)
        await until(lambda: both.kubelet.end is not None, both.client.push, lambda: both.kubelet.pull(4000))
        assert bytes(both.kubelet.received) == sent
        both.client.close()
        both.kubelet.close()
        assert both.closed == [both.tunnel]

    run(body)


def test_both_flood_and_nobody_reads_until_both_do() -> None:
    async def body(channels: Channels) -> None:
        both = await joined(channels, SMALL, SMALL)
        up, down = os.urandom(700_000), os.urandom(700_000)
        both.client.say(up)
        both.kubelet.say(down)
        for _ in range(200):
            both.push_both()
            await turns(2)
        await until(
            lambda: len(both.client.received) == len(down) and len(both.kubelet.received) == len(up),
            both.push_both,
            both.pull_both,
        )
        assert bytes(both.kubelet.received) == up
        assert bytes(both.client.received) == down
        both.tunnel.close()
        both.client.close()
        both.kubelet.close()

    run(body)


@pytest.mark.parametrize("act", ["close", "abort"])
def test_ending_a_tunnel_twice_tells_once(act: str) -> None:
    async def body(channels: Channels) -> None:
        both = await joined(channels)
        getattr(both.tunnel, act)()
        both.tunnel.close()
        both.tunnel.abort()
        assert both.closed == [both.tunnel]
        await until(lambda: both.client.end is not None and both.kubelet.end is not None, both.pull_both)
        both.client.close()
        both.kubelet.close()

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
def test_whatever_happens_no_byte_is_lost_or_moved(
    steps: list[tuple[str, str, int]], end: str, buffer_bytes: int | None
) -> None:
    async def body(channels: Channels) -> None:
        both = await joined(channels, buffer_bytes, buffer_bytes)
        ends = {"client": both.client, "kubelet": both.kubelet}
        said = {"client": bytearray(), "kubelet": bytearray()}
        for number, (who, act, size) in enumerate(steps):
            if act == "turn":
                await turns(size)
            elif act == "say":
                data = bytes([number]) * size
                said[who] += data
                ends[who].say(data)
            elif act == "push":
                ends[who].push(size)
            else:
                ends[who].pull(size)
        await _end(both, end)
        for each, other in (("client", "kubelet"), ("kubelet", "client")):
            assert said[other].startswith(ends[each].received), "bytes in order, none invented"
        if end.startswith("client") and "reset" not in end:
            assert both.kubelet.received == said["client"]
        if end.startswith("kubelet") and "reset" not in end:
            assert both.client.received == said["kubelet"]
        both.client.close()
        both.kubelet.close()
        await until(lambda: channels.by_fd == {})
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


def test_this_file_leaves_no_descriptor(tmp_path: Path) -> None:
    """The counting itself: one that is open is seen."""
    before = descriptors()
    with (tmp_path / "x").open("wb"):
        assert descriptors() == before + 1
