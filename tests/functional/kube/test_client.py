# SPDX-License-Identifier: Apache-2.0
"""Credentials and connections of the client, against the fake API server."""

import contextlib
import gc
import weakref
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from daemonkit.kube.byte_budget import OverBudgetError
from daemonkit.kube.client import AnswerTooLargeError, ApiError, Client, DeadlineError, UnreachableError
from daemonkit.kube.credentials import Credentials
from daemonkit.kube.kubeconfig import Access, parse
from daemonkit.kube.resources import CONFIG_MAPS, SECRETS
from daemonkit.remedies import Cause
from devkit.kube.apiserver import FakeApiserver
from devkit.kube.storage import StatusError
from devkit.pki import Authority, self_signed

pytestmark = [pytest.mark.functional, pytest.mark.asyncio]

Until = Callable[[Callable[[], object]], Awaitable[None]]

PATH = CONFIG_MAPS.path()


async def refusal(access: Access) -> Exception:
    async with Client(Credentials(lambda: access)) as client:
        with pytest.raises((ApiError, UnreachableError)) as caught:
            await client.request("GET", PATH)
    return caught.value


async def test_a_client_without_credentials_is_refused(apiserver: FakeApiserver, tmp_path: Path) -> None:
    error = await refusal(parse(apiserver.kubeconfig(), tmp_path))
    assert isinstance(error, ApiError)
    assert (error.status.code, error.server) == (401, apiserver.url)


async def test_a_refusal_leaves_no_garbage(client: Client) -> None:
    """The answer, its connection and the request would stay until the garbage collector comes."""
    gc.disable()
    try:
        with pytest.raises(ApiError) as caught:
            await client.request("GET", f"{PATH}/none")
        refused = weakref.ref(caught.value)
        del caught
        assert refused() is None
    finally:
        gc.enable()


async def test_a_certificate_of_another_authority_is_refused(
    apiserver: FakeApiserver, tmp_path: Path
) -> None:
    error = await refusal(parse(apiserver.kubeconfig(self_signed("reader")), tmp_path))
    assert isinstance(error, UnreachableError)


async def test_a_server_of_another_authority_is_refused(access: Access, apiserver: FakeApiserver) -> None:
    other = Authority.create("other")
    wrong = Access(access.server, ca_pem=other.cert_pem, token="t")
    error = await refusal(wrong)
    assert isinstance(error, UnreachableError)
    assert str(error) == "certificate verify failed: self-signed certificate in certificate chain"
    assert (error.cause, error.server) == (Cause.UNTRUSTED, access.server)
    assert not apiserver.seen


async def test_a_server_of_another_name_is_refused(
    access: Access, apiserver: FakeApiserver, authority: Authority
) -> None:
    elsewhere = Access(access.server, ca_pem=authority.cert_pem, token="t", server_name="elsewhere")
    error = await refusal(elsewhere)
    assert isinstance(error, UnreachableError)
    assert error.cause is Cause.WRONG_NAME
    leaf = authority.issue("reader")
    named = Access(
        access.server,
        ca_pem=authority.cert_pem,
        certificate_pem=leaf.cert_pem,
        key_pem=leaf.key_pem,
        server_name="localhost",
    )
    async with Client(Credentials(lambda: named)) as client:
        assert await client.request("GET", PATH)


async def test_what_is_held_of_an_answer_is_noted(
    access: Access, authority: Authority, apiserver: FakeApiserver
) -> None:
    leaf = authority.issue("reader")
    known = Access(
        access.server, ca_pem=authority.cert_pem, certificate_pem=leaf.cert_pem, key_pem=leaf.key_pem
    )
    counted = CountedBytes(refuses_after=3)
    async with Client(Credentials(lambda: known), received=counted) as client:
        body = await client.request("GET", PATH)
        # In parts and as a whole, until it is the caller's.
        assert counted.received == [2 * len(body), -2 * len(body)]
        assert counted.waiting_bytes == 0
        with pytest.raises(AnswerTooLargeError, match="no room"):
            await client.request("GET", PATH)
        assert sum(counted.received) == 0
    assert counted.waiting_bytes == 0


class CountedBytes:
    """Refuses what an answer holds from the call on that has this number."""

    is_short = False

    def __init__(self, refuses_after: int) -> None:
        self.received: list[int] = []
        self.waiting_bytes = 0
        self._refuses_after = refuses_after

    def note_waiting(self, size_bytes: int) -> None:
        self.waiting_bytes += size_bytes

    def note_received(self, size_bytes: int) -> None:
        self.received.append(size_bytes)
        if size_bytes > 0 and len(self.received) >= self._refuses_after:
            raise OverBudgetError("no room")


async def test_a_server_is_where_it_proved_to_be(
    access: Access, authority: Authority, apiserver: FakeApiserver
) -> None:
    """By its certificate: an address that a name has is not enough."""
    wrong = Access(access.server, ca_pem=Authority.create("other").cert_pem, token="t")
    async with Client(Credentials(lambda: wrong)) as client:
        with pytest.raises(UnreachableError):
            await client.request("GET", PATH)
        assert client.peer_addresses == frozenset()
    leaf = authority.issue("reader")
    known = Access(
        access.server, ca_pem=authority.cert_pem, certificate_pem=leaf.cert_pem, key_pem=leaf.key_pem
    )
    async with Client(Credentials(lambda: known)) as client:
        assert client.peer_addresses == frozenset()
        await client.request("GET", PATH)
        assert client.peer_addresses == {"127.0.0.1"}


async def test_a_refused_connection_is_unreachable(authority: Authority) -> None:
    error = await refusal(Access("https://127.0.0.1:1", ca_pem=authority.cert_pem, token="t"))
    assert isinstance(error, UnreachableError)
    assert str(error) == "connection refused"
    assert (error.cause, error.server) == (Cause.REFUSED, "https://127.0.0.1:1")


