# SPDX-License-Identifier: Apache-2.0
"""By which chain the cost of a handshake is known, on the loop and beside it."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from daemonkit import handshake_accounts, openssl
from daemonkit.handshake_accounts import HandshakeAccounts
from daemonkit.openssl import Message
from daemonkit.testing.pki import Authority
from tests.functional.vnagent.agents import new_agent
from tests.functional.vnagent.far_end import FarEnd, loopback_pair
from tests.functional.vnagent.links import run, until
from vnagent.agent import Agent
from vnagent.channels import Channels
from vnagent.core import client_chain
from vnagent.handshakes import Handshakes

SOURCE = "127.0.0.1"


class NoInline(HandshakeAccounts):
    """All handshakes run in the thread."""

    def try_begin_inline(self, source: str, now_s: float) -> bool:
        return False


def server_context(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    authority.issue("far", sans_dns=["far"]).load_into(context)
    context.load_verify_locations(cadata=authority.cert_pem.decode())
    openssl.inspect(context, {Message.CERTIFICATE: client_chain.may_read})
    return context


def new_client(authority: Authority) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.cert_pem.decode())
    authority.issue("apiserver").load_into(context)
    return context


@contextmanager
def new_handshakes(channels: Channels, agent: Agent) -> Iterator[Handshakes]:
    handshakes = Handshakes(channels.loop, agent)
    handshakes.start()
    try:
        yield handshakes
    finally:
        handshakes.stop()


async def shake(handshakes: Handshakes, agent: Agent, client: ssl.SSLContext) -> None:
    """Connect, until the agent knows the caller, and leave."""
    near, sock = loopback_pair()
    far = FarEnd(sock, client, is_server=False)
    try:
        handshakes.accept(near, SOURCE)
        far.shake()
        await until(lambda: any(each.identity for each in agent.connections), far.push, far.pull)
    finally:
        far.close()
    await until(lambda: not agent.connections)


@pytest.mark.parametrize("accounts", [HandshakeAccounts, NoInline], ids=["loop", "thread"])
def test_a_slow_check_of_a_chain_that_was_cheap_once_is_excused(
    accounts: type[HandshakeAccounts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority.create("tenant")
    apiserver, other = new_client(authority), new_client(authority)
    monkeypatch.setattr(handshake_accounts, "FAIR_CHECK_S", 1e9)
    monkeypatch.setattr(handshake_accounts, "EXPENSIVE_S", 1e9)

    async def body(channels: Channels) -> None:
        agent = new_agent(channels, tmp_path)
        agent.context, agent.accounts = server_context(authority), accounts()

        def may_use_loop() -> bool:
            return HandshakeAccounts.try_begin_inline(agent.accounts, SOURCE, channels.loop.time())

        with new_handshakes(channels, agent) as handshakes:
            await shake(handshakes, agent, apiserver)
            monkeypatch.setattr(handshake_accounts, "EXPENSIVE_S", 0.0)
            await shake(handshakes, agent, apiserver)
            assert may_use_loop()
            await shake(handshakes, agent, other)
            assert not may_use_loop()

    run(body)
