# SPDX-License-Identifier: Apache-2.0
"""Connections to the kubelet as transcripts: what it sends, what the exchange hears, what becomes of
the connection. The channel is a fake; real TLS is in the functional ring."""

import _ssl
import asyncio
import ctypes
import ssl
from collections.abc import AsyncIterator
from typing import cast

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.tls.client_session import ClientSession
from vnagent.core.head import ResponseHead
from vnagent.transport.handler import NO_ACCOUNT
from vnagent.transport.poller import Channels, Group
from vnagent.transport.tls_connection import TlsChannel
from vnagent.upstream.kubelet import DIAL_S, IDLE_S, MAX_IDLE, KubeletAddress, KubeletConnection, KubeletPool
from vnagent.upstream.kubelet_session import KubeletSession

pytestmark = pytest.mark.asyncio

ADDRESS = KubeletAddress("127.0.0.1", 10250, "node-1")
GET, POST = b"GET /pods HTTP/1.1\r\n\r\n", b"POST /exec HTTP/1.1\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class FakeChannel:
    """Records what is written; the test plays the kubelet."""

    def __init__(self, channels: Channels) -> None:
        self.account = None
        self.group = channels.shared
        self.deadline: float | None = None
        self.written = b""
        self.is_open = True
        self.is_paused = False
        self.tls: Resumed | None = None

    def join(self, group: Group) -> None:
        self.group = group

    def write(self, data: bytes) -> None:
        self.written += data

    def flush(self) -> None:
        pass

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def abort(self) -> None:
        self.is_open = False


