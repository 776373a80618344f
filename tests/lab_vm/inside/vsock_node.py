# SPDX-License-Identifier: Apache-2.0
"""A node in a guest: serves agents by AF_VSOCK as kata-bridge does, and starts two that dial it.

Each agent has a network namespace of its own here, so that the guest's own rules stay. One
has the certificate of a sandbox of another VM. Argument: the port. Succeeds when one was served and the other
rejected, and prints the first one's transport and backends.
"""

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from daemonkit import logs
from devkit.kata.sample_rulesets import sample
from kata_bridge.channels.agent.channel import AgentChannel
from kata_bridge.channels.agent.server import AgentServer
from kata_bridge.guest_certificates import GuestCertificates
from tests.waiting import until

_DEADLINE_S = 40.0
_LOCAL_CID, _ANOTHER_CID = 1, 77
_AGENT = "/usr/bin/vcnode-guest-agent"


async def main(directory: Path, port: int) -> None:
    logs.setup(level="info")
    credentials = GuestCertificates.open(directory / "state")
    attached: list[AgentChannel] = []
    links = AgentServer(credentials, directory / "agents.sock")
    await links.start(on_attached=attached.append, on_detached=lambda _: None, on_state=lambda *_: None)
    await links.listen_vsock(port)
    links.bind_cid("here", _LOCAL_CID)
    links.bind_cid("elsewhere", _ANOTHER_CID)
    try:
        # One after the other: they share the guest's one processor.
        with _agent(directory, credentials, "elsewhere", port) as read_log:
            refusal = f"came out of the VM with CID {_LOCAL_CID}"
            await until(lambda: refusal in read_log(), within_s=_DEADLINE_S, context=read_log)
        with _agent(directory, credentials, "here", port) as read_log:
            await until(lambda: attached, within_s=_DEADLINE_S, context=read_log)
            (channel,) = attached
            ruleset = sample(5)
            state = await channel.apply(ruleset, ())
            installed = await channel.read_back()
            assert (channel.sandbox, state.digest, len(installed)) == ("here", ruleset.digest, 1)
            sys.stdout.write(f"{channel.transport} {' '.join((await channel.probe()).backends)}\n")
    finally:
        await links.stop()


@contextlib.contextmanager
def _agent(
    directory: Path, credentials: GuestCertificates, name: str, port: int
) -> Iterator[Callable[[], str]]:
    """An agent in a network namespace of its own, and a function that reads its log."""
    issued = credentials.issue(name)
    argv = ["unshare", "--net", _AGENT, "--node", f"vsock:{_LOCAL_CID}:{port}"]
    argv += ["--credentials", str(issued.directory)]
    argv += ["--state", str(directory / name), "--resolv-conf", str(directory / f"{name}.conf")]
    path = directory / f"{name}.log"
    with path.open("wb") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield path.read_text
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir="/run") as made:
        asyncio.run(main(Path(made), int(sys.argv[1])))
