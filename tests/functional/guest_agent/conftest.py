# SPDX-License-Identifier: Apache-2.0
"""The node's side of agents, and agents as processes."""

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from kata_bridge.channels.agent.channel import AgentChannel
from kata_bridge.channels.agent.guest_addresses import GuestAddresses
from kata_bridge.channels.agent.server import AgentServer
from kata_bridge.channels.port import GuestState
from kata_bridge.guest_certificates import GuestCertificates
from tests.waiting import until

_DEADLINE_S = 20.0


class AgentServerNode:
    """The node's agent server, with its callbacks recorded."""

    def __init__(self, credentials: GuestCertificates, behind: Path) -> None:
        self.credentials = credentials
        self.attached: list[AgentChannel] = []
        self.detached: list[AgentChannel] = []
        self.states: list[tuple[str, GuestState]] = []
        self.addresses = GuestAddresses()
        self.links = AgentServer(credentials, behind, addresses=self.addresses)

    async def start(self) -> None:
        await self.links.start(
            on_attached=self.attached.append,
            on_detached=self.detached.append,
            on_state=lambda channel, state: self.states.append((channel.sandbox, state)),
        )

    async def channel(self, sandbox: str) -> AgentChannel:
        """Wait until the guest's agent is attached."""
        await until(lambda: self.links.channel(sandbox) is not None)
        channel = self.links.channel(sandbox)
        assert channel is not None
        return channel


@pytest_asyncio.fixture
async def node(short_dir: Path) -> AsyncIterator[AgentServerNode]:
    """A node that listens on the unix socket `node.sock` in `short_dir`."""
    made = AgentServerNode(GuestCertificates.open(short_dir / "state"), short_dir / "agents.sock")
    await made.start()
    await made.links.listen_unix(short_dir / "node.sock")
    yield made
    await made.links.stop()


@pytest.fixture
def target(short_dir: Path) -> str:
    """The gRPC target of `node`."""
    return f"unix:{short_dir}/node.sock"


StartAgent = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start_agent(short_dir: Path) -> Iterator[StartAgent]:
    """Starts agents with these credentials; they dial `node.sock` by default."""
    running: list[subprocess.Popen[str]] = []

    def start(credentials: Path, target: str = "") -> subprocess.Popen[str]:
        files = short_dir / f"agent{len(running)}"
        files.mkdir()
        module = "tests.functional.guest_agent.agent_process"
        argv = [sys.executable, "-m", module, target or f"unix:{short_dir}/node.sock", credentials, files]
        process = subprocess.Popen([*map(str, argv)], stdin=subprocess.PIPE, text=True)
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.wait(_DEADLINE_S)
        if process.stdin is not None:
            process.stdin.close()