class Session(KubeletSession):
    """Records what is made of it, and when the chain of what is kept was verified."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.events: list[str] = []
        self.verified_at_s: float | None = None

    def keep(self, tls: ssl.SSLObject, verified_at_s: float, now_s: float) -> None:
        self.events.append("keep")
        self.verified_at_s = verified_at_s

    def confirm(self, offered: ClientSession) -> None:
        self.events.append("confirm")

    def doubt(self, offered: ClientSession, now_s: float) -> None:
        self.events.append("doubt")

    def refuse(self, offered: ClientSession, now_s: float) -> None:
        self.events.append("refuse")


class Resumed:
    """The TLS of a connection that goes on with a session."""

    session_reused = True


class Pool(KubeletPool):
    """Dials fake channels."""

    def __init__(self, channels: Channels) -> None:
        super().__init__(channels, ADDRESS, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        self.dialled: list[FakeChannel] = []
        self.connections: list[KubeletConnection] = []
        self.may_resume = True  # the last one
        self._session = self.session = Session()

    def replace_context(self, context: ssl.SSLContext) -> None:
        super().replace_context(context)
        self._session = self.session

    def dial(self, connection: KubeletConnection, *, may_resume: bool = True) -> None:
        channel = FakeChannel(self.channels)
        self.dialled.append(channel)
        self.connections.append(connection)
        self.may_resume = may_resume
        connection.channel = cast(TlsChannel, channel)


class Recorder:
    """An exchange that records what it hears."""

    def __init__(self) -> None:
        self.heads: list[ResponseHead] = []
        self.body = b""
        self.events: list[str] = []
        self.takes_over: KubeletConnection | None = None
        self.early = b""

    def on_response(self, head: ResponseHead) -> None:
        self.heads.append(head)
        self.events.append(str(head.status))
        if self.takes_over is not None:
            _, self.early = self.takes_over.take_channel()

    def on_body(self, data: memoryview) -> None:
        self.body += bytes(data)

    def on_batch_end(self) -> None:
        pass

    def on_response_end(self) -> None:
        self.events.append("end")

    def on_failure(self, reason: str) -> None:
        self.events.append(reason)


@pytest_asyncio.fixture
async def pool() -> AsyncIterator[Pool]:
    channels = Channels(asyncio.get_running_loop())
    yield Pool(channels)
    channels.stop()


def ask(
    pool: Pool, request: bytes = GET, *, is_upgrade: bool = False, timeout_s: float | None = 5.0
) -> tuple[Recorder, KubeletConnection, FakeChannel]:
    """One request on a connection that stands."""
    exchange = Recorder()
    known = len(pool.dialled)
    connection = pool.acquire(exchange, request, timeout_s=timeout_s, is_upgrade=is_upgrade)
    if len(pool.dialled) > known:
        connection.on_handshake()
    return exchange, connection, cast(FakeChannel, connection.channel)


def say(connection: KubeletConnection, *pieces: bytes) -> None:
    for piece in pieces:
        connection.on_data(memoryview(piece))
    connection.on_batch_end()


async def test_the_request_waits_for_the_handshake(pool: Pool) -> None:
    connection = pool.acquire(Recorder(), GET, timeout_s=5, is_upgrade=False)
    (channel,) = pool.dialled
    before = channel.written
    connection.on_handshake()
    assert (before, channel.written, channel.deadline) == (b"", GET, pool.channels.now + 5)


async def test_a_clean_end_gives_the_connection_back_and_the_next_request_has_it(pool: Pool) -> None:
    first, connection, channel = ask(pool)
    say(connection, OK)
    assert (first.events, first.body) == (["200", "end"], b"ok")
    idle_until = channel.deadline
    second, again, _ = ask(pool, timeout_s=None)
    assert again is connection
    assert (idle_until, channel.deadline) == (pool.channels.now + IDLE_S, None)
    say(again, OK[:20], OK[20:39], OK[39:])
    assert (second.events, second.body) == (["200", "end"], b"ok")
    assert (len(pool.dialled), pool.open_count) == (1, 1)


@pytest.mark.parametrize(
    ("answer", "events", "body"),
    [
        # Surplus would be the next tenant's answer.
        (OK + b"x", ["200", "end"], b"ok"),
        (OK + OK, ["200", "end"], b"ok"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nx", ["200", "end"], b""),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nx", ["200", "end"], b"0\r\n"),
        # The kubelet says that it closes.
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", ["200", "end"], b"ok"),
        # Malformed heads and bodies.
        (b"HTTP/1.0 200 OK\r\n\r\n", ["kubelet-malformed"], b""),
        (b"SSH-2.0-OpenSSH\r\n", [], b""),
        (b"SSH-2.0-OpenSSH\n", ["kubelet-malformed"], b""),
        (b"HTTP/1.1 100 Continue\r\n\r\n", ["kubelet-malformed"], b""),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", ["200", "kubelet-malformed"], b""),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            ["kubelet-malformed"],
            b"",
        ),
        # An upgrade that nobody asked for.
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", ["101"], b""),
    ],
)
async def test_answers_that_cost_the_connection(
    pool: Pool, answer: bytes, events: list[str], body: bytes
) -> None:
    exchange, connection, channel = ask(pool)
    say(connection, answer)
    if not events:  # it is not over: more could come
        connection.on_deadline()
        events = ["kubelet-timeout"]
    assert (exchange.events, exchange.body) == (events, body)
    assert not channel.is_open
    assert pool.open_count == 0
    _, another, _ = ask(pool)
    assert another is not connection


async def test_a_body_that_the_end_of_the_connection_ends(pool: Pool) -> None:
    exchange, connection, channel = ask(pool)
    say(connection, b"HTTP/1.1 200 OK\r\n\r\nab", b"c")
    connection.on_end("closed")
    assert (exchange.events, exchange.body) == (["200", "end"], b"abc")
    assert (channel.is_open, pool.open_count) == (False, 0)


@pytest.mark.parametrize(
    ("said", "reason", "events"),
    [
        (b"", "closed", ["kubelet-broke-off"]),
        (b"HTTP/1.1 200", "closed", ["kubelet-broke-off"]),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", "closed", ["200", "kubelet-broke-off"]),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", "reset", ["200", "kubelet-broke-off"]),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            "closed",
            ["200", "kubelet-broke-off"],
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nab", "reset", ["200", "kubelet-broke-off"]),
    ],
)
async def test_an_answer_that_breaks_off(pool: Pool, said: bytes, reason: str, events: list[str]) -> None:
    exchange, connection, channel = ask(pool)
    if said:
        say(connection, said)
    connection.on_end(reason)
    assert exchange.events == events
    assert (channel.is_open, pool.open_count) == (False, 0)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("untrusted", "kubelet-untrusted"), ("closed", "kubelet-unreachable"), ("reset", "kubelet-unreachable")],
)
async def test_a_kubelet_that_cannot_be_had(pool: Pool, reason: str, expected: str) -> None:
    exchange = Recorder()
    connection = pool.acquire(exchange, GET, timeout_s=5, is_upgrade=False)
    connection.on_end(reason)
    assert exchange.events == [expected]
    late = Recorder()
    pool.acquire(late, GET, timeout_s=5, is_upgrade=False).on_deadline()
    assert late.events == ["kubelet-unreachable"]
    assert pool.open_count == 0


# ---- a pooled connection that was closed just then (RFC 9112, 9.3.1)


async def test_a_request_on_a_pooled_connection_that_had_ended_is_sent_again_once(pool: Pool) -> None:
    _, connection, _ = ask(pool)
    say(connection, OK)
    exchange, again, _ = ask(pool)
    again.on_end("closed")
    assert exchange.events == []
    again.on_handshake()
    assert pool.dialled[-1].written == GET
    again.on_end("closed")
    assert exchange.events == ["kubelet-broke-off"]
    assert len(pool.dialled) == 2


async def test_an_upgrade_is_never_sent_again(pool: Pool) -> None:
    """A command must not run twice."""
    _, connection, _ = ask(pool)
    say(connection, OK)
    exchange, again, channel = ask(pool, POST, is_upgrade=True)
    assert (again, channel.written) == (connection, GET + POST)
    again.on_end("closed")
    assert exchange.events == ["kubelet-broke-off"]


async def test_a_request_leaves_the_spare_connection_to_the_next_stream(pool: Pool) -> None:
    """Where requests took it, each exec waited for a handshake while another tenant read logs."""
    pool.warm()
    (spare,) = pool.dialled
    _, connection, _ = ask(pool)
    assert cast(object, connection.channel) is not spare
    say(connection, OK)
    stream = pool.acquire(Recorder(), POST, timeout_s=5, is_upgrade=True)
    assert cast(object, stream.channel) is spare
    await asyncio.sleep(0)
    assert len(pool.dialled) == 3  # for the stream after it


async def test_a_stream_without_a_spare_connection_takes_an_idle_one(pool: Pool) -> None:
    _, idle, _ = ask(pool)
    say(idle, OK)
    assert pool.acquire(Recorder(), POST, timeout_s=5, is_upgrade=True) is idle


async def test_a_spare_connection_that_has_ended_is_not_given_away(pool: Pool) -> None:
    pool.warm()
    (spare,) = pool.dialled
    spare.is_open = False
    stream = pool.acquire(Recorder(), POST, timeout_s=5, is_upgrade=True)
    assert cast(object, stream.channel) is not spare


async def test_a_connection_takes_the_turns_of_whose_request_it_has(pool: Pool) -> None:
    for tenant in ("ten-a", "ten-b"):
        group = pool.channels.group_of(tenant, NO_ACCOUNT)
        connection = pool.acquire(Recorder(), GET, timeout_s=5, is_upgrade=False, group=group)
        connection.on_handshake()
        assert cast(FakeChannel, connection.channel).group is group
        say(connection, OK)
    assert len(pool.dialled) == 1


async def test_a_connection_dialled_ahead_that_never_stood_is_dialled_again_once(pool: Pool) -> None:
    """The kubelet restarted while it was made ready: it has not seen the request, not even a command."""
    pool.warm()
    exchange = Recorder()
    connection = pool.acquire(exchange, POST, timeout_s=5, is_upgrade=True)
    assert len(pool.dialled) == 1
    connection.on_end("reset")
    assert (exchange.events, len(pool.dialled)) == ([], 2)
    connection.on_end("reset")
    assert exchange.events == ["kubelet-unreachable"]
    assert pool.open_count == 0


async def test_a_stream_has_all_of_the_time_for_a_dial(pool: Pool) -> None:
    """Dialled ahead while the kubelet hung, the connection had a moment left: the stream failed with 502 in
    that moment, though the kubelet answered again."""
    pool.warm()
    (spare,) = pool.dialled
    spare.deadline = pool.channels.now + 0.1
    pool.acquire(Recorder(), POST, timeout_s=5, is_upgrade=True)
    assert spare.deadline == pool.channels.now + DIAL_S


async def test_what_was_answered_in_part_is_not_asked_again(pool: Pool) -> None:
    _, connection, _ = ask(pool)
    say(connection, OK)
    exchange, again, _ = ask(pool)
    say(again, b"HTTP/1.1 2")
    again.on_end("closed")
    assert exchange.events == ["kubelet-broke-off"]


async def test_a_pooled_connection_that_speaks_unasked_is_dropped(pool: Pool) -> None:
    _, connection, channel = ask(pool)
    say(connection, OK)
    connection.on_data(memoryview(OK))
    assert not channel.is_open
    _, another, _ = ask(pool)
    assert another is not connection


async def test_a_pooled_connection_is_dropped_before_the_kubelet_would(pool: Pool) -> None:
    _, connection, channel = ask(pool)
    say(connection, OK)
    assert IDLE_S < 90
    connection.on_deadline()
    assert (channel.is_open, pool.open_count) == (False, 0)


async def test_no_more_are_kept_than_are_allowed(pool: Pool) -> None:
    asked = [ask(pool) for _ in range(MAX_IDLE + 5)]
    for _, connection, _ in asked:
        say(connection, OK)
    assert [channel.is_open for _, _, channel in asked] == [True] * MAX_IDLE + [False] * 5
    assert pool.open_count == MAX_IDLE


# ---- upgrades


async def test_an_upgrade_takes_the_channel_with_what_came_behind_the_head(pool: Pool) -> None:
    exchange, connection, channel = ask(pool, POST, is_upgrade=True)
    exchange.takes_over = connection
    say(connection, b"HTTP/1.1 101 S\r\n\r\nfirst ", b"")
    assert (exchange.events, exchange.early) == (["101"], b"first ")
    assert channel.is_open
    assert connection.channel is None
    connection.abort()
    assert channel.is_open


async def test_a_refused_upgrade_costs_the_connection(pool: Pool) -> None:
    """CVE-2018-1002105: nobody can say what the kubelet waits for."""
    exchange, connection, channel = ask(pool, POST, is_upgrade=True)
    say(connection, b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
    assert (exchange.events, exchange.body, channel.is_open) == (["403", "end"], b"no", False)


async def test_whoever_gives_up_hears_nothing_more(pool: Pool) -> None:
    exchange, connection, channel = ask(pool)
    connection.abort()
    connection.on_end("closed")
    connection.on_deadline()
    assert (exchange.events, channel.is_open, pool.open_count) == ([], False, 0)


# ---- rotation


async def test_new_certificates_drop_what_is_idle_now_or_later(pool: Pool) -> None:
    """What was dialled with the old ones serves its request and is not given to another."""
    _, idle, idle_channel = ask(pool)
    busy_exchange, busy, busy_channel = ask(pool)
    say(idle, OK)
    pool.warm()
    pool.replace_context(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    assert (idle_channel.is_open, busy_channel.is_open) == (False, True)
    say(busy, OK)
    assert busy_exchange.events == ["200", "end"]
    assert not busy_channel.is_open
    _, another, _ = ask(pool)
    assert another is not busy


async def test_a_connection_that_is_made_ready_with_old_certificates_is_not_used(pool: Pool) -> None:
    pool.warm()
    (warming,) = pool.dialled
    pool.replace_context(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    exchange, _, channel = ask(pool)
    assert cast(object, channel) is not warming
    assert (exchange.events, channel.written) == ([], GET)


# ---- any split


@given(
    st.sampled_from(
        [
            OK,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n",
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nabcde",
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        ]
    ),
    st.lists(st.integers(1, 20), max_size=40),
)
async def test_splits_change_nothing(answer: bytes, sizes: list[int]) -> None:
    channels = Channels(asyncio.get_running_loop())
    pool = Pool(channels)
    whole, connection, _ = ask(pool)
    say(connection, answer)
    pieces, again, channel = ask(pool)
    at = 0
    for size in [*sizes, len(answer)]:
        if at < len(answer):
            say(again, answer[at : at + size])
        at += size
    assert (pieces.events, pieces.body) == (whole.events, whole.body)
    assert (again is connection, channel.is_open) == (True, True)
    channels.stop()


OFFERED = cast(ClientSession, object())


def dialled_with_a_session(
    pool: Pool, request: bytes = POST, *, is_resumed: bool = False
) -> tuple[Recorder, KubeletConnection, FakeChannel]:
    """A connection that offers a session. `is_resumed`: its handshake is done, and took it."""
    exchange = Recorder()
    connection = pool.acquire(exchange, request, timeout_s=5, is_upgrade=request is POST)
    channel = pool.dialled[-1]
    connection.offered_session = OFFERED
    if is_resumed:
        channel.tls = Resumed()
        connection.on_handshake()
    return exchange, connection, channel


async def test_a_session_that_the_kubelet_did_not_resume_is_given_up(pool: Pool) -> None:
    _, connection, _ = dialled_with_a_session(pool)
    connection.on_handshake()
    assert (pool.session.events, pool.full_count, pool.resumed_count) == (["refuse"], 1, 0)
    connection.on_end("reset")
    assert pool.session.events == ["refuse"]


async def test_a_session_is_confirmed_by_an_answer(pool: Pool) -> None:
    _, connection, _ = dialled_with_a_session(pool, is_resumed=True)
    assert (pool.session.events, pool.full_count, pool.resumed_count) == ([], 0, 1)
    say(connection, b"HTTP/1.1 400 B", b"ad\r\n")
    connection.on_end("reset")
    assert pool.session.events == ["confirm"]


@pytest.mark.parametrize("by", ["end", "deadline"])
async def test_a_stream_whose_handshake_failed_with_a_session_is_dialled_again_without(
    pool: Pool, by: str
) -> None:
    """Once: nothing of the request has left."""
    exchange, connection, channel = dialled_with_a_session(pool)

    def fail() -> None:
        connection.on_end("reset") if by == "end" else connection.on_deadline()

    fail()
    again = pool.dialled[-1]
    assert (again is channel, channel.is_open, again.is_open, pool.may_resume) == (False, False, True, False)
    assert (exchange.events, pool.session.events) == ([], ["refuse"])
    count = len(pool.dialled)
    fail()
    assert (exchange.events, len(pool.dialled)) == (["kubelet-unreachable"], count)


async def test_the_request_is_sent_on_the_connection_that_was_dialled_again(pool: Pool) -> None:
    exchange, connection, channel = dialled_with_a_session(pool)
    connection.on_end("reset")
    connection.on_handshake()
    assert (exchange.events, channel.written, pool.dialled[-1].written) == ([], b"", POST)


async def test_a_kubelet_that_is_not_trusted_is_not_dialled_again(pool: Pool) -> None:
    """It did not resume the session, and its chain was verified."""
    exchange, connection, _ = dialled_with_a_session(pool)
    count = len(pool.dialled)
    connection.on_end("untrusted")
    assert (exchange.events, len(pool.dialled)) == (["kubelet-untrusted"], count)


async def test_a_session_is_doubted_when_the_time_for_an_answer_is_over(pool: Pool) -> None:
    exchange, connection, _ = dialled_with_a_session(pool, is_resumed=True)
    connection.on_deadline()
    assert (exchange.events, pool.session.events) == (["kubelet-timeout"], ["doubt"])


async def test_a_stream_that_ends_without_an_answer_is_not_sent_again(pool: Pool) -> None:
    """The kubelet may have seen the request: a command must not run twice."""
    exchange, connection, _ = dialled_with_a_session(pool, is_resumed=True)
    connection.on_end("closed")
    assert (exchange.events, pool.session.events) == (["kubelet-broke-off"], ["doubt"])


async def test_a_request_that_ends_without_an_answer_is_sent_again_without_the_session(pool: Pool) -> None:
    exchange, connection, _ = dialled_with_a_session(pool, GET, is_resumed=True)
    connection.on_end("closed")
    connection.on_handshake()
    assert (exchange.events, pool.dialled[-1].written, pool.may_resume) == ([], GET, False)
    connection.on_end("closed")
    assert (exchange.events, pool.session.events) == (["kubelet-broke-off"], ["doubt"])


@pytest.mark.parametrize("by", ["end", "deadline"])
async def test_an_idle_connection_says_nothing_of_its_session(pool: Pool, by: str) -> None:
    pool.warm()
    spare, pool.dialled[-1].tls = pool.connections[-1], Resumed()
    spare.offered_session = OFFERED
    spare.on_handshake()
    if by == "end":
        spare.on_end("closed")
    else:
        spare.on_deadline()
    assert (pool.open_count, pool.session.events) == (0, [])


def stream_begins(pool: Pool, connection: KubeletConnection, exchange: Recorder) -> None:
    """The kubelet answers with 101, and the stream takes the connection over."""
    exchange.takes_over = connection
    pool.dialled[-1].tls = Resumed()
    say(connection, b"HTTP/1.1 101 S\r\n\r\nfirst ")


async def test_a_session_is_as_old_as_its_connections_handshake(pool: Pool) -> None:
    pool.channels.now = 1_000.0
    exchange, connection, _ = ask(pool, POST, is_upgrade=True)
    pool.channels.now = 1_100.0
    stream_begins(pool, connection, exchange)
    assert pool.session.verified_at_s == 1_000.0


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_the_session_of_certificates_that_were_replaced_is_not_kept(
    pool: Pool, *, is_replaced: bool
) -> None:
    """OpenSSL would take it for no connection that is made with the new ones."""
    exchange, connection, _ = ask(pool, POST, is_upgrade=True)
    if is_replaced:
        pool.replace_context(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    stream_begins(pool, connection, exchange)
    assert pool.session.events == ([] if is_replaced else ["keep"])


@pytest.mark.parametrize("error", [MemoryError(), ssl.SSLError(1, "malloc failure")], ids=repr)
async def test_a_stream_goes_on_when_there_is_no_memory_to_keep_its_session(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def keep(*_: object) -> None:
        raise error

    monkeypatch.setattr(pool.session, "keep", keep)
    exchange, connection, channel = ask(pool, POST, is_upgrade=True)
    stream_begins(pool, connection, exchange)
    assert (exchange.events, exchange.early, channel.is_open) == (["101"], b"first ", True)
    assert pool.open_count == 0


async def test_no_error_of_openssl_is_left_where_a_session_cannot_be_kept(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ssl` would raise it for the next connection that it reads, whosever that is."""
    library = ctypes.PyDLL(_ssl.__file__)
    library.ERR_peek_error.restype = ctypes.c_ulong

    def keep(*_: object) -> None:
        assert not library.d2i_SSL_SESSION(None, ctypes.byref(ctypes.c_char_p(b"none")), ctypes.c_long(4))
        assert library.ERR_peek_error()
        raise MemoryError

    monkeypatch.setattr(pool.session, "keep", keep)
    exchange, connection, _ = ask(pool, POST, is_upgrade=True)
    stream_begins(pool, connection, exchange)
    assert not library.ERR_peek_error()
