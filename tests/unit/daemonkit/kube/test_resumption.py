# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
import datetime as dt
import ssl
from collections.abc import Callable

import pytest

from daemonkit.kube.resumption import REFUSED_S, VERIFIED_S, Resumption
from daemonkit.tls.client_session import ClientSession
from devkit.pki import Authority
from tenancy import x509

_AUTHORITY = Authority.create("authority")
_LEAF = _AUTHORITY.issue("server", sans_ip=["127.0.0.1"], usages=["server"])
_SHORT = Authority.create("short", not_after=dt.datetime.now(dt.UTC) + dt.timedelta(days=1))
# The address 127.0.0.1, and a DNS name of the byte ff.
_NO_TEXT = bytes.fromhex("300987047f0000018201ff")


class Peers:
    """A server, clients of it in memory, and their clocks."""

    def __init__(self) -> None:
        self.now_s, self.wall = 1000.0, _LEAF_VALID_FROM
        self.resumption = Resumption(lambda: self.now_s, lambda: self.wall)
        self.authority, self.leaf = _AUTHORITY, _LEAF
        self.context = self.client_context()
        self.restart()

    def client_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.authority.cert_pem.decode())

    def restart(self) -> None:
        """Have the server forget what it gave."""
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.leaf.load_into(self.server)

    def connect(self, session: ClientSession | None = None) -> ssl.SSLObject:
        """A connection on which the server has answered."""
        c_in, c_out, s_in, s_out = (ssl.MemoryBIO() for _ in range(4))
        client = self.context.wrap_bio(c_in, c_out, server_hostname="127.0.0.1")
        server = self.server.wrap_bio(s_in, s_out, server_side=True)
        if session is not None:
            session.offer(client)
        for step in (client.do_handshake, server.do_handshake, client.do_handshake, server.do_handshake):
            _try(step)
            s_in.write(c_out.read())
            c_in.write(s_out.read())
        server.write(b"answer")
        c_in.write(s_out.read())
        assert client.read(6) == b"answer"
        return client

    async def dial(self, status: int = 200) -> bool:
        """Make a connection as a client does, whose first answer has this status; returns whether it resumed
        another one."""
        session = await self.resumption.session(self.context)
        tls = self.connect(session)
        if tls.session_reused and self.resumption.has_lost_client(status):
            self.resumption.failed(session)
        else:
            self.resumption.answered(tls, session, self.now_s, status)
        return bool(tls.session_reused)

    async def dials(self, count: int) -> list[bool]:
        return [await self.dial() for _ in range(count)]


_LEAF_VALID_FROM = 1_000_000_000.0  # long before the leaf expires


def _try(step: Callable[[], None]) -> None:
    with contextlib.suppress(ssl.SSLWantReadError):
        step()


def test_connections_resume_the_first_one() -> None:
    assert asyncio.run(Peers().dials(4)) == [False, True, True, True]


def test_the_server_is_verified_again_by_and_by() -> None:
    """However often it is connected to meanwhile."""
    peers = Peers()

    async def main() -> list[bool]:
        found = []
        for _ in range(5):
            found.append(await peers.dial())
            peers.now_s += VERIFIED_S / 2
        return found

    assert asyncio.run(main()) == [False, True, False, True, False]


def test_no_session_outlasts_the_certificate() -> None:
    peers = Peers()
    certificate = peers.connect().getpeercert()
    assert certificate is not None
    peers.wall = ssl.cert_time_to_seconds(str(certificate["notAfter"])) - 5

    async def main() -> list[bool]:
        found = await peers.dials(2)
        peers.now_s += 6
        return found + await peers.dials(1)

    assert asyncio.run(main()) == [False, True, False]


def test_no_session_outlasts_the_authority() -> None:
    peers = Peers()
    end = x509.validity(_SHORT.der)[1]
    peers.leaf = _SHORT.issue("server", sans_ip=["127.0.0.1"], usages=["server"])
    peers.authority = _SHORT
    peers.context = peers.client_context()
    peers.restart()
    peers.wall = end - 5

    async def main() -> list[bool]:
        found = await peers.dials(2)
        peers.now_s += 6
        return found + await peers.dials(1)

    assert asyncio.run(main()) == [False, True, False]


def test_names_that_are_no_text_do_no_harm() -> None:
    """Python cannot show such a certificate, and OpenSSL verifies it: a tenant chooses it."""
    peers = Peers()
    peers.leaf = _AUTHORITY.issue("server", usages=["server"], encoded_names=_NO_TEXT)
    peers.restart()
    with pytest.raises(UnicodeDecodeError):
        peers.connect().getpeercert()
    assert asyncio.run(peers.dials(2)) == [False, True]