async def test_a_token_file_is_read_again(authority: Authority, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    async with FakeApiserver(authority=authority, tokens=frozenset({"first"})) as server:
        access = Access(server.url, ca_pem=authority.cert_pem, token_file=token)
        async with Client(Credentials(lambda: access)) as client:
            assert await client.request("GET", PATH)
            server.tokens = frozenset({"second"})
            with pytest.raises(ApiError, match="401"):
                await client.request("GET", PATH)
            token.write_text("second")
            assert await client.request("GET", PATH)


async def test_a_new_certificate_is_used_from_the_next_request_on(
    apiserver: FakeApiserver, authority: Authority, tmp_path: Path
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(apiserver.kubeconfig(self_signed("reader")))
    async with Client.from_kubeconfig(path) as client:
        with pytest.raises(UnreachableError):
            await client.request("GET", PATH)
        path.write_text(apiserver.kubeconfig(authority.issue("reader")))
        assert await client.request("GET", PATH)


async def test_a_silent_stream_has_a_deadline(apiserver: FakeApiserver, client: Client) -> None:
    params = {"watch": "1", "resourceVersion": "1"}

    async def read(*, idle_timeout_s: float = 60, timeout_s: float = 60) -> None:
        limits = {"idle_timeout_s": idle_timeout_s, "timeout_s": timeout_s}
        async with client.stream(PATH, params, **limits) as chunks:
            async for _ in chunks:
                pytest.fail("nothing was to come")

    with pytest.raises(DeadlineError):
        await read(timeout_s=0.2)
    # Even the head of the response is missing.
    apiserver.half_open()
    with pytest.raises(DeadlineError):
        await read(idle_timeout_s=0.2)
    apiserver.heal()


async def test_an_abandoned_watch_closes_its_connection(
    apiserver: FakeApiserver, client: Client, until: Until
) -> None:
    async with client.stream(PATH, {"watch": "1"}, idle_timeout_s=60, timeout_s=60):
        assert apiserver.watches == 1
    await until(lambda: apiserver.watches == 0)


async def test_what_is_asked_before_sending_is_asked_each_time(
    access: Access, apiserver: FakeApiserver
) -> None:
    asked: list[int] = []
    async with Client(Credentials(lambda: access), repeats_writes=True) as client:
        await client.request("GET", PATH)
        await apiserver.stop()
        await apiserver.start()  # the kept connection is dead, which shows when it is used
        await client.request("GET", PATH, before_send=lambda: asked.append(len(apiserver.seen)))
    assert asked[-1] == 1
    assert len(apiserver.seen) == 2


async def test_what_is_refused_before_sending_is_not_sent(access: Access, apiserver: FakeApiserver) -> None:
    def refuse() -> None:
        raise UnreachableError("too late")

    async with Client(Credentials(lambda: access)) as client:
        await client.request("GET", PATH)
        for _ in range(2):
            with pytest.raises(UnreachableError, match="too late"):
                await client.request("GET", PATH, before_send=refuse)
    assert len(apiserver.seen) == 1


class ResumedApiserver(FakeApiserver):
    """Notes which requests came on resumed connections. It may not know clients of these."""

    def __init__(self, *, loses_clients: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        self.resumed: list[bool] = []
        self._loses_clients = loses_clients

    def _authenticate(self, request: web.Request) -> None:
        tls = request.get_extra_info("ssl_object")
        self.resumed.append(bool(tls.session_reused))
        if self._loses_clients and tls.session_reused:
            raise StatusError(401, "Unauthorized", "Unauthorized")
        super()._authenticate(request)


async def _open_watches(
    server: ResumedApiserver, authority: Authority, count: int, paths: Sequence[str] = ()
) -> list[int]:
    """Open `count` watches, then one of each of `paths`, and keep them open. Returns the status of each."""
    leaf = authority.issue("reader", usages=["client"])
    found = []
    async with (
        Client(Credentials(lambda: parse(server.kubeconfig(leaf), Path()))) as client,
        contextlib.AsyncExitStack() as stack,
    ):
        await client.request("GET", PATH)
        for path in (*[PATH] * count, *paths):
            watch = client.stream(path, {"watch": "1"}, idle_timeout_s=30.0, timeout_s=60.0)
            try:
                await stack.enter_async_context(watch)
                found.append(200)
            except ApiError as error:
                found.append(error.status.code)
    return found


async def test_new_connections_resume_the_session_of_the_first_one(authority: Authority) -> None:
    """And the server knows who the client is by it. The first watch is on the kept connection."""
    server = ResumedApiserver(authority=authority, client_ca_pem=authority.cert_pem)
    async with server:
        assert await _open_watches(server, authority, 4) == [200] * 4
        assert server.resumed == [False, False, True, True, True]


async def test_a_right_that_a_client_lacks_costs_no_handshake(authority: Authority) -> None:
    """Connections were made anew with full handshakes, for 10 s or more, after each 403."""
    server = ResumedApiserver(authority=authority, client_ca_pem=authority.cert_pem)
    server.authorize = lambda seen: seen.resource != SECRETS
    async with server:
        found = await _open_watches(server, authority, 2, [SECRETS.path(), PATH, PATH])
        assert found == [200, 200, 403, 200, 200]
        assert server.resumed == [False, False, True, True, True, True]


async def test_a_server_may_lose_clients_with_sessions(authority: Authority) -> None:
    server = ResumedApiserver(loses_clients=True, authority=authority, client_ca_pem=authority.cert_pem)
    async with server:
        assert await _open_watches(server, authority, 4) == [200, 401, 200, 200]
        assert server.resumed == [False, False, True, False, False]
