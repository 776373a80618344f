# SPDX-License-Identifier: Apache-2.0
"""Copying the certificate of our agent into guests of stock Kata."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from devkit.kata.agent_policy import STOCK_POLICY, parse
from devkit.kata.fake_agent import AgentQuirks
from devkit.kata.fake_kata import FakeKata
from devkit.kata.fake_shim import Flavour
from devkit.kata.guest_tables import FakeTables
from kata_bridge.channels.agent.registry import GUEST_DIRECTORY, AgentRegistry
from kata_bridge.channels.agent.server import AgentServer
from kata_bridge.channels.port import Unreachable
from kata_bridge.guest_certificates import GuestCertificates
from kata_bridge.metrics import KataBridgeMetrics
from kata_bridge.sandboxes.core.sandbox import Sandbox

pytestmark = pytest.mark.asyncio

GUEST = Sandbox("sandbox-1", "vc-a-shop", "web", "uid-1")
NOT_ATTACHED = "the guest's agent has not attached"


@asynccontextmanager
async def agents_of(
    short_dir: Path, kata: FakeKata, *, copies_credentials: bool = True
) -> AsyncIterator[AgentRegistry]:
    credentials = GuestCertificates.open(short_dir / "state")
    server = AgentServer(credentials, short_dir / "agents.sock")
    await server.start(on_attached=lambda _: None, on_detached=lambda _: None, on_state=lambda _, __: None)
    try:
        yield AgentRegistry(
            server,
            credentials,
            KataBridgeMetrics(),
            shim_roots=kata.roots,
            vsock_port=None,
            copies_credentials=copies_credentials,
        )
    finally:
        await server.stop()


async def why(agents: AgentRegistry, sandbox: Sandbox = GUEST) -> str:
    with pytest.raises(Unreachable) as caught:
        await agents.open(sandbox)
    return str(caught.value)


@pytest.mark.parametrize("flavour", list(Flavour))
@pytest.mark.parametrize("is_hybrid", [False, True])
async def test_certificate_is_copied_once_and_the_leaf_last(
    short_dir: Path, flavour: Flavour, *, is_hybrid: bool
) -> None:
    quirks = AgentQuirks(policy=parse(STOCK_POLICY))
    kata = FakeKata(short_dir, FakeTables(), flavour=flavour, quirks=quirks, is_hybrid=is_hybrid)
    async with kata, agents_of(short_dir, kata) as agents:
        for _ in range(3):
            assert await why(agents) == NOT_ATTACHED
        issued = short_dir / "state" / "sandboxes" / GUEST.id
        assert list(kata.agent.copied.items()) == [
            (f"{GUEST_DIRECTORY}/{name}", (issued / name).read_bytes())
            for name in ("ca.crt", "tls.key", "tls.crt")
        ]
        assert kata.agent.calls.count("CopyFile") == 3


@pytest.mark.parametrize(
    ("quirks", "text"),
    [
        (AgentQuirks(is_share_readonly=True), "Read-only file system"),
        (AgentQuirks(policy=parse("package agent_policy\n")), "CopyFileRequest"),
        (AgentQuirks(allowed_endpoints=frozenset({"GetIPTablesRequest"})), "CopyFileRequest is blocked"),
    ],
)
async def test_refused_copy_is_reported_and_not_repeated(
    short_dir: Path, quirks: AgentQuirks, text: str
) -> None:
    kata = FakeKata(short_dir, FakeTables(), quirks=quirks)
    async with kata, agents_of(short_dir, kata) as agents:
        for _ in range(3):
            message = await why(agents)
            assert message.startswith(f"{NOT_ATTACHED}; CopyFile of its certificate failed: ")
            assert text in message
        assert kata.agent.calls.count("CopyFile") == 1
        await agents.forget(GUEST.id)
        quirks.is_share_readonly, quirks.policy, quirks.allowed_endpoints = False, None, None
        assert await why(agents) == NOT_ATTACHED
        assert len(kata.agent.copied) == 3


async def test_nothing_is_copied_into_a_confidential_guest(short_dir: Path) -> None:
    kata = FakeKata(short_dir, FakeTables())
    async with kata, agents_of(short_dir, kata) as agents:
        assert await why(agents, replace(GUEST, agent_policy_lock="it is confidential")) == NOT_ATTACHED
        assert kata.agent.calls == []


async def test_nothing_is_copied_without_the_setting(short_dir: Path) -> None:
    kata = FakeKata(short_dir, FakeTables())
    async with kata, agents_of(short_dir, kata, copies_credentials=False) as agents:
        assert await why(agents) == NOT_ATTACHED
        assert kata.agent.calls == []


async def test_copy_is_repeated_until_the_guest_is_up(short_dir: Path) -> None:
    kata = FakeKata(short_dir, FakeTables())
    async with kata, agents_of(short_dir, kata) as agents:
        await kata.agent.__aexit__()
        assert "the certificate is not in the guest yet" in await why(agents)
        async with kata.agent:
            assert await why(agents) == NOT_ATTACHED
            assert len(kata.agent.copied) == 3