def test_other_credentials_begin_anew() -> None:
    peers = Peers()

    async def main() -> list[bool]:
        found = await peers.dials(2)
        peers.context = peers.client_context()
        return found + await peers.dials(2)

    assert asyncio.run(main()) == [False, True, False, True]


def test_a_server_that_has_forgotten_it_gives_another_one() -> None:
    peers = Peers()

    async def main() -> list[bool]:
        found = await peers.dials(2)
        peers.restart()
        return found + await peers.dials(2)

    assert asyncio.run(main()) == [False, True, False, True]


def test_what_fails_is_not_offered_for_a_time_that_grows() -> None:
    """However many connections it was offered to, and until one that resumes it works."""
    peers = Peers()

    async def fail_until_resumed(*, works: bool) -> float:
        """How long it takes until a session is offered again after one has failed."""
        await peers.dials(2 if works else 0)
        session = await peers.resumption.session(peers.context)
        assert session is not None
        for _ in range(3):
            peers.resumption.failed(session)
        begun_s = peers.now_s
        while True:
            offered = await peers.resumption.session(peers.context)
            if offered is not None:
                return peers.now_s - begun_s
            peers.resumption.answered(peers.connect(), None, peers.now_s)
            peers.now_s += 1

    async def main() -> list[float]:
        return [await fail_until_resumed(works=works) for works in (True, False, False, True)]

    # A second more: that of the connection whose session is offered then.
    assert asyncio.run(main()) == [each + 1 for each in (REFUSED_S, 2 * REFUSED_S, 4 * REFUSED_S, REFUSED_S)]


@pytest.mark.parametrize(
    ("statuses", "resumed"),
    [
        # A right that the client lacks, behind a request that was carried out.
        ([200, 200, 403, 403, 403], [False, True, True, True, True]),
        # The server lost who the client is, or lets anybody ask.
        ([200, 401, 200], [False, True, False]),
        ([200, 403, 200], [False, True, False]),
        ([200, 404, 403, 200], [False, True, True, False]),
        ([403, 403, 200], [False, True, False]),
        # It may lose clients at any time.
        ([200, 200, 401, 200], [False, True, True, False]),
    ],
)
def test_a_right_that_is_lacking_ends_no_session(statuses: list[int], resumed: list[bool]) -> None:
    """Each connection of a client without a right began with a full handshake for 10 s, up to 600 s."""
    peers = Peers()

    async def main() -> list[bool]:
        return [await peers.dial(status) for status in statuses]

    assert asyncio.run(main()) == resumed


def test_what_another_session_proved_is_forgotten() -> None:
    """A server that was replaced may know no client by its sessions."""
    peers = Peers()

    async def main() -> list[bool]:
        found = await peers.dials(2)
        peers.now_s += VERIFIED_S
        return [*found, await peers.dial(), await peers.dial(403), await peers.dial()]

    assert asyncio.run(main()) == [False, True, False, True, False]


@pytest.mark.parametrize("fails", [False, True])
def test_of_many_connections_one_goes_ahead(fails: bool) -> None:
    """The others wait for its session, but not for one that fails."""
    peers = Peers()

    async def main() -> tuple[list[bool], bool]:
        first = await peers.resumption.session(peers.context)
        assert first is None
        async with asyncio.TaskGroup() as group:
            others = [group.create_task(peers.resumption.session(peers.context)) for _ in range(3)]
            await asyncio.sleep(0)
            assert not any(each.done() for each in others)
            if fails:
                peers.resumption.failed(None)
            else:
                peers.resumption.answered(peers.connect(), None, peers.now_s)
        return [each.result() is not None for each in others], await peers.dial()

    has_session, resumes = asyncio.run(main())
    assert has_session == [not fails] * 3
    assert resumes is not fails


def test_a_server_without_sessions_keeps_nobody_waiting() -> None:
    peers = Peers()
    peers.server.num_tickets = 0

    async def main() -> list[bool]:
        await peers.dial()
        async with asyncio.TaskGroup() as group:
            several = [group.create_task(peers.resumption.session(peers.context)) for _ in range(3)]
            await asyncio.sleep(0)
            return [each.done() for each in several]

    assert asyncio.run(main()) == [True] * 3


def test_who_waits_for_a_slow_server_goes_on() -> None:
    peers = Peers()

    async def main() -> object:
        await peers.resumption.session(peers.context)
        return await peers.resumption.session(peers.context)

    assert asyncio.run(main()) is None
