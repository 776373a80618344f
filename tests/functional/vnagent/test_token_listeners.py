# SPDX-License-Identifier: Apache-2.0
"""A port for tokens that cannot be bound at first, in this process."""

import asyncio
import json
import socket
from pathlib import Path

import pytest

from daemonkit.config import binding
from daemonkit.run.service_manager import ServiceManager, Supervision
from tests.cases.agent_files import configuration
from tests.functional.scraped_node import free_port
from tests.token_issuer import AUDIENCE, ISSUER, SUBJECT, TokenIssuer
from tests.waiting import until
from vnagent.config import KIND, VnAgentConfiguration
from vnagent.downstream.token_port import TokenPort
from vnagent.metrics import AgentMetrics
from vnagent.token_listeners import TokenListeners

MANAGER = ServiceManager(Supervision(), send=lambda _address, _message: None)


class RecordingAcceptor:
    """Closes each connection, and has its tenant."""

    def __init__(self) -> None:
        self.tenants: list[str] = []

    def accept(self, sock: socket.socket, _host: str, token_port: TokenPort | None = None) -> None:
        sock.close()
        assert token_port is not None
        self.tenants.append(token_port.tenant)

    def make_room(self) -> bool:
        return False


def listeners_at(port: int, directory: Path, acceptor: RecordingAcceptor) -> TokenListeners:
    """One port, of ten-a."""
    (directory / "keys.jwks").write_bytes(TokenIssuer().jwks())
    document = configuration(directory, kubelet_port=10250, pods={"source": "kubelet"})
    document["tokenListeners"] = [
        {
            "tenant": "ten-a",
            "port": port,
            "issuer": ISSUER,
            "audience": AUDIENCE,
            "jwksFile": "keys.jwks",
            "subjects": [SUBJECT],
        }
    ]
    data = json.dumps(document).encode()
    config = binding.parse(data, VnAgentConfiguration, kind=KIND, source="file", directory=directory)
    return TokenListeners(config, asyncio.get_running_loop(), acceptor, AgentMetrics(), {})


@pytest.mark.asyncio
async def test_a_poll_binds_a_port_that_has_become_free(tmp_path: Path) -> None:
    acceptor, port = RecordingAcceptor(), free_port()
    with socket.create_server(("127.0.0.1", port)):
        listeners = listeners_at(port, tmp_path, acceptor)
        (source,) = listeners.reloadables
        listeners.start(MANAGER)
        assert not source.poll()
        assert len(listeners.lines()) == 1
    assert not source.poll()
    assert listeners.lines() == []
    try:
        with socket.create_connection(("127.0.0.1", port)):
            await until(lambda: acceptor.tenants == ["ten-a"])
    finally:
        listeners.stop()


@pytest.mark.asyncio
async def test_no_port_is_bound_during_the_drain(tmp_path: Path) -> None:
    """The next process has to bind it."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        listeners = listeners_at(port, tmp_path, RecordingAcceptor())
        listeners.start(MANAGER)
        listeners.stop()
    (source,) = listeners.reloadables
    assert not source.poll()
    socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.asyncio
async def test_a_port_that_cannot_be_watched_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel has no room to watch one more socket. The next poll tries again."""
    loop, port = asyncio.get_running_loop(), free_port()
    with socket.create_server(("127.0.0.1", port)):
        listeners = listeners_at(port, tmp_path, RecordingAcceptor())
        listeners.start(MANAGER)
    (source,) = listeners.reloadables
    with monkeypatch.context() as patched:
        patched.setattr(loop, "add_reader", _without_room)
        assert not source.poll()
    (line,) = listeners.lines()
    assert "no space left on device" in line
    assert not source.poll()
    assert listeners.lines() == []
    listeners.stop()


def _without_room(*_: object) -> None:
    raise OSError(28, "No space left on device")
