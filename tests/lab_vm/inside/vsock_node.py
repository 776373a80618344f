# SPDX-License-Identifier: Apache-2.0
"""A node in a guest: takes agents by AF_VSOCK as kata-bridge does, and starts two that dial it.

Each agent has a network namespace of its own here, so that the guest's own rules stay. The second
has the certificate of a sandbox that is known to be another VM. Argument: the port. Ends well when
the first was served and the second refused, and prints what the first had to say of itself.
"""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from daemonkit import logs
from kata_bridge.channels.agent import GuestLinks
from kata_bridge.channels.agent_channel import AgentChannel
from kata_bridge.credentials import Credentials
from kata_bridge.testing.sample_rulesets import sample

_DEADLINE_S = 60.0
_LOCAL_CID, _ANOTHER_CID = 1, 77
_AGENT = "/usr/bin/vcnode-guest-agent"


async def main(directory: Path, port: int) -> None:
    logs.setup(level="info")
    credentials = Credentials.open(directory / "state")
    attached: list[AgentChannel] = []
    links = GuestLinks(
        credentials, on_attached=attached.append, on_detached=lambda _: None, on_state=lambda *_: None
    )
    await links.start()
    await links.listen_vsock(port)
    agents = [_agent(directory, credentials, name, port) for name in ("here", "elsewhere")]
    links.bind_cid("here", _LOCAL_CID)
    links.bind_cid("elsewhere", _ANOTHER_CID)
    try:
        await _until(lambda: bool(attached))
        (channel,) = attached
        ruleset = sample(5)
        state = await channel.apply(ruleset, ())
        held = await channel.read_back()
        assert (state.generation, state.digest, len(held)) == (5, ruleset.digest, 1)
        said = directory / "elsewhere.log"
        await _until(lambda: f"came out of the VM with CID {_LOCAL_CID}" in said.read_text())
        assert [each.sandbox for each in attached] == ["here"]
        sys.stdout.write(f"{channel.transport} {' '.join((await channel.probe()).backends)}\n")
    finally:
        for agent in agents:
            agent.kill()
            agent.wait()
        await links.stop()


def _agent(directory: Path, credentials: Credentials, name: str, port: int) -> subprocess.Popen[bytes]:
    """Start an agent in a network namespace of its own."""
    issued = credentials.issue(name)
    argv = ["unshare", "--net", _AGENT, "--node", f"vsock:{_LOCAL_CID}:{port}"]
    argv += ["--credentials", str(issued.directory)]
    argv += ["--state", str(directory / name), "--resolv-conf", str(directory / f"{name}.conf")]
    with (directory / f"{name}.log").open("wb") as log:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - another process's log has no event
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir="/run") as made:
        asyncio.run(main(Path(made), int(sys.argv[1])))
