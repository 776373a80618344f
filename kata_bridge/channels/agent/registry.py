# SPDX-License-Identifier: Apache-2.0
"""The guests' own agents: their certificates, the doors they come in by, and which are attached."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from daemonkit import logs
from kata_bridge.channels.agent.server import AgentServer
from kata_bridge.channels.port import Channel, Unreachable
from kata_bridge.channels.stock.agent_client import (
    HybridVsockAddress,
    StockAgentClient,
    UnixAddress,
    VsockAddress,
    parse_agent_url,
)
from kata_bridge.channels.stock.faults import CallFailedError, NoAnswerError
from kata_bridge.channels.stock.shim import Shim, shim_socket
from kata_bridge.credentials import Credentials, CredentialsError
from kata_bridge.metrics import Metrics
from kata_bridge.sandboxes.core.sandbox import Sandbox

# The shim in Rust answers before its guest has booted; an agent is not held up by it for long.
SHIM_S = 2.0
# Where our agent looks in a guest (packaging/guest). Below the directory that stock Kata shares: the
# one place that agents of all ages let CopyFile write to.
GUEST_DIRECTORY = "/run/kata-containers/shared/containers/vcnode-guest"

AgentAddress = HybridVsockAddress | VsockAddress | UnixAddress

_log = logs.get(__name__)


class AgentRegistry:
    """A `choice.Opener` for the channel `agent`.

    `vsock_port` is where guests dial the node by vsock; None: they do not. `is_copying`: put their
    certificates into guests by their stock agents.
    """

    def __init__(
        self,
        links: AgentServer,
        credentials: Credentials,
        metrics: Metrics,
        *,
        shim_roots: Sequence[Path],
        vsock_port: int | None,
        is_copying: bool = False,
    ) -> None:
        self._links = links
        self._credentials = credentials
        self._metrics = metrics
        self._shim_roots = tuple(shim_roots)
        self._vsock_port = vsock_port
        self._is_copying = is_copying
        self._doors: set[str] = set()
        self._copied: dict[str, str] = {}  # by sandbox: empty, or why it cannot be
        # The register is no place for two at once, and its files are written in a thread.
        self._one_write = asyncio.Lock()

    async def open(self, sandbox: Sandbox) -> Channel:
        """Return the channel of an agent that is attached; before that, let it be able to."""
        channel = self._links.channel(sandbox.id)
        if channel is not None:
            return channel
        directory = await self.credentials(sandbox.id)
        port = self._vsock_port if sandbox.id not in self._doors else None
        # A pod that brought its own policy, or is confidential, takes nothing from its node.
        is_due = self._is_copying and sandbox.id not in self._copied and not sandbox.policy_refusal
        if port is not None or is_due:
            url, address = await self._agent_address(sandbox.id)
            if port is not None:
                await self._open_door(sandbox.id, port, address)
            if is_due and url:
                self._copied[sandbox.id] = await self._copy(sandbox.id, directory, url)
        why = self._copied.get(sandbox.id)
        raise Unreachable("the guest's agent has not attached" + (f"; {why}" if why else ""))

    async def forget(self, sandbox: str) -> None:
        """Revoke what the guest had, end its stream and close its door."""
        async with self._one_write:
            try:
                await asyncio.to_thread(self._credentials.revoke, sandbox)
            except CredentialsError as error:
                self._metrics.state_errors.inc()
                _log.warning("a certificate's files stay", guest=sandbox, reason=error)
        self._doors.discard(sandbox)
        self._copied.pop(sandbox, None)
        self._links.forget(sandbox)

    async def retain(self, sandboxes: Sequence[str]) -> None:
        """After a start: what other sandboxes had is revoked."""
        async with self._one_write:
            try:
                gone = await asyncio.to_thread(self._credentials.retain, sandboxes)
            except CredentialsError as error:
                self._metrics.state_errors.inc()
                _log.warning("certificates of sandboxes that are gone stay", reason=error)
                return
        if gone:
            _log.info("certificates of sandboxes that are gone were revoked", count=len(gone))

    async def credentials(self, sandbox: str) -> Path:
        """Return the directory of its certificate, which is made if there is none. Raises `Unreachable`."""
        async with self._one_write:
            try:
                return (await asyncio.to_thread(self._credentials.issue, sandbox)).directory
            except CredentialsError as error:
                # A full disk: the next try may find room.
                self._metrics.state_errors.inc()
                raise Unreachable(f"no certificate can be made for its agent: {error}") from None

    async def _agent_address(self, sandbox: str) -> tuple[str, AgentAddress | None]:
        """Where the stock agent of a guest listens, as its shim says; nowhere if it has no shim."""
        if shim_socket(sandbox, self._shim_roots) is None:
            return "", None
        try:
            url = await Shim(sandbox, roots=self._shim_roots, timeout_s=SHIM_S).agent_url()
            return (url, parse_agent_url(url)) if url else ("", None)
        except (NoAnswerError, CallFailedError, ValueError) as error:
            raise Unreachable(f"its agent's way in is not known yet: {error}") from None

    async def _open_door(self, sandbox: str, port: int, address: AgentAddress | None) -> None:
        """Listen where this guest's VMM leads its vsock connections, or note the number of its VM."""
        if isinstance(address, HybridVsockAddress):
            try:
                await self._links.listen_hybrid(sandbox, address.path, port)
            except OSError as error:
                raise Unreachable(f"{address.path}_{port}: {error.strerror}") from None
        elif isinstance(address, VsockAddress):
            self._links.bind_cid(sandbox, address.cid)
        else:
            return
        self._doors.add(sandbox)

    async def _copy(self, sandbox: str, directory: Path, url: str) -> str:
        """Put its certificate into a guest. Empty, or why that is not to be; then it is not tried again.

        Raises `Unreachable` where it may be later.
        """
        agent = StockAgentClient(url)
        try:
            for name, content in await asyncio.to_thread(_content, directory):
                await agent.copy_file(f"{GUEST_DIRECTORY}/{name}", content)
        except CallFailedError as error:
            _log.warning("a certificate cannot be put into its guest", guest=sandbox, reason=error)
            return f"its certificate cannot be put in by CopyFile: {error}"
        except (NoAnswerError, OSError) as error:
            raise Unreachable(f"its certificate is not in yet: {error}") from None
        _log.info("a certificate was put into its guest", guest=sandbox)
        return ""


def _content(directory: Path) -> list[tuple[str, bytes]]:
    """The files of a certificate, the leaf last: without it an agent does not begin."""
    return [(name, (directory / name).read_bytes()) for name in ("ca.crt", "tls.key", "tls.crt")]
