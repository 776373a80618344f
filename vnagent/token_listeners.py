# SPDX-License-Identifier: Apache-2.0
"""The listeners for bearer tokens: each has a port of one tenant, and that tenant's keys."""

import asyncio
import errno
import functools
import socket
from collections.abc import Mapping
from typing import Protocol

from daemonkit import logs
from daemonkit.os_errors import describe
from daemonkit.run.service_manager import ServiceManager
from vnagent.config import TokenListener, VnAgentConfiguration
from vnagent.downstream.listener import Listener
from vnagent.downstream.token_port import TokenPort
from vnagent.metrics import AgentMetrics
from vnagent.reload import Reloadable
from vnagent.token_ports import ConfiguredTokenPort

# Of a port that cannot be bound although no process has it.
_OTHER_REMEDY = "change tokenListeners, or give vn-agent the address and the right to bind"

_log = logs.get(__name__)


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
    """All of a configuration, mostly none. Keys are loaded before the first connection.

    A port that another process has must not stop vn-agent: it would cut all tenants for the scrapers of one.
    """

    def __init__(
        self,
        config: VnAgentConfiguration,
        loop: asyncio.AbstractEventLoop,
        server: Acceptor,
        metrics: AgentMetrics,
        kept: Mapping[str, socket.socket],
    ) -> None:
        """Bind what `kept` does not have from an earlier process. A port that cannot be bound is logged, and
        tried again at each poll of `reloadables` between `start` and `stop`."""
        self._listeners = [
            _TokenListener(each, config.listen.address, loop, server, metrics, kept.get(kept_name(each.port)))
            for each in config.token_listeners
        ]

    @property
    def reloadables(self) -> tuple[Reloadable, ...]:
        return tuple(each.reloadable for each in self._listeners)

    def start(self, manager: ServiceManager) -> None:
        """Accept connections, and have the service manager keep the sockets. Raises OSError."""
        for each in self._listeners:
            each.start(manager)

    def stop(self) -> None:
        """Accept no more connections, and bind no more ports."""
        for each in self._listeners:
            each.stop()

    def document(self) -> list[dict[str, object]]:
        """For `/status`."""
        return [each.document() for each in self._listeners]

    def lines(self) -> list[str]:
        """For `/readyz`: the ports that are not bound."""
        return [*filter(None, (each.line() for each in self._listeners))]


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
        self._address = address
        self._configured = ConfiguredTokenPort(config, metrics, loop.time())
        accept = functools.partial(server.accept, token_port=self._configured.port)
        self._bind = functools.partial(Listener, loop, address, config.port, accept, server.make_room)
        self._listener: Listener | None = None
        self._bind_problem = self._remedy = ""
        # From `start` to `stop`.
        self._manager: ServiceManager | None = None
        self._try_to_bind(kept)

    @property
    def reloadable(self) -> Reloadable:
        keys = self._configured.reloadable
        return keys._replace(poll=lambda: self._poll(keys))

    def _poll(self, keys: Reloadable) -> bool:
        """Whether the keys have changed. Binds the port, if that is still to be done."""
        manager = self._manager
        if self._listener is None and manager is not None:
            listener = self._try_to_bind()
            if listener is not None:
                self._keep(listener, manager)
                _log.info("port for tokens is bound", tenant=self._config.tenant, port=self._config.port)
        return keys.poll()

    def _try_to_bind(self, kept: socket.socket | None = None) -> Listener | None:
        """Bind the port and, after `start`, accept connections; None for a failure, which is reported."""
        listener = None
        try:
            listener = self._bind(kept)
            if self._manager is not None:
                listener.start()
        except OSError as error:
            if listener is not None:
                listener.stop()
            self._report_bind_failure(error)
            return None
        self._listener, self._bind_problem = listener, ""
        return listener

    def _report_bind_failure(self, error: OSError) -> None:
        problem = f"the port cannot be bound: {describe(error)[0]}"
        if problem != self._bind_problem:
            _log.error(
                "port for tokens cannot be bound; vn-agent serves without it, and tries again",
                tenant=self._config.tenant,
                address=self._address,
                port=self._config.port,
                reason=error,
            )
        is_taken = error.errno == errno.EADDRINUSE
        self._remedy = "end the process that has it, or change tokenListeners" if is_taken else _OTHER_REMEDY
        self._bind_problem = problem

    def start(self, manager: ServiceManager) -> None:
        """Accept connections, now or once the port can be bound. Raises OSError."""
        self._manager = manager
        if self._listener is not None:
            self._listener.start()
            self._keep(self._listener, manager)

    def _keep(self, listener: Listener, manager: ServiceManager) -> None:
        manager.keep_listener(kept_name(self._config.port), listener.sock.fileno())

    def stop(self) -> None:
        self._manager = None
        if self._listener is not None:
            self._listener.stop()

    def line(self) -> str:
        """Empty if the port is bound."""
        if not self._bind_problem:
            return ""
        where = f"tokens of {self._config.tenant}, port {self._config.port}"
        return f"{where}: {self._bind_problem}; {self._remedy}"

    def document(self) -> dict[str, object]:
        found: dict[str, object] = {
            "tenant": self._config.tenant,
            "address": self._address,
            "port": self._config.port,
            "keys": self._configured.port.key_count,
        }
        problems = [*filter(None, (self._bind_problem, self._configured.problem))]
        if problems:
            found["problem"] = "; ".join(problems)
        return found
