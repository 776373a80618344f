# SPDX-License-Identifier: Apache-2.0
"""The listeners for bearer tokens: each has a port of one tenant, and that tenant's keys."""

import asyncio
import functools
import socket
from collections.abc import Mapping
from typing import Protocol

from daemonkit.files.watched import Watched
from daemonkit.run.service_manager import ServiceManager
from vnagent.config import TokenListener, VnAgentConfiguration
from vnagent.core import jwks
from vnagent.core.bearer_token import TokenTerms
from vnagent.core.jwks import JwksError
from vnagent.downstream.listener import Listener
from vnagent.downstream.token_port import TokenPort
from vnagent.metrics import AgentMetrics
from vnagent.reload import Reloadable


def kept_name(port: int) -> str:
    """Under which systemd keeps the listener of this port between two processes."""
    return f"tokens-{port}"


class Acceptor(Protocol):
    """What serves the connections of a listener."""

    def accept(self, sock: socket.socket, host: str, token_port: TokenPort | None = None) -> None:
        """Take a connection of the port for certificates, or of a port for tokens."""

    def make_room(self) -> bool:
        """Close one connection that has proven nothing, for its descriptor; False if there is none."""


class TokenListeners:
    """All of a configuration, mostly none. Keys are loaded before the first connection."""

    def __init__(
        self,
        config: VnAgentConfiguration,
        loop: asyncio.AbstractEventLoop,
        server: Acceptor,
        metrics: AgentMetrics,
        kept: Mapping[str, socket.socket],
    ) -> None:
        """Bind what `kept` does not have from an earlier process. Raises OSError."""
        self._listeners = [
            _TokenListener(each, config.listen.address, loop, server, metrics, kept.get(kept_name(each.port)))
            for each in config.token_listeners
        ]

    @property
    def reloadables(self) -> tuple[Reloadable, ...]:
        return tuple(each.reloadable for each in self._listeners)

    def start(self, manager: ServiceManager) -> None:
        """Accept connections, and have the service manager keep the sockets."""
        for each in self._listeners:
            each.listener.start()
            manager.keep_listener(kept_name(each.listener.bound[1]), each.listener.sock.fileno())

    def stop(self) -> None:
        """Accept no more connections."""
        for each in self._listeners:
            each.listener.stop()

    def document(self) -> list[dict[str, object]]:
        """For `/status`."""
        return [each.document() for each in self._listeners]


class _TokenListener:
    """One port."""

    def __init__(
        self,
        config: TokenListener,
        address: str,
        loop: asyncio.AbstractEventLoop,
        server: Acceptor,
        metrics: AgentMetrics,
        kept: socket.socket | None,
    ) -> None:
        self._config = config
        terms = TokenTerms(config.tenant, config.issuer, config.audience, frozenset(config.subjects))
        count = functools.partial(metrics.count_token_refusal, config.tenant)
        self._port = TokenPort(terms, count, loop.time())
        self._problem: str | None = None
        self._watched = Watched.files((config.jwks_file,), max_file_bytes=jwks.MAX_BYTES)
        self._watched.poll()  # so that the present content is not a change later
        self._load()  # `start_check` has logged a problem
        accept = functools.partial(server.accept, token_port=self._port)
        self.listener = Listener(loop, address, config.port, accept, server.make_room, kept)

    @property
    def reloadable(self) -> Reloadable:
        async def reload() -> str | None:
            problem = self._load()
            return None if problem is None else f"{self._config.jwks_file}: {problem}"

        return Reloadable(f"token keys of {self._config.tenant}", self._watched.poll, reload)

    def _load(self) -> str | None:
        """Use the keys of the file, or keep the last good ones; return the problem."""
        # 12 MB, which a node without such a listener does not need.
        from vnagent.token_keys import load

        self._problem = None
        try:
            self._port.use_keys(load(self._config.jwks_file))
        except JwksError as error:
            self._problem = str(error)
        return self._problem

    def document(self) -> dict[str, object]:
        host, port = self.listener.bound
        found: dict[str, object] = {
            "tenant": self._config.tenant,
            "address": host,
            "port": port,
            "keys": self._port.key_count,
        }
        if self._problem is not None:
            found["problem"] = self._problem
        return found
