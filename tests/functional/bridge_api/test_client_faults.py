# SPDX-License-Identifier: Apache-2.0
"""What a daemon learns when kata-bridge's socket does not answer: of gRPC's texts, by real sockets."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from bridge_api.client import BridgeClient, BridgeUnavailableError
from daemonkit.remedies import Cause, Fault

pytestmark = pytest.mark.asyncio


async def fault_of(path: Path) -> Fault:
    async with BridgeClient(path, timeout_s=5.0) as client:
        with pytest.raises(BridgeUnavailableError) as caught:
            await client.read_back("g")
    assert caught.value.fault is not None
    return caught.value.fault


async def test_a_missing_socket_is_named(tmp_path: Path) -> None:
    fault = await fault_of(tmp_path / "x.sock")
    assert (fault.cause, fault.text) == (
        Cause.MISSING,
        f"kata-bridge {tmp_path}/x.sock: no such file or directory",
    )


async def test_a_socket_without_a_process_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "x.sock"))
    fault = await fault_of(tmp_path / "x.sock")
    assert (fault.cause, fault.error) == (Cause.REFUSED, "connection refused")


async def test_a_peer_that_hangs_up_is_closed(tmp_path: Path) -> None:
    """As kata-bridge does with a peer that it does not allow."""
    server = await asyncio.start_unix_server(lambda _, writer: writer.transport.abort(), tmp_path / "x.sock")
    async with server:
        assert (await fault_of(tmp_path / "x.sock")).cause is Cause.CLOSED


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_another_user_is_denied(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        path.chmod(0)
        os.seteuid(65534)
        try:
            fault = await fault_of(path)
        finally:
            os.seteuid(0)
    assert (fault.cause, fault.error) == (Cause.DENIED, "permission denied")
