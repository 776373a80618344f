# SPDX-License-Identifier: Apache-2.0
"""The provider of agent channels: issues each guest's certificate, and lets its agent connect."""

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
from kata_bridge.guest_certificates import GuestCertificateError, GuestCertificates
from kata_bridge.metrics import KataBridgeMetrics
from kata_bridge.sandboxes.core.sandbox import Sandbox

# The shim in Rust answers before its guest has booted; that must not delay an agent for long.
SHIM_S = 2.0
# Where our agent looks in a guest (packaging/guest). It is below the directory that stock Kata shares, the
# only one that agents of all versions let CopyFile write to.
GUEST_DIRECTORY = "/run/kata-containers/shared/containers/vcnode-guest"

AgentAddress = HybridVsockAddress | VsockAddress | UnixAddress

_log = logs.get(__name__)


class AgentRegistry:
    """A `select.ChannelProvider` for the channel `agent`.

    `vsock_port` is the node's port that agents dial by vsock; None: they use another transport.
    `copies_credentials`: put certificates into guests by CopyFile of their stock agents.
    """

    def __init__(
        self,
        server: AgentServer,
        credentials: GuestCertificates,
        metrics: KataBridgeMetrics,
        *,
        shim_roots: Sequence[Path],
        vsock_port: int | None,
        copies_credentials: bool = False,
    ) -> None:
        self._server = server
        self._credentials = credentials
        self._metrics = metrics
        self._shim_roots = tuple(shim_roots)
        self._vsock_port = vsock_port
        self._copies_credentials = copies_credentials
        self._listening: set[str] = set()
        self._copied: dict[str, str] = {}  # by sandbox: empty, or why the copy failed for good
        # The store takes one writer at a time, and a thread writes its files.
        self._one_write = asyncio.Lock()

    async def open(self, sandbox: Sandbox) -> Channel:
        """Return the channel of an attached agent; before that, prepare all that it needs to attach."""
        channel = self._server.channel(sandbox.id)
        if channel is not None:
            return channel
        directory = await self.credentials(sandbox.id)
        port = self._vsock_port if sandbox.id not in self._listening else None
        # Into a pod that brought its own policy, or is confidential, the node puts nothing.
        is_due = self._copies_credentials and sandbox.id not in self._copied and not sandbox.agent_policy_lock
        if port is not None or is_due:
            url, address = await self._stock_agent_address(sandbox.id)
            if port is not None:
                await self._listen(sandbox.id, port, address)
            if is_due and url:
                self._copied[sandbox.id] = await self._copy(sandbox.id, directory, url)
        failure = self._copied.get(sandbox.id)
        raise Unreachable("the guest's agent has not attached" + (f"; {failure}" if failure else ""))

    async def forget(self, sandbox: str) -> None:
        """Revoke the guest's certificate, end its stream and close its socket."""
        async with self._one_write:
            try:
                await asyncio.to_thread(self._credentials.revoke, sandbox)
            except GuestCertificateError as error:
                self._metrics.state_errors.inc()
                _log.warning("certificate's files are not removed", guest=sandbox, reason=error)
        self._listening.discard(sandbox)
        self._copied.pop(sandbox, None)
        self._server.forget(sandbox)

    async def retain(self, sandboxes: Sequence[str]) -> None:
        """Revoke the certificates of all other sandboxes: they were stopped while kata-bridge was down."""
        async with self._one_write:
            try:
                gone = await asyncio.to_thread(self._credentials.retain, sandboxes)
            except GuestCertificateError as error:
                self._metrics.state_errors.inc()
                _log.warning("certificates of stopped sandboxes are not removed", reason=error)
                return
        if gone:
            _log.info("certificates of stopped sandboxes revoked", count=len(gone))

    async def credentials(self, sandbox: str) -> Path:
        """Return the directory of a guest's certificate; issues one if needed. Raises `Unreachable`."""
        async with self._one_write:
            try:
                return (await asyncio.to_thread(self._credentials.issue, sandbox)).directory
            except GuestCertificateError as error:
                # A full disk, for one: the next try may succeed.
                self._metrics.state_errors.inc()
                raise Unreachable(f"no certificate can be issued for the guest's agent: {error}") from None

    async def _stock_agent_address(self, sandbox: str) -> tuple[str, AgentAddress | None]:
        """Where the guest's stock agent listens, from its shim; empty for a sandbox without a shim."""
        if shim_socket(sandbox, self._shim_roots) is None:
            return "", None
        try:
            url = await Shim(sandbox, roots=self._shim_roots, timeout_s=SHIM_S).agent_url()
            return (url, parse_agent_url(url)) if url else ("", None)
        except (NoAnswerError, CallFailedError, ValueError) as error:
            raise Unreachable(f"the shim has not reported the address of its agent: {error}") from None

    async def _listen(self, sandbox: str, port: int, address: AgentAddress | None) -> None:
        """Listen where the guest's VMM forwards vsock connections, or bind the guest to its VM's CID."""
        if isinstance(address, HybridVsockAddress):
            try:
                await self._server.listen_hybrid(sandbox, address.path, port)
            except OSError as error:
                raise Unreachable(f"{address.path}_{port}: {error.strerror}") from None
        elif isinstance(address, VsockAddress):
            self._server.bind_cid(sandbox, address.cid)
        else:
            return
        self._listening.add(sandbox)

    async def _copy(self, sandbox: str, directory: Path, url: str) -> str:
        """Copy the certificate into the guest. Empty, or why it failed for good.

        Raises `Unreachable` where the next try may succeed.
        """
        agent = StockAgentClient(url)
        try:
            for name, content in await asyncio.to_thread(_files, directory):
                await agent.copy_file(f"{GUEST_DIRECTORY}/{name}", content)
        except CallFailedError as error:
            _log.warning("certificate is not copied into its guest", guest=sandbox, reason=error)
            return f"CopyFile of its certificate failed: {error}"
        except (NoAnswerError, OSError) as error:
            raise Unreachable(f"the certificate is not in the guest yet: {error}") from None
        _log.info("certificate copied into its guest", guest=sandbox)
        return ""


def _files(directory: Path) -> list[tuple[str, bytes]]:
    """The files of a certificate, the leaf last: an agent starts once that is there."""
    return [(name, (directory / name).read_bytes()) for name in ("ca.crt", "tls.key", "tls.crt")]
