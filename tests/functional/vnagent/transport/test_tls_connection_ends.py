# SPDX-License-Identifier: Apache-2.0
"""How a TlsConnection ends, over real sockets and TLS: unsent data is sent, the end is reported once."""

import contextlib
import os
import ssl

import pytest

from devkit.pki import Authority
from tests.functional.vnagent.connection_links import (
    SMALL,
    both_sides,
    connected_link,
    iterate,
    new_link,
    run,
    until,
)
from tests.functional.vnagent.tls_peer import End
from vnagent.core.limits import TenantUsage
from vnagent.transport.handler import EndReason
from vnagent.transport.poller import SocketPoller


@both_sides
def test_close_sends_all_unsent_data_to_a_slow_reader(is_server: bool) -> None:
    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=is_server, buffer_bytes=SMALL) as link:
            sent = os.urandom(300_000)
            link.transport.write(sent)
            link.transport.flush()
            link.transport.close()
            await until(lambda: link.far.end is not None, lambda: link.far.pull(3000))
            assert bytes(link.far.received) == sent
            assert link.far.end is End.CLOSE_NOTIFY
            link.far.close()
            await until(lambda: poller.by_fd == {})
            assert link.handler.events == ["handshake"]  # no callback after close

    run(body)


@both_sides
@pytest.mark.parametrize("with_notify", [True, False])
def test_close_sends_all_unsent_data_after_the_peers_end(is_server: bool, with_notify: bool) -> None:
    """A peer that has closed its side may still read, whichever side closed first."""

    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=is_server, buffer_bytes=SMALL) as link:
            sent = os.urandom(200_000)
            link.transport.write(sent)
            link.transport.flush()
            link.transport.close()
            link.far.finish(with_notify=with_notify)
            await iterate(50)
            await until(lambda: link.far.end is not None, lambda: link.far.pull(3000))
            assert bytes(link.far.received) == sent
            link.far.close()
            await until(lambda: poller.by_fd == {})

    run(body)


@both_sides
def test_close_drains_input_so_that_no_reset_kills_the_reply(is_server: bool) -> None:
    """Unread bytes make the kernel respond with RST, which discards the bytes sent before."""

    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=is_server) as link:
            link.transport.pause()
            link.far.write(b"a" * 200_000)
            link.far.push()
            link.transport.write(b"refused")
            link.transport.flush()
            link.transport.close()
            await until(lambda: link.far.end is not None, link.far.push, lambda: link.far.pull(10))
            assert (bytes(link.far.received), link.far.end) == (b"refused", End.CLOSE_NOTIFY)
            link.far.close()
            await until(lambda: poller.by_fd == {})

    run(body)


@both_sides
def test_close_waits_for_the_peers_end_with_a_deadline(is_server: bool) -> None:
    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=is_server) as link:
            link.transport.close()
            await until(lambda: poller.by_fd == {})  # LINGER_S

    run(body)


@both_sides
def test_a_reset_is_reported_once(is_server: bool) -> None:
    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=is_server) as link:
            link.far.reset()
            await until(link.has_ended)
            await iterate(20)
            assert link.handler.ends == [EndReason.RESET]

    run(body)


def test_a_reset_ends_a_paused_client() -> None:
    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=True) as link:
            link.transport.pause()
            link.far.reset()
            await until(link.has_ended)

    run(body)


def test_a_paused_client_that_closed_has_a_deadline() -> None:
    """Its data is delivered if the kubelet reads it within a deadline."""

    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=True) as link:
            link.transport.pause()
            link.far.finish(with_notify=True)
            await until(lambda: link.transport.deadline is not None)
            assert link.handler.ends == []

    run(body)


@both_sides
def test_a_write_after_a_reset_ends_the_connection(is_server: bool) -> None:
    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=is_server) as link:
            link.far.reset()
            for _ in range(3):
                link.transport.write(b"a" * 20_000)
                link.transport.flush()
            await until(link.has_ended)
            await iterate(20)
            assert len(link.handler.ends) == 1
            link.transport.abort()
            link.transport.write(b"dropped")
            link.transport.flush()
            link.transport.resume()
            link.transport.pause()
            link.transport.close()

    run(body)


@both_sides
def test_abort_removes_unsent_bytes_from_the_account(is_server: bool) -> None:
    """Or each such end would bring the tenant closer to its limit for good."""

    async def body(poller: SocketPoller) -> None:
        async with connected_link(poller, is_server=is_server, buffer_bytes=SMALL) as link:
            usage = link.transport.usage = TenantUsage()
            link.transport.write(b"a" * 200_000)
            link.transport.flush()
            assert usage.unsent_bytes > 0
            link.far.reset()
            await until(link.has_ended)
            link.transport.abort()
            assert usage.unsent_bytes == 0

    run(body)


@both_sides
@pytest.mark.parametrize(
    "data", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\x80" * 300]
)
def test_a_peer_without_tls_fails(is_server: bool, data: bytes) -> None:
    async def body(poller: SocketPoller) -> None:
        with new_link(poller, is_server=is_server) as link:
            link.transport.start()
            link.far.write_raw(data)
            assert link.far.push()
            link.far.close()
            await until(link.has_ended)
            assert link.handler.events == ["end"]

    run(body)


def test_a_kubelet_with_a_wrong_authority_or_name_is_untrusted() -> None:
    async def body(poller: SocketPoller) -> None:
        other_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        Authority.create("ca").issue("far", sans_dns=["far"]).load_into(other_context)
        for context, name in ((other_context, "far"), (None, "near")):
            with new_link(poller, is_server=False, far_context=context, far_name=name) as link:
                link.transport.start()
                with contextlib.suppress(ssl.SSLError):  # the alert with the reason
                    await until(link.has_ended, link.far.pull, link.far.push)
                await until(link.has_ended)
                assert link.handler.ends == [EndReason.UNTRUSTED]

    run(body)
