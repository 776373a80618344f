# SPDX-License-Identifier: Apache-2.0
"""A node, and real agents in network namespaces instead of guests."""

from __future__ import annotations

import ctypes.util
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest_asyncio

from kata_bridge.channels.agent.channel import AgentChannel
from kata_bridge.channels.agent.server import AgentServer
from kata_bridge.channels.port import GuestState
from kata_bridge.guest_certificates import GuestCertificates
from tests.lab.namespaces import Lab, LabNamespace
from tests.waiting import until

_DEADLINE_S = 30.0
_REPOSITORY = Path(__file__).parents[3]


@dataclass
class LabGuest:
    """A namespace for an agent; it outlives the agent."""

    namespace: LabNamespace
    credentials: Path
    files: Path
    node: Path
    lab: Lab
    programs: Path | None = None
    """The content of its /usr/sbin; None: that of this machine."""
    has_libnftables: bool = True
    run_options: str = "rw"
    agent: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the agent in a mount namespace with these programs and files."""
        agent = [sys.executable, "-m", "guest_agent", "--node", f"unix:{self.node}"]
        agent += ["--credentials", str(self.credentials), "--state", str(self.files)]
        agent += ["--resolv-conf", str(self.files / "resolv.conf"), "--log-level", "debug"]
        # Its own /run, as a VM has: it has the xtables lock, which is one for all namespaces.
        script = [f"mount -t tmpfs -o {self.run_options} run /run"]
        if self.programs is not None:
            script.append(f"mount --bind {self.programs} /usr/sbin")
        if not self.has_libnftables:
            script.append(f"mount --bind /dev/null {libnftables()}")
        script.append(f"cd {_REPOSITORY} && exec {' '.join(agent)}")
        argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", " && ".join(script)]
        self.agent = self.lab.start(self.namespace, *argv)

    def stop(self) -> None:
        """Kill the agent."""
        assert self.agent is not None
        self.agent.kill()
        self.agent.wait(_DEADLINE_S)

    @property
    def rss_bytes(self) -> int:
        assert self.agent is not None
        status = Path(f"/proc/{self.agent.pid}/status").read_text()
        return next(int(line.split()[1]) << 10 for line in status.split("\n") if line.startswith("VmRSS"))


def libnftables() -> Path:
    """The file of libnftables on this machine."""
    name = ctypes.util.find_library("nftables")
    assert name is not None
    return next(Path("/usr/lib").rglob(name)).resolve()


class LabNode:
    """The node's agent server, with its callbacks recorded."""

    def __init__(self, directory: Path, lab: Lab) -> None:
        self.directory = directory
        self.lab = lab
        self.credentials = GuestCertificates.open(directory / "state")
        self.states: list[tuple[str, GuestState]] = []
        self.attached: list[AgentChannel] = []
        self.links = AgentServer(self.credentials, directory / "agents.sock")

    async def start(self) -> None:
        await self.links.start(
            on_attached=self.attached.append,
            on_detached=lambda _: None,
            on_state=lambda channel, state: self.states.append((channel.sandbox, state)),
        )

    def guest(self, sandbox: str, namespace: LabNamespace | None = None) -> LabGuest:
        """A guest without a running agent."""
        files = self.directory / f"files-{sandbox}"
        files.mkdir()
        made = namespace or self.lab.namespace(sandbox)
        issued = self.credentials.issue(sandbox)
        return LabGuest(made, issued.directory, files, self.directory / "node.sock", self.lab)

    async def channel(self, sandbox: str, *, after: AgentChannel | None = None) -> AgentChannel:
        """Wait until another channel of the guest than `after` is attached."""
        await until(lambda: self.links.channel(sandbox) not in (None, after))
        channel = self.links.channel(sandbox)
        assert channel is not None
        return channel


@pytest_asyncio.fixture
async def node(short_dir: Path, lab: Lab) -> AsyncIterator[LabNode]:
    made = LabNode(short_dir, lab)
    await made.start()
    await made.links.listen_unix(short_dir / "node.sock")
    yield made
    await made.links.stop()
