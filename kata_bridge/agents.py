# SPDX-License-Identifier: Apache-2.0
"""The guests' own agents: their certificates, the doors they come in by, and which are attached."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from daemonkit import logs
from kata_bridge.channels.agent import GuestLinks
from kata_bridge.channels.channel import Channel, Unreachable
from kata_bridge.channels.shim import Shim, socket_of
from kata_bridge.channels.stock_faults import CallFailedError, NoAnswerError
from kata_bridge.channels.ttrpc import HybridVsock, Vsock, parse_url
from kata_bridge.core.sandboxes import Sandbox
from kata_bridge.credentials import Credentials, CredentialsError
from kata_bridge.metrics import Metrics

# The shim in Rust answers before its guest has booted; an agent is not held up by it for long.
SHIM_S = 2.0

_log = logs.get(__name__)


class Agents:
    """A `choice.Opener` for the channel `agent`.

    `vsock_port` is where guests dial the node by vsock; None: they do not.
    """

    def __init__(
        self,
        links: GuestLinks,
        credentials: Credentials,
        metrics: Metrics,
        *,
        shim_roots: Sequence[Path],
        vsock_port: int | None,
    ) -> None:
        self._links = links
        self._credentials = credentials
        self._metrics = metrics
        self._shim_roots = tuple(shim_roots)
        self._vsock_port = vsock_port
        self._doors: set[str] = set()
        # The register is no place for two at once, and its files are written in a thread.
        self._one_write = asyncio.Lock()

    async def open(self, sandbox: Sandbox) -> Channel:
        """Return the channel of an agent that is attached; before that, let it be able to."""
        channel = self._links.channel(sandbox.id)
        if channel is not None:
            return channel
        await self.credentials(sandbox.id)
        await self._open_door(sandbox.id)
        raise Unreachable("the guest's agent has not attached")

    async def forget(self, sandbox: str) -> None:
        """Revoke what the guest had, end its stream and close its door."""
        async with self._one_write:
            try:
                await asyncio.to_thread(self._credentials.revoke, sandbox)
            except CredentialsError as error:
                self._metrics.state_errors.inc()
                _log.warning("a certificate's files stay", guest=sandbox, reason=error)
        self._doors.discard(sandbox)
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

    async def _open_door(self, sandbox: str) -> None:
        """Listen where this guest's VMM leads its vsock connections, or note the number of its VM."""
        if self._vsock_port is None or sandbox in self._doors:
            return
        if socket_of(sandbox, self._shim_roots) is None:
            return
        try:
            url = await Shim(sandbox, roots=self._shim_roots, timeout_s=SHIM_S).agent_url()
            address = parse_url(url) if url else None
        except (NoAnswerError, CallFailedError, ValueError) as error:
            raise Unreachable(f"its agent's way in is not known yet: {error}") from None
        if isinstance(address, HybridVsock):
            try:
                await self._links.listen_hybrid(sandbox, address.path, self._vsock_port)
            except OSError as error:
                raise Unreachable(f"{address.path}_{self._vsock_port}: {error.strerror}") from None
        elif isinstance(address, Vsock):
            self._links.bind_cid(sandbox, address.cid)
        else:
            return
        self._doors.add(sandbox)
