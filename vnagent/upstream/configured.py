# SPDX-License-Identifier: Apache-2.0
"""The server upstream that the configuration names, with a pool that follows its certificates and address."""

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from daemonkit import logs
from daemonkit.files.watched import Watched
from daemonkit.tls.contexts import TlsError
from vnagent.config import Kubelet, VnAgentConfiguration
from vnagent.core.apiserver_request import ApiserverRequests
from vnagent.reload import Reloadable
from vnagent.transport.poller import SocketPoller
from vnagent.trust import kubelet_context
from vnagent.upstream.pool import UpstreamAddress, UpstreamPool

if TYPE_CHECKING:
    from vnagent.upstream.apiserver import ApiserverAccess

# How often the DNS name of an API server is resolved: load balancers change their addresses within minutes.
RESOLVE_S = 30.0
# After a failure, and how long an answer may take.
RESOLVE_AGAIN_S = 5.0

_log = logs.get(__name__)


class KubeletUpstream:
    """The node's kubelet."""

    server = "kubelet"

    def __init__(self, config: Kubelet, poller: SocketPoller) -> None:
        """Raises TlsError."""
        self._config = config
        address = UpstreamAddress(config.address, config.port, config.server_name or config.address)
        self.pool = UpstreamPool(poller, address, kubelet_context(config))
        files = (config.ca_file, config.client_certificate_file, config.client_key_file)
        self.reloadable = Reloadable("kubelet", Watched.files(files).poll, self._reload)

    async def _reload(self) -> str | None:
        try:
            context = kubelet_context(self._config)
        except TlsError as error:
            return str(error)
        self.pool.replace(self.pool.address, context, self.pool.requests)
        return None

    async def start(self) -> None:
        """Nothing is resolved: the address is an IP address."""

    async def run(self) -> None:
        """Nothing to follow."""


class ApiserverUpstream:
    """The super cluster's API server."""

    server = "superApiserver"

    def __init__(self, kubeconfig: Path, node_name: str, poller: SocketPoller) -> None:
        """Raises TlsError."""
        self._kubeconfig = kubeconfig
        self._node_name = node_name
        self._access = access = self._load()
        self._resolved: tuple[str, ...] = ()
        self._is_resolved = True
        # Of a new kubeconfig whose server's name could not be resolved, and whether it can by now.
        self._unresolved: ApiserverAccess | None = None
        self._is_due = False
        self.pool = UpstreamPool(poller, self._address(), access.context, self._requests())
        watched = Watched(lambda: self._access.files)
        self.reloadable = Reloadable(self.server, lambda: watched.poll() or self._is_due, self._reload)

    def _load(self) -> "ApiserverAccess":
        # Some MB, for nodes that hide their kubelet alone.
        from vnagent.upstream.apiserver import load_access

        return load_access(self._kubeconfig)

    def _address(self) -> UpstreamAddress:
        access = self._access
        host, *others = (self._resolved or ("",)) if access.is_name else (access.host,)
        return UpstreamAddress(host, access.port, access.server_name, tuple(others))

    def _requests(self) -> ApiserverRequests:
        access = self._access
        return ApiserverRequests(access.authority, access.path, self._node_name, access.token)

    async def _reload(self) -> str | None:
        """Ask the server of the new kubeconfig from now on. The last good one stays while the new one's name
        cannot be resolved: it is due again once it can."""
        was_due, self._is_due = self._is_due, False
        try:
            access = self._load()
        except TlsError as error:
            if was_due:
                # The file is another one by now, and would be due whenever the former's name is resolved.
                self._unresolved = None
            return str(error)
        self._unresolved = None
        try:
            found = self._resolved if access.host == self._access.host else await self._resolve(access)
        except TlsError as error:
            self._unresolved = access
            return str(error)
        self._access, self._resolved, self._is_resolved = access, found, True
        self.pool.replace(self._address(), access.context, self._requests())
        return None

    async def start(self) -> None:
        """Resolve the name of the server once, in RESOLVE_AGAIN_S at most; after a failure its last addresses
        stay."""
        unresolved = self._unresolved
        if unresolved is not None:
            with contextlib.suppress(TlsError):
                await self._resolve(unresolved)
                self._is_due = unresolved is self._unresolved
        access = self._access
        try:
            found = await self._resolve(access)
        except TlsError as error:
            if access is self._access and self._is_resolved:
                self._is_resolved = False
                _log.warning("name of the super API server cannot be resolved", reason=error)
            return
        if access is self._access:
            self._resolved, self._is_resolved = found, True
            self.pool.move(self._address())

    async def run(self) -> None:
        """Follow the addresses of a DNS name, until cancelled."""
        loop = asyncio.get_running_loop()
        resolved_s = loop.time()
        while True:
            await asyncio.sleep(RESOLVE_AGAIN_S)
            is_good = self._is_resolved and self._unresolved is None
            if not is_good or loop.time() - resolved_s >= RESOLVE_S:
                await self.start()
                resolved_s = loop.time()

    async def _resolve(self, access: "ApiserverAccess") -> tuple[str, ...]:
        """The addresses of the server; none where its host is one. Raises TlsError."""
        from vnagent.upstream.apiserver import resolve

        if not access.is_name:
            return ()
        try:
            async with asyncio.timeout(RESOLVE_AGAIN_S):
                return await resolve(access.host, access.port)
        # TimeoutError is an OSError, and a name that cannot be encoded a UnicodeError.
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise TlsError(f"{self._kubeconfig}: {access.host} cannot be resolved: {reason}") from None


Upstream = KubeletUpstream | ApiserverUpstream


def upstream_of(config: VnAgentConfiguration, poller: SocketPoller) -> Upstream:
    """The server that the configuration names. Raises TlsError."""
    if config.kubelet is not None:
        return KubeletUpstream(config.kubelet, poller)
    if config.super_apiserver is not None:
        return ApiserverUpstream(config.super_apiserver.kubeconfig_file, config.node_name, poller)
    raise AssertionError("a configuration names one of kubelet and superApiserver")
