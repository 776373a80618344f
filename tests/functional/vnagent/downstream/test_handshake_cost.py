# SPDX-License-Identifier: Apache-2.0
"""The cost of a handshake, by its chain, on the loop and in the thread; uninspected chains."""

import contextlib
import itertools
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from daemonkit.admission import handshake_accounts
from daemonkit.admission.handshake_accounts import HandshakeAccounts
from daemonkit.tls import openssl
from daemonkit.tls.openssl import Message
from devkit.pki import Authority
from tenancy.registry import Registry
from tenancy.tenant import Role, Tenant
from tests.functional.vnagent.agent_states import (
    ThreadOnlyAccounts,
    new_handshakes,
    new_state,
    open_client_for,
)
from tests.functional.vnagent.connection_links import run, until
from tests.functional.vnagent.tls_peer import TlsPeer, loopback_pair
from vnagent.core import client_chain
from vnagent.downstream.handshakes import Handshakes
from vnagent.state import AgentState
from vnagent.transport.cipher import Cipher
from vnagent.transport.handler import EndReason
from vnagent.transport.poller import SocketPoller

CLIENT_ADDRESS = "127.0.0.1"


def server_context(
    authority: Authority, accept: Callable[[bytes], bool] = client_chain.accept
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    authority.issue("far", sans_dns=["far"]).load_into(context)
    context.load_verify_locations(cadata=authority.cert_pem.decode())
    openssl.inspect(context, {Message.CERTIFICATE: accept})
    return context


def new_client(authority: Authority) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.cert_pem.decode())
    authority.issue("apiserver").load_into(context)
    return context


@contextmanager
def running_handshakes(state: AgentState, accounts: HandshakeAccounts) -> Iterator[Handshakes]:
    handshakes = new_handshakes(state, accounts)
    handshakes.start()
    try:
        yield handshakes
    finally:
        handshakes.stop()


async def handshake(handshakes: Handshakes, state: AgentState, client: ssl.SSLContext) -> None:
    """Connect, until the caller is identified, and leave."""
    near, sock = loopback_pair()
    far = TlsPeer(sock, client, is_server=False)
    try:
        handshakes.accept(near, CLIENT_ADDRESS)
        far.handshake()
        await until(lambda: any(each.identity for each in state.connections), far.push, far.pull)
    finally:
        far.close()
    await until(lambda: not state.connections)


@pytest.mark.parametrize("make_accounts", [HandshakeAccounts, ThreadOnlyAccounts], ids=["loop", "thread"])
def test_a_slow_check_of_a_known_cheap_chain_is_not_charged(
    make_accounts: type[HandshakeAccounts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority.create("tenant")
    apiserver, other = new_client(authority), new_client(authority)
    monkeypatch.setattr(handshake_accounts, "SURCHARGE", 0.0)
    monkeypatch.setattr(handshake_accounts, "EXPENSIVE_S", 1e9)

    async def body(poller: SocketPoller) -> None:
        state, accounts = new_state(poller, tmp_path), make_accounts()
        state.serve_tenants(Registry(), server_context(authority), ())

        def may_use_loop() -> bool:
            return HandshakeAccounts.try_begin_on_loop(accounts, CLIENT_ADDRESS, poller.loop.time())

        with running_handshakes(state, accounts) as handshakes:
            await handshake(handshakes, state, apiserver)
            monkeypatch.setattr(handshake_accounts, "EXPENSIVE_S", 0.0)
            await handshake(handshakes, state, apiserver)
            assert may_use_loop()
            await handshake(handshakes, state, other)
            assert not may_use_loop()

    run(body)


def test_a_handshake_is_charged_to_its_tenant(tmp_path: Path) -> None:
    """vn-agent charged no tenant for a handshake whose authority had an account for handshakes."""
    authority = Authority.create("tenant")
    leaf = authority.issue("apiserver")
    client = ssl.create_default_context(cadata=authority.cert_pem.decode())
    leaf.load_into(client)
    tenant = Tenant("ten-a", (authority.der,), {leaf.spki_sha256: Role.APISERVER})

    async def body(poller: SocketPoller) -> None:
        state = new_state(poller, tmp_path)
        state.serve_tenants(Registry({"file": tenant}), server_context(authority), ())
        poller.clock = lambda: 0.0  # turns and calls take nothing
        with running_handshakes(state, HandshakeAccounts()) as handshakes:
            await handshake(handshakes, state, client)
        assert 0 < state.account_of("ten-a").used_ns <= 1e9 * state.metrics.handshake_seconds["loop"].value

    run(body)


def test_a_hello_is_charged_to_clients_without_a_tenant(tmp_path: Path) -> None:
    """It is inspected where the connection begins, which is no turn of its group."""
    authority = Authority.create("tenant")

    async def body(poller: SocketPoller) -> None:
        state, readings = new_state(poller, tmp_path), itertools.count()
        state.serve_tenants(Registry(), server_context(authority), ())
        poller.clock = lambda: float(next(readings))
        near, sock = loopback_pair()
        far = TlsPeer(sock, new_client(authority), is_server=False)
        far.handshake()
        far.push()
        before_ns = poller.shared.account.used_ns
        open_client_for(state, HandshakeAccounts())(near, CLIENT_ADDRESS, None, None)
        assert poller.shared.account.used_ns - before_ns == 1e9
        far.close()

    run(body)


def handshake_in_memory(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[Cipher, str | None]:
    """The server's side behind a handshake in memory, and why it has failed, if it has."""
    cipher = Cipher(server, is_server=True, has_own_bios=True)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client.wrap_bio(incoming, outgoing, server_hostname="far")
    failed = None
    for _ in range(2):
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        failed = failed or cipher.handshake(outgoing.read())
        incoming.write(b"".join(cipher.outgoing or ()))
        cipher.outgoing = None
    return cipher, failed


def test_an_uninspected_chain_is_refused() -> None:
    """As if Python had no memory for the call, before OpenSSL reads the bytes."""
    authority = Authority.create("tenant")
    client = new_client(authority)
    cipher, failed = handshake_in_memory(server_context(authority), client)
    assert (cipher.is_handshake_done, failed, len(cipher.cost.chain)) == (True, None, 32)
    cipher, failed = handshake_in_memory(server_context(authority, bool), client)
    assert (cipher.is_handshake_done, failed) == (False, EndReason.HANDSHAKE_FAILED)


def test_a_handshakes_leftovers_are_not_the_next_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended between two allocations, as another connection's SSL object did since."""
    authority = Authority.create("tenant")
    calls: list[str] = []
    monkeypatch.setattr(openssl, "_paused", SimpleNamespace(resume=lambda: calls.append("resume")))
    monkeypatch.setattr(client_chain, "_last_read", SimpleNamespace(digest=b"another"))
    cipher = Cipher(server_context(authority), is_server=True, has_own_bios=True)
    cipher.handshake(b"\x16\3\1")
    cipher.handshake(b"\0")
    assert (calls, cipher.cost.chain) == ([], b"")
